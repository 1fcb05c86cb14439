"""Draw the two pictures of docs/architecture.md: the data flow and the layers.

python -m benchmarks.architecture_pictures
"""

from __future__ import annotations

from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
FLOW = [
    ("raw text", "data/, samples/"),
    ("documents", "corpus/"),
    ("token ids", "tokenizers/, dataset/"),
    ("rows, batches", "inputs/, objectives/"),
    ("hidden states", "models/, blocks/"),
    ("loss", "objectives/, learning/"),
    ("weights", "training/, checkpoint/"),
    ("predictions", "generation/, tasks/"),
]
LAYERS = [
    (
        "entry points",
        [
            (["cli", "api"], "commands and the Python interface"),
            (["trust"], "exposure, robustness, label noise, federation"),
            (["compare"], "recipes at equal budget, claims, checks, verdicts"),
            (["serving"], "HTTP server, middleware, routes, the studio"),
            (["interop"], "transformers, the hub, ONNX, GGUF, ctranslate2, lm-eval"),
            (["describe"], "cost of a recipe, contents of a run"),
        ],
    ),
    (
        "training",
        [
            (["reinforce"], "policy objective, rewards, their data and reports"),
            (["finetune"], "labelled data as training data, grids, reports"),
            (["training"], "trainer, loop, step, optimizers, trackers"),
        ],
    ),
    (
        "inference",
        [
            (["evaluation"], "held-out loss, minimal pairs, predictions, attention maps"),
            (["tasks"], "one downstream task per file"),
            (["generation"], "decoding, sampling, beam search, fill, scoring"),
        ],
    ),
    (
        "models",
        [
            (["checkpoint"], "saving, verifying, loading, run folders"),
            (["learning"], "model and objectives as one learner"),
            (["objectives"], "corruption, targets and loss, one per file"),
            (["models", "blocks"], "one family per file; attention, recurrent layers, heads"),
        ],
    ),
    (
        "data",
        [
            (["dataset", "distributed"], "token shards, views, batches; process groups"),
            (["labelled", "corpus"], "documents, labelled samples"),
        ],
    ),
    (
        "base",
        [
            (["metrics", "drawing"], "metrics, plots and report pages"),
            (["interfaces"], "contracts: backbone, objective, task"),
            (["inputs", "tokenizers"], "input templates, rows and batches; text to token ids"),
            (["data", "samples"], "sources, one reader per file format, text units; built-in data"),
            (["config", "utils"], "recipes and settings, helpers"),
        ],
    ),
]
STYLE = """<style>
text { font: 14px system-ui, sans-serif; fill: #1f2933 } .soft { fill: #617080; font-size: 12px }
.group { font-weight: 600; font-size: 12px; fill: #617080 }
rect { fill: #eef3f8; stroke: #b6c4d2 } path { stroke: #617080; fill: none; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .soft, .group { fill: #9fb0c0 } rect { fill: #1c2733; stroke: #46586a } path { stroke: #9fb0c0 } }
</style>"""  # noqa: E501


def text(x: float, y: float, words: str, css: str = "", anchor: str = "middle") -> str:
    """One line of text."""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" class="{css}">{escape(words)}</text>'


def svg(width: int, height: int, parts: list[str], title: str) -> str:
    """A whole picture."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">'
    return "\n".join([head, STYLE, *parts, "</svg>", ""])


def data_flow() -> str:
    """Boxes in two rows, joined by arrows."""
    per_row, box, gap, height = 4, 190, 36, 64
    parts = []
    for number, (name, folders) in enumerate(FLOW):
        row, column = divmod(number, per_row)
        x, y = 10 + column * (box + gap), 10 + row * (height + 46)
        parts.append(f'<rect x="{x}" y="{y}" width="{box}" height="{height}" rx="8"/>')
        parts += [text(x + box / 2, y + 28, name), text(x + box / 2, y + 48, folders, "soft")]
        if column < per_row - 1:
            box_end, middle = x + box, y + height / 2
            parts.append(f'<path d="M{box_end + 4} {middle} h{gap - 10} m-6 -5 l6 5 l-6 5"/>')
        elif number + 1 < len(FLOW):
            below, left = y + height, 10 + box / 2
            middle = below + 23
            parts.append(f'<path d="M{x + box / 2} {below} V{middle} H{left} V{below + 44} m-5 -6 l5 6 l5 -6"/>')
    return svg(20 + per_row * box + (per_row - 1) * gap, 2 * height + 66, parts, "Data flow")


def layers() -> str:
    """Rows in labelled groups, highest layer first, and an arrow in the direction of imports."""
    left, width, height, gap, group_gap, names_width = 130, 860, 30, 5, 12, 316
    parts: list[str] = []
    y = 10
    for group, rows in LAYERS:
        group_height = len(rows) * (height + gap) - gap
        parts.append(text(left - 16, y + group_height / 2 + 4, group, "group", "end"))
        for names, description in rows:
            parts.append(f'<rect x="{left}" y="{y}" width="{width - left - 10}" height="{height}" rx="6"/>')
            parts.append(text(left + 16, y + 20, " · ".join(names), anchor="start"))
            parts.append(text(left + names_width, y + 20, description, "soft", "start"))
            y += height + gap
        y += group_gap
    bottom = y - gap - group_gap
    parts.append(f'<path d="M26 14 V{bottom - 4} m-5 -6 l5 6 l5 -6"/>')
    parts.append(f'<g transform="translate(16 {bottom / 2}) rotate(-90)">{text(0, 0, "imports", "soft")}</g>')
    return svg(width, bottom + 10, parts, "Layers")


if __name__ == "__main__":
    (FOLDER / "data-flow.svg").write_text(data_flow(), encoding="utf-8")
    (FOLDER / "layers.svg").write_text(layers(), encoding="utf-8")
