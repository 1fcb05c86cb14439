"""Language-model head selection: which trained head generates text, fills masks and scores texts.

A model may have several heads that predict tokens (a multi-task one has causal, sequence-to-sequence and masked
heads), so every operation has its own order of preference. An image or an explicit source always selects `source`.
"""

from __future__ import annotations

from typing import Literal

from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.blocks.transformer.electra_generator import ElectraGenerator
from meristem.config.errors import MeristemError
from meristem.interfaces.backbone import Model

LMKind = Literal["causal", "source", "permutation", "bilm", "masked", "masked_next", "generator"]
LMOperation = Literal["generate", "fill", "score"]
LM_HEADS: dict[LMKind, str] = {
    "causal": "clm",
    "source": "seq2seq",
    "permutation": "plm",
    "bilm": "bilm",
    "masked": "mlm",
    "masked_next": "clm",
    "generator": "generator",
}
"""Head name of each kind of language model; `masked_next` is that of GPT-BERT, which shares the causal head."""
MASKED_KINDS: tuple[LMKind, ...] = ("masked", "masked_next", "generator")
"""Kinds that predict masked tokens from both sides in one pass."""
LM_KIND_PREFERENCE: dict[LMOperation, tuple[LMKind, ...]] = {
    "generate": ("causal", "source", "permutation", "bilm", "masked", "generator"),
    "fill": ("masked", "masked_next", "generator", "permutation", "bilm", "source"),
    "score": ("causal", "permutation", "bilm", "masked", "masked_next", "generator", "source"),
}
"""Per operation the kinds that support it, best first: exact probabilities before pseudo-log-likelihoods."""
DENOISING_SOURCES = frozenset({"masks", "sentinels"})
"""Source kinds of denoising objectives: the decoder was trained to generate the missing parts of a text."""
DETECTION_HEAD = "rtd"
"""The replaced-token detection head (ELECTRA's discriminator)."""


def lm_kinds(model: Model) -> tuple[LMKind, ...]:
    """Every language-model kind this model was trained for, causal first."""
    return tuple(
        kind
        for kind, head in LM_HEADS.items()
        if head in model.heads and (kind != "masked_next" or model.predicts_masked_next)
    )


def lm_kinds_for(model: Model, operation: LMOperation) -> tuple[LMKind, ...]:
    """The kinds that support an operation on a text without a source, preferred first; may be empty."""
    trained_kinds = set(text_lm_kinds(model) or lm_kinds(model))
    if operation != "generate" and not model.source_kinds & DENOISING_SOURCES:
        trained_kinds -= {"source"}  # only a denoising decoder models texts without a source
    return tuple(
        kind
        for kind in LM_KIND_PREFERENCE[operation]
        if kind in trained_kinds and LM_HEADS[kind] not in model.untrained_heads
    )


def lm_kind_for(model: Model, operation: LMOperation, *, source: bool = False) -> LMKind:
    """The preferred kind for an operation; with `source` (a source text or image is given) `source` if possible."""
    if source and "source" in lm_kinds(model):
        return "source"
    kinds = lm_kinds_for(model, operation)
    if not kinds:
        raise MeristemError(_unsupported_message(model, operation))
    return kinds[0]


def encoding_lm_kind(model: Model) -> LMKind | None:
    """The kind that encodes a text, for embeddings and attention maps; None without a language-model objective.

    An encoder-decoder uses its encoder if that was trained on texts; a causal model that also predicts masked tokens
    sees both sides.
    """
    trained_kinds = text_lm_kinds(model)
    if "masked_next" in trained_kinds:
        return "masked_next"
    encoder_first = "encoder_decoder" in model.backbone.capabilities
    order = ("masked", "generator", "source", "causal") if encoder_first else trained_kinds
    return next((kind for kind in order if kind in trained_kinds), None)


def text_lm_kinds(model: Model) -> tuple[LMKind, ...]:
    """The kinds trained on texts: a decoder trained on images alone reads no source text."""
    images_only = model.source_kinds == frozenset({"image"})
    return tuple(kind for kind in lm_kinds(model) if kind != "source" or not images_only)


def vocabulary_head(model: Model, lm_kind: LMKind) -> VocabularyHead:
    """The head that turns hidden states into logits over the vocabulary."""
    head = model.heads[LM_HEADS[lm_kind]]
    module = head.words if isinstance(head, ElectraGenerator) else head
    assert isinstance(module, VocabularyHead)
    return module


def supported_operations(model: Model) -> tuple[str, ...]:
    """The operations this model supports, `detect` included."""
    operations: list[str] = [operation for operation in LM_KIND_PREFERENCE if lm_kinds_for(model, operation)]
    return (*operations, "detect") if can_detect(model) else tuple(operations)


def can_detect(model: Model) -> bool:
    """Whether it was trained on replaced-token detection."""
    return DETECTION_HEAD in model.heads and DETECTION_HEAD not in model.untrained_heads


def require_lm_kind(model: Model, lm_kind: LMKind, operation: str) -> None:
    """Raise an error if the model lacks this kind of head; the message says what it supports."""
    if lm_kind not in lm_kinds(model):
        raise MeristemError(
            f"{operation} needs a {lm_kind} model (objective={LM_HEADS[lm_kind]}); {_supported_message(model)}"
        )


def _supported_message(model: Model) -> str:
    trained_kinds, operations = lm_kinds(model), supported_operations(model)
    description = (
        f"this one is {' and '.join(trained_kinds)}"
        if trained_kinds
        else f"this one was trained for {_head_names(model)}"
    )
    return f"{description}: it supports {' and '.join(operations)}" if operations else description


def _head_names(model: Model) -> str:
    return ", ".join(model.heads) or "nothing"


def _unsupported_message(model: Model, operation: LMOperation) -> str:
    """Why this model does not support an operation, and what to do."""
    trained_kinds = lm_kinds(model)
    if untrained_heads := [
        LM_HEADS[kind]
        for kind in trained_kinds
        if kind in LM_KIND_PREFERENCE[operation] and LM_HEADS[kind] in model.untrained_heads
    ]:
        return (
            f"{operation}: the imported folder had no {' and no '.join(untrained_heads)} head, so the head of this run "
            "is untrained; train it first: meristem pretrain from=RUN"
        )
    if not trained_kinds and can_detect(model):
        return (
            f"{operation}: this model was trained without a generator (objective.generator_size=none), so it can only "
            "detect replaced tokens: meristem detect RUN TEXT"
        )
    if not trained_kinds:
        return (
            f"{operation}: this run was trained for {_head_names(model)} and has no language-model head; use "
            "meristem predict, or the pretrained run it was fine-tuned from"
        )
    if trained_kinds == ("source",):
        return (
            f"{operation}: this model was trained on pairs, so its predictions depend on a source, "
            "and a text alone has none; give both: meristem score RUN SOURCE --text-b TARGET, for a captioner "
            "--image FILE --text-b CAPTION"
        )
    return (
        f"{operation} needs a model with context on both sides of a mask (objective=mlm, hybrid, plm, bilm, rtd or "
        f"denoising); {_supported_message(model)}"
    )
