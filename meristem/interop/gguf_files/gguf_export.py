"""Export of a run as a GGUF file for llama.cpp, in float32 or with q8_0 weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from meristem.checkpoint import disk
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.config.errors import MeristemError
from meristem.interop.atomic_folder import atomic_folder
from meristem.interop.export_folder import ExportResult, find_export_type
from meristem.interop.gguf_files.architecture_table import ARCHITECTURES
from meristem.interop.gguf_files.gguf_architecture import GgufArchitecture, scale_last_norm
from meristem.interop.gguf_files.gguf_tokenizer import tokenizer_metadata
from meristem.interop.model_files import ModelFiles, build_model_files
from meristem.interop.readme_templates import render_readme
from meristem.interop.task_export import TaskExport
from meristem.training.report.model_card import read_card

GGUF_FILE = "model.gguf"
SCALED_KEY = "meristem.scaled_output"
"""The key that says that the last norm holds the scale of a tied T5 output."""
BLOCK = 32
"""Values that share a scale in q8_0."""
UNQUANTIZED = ("position_embd.weight", "token_types.weight")


def export_gguf(run: Path, out: Path, *, int8: bool = False) -> ExportResult:
    """Write model.gguf and a README; what llama.cpp cannot hold is an error, a head it has no use for a note."""
    gguf = gguf_library()
    loaded = load_run(run)
    architecture = _find_architecture(loaded)
    files, heads = _model_files(architecture, loaded)
    config = json.loads(files.texts["config.json"])
    if reason := architecture.unsupported(config):
        raise MeristemError(f"--gguf: {reason}")
    tensors, scaled = _gguf_tensors(architecture, files, config)
    metadata = {
        f"{architecture.name}.{key}": value for key, value in architecture.metadata(config).items() if value is not None
    }
    metadata |= tokenizer_metadata(json.loads(files.texts["tokenizer.json"]), config["vocab_size"], config)
    metadata |= {"general.name": loaded.recipe.name, SCALED_KEY: scaled}
    omitted = [name for name in loaded.learner.model.heads if name not in heads]
    notes = [f"{name}: left out, since GGUF's {architecture.name} has no such head" for name in omitted]
    with atomic_folder(out) as folder:
        unrounded = _write(gguf, folder / GGUF_FILE, architecture.name, metadata, tensors, int8=int8)
        if unrounded:
            notes.append(f"kept in float32, since their rows are no multiple of {BLOCK}: {', '.join(unrounded[:4])}")
        card = read_card(loaded.run.path, loaded.recipe.name).rstrip()
        text = render_readme("gguf_readme.md.jinja", card=card, architecture=architecture.name, notes=notes)
        disk.write_file(folder / "README.md", [text.encode()])
    name = f"{GGUF_FILE} ({architecture.name}, {'q8_0' if int8 else 'float32'})"
    return ExportResult(folder=out, architecture=name, parameters=files.parameters, notes=tuple(notes))


def _find_architecture(loaded: LoadedRun) -> GgufArchitecture:
    """The architecture of a run; families that llama.cpp does not have are refused by name."""
    model_type = find_export_type(loaded).name
    for architecture in ARCHITECTURES:
        if architecture.model_type == model_type:
            return architecture
    names = ", ".join(architecture.model_type for architecture in ARCHITECTURES)
    raise MeristemError(f"--gguf: {model_type} is not written as GGUF; supported: {names}")


def _model_files(architecture: GgufArchitecture, loaded: LoadedRun) -> tuple[ModelFiles, tuple[str, ...]]:
    """Config, tokenizer and weights of the transformers class, and the heads in it."""
    model_type = find_export_type(loaded)
    own_heads = loaded.learner.model.heads
    heads = tuple(name for name in model_type.architectures[architecture.architecture] if name in own_heads)
    needed = set(model_type.architectures[architecture.architecture]) - model_type.optional_heads
    if missing := needed - set(heads):
        raise MeristemError(f"--gguf: this run has no {' and no '.join(sorted(missing))} head, which {GGUF_FILE} needs")
    files = build_model_files(model_type, TaskExport(loaded=loaded), heads, architecture.architecture)
    return replace(files, weights=_without_pooler(files.weights)), heads


def _without_pooler(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights without BERT's pooler, which states per token do not need."""
    return {name: tensor for name, tensor in weights.items() if ".pooler." not in name}


def _gguf_tensors(
    architecture: GgufArchitecture, files: ModelFiles, config: Mapping[str, Any]
) -> tuple[dict[str, Tensor], bool]:
    """Tensors by GGUF name, and whether the last norm holds the scale of a tied output."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in files.weights.items():
        rule, gguf_name = architecture.find(name, to_gguf=True)
        tensors[gguf_name] = rule.convert(tensor.detach().float(), config, to_gguf=True).contiguous()
    scaled = architecture.scaled_output and bool(config.get("scale_decoder_outputs", config["tie_word_embeddings"]))
    if scaled:
        scale_last_norm(tensors, config["d_model"], to_gguf=True)
    return tensors, scaled


def _write(
    gguf: Any, path: Path, name: str, metadata: Mapping[str, Any], tensors: Mapping[str, Tensor], *, int8: bool
) -> list[str]:
    """Write the file; returns the matrices whose rows q8_0 cannot hold."""
    writer = gguf.GGUFWriter(str(path), name)
    kinds, unrounded = gguf.GGMLQuantizationType, []
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0 if int8 else gguf.LlamaFileType.ALL_F32)
    for key, value in metadata.items():
        _add_value(gguf, writer, key, value)
    for tensor_name, tensor in tensors.items():
        values = np.ascontiguousarray(tensor.numpy(), dtype=np.float32)
        is_matrix = tensor.ndim == 2 and tensor_name not in UNQUANTIZED and "attn_rel_b" not in tensor_name
        if int8 and is_matrix and values.shape[1] % BLOCK == 0:
            writer.add_tensor(tensor_name, gguf.quants.quantize(values, kinds.Q8_0), raw_dtype=kinds.Q8_0)
            continue
        if int8 and is_matrix:
            unrounded.append(tensor_name)
        writer.add_tensor(tensor_name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return unrounded


def _add_value(gguf: Any, writer: Any, key: str, value: Any) -> None:
    """One key of the metadata with the type llama.cpp expects; bytes are an array of them."""
    kinds = gguf.GGUFValueType
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, bytes):
        writer.add_key_value(key, value, kinds.ARRAY, sub_type=kinds.UINT8)
    else:
        writer.add_array(key, value)


def gguf_library() -> Any:
    """The gguf package."""
    try:
        import gguf
    except ImportError:
        raise MeristemError('GGUF files need gguf: pip install "meristem-lm[export]"') from None
    return gguf
