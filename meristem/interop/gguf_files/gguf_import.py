"""Import of GGUF files as runs: tensors of any quantization, dequantized, under the names of transformers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.interop.foreign_checkpoint import ForeignCheckpoint, read_foreign_tokenizer
from meristem.interop.gguf_files.architecture_table import ARCHITECTURES
from meristem.interop.gguf_files.gguf_architecture import GgufArchitecture, scale_last_norm
from meristem.interop.gguf_files.gguf_export import SCALED_KEY, gguf_library
from meristem.interop.gguf_files.gguf_tokenizer import PREFIX, read_tokenizer_json
from meristem.tokenizers.tokenizer import Tokenizer

SUFFIX = ".gguf"
MAGIC = b"GGUF"
TOKEN_KEYS = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}


def is_gguf(path: Path) -> bool:
    """Whether a file is GGUF by its name."""
    return path.suffix.lower() == SUFFIX


def read_gguf(path: Path, tokenizer_path: Path | None) -> ForeignCheckpoint:
    """config.json, tokenizer and tensors of a GGUF file; a damaged one is an error in one sentence."""
    gguf = gguf_library()
    reader = _open(gguf, path)
    try:
        return _read_checkpoint(gguf, reader, path, tokenizer_path)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError) as error:
        raise MeristemError(f"{path}: its metadata are damaged ({type(error).__name__}: {error!s:.120})") from None


def _read_checkpoint(gguf: Any, reader: Any, path: Path, tokenizer_path: Path | None) -> ForeignCheckpoint:
    """What the reader of a file holds."""
    metadata = dict(_metadata(reader, path))
    name = metadata.get("general.architecture")
    architecture = next((candidate for candidate in ARCHITECTURES if candidate.name == name), None)
    if architecture is None:
        supported = ", ".join(candidate.name for candidate in ARCHITECTURES)
        raise MeristemError(f"{path}: architecture {name!r} is not supported; supported: {supported}")
    own_keys = {key.removeprefix(f"{name}."): value for key, value in metadata.items() if key.startswith(f"{name}.")}
    try:
        tokenizer = _tokenizer(path, metadata, tokenizer_path)
        config = architecture.to_config(own_keys)
    except MeristemError as error:
        raise MeristemError(f"{path}: {error}") from None
    gguf_tensors = dict(_tensors(gguf, reader, path))
    if metadata.get(SCALED_KEY, architecture.scaled_output and "output.weight" not in gguf_tensors):
        config["scale_decoder_outputs"] = True
        if SCALED_KEY in metadata:
            scale_last_norm(gguf_tensors, config["d_model"], to_gguf=False)
    elif architecture.scaled_output:
        config["scale_decoder_outputs"] = False
    config |= _shapes(architecture, gguf_tensors)
    config |= {key: metadata.get(f"{PREFIX}.{ours}_token_id") for key, ours in TOKEN_KEYS.items()}
    if architecture.name in ("gpt2", "llama") and not metadata.get(
        f"{PREFIX}.add_bos_token", architecture.name == "llama"
    ):
        config["bos_token_id"] = config["eos_token_id"] if architecture.name == "gpt2" else None
    tensors = dict(_their_tensors(architecture, gguf_tensors, config, path))
    heads_config = {"model_type": architecture.model_type, "architectures": [architecture.architecture]}
    return ForeignCheckpoint(path=path, config=heads_config | config, tokenizer=tokenizer, tensors=tensors)


def _open(gguf: Any, path: Path) -> Any:
    """The reader of a file; whatever the library raises for a damaged one is one error."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        raise MeristemError(f"{path}: cannot be read: {error.strerror}") from None
    if magic != MAGIC:
        raise MeristemError(f"{path}: not a GGUF file: it begins with {magic!r}")
    try:
        return gguf.GGUFReader(path)
    except Exception as error:  # the library raises whatever numpy raises
        raise MeristemError(f"{path}: damaged or not complete ({type(error).__name__}: {error!s:.120})") from None


def _metadata(reader: Any, path: Path) -> Iterator[tuple[str, Any]]:
    for key, field in reader.fields.items():
        try:
            yield key, field.contents()
        except Exception as error:
            raise MeristemError(f"{path}: the value of {key} is damaged ({type(error).__name__})") from None


def _tokenizer(path: Path, metadata: Mapping[str, Any], tokenizer_path: Path | None) -> Tokenizer:
    """The tokenizer that is named, else the file's own."""
    if tokenizer_path is not None:
        return read_foreign_tokenizer(tokenizer_path)
    return Tokenizer(read_tokenizer_json(metadata), str(path))


def _tensors(gguf: Any, reader: Any, path: Path) -> Iterator[tuple[str, Tensor]]:
    """Tensors by GGUF name, in float32."""
    for tensor in reader.tensors:
        shape = [int(size) for size in reversed(tensor.shape)]
        try:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            yield tensor.name, torch.from_numpy(np.array(values, np.float32)).reshape(shape)
        except Exception as error:
            kind = getattr(tensor.tensor_type, "name", tensor.tensor_type)
            raise MeristemError(
                f"{path}: {tensor.name} ({kind}) cannot be read ({type(error).__name__}: {error!s:.120})"
            ) from None


def _shapes(architecture: GgufArchitecture, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """What only the tensors show: rows of the vocabulary, whether the output is tied, biases, segments, gates."""
    tied = "output.weight" not in tensors
    shapes: dict[str, Any] = {"tie_word_embeddings": tied}
    if (embedding := tensors.get("token_embd.weight")) is not None:
        shapes["vocab_size"] = len(embedding)
    if architecture.name == "llama":
        has_bias = "blk.0.attn_q.bias" in tensors
        shapes |= {"attention_bias": has_bias, "mlp_bias": has_bias}
    elif architecture.name == "bert":
        segments = tensors.get("token_types.weight")
        shapes["type_vocab_size"] = 0 if segments is None else len(segments)
    elif architecture.name == "t5":
        is_gated = "enc.blk.0.ffn_gate.weight" in tensors
        shapes["feed_forward_proj"] = "gated-gelu" if is_gated else "relu"
    return shapes


def _their_tensors(
    architecture: GgufArchitecture, tensors: Mapping[str, Tensor], config: Mapping[str, Any], path: Path
) -> Iterator[tuple[str, Tensor]]:
    is_gated = config.get("feed_forward_proj") != "relu"
    for name, tensor in tensors.items():
        try:
            rule, their_name = architecture.find(name, to_gguf=False)
            if not is_gated:
                their_name = their_name.replace(".wi_1.", ".wi.")
            yield their_name, rule.convert(tensor, config, to_gguf=False).contiguous()
        except (MeristemError, RuntimeError, KeyError) as error:
            raise MeristemError(f"{path}: {name}: {error}") from None
