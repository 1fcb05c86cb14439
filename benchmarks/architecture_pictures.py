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
    ("rows, batches", "dataset/, objectives/"),
    ("hidden states", "models/, blocks/"),
    ("loss", "objectives/, learning/"),
    ("weights", "training/, checkpoint/"),
    ("predictions", "generation/, tasks/"),
]
LAYERS = [
    (["cli", "api"], "commands and the Python interface"),
    (["serving"], "HTTP server, middleware, routes, the studio page"),
    (["interop"], "transformers, ONNX, AllenNLP, lm-eval, datatrove"),
    (["describe"], "what a recipe costs, what a run is"),
    (["reinforce"], "policy objective, rewards, their data and reports"),
    (["finetune"], "labelled data as training data, grids, reports"),
    (["training"], "trainer, loop, step, optimizers, trackers"),
    (["evaluation"], "held-out loss, minimal pairs, predictions, attention maps"),
    (["tasks"], "one task per file"),
    (["generation"], "decoding, sampling, beam search, fill, scoring"),
    (["checkpoint"], "saving, verifying, loading, run folders"),
    (["learning"], "model and objectives as one learner"),
    (["objectives"], "what is hidden and what is predicted"),
    (["models", "blocks"], "families, and the parts they are made of"),
    (["dataset", "distributed"], "token shards, views, the feed; process groups"),
    (["tokenizers", "labelled", "corpus"], "text in: documents, labelled samples, tokenizers"),
    (["metrics", "drawing"], "what is counted, plots and report pages"),
    (["data", "samples"], "sources, one reader per file format, text units; built-in data"),
    (["interfaces", "config", "utils"], "contracts, recipes and settings, small helpers"),
]
STYLE = """<style>
text { font: 14px system-ui, sans-serif; fill: #1f2933 } .soft { fill: #617080; font-size: 12px }
rect { fill: #eef3f8; stroke: #b6c4d2 } path { stroke: #617080; fill: none; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .soft { fill: #9fb0c0 } rect { fill: #1c2733; stroke: #46586a } path { stroke: #9fb0c0 } }
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
    for number, (name, place) in enumerate(FLOW):
        row, column = divmod(number, per_row)
        x, y = 10 + column * (box + gap), 10 + row * (height + 46)
        parts.append(f'<rect x="{x}" y="{y}" width="{box}" height="{height}" rx="8"/>')
        parts += [text(x + box / 2, y + 28, name), text(x + box / 2, y + 48, place, "soft")]
        if column < per_row - 1:
            start, middle = x + box, y + height / 2
            parts.append(f'<path d="M{start + 4} {middle} h{gap - 10} m-6 -5 l6 5 l-6 5"/>')
        elif number + 1 < len(FLOW):
            below, left = y + height, 10 + box / 2
            middle = below + 23
            parts.append(f'<path d="M{x + box / 2} {below} V{middle} H{left} V{below + 44} m-5 -6 l5 6 l5 -6"/>')
    return svg(per_row * (box + gap), 2 * height + 66, parts, "Data flow")


def layers() -> str:
    """A stack of boxes; a layer imports only from those below it."""
    width, height = 860, 34
    parts = []
    for number, (names, what) in enumerate(LAYERS):
        y = 8 + number * (height + 6)
        parts.append(f'<rect x="10" y="{y}" width="{width - 20}" height="{height}" rx="6"/>')
        parts += [text(26, y + 22, " · ".join(names), anchor="start"), text(width - 26, y + 22, what, "soft", "end")]
    return svg(width, 16 + len(LAYERS) * (height + 6), parts, "Layers")


if __name__ == "__main__":
    (FOLDER / "data-flow.svg").write_text(data_flow(), encoding="utf-8")
    (FOLDER / "layers.svg").write_text(layers(), encoding="utf-8")
