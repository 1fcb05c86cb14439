"""What rewards think of texts, and the best of several texts by them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meristem import options
from meristem.terminal import emit
from meristem.verbs.screen import console, print_json, say

if TYPE_CHECKING:
    from meristem.api import Loaded
    from meristem.reinforce.combined import Verdict
    from meristem.reinforce.reward import Attempt

SHOWN = 60
"""Characters of a text in a table."""


def reward(
    words: options.RewardWords = None,
    text: options.Judged = None,
    prompt: options.Behind = "",
    reference: options.References = None,
    column: options.Cells = None,
    file: options.Attempts = None,
    json_: options.Json = False,
) -> None:
    """What a reward thinks of a text, and why; without a name, which rewards there are.

    meristem reward                                               the rewards, a line each
    meristem reward grammar                                       its settings
    meristem reward length target=20 --text "A short one."
    meristem reward grammar run=runs/gpt2-mini --file texts.txt
    meristem reward meaning vectors=glove.txt --text "A boat." --reference "A ship." --json
    """
    if not words:
        _list()
    elif text is None and file is None:
        _explain(words[0])
    else:
        from meristem.reinforce.named import equations, settings_of
        from meristem.training.rewarding import desk, rewarded

        name, *settings = words
        told = {"name": name, **equations(settings)} if settings else name
        rewards = rewarded(settings_of(told), desk(), console())
        given = {"prompt": prompt, "references": reference or [], **equations(column or [])}
        attempts = [_attempt({**given, **one}, place) for place, one in _texts(text or [], file)]
        rewards.check(attempts)
        verdict = rewards.judge(attempts)
        if json_:
            _print_json(attempts, verdict)
        else:
            _print(attempts, verdict, rewards.weights)


def best(
    loaded: Loaded,
    prompts: Sequence[Any],
    sampling: Mapping[str, Any],
    of: int | None,
    rewards: Sequence[str],
    references: Sequence[str],
    *,
    keep: int,
    as_json: bool,
) -> None:
    """The best of several texts for each prompt, with their values."""
    from meristem.errors import RecipeError

    if of is None or not rewards:
        given = "--best-of" if of else "--reward" if rewards else "--reference"
        missing = ["--best-of N"] * (of is None) + ["--reward NAME (meristem reward lists them)"] * (not rewards)
        raise RecipeError(f"{given}: needs {' and '.join(missing)} beside it")
    known = [references] * len(prompts)
    found = loaded.best(prompts, of=of, keep=keep, rewards=rewards, references=known, **sampling)
    pairs = [(prompt, one) for prompt, some in zip(prompts, found, strict=True) for one in some]
    if as_json:
        print_json(
            [
                {"prompt": str(prompt), "text": one.text, "score": one.written.score, "finished": one.written.finished,
                 "value": one.value, "parts": one.parts}
                for prompt, one in pairs
            ]
        )  # fmt: skip
        return
    for prompt, one in pairs:
        parts = ", ".join(f"{name} {value:.3f}" for name, value in one.parts.items())
        say(f"{one.value:.3f}, best of {of}" + (f" ({parts})" if len(one.parts) > 1 else ""))
        emit(one.text if loaded.way == "source" else f"{prompt}{one.text}")


def _list() -> None:
    """Every reward with its first line, read without importing any."""
    from meristem.reinforce import rewards
    from meristem.settings import names

    for name in names("reinforce.rewards"):
        source = Path(rewards.__path__[0], f"{name}.py").read_text(encoding="utf-8")
        first = (ast.get_docstring(ast.parse(source)) or "").splitlines()[0]
        told = re.sub(r" \(SPEC \w+\)", "", first.partition(": ")[2] or first)
        emit(f"{name:<12} {told.rstrip('.')}")
    emit('\nmeristem reward NAME shows its settings; meristem reward NAME key=value --text "…" what it thinks')


def _explain(name: str) -> None:
    """What a reward can be told."""
    from rich.table import Table

    from meristem.console import TerminalConsole
    from meristem.settings import find

    reward = find("reinforce.rewards", name.partition(",")[0])
    table = Table("setting", "unless given", "", box=None, pad_edge=False)
    for key, field in reward.Settings.model_fields.items():
        if key != "name":
            default = "needed" if field.is_required() else field.get_default(call_default_factory=True)
            table.add_row(key, str(default), field.description)
    TerminalConsole().print(f"{name}: {(reward.__doc__ or '').strip()}\n", highlight=False, soft_wrap=True)
    TerminalConsole().print(table)


def _texts(texts: Sequence[str], file: Path | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where each text stands, and the parts of it that are known."""
    from meristem import bounded
    from meristem.errors import MeristemError

    yield from (("", {"text": text}) for text in texts)
    for number, line in enumerate(options.lines(file) if file is not None else (), 1):
        place = f"{file}:{number}"
        if not line.lstrip().startswith("{"):
            yield place, {"text": line}
            continue
        try:
            found = bounded.row(line)
        except ValueError as error:
            raise MeristemError(f"{place}: {error}") from None
        if not isinstance(found, dict) or not isinstance(found.get("text"), str):
            raise MeristemError(f'{place}: expected {{"text": …}}, with "prompt" and "references" where they are known')
        yield place, found


def _attempt(given: Mapping[str, Any], place: str) -> Attempt:
    """A text with its prompt, its references, and whatever else its row has."""
    from meristem.reinforce.reward import Attempt

    references = given["references"]
    columns = {key: value for key, value in given.items() if key not in ("text", "prompt", "references")}
    several = [references] if isinstance(references, str) else list(references or ())
    return Attempt(
        prompt=str(given["prompt"] or ""), text=given["text"], references=tuple(map(str, several)), columns=columns,
        place=place,
    )  # fmt: skip


def _print_json(attempts: Sequence[Attempt], verdict: Verdict) -> None:
    """A line for each text."""
    for at, one in enumerate(attempts):
        parts = {name: float(values[at]) for name, values in verdict.parts.items()}
        plain = {"text": one.text, "prompt": one.prompt, "value": float(verdict.total[at]), "parts": parts}
        print_json({**plain, "why": verdict.why[at]})


def _print(attempts: Sequence[Attempt], verdict: Verdict, weights: Mapping[str, float]) -> None:
    """A row for each text and reward; the sum of several in a row of its own."""
    from rich.table import Table

    from meristem.console import TerminalConsole

    table = Table("value", "reward", "why", "text", box=None, pad_edge=False)
    for at, one in enumerate(attempts):
        short = " ".join(one.text.split())
        short = short if len(short) <= SHOWN else short[: SHOWN - 1] + "…"
        for name, values in verdict.parts.items():
            table.add_row(f"{values[at]:.4f}", name, _told(verdict.why[at][name]), short)
            short = ""
        if len(verdict.parts) > 1:
            table.add_row(
                f"{verdict.total[at]:.4f}", "sum", " + ".join(f"{w:g} · {name}" for name, w in weights.items()), ""
            )
    TerminalConsole().print(table)


def _told(why: Mapping[str, float | str]) -> str:
    """What a value is made of, in one line."""
    return ", ".join(
        f"{key} {value:.3g}" if isinstance(value, float) else f"{key}: {value}" for key, value in why.items()
    )
