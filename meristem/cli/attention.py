"""The attention command: attention weights of a run as a table, heatmap images or JSON."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from meristem.cli import options
from meristem.cli.output import load_model, print_json, print_message
from meristem.cli.task_fields import takes_task_fields
from meristem.config.errors import MeristemError, RecipeError
from meristem.utils.terminal import emit

if TYPE_CHECKING:
    from meristem.api import LoadedModel
    from meristem.drawing.attention_plots import AttentionSelection, AttentionView
    from meristem.drawing.attention_record import AttentionRecord

TOP_KEYS = 3
"""Keys listed for each query token in the table."""
MIN_WEIGHT = 0.005
"""Smaller weights, which would be printed as 0 %, are left out."""


@takes_task_fields
def attention(
    run: options.RunPath,
    text: options.AttentionText = None,
    out: options.AttentionOut = None,
    kind: options.AttentionKind = None,
    layer: options.AttentionLayer = None,
    head: options.AttentionHead = None,
    grid: options.GridView = False,
    mean: options.MeanView = False,
    rollout: options.RolloutView = False,
    target: options.AttentionTarget = None,
    image: options.Image = None,
    before: options.MemoryText = None,
    order: options.FactorizationOrder = None,
    file: options.TextFile = None,
    format_: options.AttentionFormat = "png",
    which: options.WhichCheckpoint = None,
    json_: options.Json = False,
    *,
    fields: dict[str, Any],
) -> None:
    """Attention maps: every layer and head, alignments, XLNet's two streams, and image regions for captions.

    meristem attention runs/bert-mini "The old gardener sat there." --out a.png
    meristem attention runs/bert-mini "The old gardener sat there." --layer 3 --head 1 --out head.svg
    meristem attention runs/translator "Anna walks home." --target "安娜走回家。" --out alignment.png
    meristem attention runs/captioner --image scene.png --out caption.png
    meristem attention runs/bert-mini --file texts.txt --out pictures/

    Without --out it prints, for each token, the three tokens with the highest attention in the last layer.
    """
    from meristem.drawing.attention_plots import AttentionSelection

    selection = AttentionSelection(
        kind=kind, layer=layer, head=head, view=_parse_view(grid=grid, mean=mean, rollout=rollout)
    )
    parts = fields if text is None else {"text": text, **fields}
    attention_options: dict[str, Any] = {"target": target, "picture": image, "before": before}
    attention_options["order"] = parse_order(order)
    if file is not None:
        if parts or image is not None or target is not None:
            raise RecipeError("attention: --file cannot be combined with a text, --image or --target")
        loaded = load_model(run, which)
        _save_each_line(
            loaded, file, out, selection, as_json=json_, suffix=format_, attention_options=attention_options
        )
        return
    if not parts and image is None:
        raise RecipeError(
            "attention: give a text, --image FILE for a captioning model, or --file with one text per line"
        )
    inputs: Any = text or "" if set(parts) <= {"text"} else parts
    _show(load_model(run, which).look(inputs, **attention_options), out, selection, as_json=json_)


def _parse_view(**flags: bool) -> AttentionView | None:
    """The requested view; None if there is none."""
    chosen_views: list[Any] = [name for name, enabled in flags.items() if enabled]
    if len(chosen_views) > 1:
        raise RecipeError(f"--{chosen_views[0]} and --{chosen_views[1]}: cannot be combined; choose one view")
    return chosen_views[0] if chosen_views else None


def parse_order(order: str | None) -> list[int] | None:
    """`2,0,1` as a list of integers."""
    if order is None:
        return None
    words = order.replace(",", " ").split()
    if not all(word.isdigit() for word in words):
        raise RecipeError(f"--order {order}: expected token numbers from 0, as in 2,0,1")
    return [int(word) for word in words]


def _save_each_line(
    loaded: LoadedModel,
    file: Path,
    out: Path | None,
    selection: AttentionSelection,
    *,
    as_json: bool,
    suffix: str,
    attention_options: dict[str, Any],
) -> None:
    """One output file per line, numbered like the lines; lines that fail are reported and skipped."""
    if out is not None:
        if out.suffix and not out.is_dir():
            raise RecipeError(f"--out {out}: with --file, --out must be a folder (one output file per line)")
        out.mkdir(parents=True, exist_ok=True)
    num_errors = 0
    for number, line in options.read_numbered_lines(file):
        path = None if out is None else out / f"{number:04}.{suffix}"
        try:
            _show(loaded.look(line.strip(), **attention_options), path, selection, as_json=as_json)
        except MeristemError as error:
            num_errors += 1
            print_message(f"{file.name}:{number}: {error}")
    if num_errors:
        raise typer.Exit(1)


def _show(record: AttentionRecord, out: Path | None, selection: AttentionSelection, *, as_json: bool) -> None:
    """Write the attention weights to a file, or print them as JSON or as a table."""
    from meristem.drawing.attention_plots import save_attention

    for notice in record.notices:
        print_message(notice)
    if out is not None:
        for notice in save_attention(record, out, selection):
            print_message(notice)
        print_message(f"wrote {out}")
    elif not as_json:
        _print_table(record, selection)
    if as_json:
        print_json(record.to_dict(selection.kind))


def _print_table(record: AttentionRecord, selection: AttentionSelection) -> None:
    """For each query token, the keys with the highest weights."""
    from rich.cells import cell_len

    from meristem.drawing.attention_plots import select_attention, selected_matrix, title_lines
    from meristem.drawing.html_page import replace_control_chars

    name, attention_map = select_attention(record, selection)
    if selection.effective_view in ("overview", "grid") and selection.layer is None:
        selection = replace(selection, layer=attention_map.layers)
    selection = replace(selection, view=None) if selection.effective_view != "rollout" else selection
    matrix = selected_matrix(attention_map, selection)
    emit("\n".join(title_lines(record, name, attention_map, selection)), end="\n\n")
    queries, keys = (
        [replace_control_chars(label) for label in labels] for labels in (attention_map.queries, attention_map.keys)
    )
    query_width, key_width = (max(map(cell_len, labels), default=1) for labels in (queries, keys))
    for query, weights in zip(queries, matrix, strict=True):
        top_indices = (-weights).argsort(kind="stable")[:TOP_KEYS]
        top_weights = [(keys[index], float(weights[index])) for index in top_indices if weights[index] >= MIN_WEIGHT]
        cells = [f"{key}{' ' * (key_width - cell_len(key))} {weight:4.0%}" for key, weight in top_weights]
        emit(f"{query}{' ' * (query_width - cell_len(query))}  {'   '.join(cells)}".rstrip())
