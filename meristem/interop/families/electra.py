"""ELECTRA as transformers keeps it: the discriminator, and its generator as a model of its own in a subfolder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meristem.batch import Model
from meristem.blocks.generator import narrowed
from meristem.errors import MeristemError
from meristem.interop.families._encoder import (
    READS,
    SIZES,
    SPAN,
    TAGGING,
    Encoder,
    embeddings,
    pooled,
    stack,
    vocabulary,
)
from meristem.interop.folder import Weights
from meristem.interop.folder import config_of as folder_config
from meristem.interop.lines import Line
from meristem.interop.published import Carried, Entry

WORDS = ("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias")


class Part(Encoder):
    """Either net: post-norm, learned positions, embeddings that may be narrower than the model."""

    type = "electra"
    family = "electra"
    entries = (
        *(entry for entry in SIZES if entry.ours not in ("width", "heads", "inner")),
        Entry("width", "hidden_size", 256),
        Entry("heads", "num_attention_heads", 4),
        Entry("inner", "intermediate_size", 1024),
        Entry("embedding", "embedding_size", 128),
        Entry("length", "max_position_embeddings", 512),
        Entry("segments", "type_vocab_size", 2),
        Entry("activation", "hidden_act", "gelu", {"gelu": "gelu"}),  # their words are behind gelu whatever it is
    )
    fixed = {"norm_place": "post", "positions": "learned", "pooler": "gelu"}
    demands = {
        "position_embedding_type": "absolute",
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_activation": "gelu",
        **READS,
    }
    base = "electra."
    inputs = ("input_ids", "token_type_ids", "attention_mask")
    objectives = {"rtd": ("rtd",), "mlm": ("mlm",)}
    ties = {"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"}
    without = (r"electra\.embeddings\.position_ids",)

    @classmethod
    def differences(cls, settings: Any, kinds: Any = ()) -> list[str]:
        """Theirs has one segment at least."""
        return super().differences(settings, kinds) + ["model.segments=0"] * (settings.segments == 0)


class Alone(Part):
    """The generator inside a run that finds replaced tokens: a model of its own width over the shared embeddings."""

    body = (
        *stack("heads.generator.body", "electra"),
        Line("heads.generator.body.project", "electra.embeddings_project"),
        *embeddings("electra"),
    )
    apart = ("backbone.stack.", "backbone.project.")
    heads = {"generator": Carried("generator", vocabulary("generator.words", *WORDS).lines)}
    architectures = {"ElectraForMaskedLM": ("generator",)}

    @classmethod
    def shape(cls, settings: Any, model: Model) -> Any:
        """Narrower, but for its embeddings."""
        divide = dict(model.declared["generator"].sizes)["divide"]
        return narrowed(settings, divide).model_copy(update={"embedding": settings.embedding or settings.width})


class Electra(Part):
    """A net that stands by itself: the discriminator, or a generator that goes on as a masked model."""

    body = (
        *stack("backbone", "electra"),
        Line("backbone.project", "electra.embeddings_project"),
        *embeddings("electra"),
    )
    heads = {
        "rtd": Carried("token_score", (
            Line("heads.rtd.dense", "discriminator_predictions.dense"),
            Line("heads.rtd.score", "discriminator_predictions.dense_prediction"),
        )),
        "mlm": vocabulary("mlm", *WORDS),
        "classification": pooled("classification", "classifier.dense", "classifier.out_proj"),
        "tagging": TAGGING,
        "span": SPAN,
        "choice": pooled("choice", "sequence_summary.summary", "classifier", classes=1),
    }  # fmt: skip
    architectures = {
        "ElectraModel": (),
        "ElectraForPreTraining": ("rtd",),
        "ElectraForMaskedLM": ("mlm",),
        "ElectraForSequenceClassification": ("classification",),
        "ElectraForTokenClassification": ("tagging",),
        "ElectraForQuestionAnswering": ("span",),
        "ElectraForMultipleChoice": ("choice",),
    }
    alone = {"ElectraForMaskedLM": Alone}
    companions = {"generator": "ElectraForMaskedLM"}

    @classmethod
    def known(cls, config: Mapping[str, Any], weights: Weights) -> Mapping[str, Any]:
        """config.json with the width of the generator that lies beside the discriminator."""
        if not (weights.folder / "generator" / "config.json").is_file():
            return config
        return {**config, "generator_size": folder_config(weights.folder / "generator").get("hidden_size", 256)}

    @classmethod
    def objective(cls, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """The generator's share of the width; a new one has a quarter, or the smallest part that is whole."""
        if name != "rtd":
            return super().objective(name, config)
        width, own = int(config.get("hidden_size") or 256), config.get("generator_size")
        if own is not None and (type(own) is not int or not own or width % own):
            raise MeristemError(
                f"generator/config.json: hidden_size={own!r} does not divide the discriminator's {width}"
            )
        part = width // own if own else next(part for part in (4, 3, 2, 1) if width % part == 0)
        return {"name": name, "generator": f"1/{part}"}
