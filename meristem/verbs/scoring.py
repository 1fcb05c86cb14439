"""The score and detect commands: log-probabilities of texts and targets, and which tokens look replaced."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from meristem import options
from meristem.terminal import emit
from meristem.verbs.looking import numbers
from meristem.verbs.screen import opened, print_json

if TYPE_CHECKING:
    from meristem.generation.score import Scored

LIKELY = 0.5
"""Tokens that are more likely replaced than not are marked."""


def score(
    run: options.Run,
    text: options.Text = None,
    text_b: options.Targets = None,
    image: options.TargetImage = None,
    file: options.ScoredFile = None,
    order: options.ScoreOrder = None,
    which: options.Which = None,
    json_: options.Json = False,
) -> None:
    """The log-probability of texts, or of targets given their sources (docs/using.md).

    meristem score runs/gpt2-mini "The old gardener sat there."
    meristem score runs/transformer-mini "Ada walks." --text-b "Ada geht." --text-b "Ada läuft."
    meristem score runs/captioner-mini --image photo.png --text-b "a red square"
    meristem score runs/transformer-mini --file pairs.tsv --json

    Exact for causal models, XLNet and targets; forward and backward for ELMo; a pseudo-log-likelihood for masked ones.
    """
    sources, targets = _asked(text, text_b, image, file)
    loaded = opened(run, which)
    if file is not None and targets is not None and loaded.model.source_kinds == {"image"}:
        sources = [file.parent / str(name) for name in sources]
    several = sources[0] if targets is not None and file is None else sources  # one source, whose targets are ranked
    scored = loaded.score(several, targets, order=numbers(order))
    if json_:
        print_json([scored_fields(one) for one in scored])
        return
    for one in scored:
        shown = one.text if one.text_b is None else one.text_b
        sides = "" if one.forward is None else f"  (forward {one.forward:.3f}, backward {one.backward:.3f})"
        emit(f"{one.logprob:10.3f}  {one.logprob / max(1, one.tokens):8.4f} per token  {shown}{sides}")


def _asked(
    text: str | None, text_b: list[str] | None, image: Path | None, file: Path | None
) -> tuple[list[Any], list[str] | None]:
    """Texts or sources, and the targets that go with them."""
    from meristem.errors import RecipeError

    if file is not None and (text is not None or text_b or image is not None):
        raise RecipeError("score: --file is given alone; where each of its lines is source TAB target, both are read")
    if file is not None:
        lines = options.lines(file)
        if lines and all(line.count("\t") == 1 for line in lines):
            sources, targets = zip(*(line.split("\t") for line in lines), strict=True)
            return list(sources), list(targets)
        return list(lines), None
    if image is not None and (text is not None or not text_b):
        raise RecipeError("score: --image is the source of a caption: give it with --text-b CAPTION and without a text")
    if text is None and image is None:
        raise RecipeError("score: give a text, or --file with one text a line")
    return [text if image is None else image], text_b or None


def scored_fields(one: Scored) -> dict[str, Any]:
    """A score as JSON has it; what does not apply is left out."""
    plain = {name: getattr(one, name) for name in ("text", "logprob", "tokens", "per_token")}
    more = {name: getattr(one, name) for name in ("text_b", "forward", "backward")}
    return {**plain, **{name: value for name, value in more.items() if value is not None}}


def detect(
    run: options.Run,
    text: options.Detected = None,
    file: options.Texts = None,
    which: options.Which = None,
    json_: options.Json = False,
) -> None:
    """Which tokens look replaced: the probability of each, from an ELECTRA's discriminator (objective=rtd).

    meristem detect runs/electra-mini "The old gardener swam there."
    meristem detect runs/electra-mini --file texts.txt --json
    """
    from meristem.errors import RecipeError

    if (text is None) == (file is None):
        raise RecipeError("detect: give a text, or --file with one text a line")
    texts = options.lines(file) if file is not None else [str(text)]
    loaded = opened(run, which)
    found = loaded.detect(texts)
    if json_:
        tokens = [[vars(token) for token in some] for some in found]
        print_json([{"text": one, "tokens": some} for one, some in zip(texts, tokens, strict=True)])
        return
    for number, some in enumerate(found):
        if number:
            emit()
        for token in some:
            mark = "*" if token.probability > LIKELY else " "
            emit(f"{token.probability:7.2%} {mark} {token.text}")
