"""Checkpoints of nanoGPT (ckpt.pt): GPT-2 with optional biases, with its own tokenizer or one of characters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.interop import torch_files
from meristem.interop.foreign_checkpoint import ForeignCheckpoint, read_foreign_tokenizer
from meristem.tokenizers.special_tokens import ENDOFTEXT
from meristem.tokenizers.tokenizer import Tokenizer

MODEL_KEYS = ("n_layer", "n_head", "n_embd", "block_size", "vocab_size")
COMPILED_PREFIX = "_orig_mod."
"""The prefix of the names of a model that was compiled."""
VOCABULARY_TENSORS = ("transformer.wte.weight", "lm_head.weight")
MAX_CHARACTERS = 1 << 20


def is_nanogpt(content: Any) -> bool:
    """Whether a checkpoint has nanoGPT's layout."""
    return isinstance(content, dict) and isinstance(content.get("model"), dict) and "model_args" in content


def read_nanogpt(path: Path, content: Any, tokenizer: Path | None) -> ForeignCheckpoint:
    """Architecture from `model_args`, weights from `model`; the optimizer's state is left out."""
    if not is_nanogpt(content):
        raise MeristemError(f"{path}: not a checkpoint of nanoGPT: it has no model and model_args")
    model_args, state = content["model_args"], content["model"]
    if not isinstance(model_args, dict) or not all(type(model_args.get(key)) is int for key in MODEL_KEYS):
        raise MeristemError(f"{path}: model_args must have the numbers {', '.join(MODEL_KEYS)}")
    if not all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in state.items()):
        raise MeristemError(f"{path}: model contains something other than named tensors")
    if tokenizer is None:
        raise MeristemError(
            f"{path}: nanoGPT keeps its tokenizer elsewhere: --tokenizer meta.pkl for characters (data/NAME/meta.pkl), "
            "or --tokenizer FOLDER with GPT-2's vocab.json and merges.txt"
        )
    tensors = {name.removeprefix(COMPILED_PREFIX): tensor for name, tensor in state.items()}
    config: dict[str, Any] = {
        "model_type": "nanogpt",
        "architectures": ["NanoGPT"],
        **{key: model_args[key] for key in MODEL_KEYS},
        "bias": bool(model_args.get("bias", True)),
        "dropout": float(model_args.get("dropout", 0.0)),
    }
    notices = []
    if type(iterations := content.get("iter_num")) is int:
        notices.append(f"trained for {iterations:,} iterations; the optimizer's state was left out")
    run_tokenizer = _read_tokenizer(tokenizer)
    if tokenizer.suffix == ".pkl":
        tensors = {name: _with_end_row(name, tensor) for name, tensor in tensors.items()}
        config["vocab_size"] += 1
        notices.append(f"{ENDOFTEXT} was added with a row of zeros: nanoGPT's characters have no end of a text")
    else:
        config |= {"bos_token_id": run_tokenizer.end, "eos_token_id": run_tokenizer.end}
    return ForeignCheckpoint(path=path, config=config, tokenizer=run_tokenizer, tensors=tensors, notices=tuple(notices))


def _with_end_row(name: str, tensor: Tensor) -> Tensor:
    """An embedding with a row for the end token; other tensors unchanged."""
    if name not in VOCABULARY_TENSORS:
        return tensor
    return torch.cat([tensor, tensor.new_zeros(1, tensor.shape[1])])


def _read_tokenizer(path: Path) -> Tokenizer:
    """GPT-2's tokenizer from its files, or the characters of meta.pkl."""
    if path.suffix != ".pkl":
        return read_foreign_tokenizer(path)
    if not path.is_file():
        raise MeristemError(f"{path}: no such file")
    meta = torch_files.read_restricted_pickle(path)
    characters = meta.get("itos") if isinstance(meta, dict) else None
    if not isinstance(characters, Mapping) or sorted(characters) != list(range(len(characters))):
        raise MeristemError(f"{path}: not nanoGPT's meta.pkl: itos must name a character for each of 0, 1, 2, …")
    names = [characters[number] for number in range(len(characters))]
    if len(names) > MAX_CHARACTERS or not all(isinstance(name, str) and len(name) == 1 for name in names):
        raise MeristemError(f"{path}: itos must have single characters")
    return character_tokenizer(names, str(path))


def character_tokenizer(characters: list[str], source: str) -> Tokenizer:
    """A tokenizer of these characters and an end token, as which unknown characters are read."""
    from tokenizers import Regex, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as LibraryTokenizer

    vocabulary = {character: number for number, character in enumerate([*characters, ENDOFTEXT])}
    library = LibraryTokenizer(models.WordLevel(vocabulary, unk_token=ENDOFTEXT))
    library.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    library.decoder = decoders.Fuse()
    library.add_special_tokens([ENDOFTEXT])
    return Tokenizer(library.to_str(), source)
