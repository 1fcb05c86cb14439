"""The score and detect commands: log-probabilities of texts and targets, and which tokens look replaced."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from meristem.cli import options
from meristem.cli.attention import parse_order
from meristem.cli.output import load_model, print_json
from meristem.utils.terminal import emit

if TYPE_CHECKING:
    from meristem.generation.score import TextScore

REPLACED_THRESHOLD = 0.5
"""Tokens with a higher probability of being replaced are marked with a star."""


def score(
    run: options.RunPath,
    text: options.ScoreText = None,
    text_b: options.ScoreTargets = None,
    image: options.ScoreImage = None,
    file: options.ScoreFile = None,
    order: options.ScoreOrder = None,
    precision: options.InferencePrecision = "auto",
    which: options.WhichCheckpoint = None,
    json_: options.Json = False,
) -> None:
    """Log-probability of texts, or of targets given their sources (docs/using.md).

    meristem score runs/gpt2-mini "The old gardener sat there."
    meristem score runs/transformer-mini "Ada walks." --text-b "Ada geht." --text-b "Ada läuft."
    meristem score runs/captioner-mini --image photo.png --text-b "a red square"
    meristem score runs/transformer-mini --file pairs.tsv --json

    Exact for causal models, XLNet and targets; forward and backward for ELMo; pseudo-log-likelihood for masked models.
    """
    sources, targets = _parse_sources(text, text_b, image, file)
    loaded = load_model(run, which, precision=precision)
    if file is not None and targets is not None and loaded.model.source_kinds == {"image"}:
        sources = [file.parent / str(name) for name in sources]
    source_input = sources[0] if targets is not None and file is None else sources  # those of one source are ranked
    scored = loaded.score(source_input, targets, order=parse_order(order))
    if json_:
        print_json([score_json(result) for result in scored])
        return
    for result in scored:
        shown_text = result.text if result.text_b is None else result.text_b
        if result.forward is not None:
            shown_text += f"  (forward {result.forward:.3f}, backward {result.backward:.3f})"
        emit(f"{result.logprob:10.3f}  {result.logprob / max(1, result.tokens):8.4f} per token  {shown_text}")


def _parse_sources(
    text: str | None, text_b: list[str] | None, image: Path | None, file: Path | None
) -> tuple[list[Any], list[str] | None]:
    """Texts or sources, and their targets (None if there are none)."""
    from meristem.config.errors import RecipeError

    if file is not None and (text is not None or text_b or image is not None):
        raise RecipeError(
            "score: --file cannot be combined with a text, --text-b or --image; for targets write source TAB target"
        )
    if file is not None:
        lines = options.read_lines(file)
        if lines and all(line.count("\t") == 1 for line in lines):
            sources, targets = zip(*(line.split("\t") for line in lines), strict=True)
            return list(sources), list(targets)
        return list(lines), None
    if image is not None and (text is not None or not text_b):
        raise RecipeError("score: --image needs --text-b CAPTION, and no text")
    if text is None and image is None:
        raise RecipeError("score: give a text, or --file with one text per line")
    return [text if image is None else image], text_b or None


def score_json(result: TextScore) -> dict[str, Any]:
    """A score as a JSON object; fields that do not apply are left out."""
    fields = {name: getattr(result, name) for name in ("text", "logprob", "tokens", "per_token")}
    optional = {name: getattr(result, name) for name in ("text_b", "forward", "backward")}
    return {**fields, **{name: value for name, value in optional.items() if value is not None}}


def detect(
    run: options.RunPath,
    text: options.DetectText = None,
    file: options.TextFile = None,
    which: options.WhichCheckpoint = None,
    json_: options.Json = False,
) -> None:
    """Probability that each token was replaced, from an ELECTRA discriminator (objective=rtd).

    meristem detect runs/electra-mini "The old gardener swam there."
    meristem detect runs/electra-mini --file texts.txt --json
    """
    from meristem.config.errors import RecipeError

    if (text is None) == (file is None):
        raise RecipeError("detect: give a text, or --file with one text per line")
    texts = options.read_lines(file) if file is not None else [str(text)]
    loaded = load_model(run, which)
    detections = loaded.detect(texts)
    if json_:
        print_json(
            [
                {"text": source_text, "tokens": [vars(token) for token in tokens]}
                for source_text, tokens in zip(texts, detections, strict=True)
            ]
        )
        return
    for number, text_tokens in enumerate(detections):
        if number:
            emit()
        for token in text_tokens:
            mark = "*" if token.probability > REPLACED_THRESHOLD else " "
            emit(f"{token.probability:7.2%} {mark} {token.text}")
