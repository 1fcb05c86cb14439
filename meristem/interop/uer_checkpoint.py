"""Checkpoints of UER-py: BERT with its own names, three segments, and its own layer norm."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.interop.foreign_checkpoint import ForeignCheckpoint, read_foreign_tokenizer
from meristem.utils import untrusted_files

PARTS = {
    "self_attn.linear_layers.0": "attention.self.query",
    "self_attn.linear_layers.1": "attention.self.key",
    "self_attn.linear_layers.2": "attention.self.value",
    "self_attn.final_linear": "attention.output.dense",
    "layer_norm_1": "attention.output.LayerNorm",
    "feed_forward.linear_1": "intermediate.dense",
    "feed_forward.linear_2": "output.dense",
    "layer_norm_2": "output.LayerNorm",
}
MODULES = {
    "embedding.word_embedding": "bert.embeddings.word_embeddings",
    "embedding.word.embedding": "bert.embeddings.word_embeddings",
    "embedding.position_embedding": "bert.embeddings.position_embeddings",
    "embedding.pos.embedding": "bert.embeddings.position_embeddings",
    "embedding.segment_embedding": "bert.embeddings.token_type_embeddings",
    "embedding.seg.embedding": "bert.embeddings.token_type_embeddings",
    "embedding.layer_norm": "bert.embeddings.LayerNorm",
    "target.mlm_linear_1": "cls.predictions.transform.dense",
    "target.mlm.linear_1": "cls.predictions.transform.dense",
    "target.layer_norm": "cls.predictions.transform.LayerNorm",
    "target.mlm.layer_norm": "cls.predictions.transform.LayerNorm",
    "target.mlm_linear_2": "cls.predictions.decoder",
    "target.mlm.linear_2": "cls.predictions.decoder",
    "target.nsp_linear_1": "bert.pooler.dense",
    "target.sp.linear_1": "bert.pooler.dense",
    "target.nsp_linear_2": "cls.seq_relationship",
    "target.sp.linear_2": "cls.seq_relationship",
    "output_layer_1": "bert.pooler.dense",
    "output_layer_2": "classifier",
}
"""UER-py's modules, of its first and of its later versions, and of fine-tuned classifiers → transformers'."""
LAYER = re.compile(r"encoder\.transformer\.(\d+)\.(.+)")
WORD_NAMES = ("embedding.word_embedding.weight", "embedding.word.embedding.weight")
EPSILON = 1e-12
"""UER-py divides by σ + 1e-6; this epsilon under the root is closest to that for any σ worth naming."""
REQUIRED_CONFIG = {
    "layernorm_positioning": "post",
    "encoder": "transformer",
    "mask": "fully_visible",
    "feed_forward": "dense",
    "layernorm": "normal",
}


def is_uer(content: Any) -> bool:
    """Whether named tensors have UER-py's layout."""
    return isinstance(content, dict) and any(name in content for name in WORD_NAMES)


def read_uer(path: Path, content: Any, tokenizer: Path | None, config: Path | None) -> ForeignCheckpoint:
    """A BERT of UER-py; its configuration file has the number of heads, its vocab.txt the tokens."""
    if not is_uer(content) or not all(isinstance(tensor, Tensor) for tensor in content.values()):
        raise MeristemError(f"{path}: not a checkpoint of UER-py: it has no {WORD_NAMES[0]}")
    if tokenizer is None:
        raise MeristemError(f"{path}: UER-py keeps its vocabulary elsewhere: --tokenizer vocab.txt")
    uer_config = {} if config is None else untrusted_files.read_json_object(config)
    for key, required in REQUIRED_CONFIG.items():
        if (value := uer_config.get(key, required)) != required:
            raise MeristemError(f"{config}: {key}={value!r}: only {required!r} has a counterpart in the bert family")
    tensors = dict(_their_tensors(path, content))
    hidden_size = content[next(name for name in WORD_NAMES if name in content)].shape[1]
    heads, notices = uer_config.get("heads_num"), list[str]()
    if type(heads) is not int or heads < 1:
        heads = max(1, hidden_size // 64)
        notices.append(f"no --config, so the model has {heads} heads of 64 channels, as UER-py's own models have")
    words = tensors["bert.embeddings.word_embeddings.weight"]
    layers = 1 + max((int(match[1]) for name in content if (match := LAYER.fullmatch(name))), default=-1)
    head_names = {
        "BertForPreTraining": "cls.seq_relationship.weight",
        "BertForMaskedLM": "cls.predictions.transform.dense.weight",
        "BertForSequenceClassification": "classifier.weight",
        "BertModel": "bert.embeddings.word_embeddings.weight",
    }
    return ForeignCheckpoint(
        path=path,
        config={
            "model_type": "bert",
            "architectures": [next(name for name, tensor in head_names.items() if tensor in tensors)],
            "num_hidden_layers": layers,
            "hidden_size": hidden_size,
            "num_attention_heads": heads,
            "intermediate_size": len(tensors.get("bert.encoder.layer.0.intermediate.dense.weight", words)),
            "max_position_embeddings": len(tensors.get("bert.embeddings.position_embeddings.weight", words)),
            "type_vocab_size": len(tensors.get("bert.embeddings.token_type_embeddings.weight", words)),
            "hidden_act": _activation(uer_config, config),
            "hidden_dropout_prob": uer_config.get("dropout", 0.1),
            "attention_probs_dropout_prob": uer_config.get("dropout", 0.1),
            "layer_norm_eps": EPSILON,
            "vocab_size": len(words),
            "num_labels": len(tensors["classifier.weight"]) if "classifier.weight" in tensors else None,
        },
        tokenizer=read_foreign_tokenizer(tokenizer),
        tensors=tensors,
        notices=tuple(notices),
    )


def _activation(uer_config: Mapping[str, Any], config: Path | None) -> str:
    """The activation by transformers' name."""
    name = uer_config.get("hidden_act", "gelu")
    names = {"gelu": "gelu", "gelu_fast": "gelu_new", "relu": "relu"}
    if name not in names:
        raise MeristemError(f"{config}: hidden_act={name!r} is not supported; supported: {', '.join(names)}")
    return names[name]


def _their_tensors(path: Path, content: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Tensors by transformers' names; unknown ones are an error that names the first."""
    for name, tensor in content.items():
        module, _, suffix = name.rpartition(".")
        if layer := LAYER.fullmatch(module):
            theirs = f"bert.encoder.layer.{layer[1]}.{PARTS[layer[2]]}" if layer[2] in PARTS else None
        else:
            theirs = MODULES.get(module)
        if theirs is None:
            raise MeristemError(f"{path}: {name} has no counterpart in the bert family")
        if theirs.endswith("token_type_embeddings"):
            yield f"{theirs}.weight", tensor[1:]  # segment 0 is padding there
        elif suffix == "gamma":
            # UER-py divides by the standard deviation of a sample, which is larger than that of a population
            size = tensor.shape[0]
            yield f"{theirs}.weight", tensor * torch.tensor((size - 1) / size).sqrt()
        elif suffix == "beta":
            yield f"{theirs}.bias", tensor
        elif theirs == "cls.predictions.decoder" and suffix == "bias":
            yield "cls.predictions.bias", tensor
        else:
            yield f"{theirs}.{suffix}", tensor
