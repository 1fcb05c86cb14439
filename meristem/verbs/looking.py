"""The verb that shows where a run looks: a table in the terminal, pictures, or numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from meristem import options
from meristem.errors import MeristemError, RecipeError
from meristem.terminal import emit
from meristem.verbs.screen import opened, print_json, say

if TYPE_CHECKING:
    from meristem.api import Loaded
    from meristem.drawing.attended import Attended
    from meristem.drawing.attention import Shot, View

MOST = 3
"""Tokens that the table names for each token."""
LEAST = 0.005
"""What would be 0 % is not named."""


def attention(
    run: options.Run,
    text: options.LookedAt = None,
    out: options.LookOut = None,
    kind: options.Kind = None,
    layer: options.Layer = None,
    head: options.OneHead = None,
    grid: options.GridView = False,
    mean: options.MeanView = False,
    rollout: options.RolloutView = False,
    target: options.Written = None,
    image: options.Image = None,
    text_b: options.TextB = None,
    question: options.Question = None,
    passage: options.Passage = None,
    choices: options.Choices = None,
    before: options.Before = None,
    order: options.Factorised = None,
    file: options.Texts = None,
    format_: options.LookFormat = "png",
    which: options.Which = None,
    json_: options.Json = False,
) -> None:
    """Where a run looks: every layer and head, alignments, two streams, and the picture for captions.

    meristem attention runs/bert-mini "The old gardener sat there." --out a.png
    meristem attention runs/bert-mini "The old gardener sat there." --layer 3 --head 1 --out head.svg
    meristem attention runs/translator "Anna walks home." --target "安娜走回家。" --out alignment.png
    meristem attention runs/captioner --image scene.png --out caption.png
    meristem attention runs/bert-mini --file texts.txt --out pictures/

    Without --out it prints, for each token, the three that the last layer looks at most.
    """
    from meristem.drawing.attention import Shot

    shot = Shot(kind=kind, layer=layer, head=head, view=_view(grid=grid, mean=mean, rollout=rollout))
    named = {"text": text, "text_b": text_b, "question": question, "passage": passage, "choices": choices}
    parts = {name: value for name, value in named.items() if value is not None}
    told: dict[str, Any] = {"target": target, "picture": image, "before": before, "order": numbers(order)}
    if file is not None:
        if parts or image is not None or target is not None:
            raise RecipeError("attention: --file looks at each of its lines; leave out the text, --image and --target")
        _each(opened(run, which), file, out, shot, as_json=json_, ending=format_, told=told)
        return
    if not parts and image is None:
        raise RecipeError("attention: give a text, --image FILE for a captioner, or --file with one text a line")
    given: Any = text or "" if set(parts) <= {"text"} else parts
    _show(opened(run, which).look(given, **told), out, shot, as_json=json_)


def _view(**asked: bool) -> View | None:
    """The one view that is asked for."""
    named: list[Any] = [name for name, wanted in asked.items() if wanted]
    if len(named) > 1:
        raise RecipeError(f"--{named[0]} and --{named[1]}: one picture shows one of them")
    return named[0] if named else None


def numbers(order: str | None) -> list[int] | None:
    """`2,0,1` as numbers."""
    if order is None:
        return None
    words = order.replace(",", " ").split()
    if not all(word.isdigit() for word in words):
        raise RecipeError(f"--order {order}: expected numbers of tokens from 0, as in 2,0,1")
    return [int(word) for word in words]


def _each(
    loaded: Loaded, file: Path, out: Path | None, shot: Shot, *, as_json: bool, ending: str, told: dict[str, Any]
) -> None:
    """A picture for each line, numbered as the lines are; one that cannot be looked at is named and the rest go on."""
    if out is not None:
        if out.suffix and not out.is_dir():
            raise RecipeError(f"--out {out}: a picture for each line of --file needs a folder")
        out.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for number, line in _lines(file):
        place = None if out is None else out / f"{number:04}.{ending}"
        try:
            _show(loaded.look(line, **told), place, shot, as_json=as_json)
        except MeristemError as error:
            wrong += 1
            say(f"{file.name}:{number}: {error}")
    if wrong:
        raise typer.Exit(1)


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Lines that hold something, with their numbers; one is held at a time."""
    return ((number, line.strip()) for number, line in options.numbered_lines(file))


def _show(attended: Attended, out: Path | None, shot: Shot, *, as_json: bool) -> None:
    """To a file, as a line of JSON, or as a table."""
    from meristem.drawing.attention import save

    for notice in attended.notices:
        say(notice)
    if out is not None:
        for notice in save(attended, out, shot):
            say(notice)
        say(f"wrote {out}")
    elif not as_json:
        _table(attended, shot)
    if as_json:
        print_json(attended.plain(shot.kind))


def _table(attended: Attended, shot: Shot) -> None:
    """For each token those it looks at most."""
    from rich.cells import cell_len

    from meristem.drawing.attention import chosen, pick, titles
    from meristem.drawing.page import visible

    name, seen = pick(attended, shot)
    if shot.looks in ("overview", "grid") and shot.layer is None:
        shot = replace(shot, layer=seen.layers)
    shot = replace(shot, view=None) if shot.looks != "rollout" else shot
    matrix = chosen(seen, shot)
    emit("\n".join(titles(attended, name, seen, shot)), end="\n\n")
    queries, keys = ([visible(label) for label in some] for some in (seen.queries, seen.keys))
    wide, broad = (max(map(cell_len, some), default=1) for some in (queries, keys))
    for query, weights in zip(queries, matrix, strict=True):
        best = (-weights).argsort(kind="stable")[:MOST]
        found = [(keys[at], float(weights[at])) for at in best if weights[at] >= LEAST]
        cells = [f"{key}{' ' * (broad - cell_len(key))} {weight:4.0%}" for key, weight in found]
        emit(f"{query}{' ' * (wide - cell_len(query))}  {'   '.join(cells)}".rstrip())
