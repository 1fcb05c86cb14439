"""Attention as pictures: one head, all heads, means and rollout, alignments, and what a captioner looked at."""

# Q queries, K keys

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from meristem import bounded
from meristem.drawing import fonts
from meristem.drawing.attended import MEANINGS, Attended, Floats, Seen
from meristem.drawing.attention_words import words
from meristem.drawing.curves import can_draw
from meristem.drawing.hovering import Map, with_values
from meristem.drawing.maps import alone, overview, small
from meristem.drawing.page import shortened, visible
from meristem.errors import MeristemError

View = Literal["overview", "grid", "mean", "rollout"]
ENDINGS = (".png", ".svg", ".json")
TITLE = 96


@dataclass(frozen=True, kw_only=True)
class Shot:
    """What of it is to be seen; everything at once unless something is named."""

    kind: str | None = None
    layer: int | None = None
    """From 1."""
    head: int | None = None
    view: View | None = None

    def __post_init__(self) -> None:
        if self.head is not None and self.view in ("overview", "grid", "mean"):
            raise MeristemError(f"head and {self.view}: one head is one map; leave one of the two out")
        if self.view == "rollout" and (self.layer is not None or self.head is not None):
            raise MeristemError("rollout goes through all layers and heads; leave layer and head out")

    @property
    def looks(self) -> View:
        """The view that is meant: a layer or a head by itself is one map."""
        single = self.layer is not None or self.head is not None
        return self.view or ("mean" if single else "overview")

    def floor(self, seen: Seen) -> int | None:
        """The one layer that is meant, if any: with a head alone, the last."""
        return seen.layers if self.layer is None and self.head is not None else self.layer


def pick(attended: Attended, shot: Shot) -> tuple[str, Seen]:
    """The kind that is meant: the one named, the first that can be rolled out, or the most telling one."""
    if shot.kind is None and shot.looks == "rollout":
        for name, seen in attended.kinds.items():
            if seen.rolls:
                return name, seen
    return attended.kind(shot.kind)


def save(attended: Attended, out: Path, shot: Shot) -> tuple[str, ...]:
    """Write a picture or, as .json, the numbers; what a person should know of it comes back."""
    ending = out.suffix.lower()
    if ending not in ENDINGS:
        raise MeristemError(f"{out}: the ending says what is written, and it is one of {', '.join(ENDINGS)}")
    if not out.parent.is_dir():
        raise MeristemError(f"{out}: there is no folder {out.parent}; make it first")
    if ending == ".json":
        out.write_text(bounded.to_json(attended.plain(shot.kind)) + "\n", encoding="utf-8")
        return ()
    return draw(attended, out, shot)


def draw(attended: Attended, out: Path, shot: Shot) -> tuple[str, ...]:
    """Write the picture; its ending says whether it is a PNG or an SVG."""
    if not can_draw():
        raise MeristemError('drawing needs matplotlib: pip install "meristem[draw]"')
    import matplotlib

    name, seen = pick(attended, shot)
    if name == "image" and shot.looks == "overview":
        shot = replace(shot, view="mean")  # a line of pictures is wide enough by itself
    title = titles(attended, name, seen, shot)
    families, lacking = fonts.families("".join([*title, *seen.queries, *seen.keys]))
    told: Any = {"font.family": families, "text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "meristem"}
    with matplotlib.rc_context(told), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        if name == "image" and shot.looks != "grid" and attended.picture is not None:
            _write(words(attended.picture, seen, chosen(seen, shot), title), [], out)
        else:
            _write(*_figure(seen, shot, title), out)
    return (f"no installed font has {lacking}: install one that does, such as Noto Sans CJK",) if lacking else ()


def titles(attended: Attended, name: str, seen: Seen, shot: Shot) -> list[str]:
    """What is seen, of which run, on which text."""
    lines = [f"{attended.run} · {name} · {what(seen, shot)}", MEANINGS[name], shortened(attended.text, TITLE)]
    if attended.target and attended.target != attended.text:
        lines.append(f"→ {shortened(attended.target, TITLE)}")
    if attended.order and name in ("content", "query"):
        own = attended.kinds["query"].queries
        lines.append(shortened("order: " + " ".join(own[place].strip("␣") for place in attended.order), TITLE))
    if seen.rolls and len(seen.keys) > len(seen.queries):
        lines.append("left of the line: what is remembered")
    return [visible(line) for line in lines]


def what(seen: Seen, shot: Shot) -> str:
    """Which layers and heads, in words."""
    if seen.layers * seen.heads == 1:
        return "its only head"
    heads = "1 head" if seen.heads == 1 else f"{seen.heads} heads"
    layer = shot.floor(seen)
    every = f"layer {layer} of {seen.layers}" if layer is not None else f"{seen.layers} layer{'s' * (seen.layers > 1)}"
    if shot.head is not None:
        return f"{every}, head {shot.head} of {seen.heads}"
    return {
        "overview": f"{every} of {heads}, and their mean",
        "grid": f"{every} of {heads}",
        "mean": f"mean of {heads}, {every}",
        "rollout": f"rollout through {every}",
    }[shot.looks]


def chosen(seen: Seen, shot: Shot) -> Floats:
    """[Q, K] of the one map that is meant."""
    if shot.head is not None:
        return seen.head(shot.floor(seen) or 0, shot.head)
    return seen.rollout() if shot.looks == "rollout" else seen.mean(shot.layer)


def _figure(seen: Seen, shot: Shot, title: Sequence[str]) -> tuple[Any, list[Map]]:
    """The figure, and which of its maps can tell their numbers."""
    matrix, first = chosen(seen, shot), shot.layer or 1
    grid = seen.weights if shot.layer is None else seen.weights[first - 1 : first]
    if shot.looks in ("mean", "rollout") or grid.shape[0] * grid.shape[1] == 1:
        return alone(seen, matrix, title)
    if shot.looks == "grid":
        return small(grid, title, first=first), []
    return overview(seen, grid, matrix, title, first=first)


def _write(figure: Any, maps: Sequence[Map], out: Path) -> None:
    """To a temporary name first: a half picture is none."""
    kind = out.suffix.lower().removeprefix(".")
    unfinished = out.with_name(f"{out.name}.tmp")
    if kind == "svg":
        unfinished.write_text(with_values(figure, maps), encoding="utf-8")
    else:
        figure.savefig(unfinished, format=kind, metadata={"Software": None})
    unfinished.replace(out)
