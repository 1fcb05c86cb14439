"""Attention plots: single heads, all heads, means, attention rollout, alignments, and caption attention over images."""

# Q queries, K keys

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from meristem.config.errors import MeristemError
from meristem.drawing import fonts
from meristem.drawing.attention_record import ATTENTION_DESCRIPTIONS, AttentionRecord, AttentionWeights, Floats
from meristem.drawing.caption_attention import caption_attention_figure
from meristem.drawing.heatmaps import head_grid, overview_figure, single_heatmap
from meristem.drawing.html_page import replace_control_chars, shorten_middle
from meristem.drawing.svg_tooltips import Heatmap, svg_with_tooltips
from meristem.drawing.training_curves import can_draw
from meristem.utils import untrusted_files

AttentionView = Literal["overview", "grid", "mean", "rollout"]
SUFFIXES = (".png", ".svg", ".json")
MAX_TITLE_CHARS = 96


@dataclass(frozen=True, kw_only=True)
class AttentionSelection:
    """Which attention to plot; an overview of everything unless something is selected."""

    kind: str | None = None
    layer: int | None = None
    """From 1."""
    head: int | None = None
    view: AttentionView | None = None

    def __post_init__(self) -> None:
        if self.head is not None and self.view in ("overview", "grid", "mean"):
            raise MeristemError(f"head and {self.view}: a head is a single map; leave one of the two out")
        if self.view == "rollout" and (self.layer is not None or self.head is not None):
            raise MeristemError("rollout combines all layers and heads; leave layer and head out")

    @property
    def effective_view(self) -> AttentionView:
        """The view to draw: a single map for a selected layer or head."""
        is_single = self.layer is not None or self.head is not None
        return self.view or ("mean" if is_single else "overview")

    def selected_layer(self, attention: AttentionWeights) -> int | None:
        """The selected layer, if any: with a head alone, the last layer."""
        return attention.layers if self.layer is None and self.head is not None else self.layer


def select_attention(record: AttentionRecord, selection: AttentionSelection) -> tuple[str, AttentionWeights]:
    """The kind to plot: the selected one, the first that supports rollout, or the default."""
    if selection.kind is None and selection.effective_view == "rollout":
        for name, attention in record.kinds.items():
            if attention.supports_rollout:
                return name, attention
    return record.select_kind(selection.kind)


def save_attention(record: AttentionRecord, out: Path, selection: AttentionSelection) -> tuple[str, ...]:
    """Write a plot or, as .json, the weights; returns notices for the user."""
    suffix = out.suffix.lower()
    if suffix not in SUFFIXES:
        raise MeristemError(f"{out}: unknown file type; use one of {', '.join(SUFFIXES)}")
    if not out.parent.is_dir():
        raise MeristemError(f"{out}: there is no folder {out.parent}; create it first")
    if suffix == ".json":
        out.write_text(untrusted_files.to_json(record.to_dict(selection.kind)) + "\n", encoding="utf-8")
        return ()
    return draw_attention(record, out, selection)


def draw_attention(record: AttentionRecord, out: Path, selection: AttentionSelection) -> tuple[str, ...]:
    """Write the plot as PNG or SVG, by its suffix; returns notices for the user."""
    if not can_draw():
        raise MeristemError('drawing needs matplotlib: pip install "meristem-lm[draw]"')
    import matplotlib

    name, attention = select_attention(record, selection)
    if name == "image" and selection.effective_view == "overview":
        selection = replace(selection, view="mean")  # a row of images is wide enough by itself
    title = title_lines(record, name, attention, selection)
    families, missing_characters = fonts.font_families("".join([*title, *attention.queries, *attention.keys]))
    rc_params: Any = {
        "font.family": families,
        "text.parse_math": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "meristem",
    }
    with matplotlib.rc_context(rc_params), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        if name == "image" and selection.effective_view != "grid" and record.picture is not None:
            matrix = selected_matrix(attention, selection)
            figure, heatmaps = caption_attention_figure(record.picture, attention, matrix, title), list[Heatmap]()
        else:
            figure, heatmaps = _build_figure(attention, selection, title)
        _write_figure(figure, heatmaps, out)
    if not missing_characters:
        return ()
    return (f"no installed font has {missing_characters}: install one that does, such as Noto Sans CJK",)


def title_lines(
    record: AttentionRecord, name: str, attention: AttentionWeights, selection: AttentionSelection
) -> list[str]:
    """Title: run, kind, selection and text."""
    lines = [
        f"{record.run} · {name} · {describe_selection(attention, selection)}",
        ATTENTION_DESCRIPTIONS[name],
        shorten_middle(record.text, MAX_TITLE_CHARS),
    ]
    if record.target and record.target != record.text:
        lines.append(f"→ {shorten_middle(record.target, MAX_TITLE_CHARS)}")
    if record.order and name in ("content", "query"):
        tokens = record.kinds["query"].queries
        lines.append(
            shorten_middle("order: " + " ".join(tokens[index].strip("␣") for index in record.order), MAX_TITLE_CHARS)
        )
    if attention.supports_rollout and len(attention.keys) > len(attention.queries):
        lines.append("left of the line: segment memory")
    return [replace_control_chars(line) for line in lines]


def describe_selection(attention: AttentionWeights, selection: AttentionSelection) -> str:
    """Layers and heads in words."""
    if attention.layers * attention.heads == 1:
        return "single head"
    heads = "1 head" if attention.heads == 1 else f"{attention.heads} heads"
    layer = selection.selected_layer(attention)
    layers = (
        f"layer {layer} of {attention.layers}"
        if layer is not None
        else f"{attention.layers} layer{'s' * (attention.layers > 1)}"
    )
    if selection.head is not None:
        return f"{layers}, head {selection.head} of {attention.heads}"
    return {
        "overview": f"{layers} of {heads}, and their mean",
        "grid": f"{layers} of {heads}",
        "mean": f"mean of {heads}, {layers}",
        "rollout": f"rollout through {layers}",
    }[selection.effective_view]


def selected_matrix(attention: AttentionWeights, selection: AttentionSelection) -> Floats:
    """[Q, K] of the selected single map."""
    if selection.head is not None:
        return attention.head(selection.selected_layer(attention) or 0, selection.head)
    return attention.rollout() if selection.effective_view == "rollout" else attention.mean(selection.layer)


def _build_figure(
    attention: AttentionWeights, selection: AttentionSelection, title: Sequence[str]
) -> tuple[Any, list[Heatmap]]:
    """The figure, and its heat maps with tooltips."""
    matrix, first = selected_matrix(attention, selection), selection.layer or 1
    grid = attention.weights if selection.layer is None else attention.weights[first - 1 : first]
    if selection.effective_view in ("mean", "rollout") or grid.shape[0] * grid.shape[1] == 1:
        return single_heatmap(attention, matrix, title)
    if selection.effective_view == "grid":
        return head_grid(grid, title, first_layer=first), []
    return overview_figure(attention, grid, matrix, title, first_layer=first)


def _write_figure(figure: Any, maps: Sequence[Heatmap], out: Path) -> None:
    """Write to a temporary file first, so that no partial image is left."""
    kind = out.suffix.lower().removeprefix(".")
    temporary = out.with_name(f"{out.name}.tmp")
    if kind == "svg":
        temporary.write_text(svg_with_tooltips(figure, maps), encoding="utf-8")
    else:
        figure.savefig(temporary, format=kind, metadata={"Software": None})
    temporary.replace(out)
