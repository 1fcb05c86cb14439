"""What may change when a run goes on, and what makes it another run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from meristem.errors import RecipeError
from meristem.recipe import Recipe
from meristem.training.settings import BUDGETS

MAY_CHANGE = frozenset(
    f"train.{name}"
    for name in (*BUDGETS, "device", "workers", "threads", "log_every", "save_every", "keep", "shard", "timeout")
)
CORPUS = ("corpus.processes", "corpus.near.memory_mb")  # also of an entry of mix


def refuse_another_run(before: Recipe, now: Recipe, out: Path) -> None:
    """Budgets may grow, places and intervals may change; anything else is refused with the difference."""
    old, new = dict(flat(before.plain())), dict(flat(now.plain()))
    differing = [
        key
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key) and key not in MAY_CHANGE and not key.endswith(CORPUS)
    ]
    if not differing:
        return
    lines = [f"  {key}: {_shown(old, key)} in the run, {_shown(new, key)} now" for key in differing[:12]]
    more = [f"  … and {len(differing) - 12} more"] if len(differing) > 12 else []
    raise RecipeError(
        "\n".join(
            [
                f"{out} was begun with other settings:",
                *lines,
                *more,
                f"Give the run another place:        add --out {out}-2",
                "Begin anew (the old one is kept):  add --fresh",
            ]
        )
    )


def flat(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a recipe by its dotted name; of a list of parts each by the part's own."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        for number, inner in enumerate(value):
            name = inner.get("name", number)
            yield from flat(inner, f"{place}.{name}")
    else:
        yield place, list(value) if isinstance(value, tuple) else value


def _shown(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "not set"
