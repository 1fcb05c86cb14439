"""Which trained head answers which verb: how a language model generates text, fills gaps and scores texts.

A model may have several heads that predict tokens (a multi-task one has causal, sequence-to-sequence and masked
heads), so every verb has its own order of preference. An image or an explicit source always selects `source`.
"""

from __future__ import annotations

from typing import Literal

from meristem.batch import Model
from meristem.blocks.generator import Generator
from meristem.blocks.vocabulary import VocabularyHead
from meristem.errors import MeristemError

Way = Literal["causal", "source", "permutation", "bilm", "masked", "generator"]
Verb = Literal["generate", "fill", "score"]
HEADS: dict[Way, str] = {
    "causal": "clm",
    "source": "seq2seq",
    "permutation": "plm",
    "bilm": "bilm",
    "masked": "mlm",
    "generator": "generator",
}
"""The head that predicts tokens each way."""
PREFERENCE: dict[Verb, tuple[Way, ...]] = {
    "generate": ("causal", "source", "permutation", "bilm", "masked", "generator"),
    "fill": ("masked", "generator", "permutation", "bilm", "source"),
    "score": ("causal", "permutation", "bilm", "masked", "generator", "source"),
}
"""Per verb the ways that answer it, the best first: exact probabilities before pseudo ones."""
DENOISING = frozenset({"masks", "sentinels"})
"""Sources of targets that are texts whose missing parts a decoder was trained to write."""
DETECTION = "rtd"
"""The head that tells replaced tokens."""


def ways(model: Model) -> tuple[Way, ...]:
    """Every way this model was trained in, causal first."""
    return tuple(way for way, head in HEADS.items() if head in model.heads)


def ways_for(model: Model, verb: Verb) -> tuple[Way, ...]:
    """The ways that answer a verb about a text alone, the preferred one first; empty where none does."""
    own = set(text_ways(model) or ways(model))
    if verb != "generate" and not model.source_kinds & DENOISING:
        own -= {"source"}  # only a decoder that was trained to write missing text knows texts without a source
    return tuple(way for way in PREFERENCE[verb] if way in own and HEADS[way] not in model.untrained)


def way_for(model: Model, verb: Verb, *, source: bool = False) -> Way:
    """The way this model answers a verb; with `source` (a text or an image is given) that is `source` if it can."""
    if source and "source" in ways(model):
        return "source"
    found = ways_for(model, verb)
    if not found:
        raise MeristemError(_refusal(model, verb))
    return found[0]


def reading_way(model: Model) -> Way | None:
    """The way a text alone is read, for vectors and attention maps; none where no objective over words says.

    A model with an encoder and a decoder reads with its encoder, where that was trained on texts.
    """
    own = text_ways(model)
    encoder_first = "encoder_decoder" in model.backbone.can
    order = ("masked", "generator", "source", "causal") if encoder_first else own
    return next((way for way in order if way in own), None)


def text_ways(model: Model) -> tuple[Way, ...]:
    """The ways in which texts are read: a decoder that was trained on images alone reads no source text."""
    images_only = model.source_kinds == frozenset({"image"})
    return tuple(way for way in ways(model) if way != "source" or not images_only)


def vocabulary_head(model: Model, way: Way) -> VocabularyHead:
    """The head that turns states into logits over the vocabulary."""
    head = model.heads[HEADS[way]]
    found = head.words if isinstance(head, Generator) else head
    assert isinstance(found, VocabularyHead)
    return found


def verbs_of(model: Model) -> tuple[str, ...]:
    """The verbs this model answers, `detect` among them."""
    found: list[str] = [verb for verb in PREFERENCE if ways_for(model, verb)]
    return (*found, "detect") if detects(model) else tuple(found)


def detects(model: Model) -> bool:
    """Whether it was trained to tell replaced tokens."""
    return DETECTION in model.heads and DETECTION not in model.untrained


def require(model: Model, way: Way, verb: str) -> None:
    """Refuse what only one kind of head can do, saying what this model can do instead."""
    if way not in ways(model):
        raise MeristemError(f"{verb} needs a {way} model (objective={HEADS[way]}); {_instead(model)}")


def _instead(model: Model) -> str:
    own, can = ways(model), verbs_of(model)
    kind = f"this one is {' and '.join(own)}" if own else f"this one was trained for {_trained(model)}"
    return f"{kind}: it can {' and '.join(can)}" if can else kind


def _trained(model: Model) -> str:
    return ", ".join(model.heads) or "nothing"


def _refusal(model: Model, verb: Verb) -> str:
    """Why this model cannot answer a verb, and what to do."""
    own = ways(model)
    if unlearned := [HEADS[way] for way in own if way in PREFERENCE[verb] and HEADS[way] in model.untrained]:
        return (f"{verb}: the imported folder held no {' and no '.join(unlearned)} head, so this run has an untrained "
                "one; train it first: meristem pretrain from=RUN")
    if not own and detects(model):
        return (f"{verb}: this model was trained without a generator (objective.generator=none), so it only tells "
                "which tokens look replaced: meristem detect RUN TEXT")
    if not own:
        return (f"{verb}: this run was trained for {_trained(model)} and has no language-model head; ask it "
                "with meristem predict, or ask the pretrained run it began from")
    if own == ("source",):
        return (f"{verb}: this model was trained on pairs, so what it predicts depends on a source, "
                "and a text alone has none; give both: meristem score RUN SOURCE --text-b TARGET, for a captioner "
                "--image FILE --text-b CAPTION")
    return (f"{verb} needs a model that reads both sides of a gap (objective=mlm, plm, bilm, rtd or denoising); "
            f"{_instead(model)}")
