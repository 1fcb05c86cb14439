"""ONNX export of a run: a folder with graphs, tokenizer, config and README."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from meristem.checkpoint import disk
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.config.errors import MeristemError
from meristem.generation.generate import banned_token_ids
from meristem.generation.generation_inputs import input_template
from meristem.generation.head_selection import LMKind
from meristem.interfaces.backbone import MODEL_FAMILIES
from meristem.interfaces.task import Task
from meristem.interop.atomic_folder import atomic_folder
from meristem.interop.export_folder import ExportResult
from meristem.interop.onnx_export import causal_graphs, encoder_decoder_graphs, encoder_graphs
from meristem.interop.onnx_export.onnx_graph import OnnxGraph, save_graph
from meristem.interop.onnx_export.onnx_readme import build_readme
from meristem.interop.onnx_export.quantized_graph import quantize_graph
from meristem.interop.tokenizer_conversion import describe_tokenizer
from meristem.models.bert import Bert
from meristem.models.gpt2 import GPT2
from meristem.models.modernbert import ModernBert
from meristem.models.transformer import Transformer
from meristem.models.transformer_xl import TransformerXL
from meristem.models.xlnet import XLNet
from meristem.utils import untrusted_files
from meristem.utils.terminal import emit

SUPPORTED_BACKBONES = (Bert, ModernBert, GPT2, Transformer, TransformerXL, XLNet)
"""Backbones that can be exported, and those built from them."""


def export_onnx(run: Path, out: Path, *, int8: bool = False) -> ExportResult:
    """Write the graphs, tokenizer.json, config.json, recipe.yaml and a README, complete or not at all.

    With `int8`, weights of matrix products are rounded to 8 bits, and onnxruntime rounds their inputs as it runs.
    """
    _check_libraries()
    loaded = load_run(run)
    model = loaded.learner.model.float()
    kind, graphs = plan_graphs(loaded)
    with atomic_folder(out) as folder:
        for graph in graphs:
            start_time = time.perf_counter()
            emit(f"{graph.file} … ", end="", err=True, flush=True)
            save_graph(graph, folder)
            if int8:
                quantize_graph(folder / graph.file)
            emit(f"{time.perf_counter() - start_time:.0f} s", err=True)
        for name, text in _text_files(loaded, kind, graphs).items():
            disk.write_file(folder / name, [text.encode()])
    description = [loaded.recipe.model.family, kind, *["int8"] * int8]
    exported_heads = {name for graph in graphs for name in graph.heads}
    return ExportResult(
        folder=out,
        architecture=f"{' and '.join(graph.file for graph in graphs)} ({', '.join(description)})",
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        notes=tuple(
            f"{name}: left out, since no graph supports it" for name in model.heads if name not in exported_heads
        ),
    )


def _check_libraries() -> None:
    try:
        import onnx  # noqa: F401  # torch's exporter needs both
        import onnxscript  # noqa: F401
    except ImportError:
        raise MeristemError('ONNX export needs onnx and onnxscript: pip install "meristem-lm[export]"') from None


def plan_graphs(loaded: LoadedRun) -> tuple[str, list[OnnxGraph]]:
    """The kind of model and its graphs; an unsupported model is an error."""
    model, family = loaded.learner.model, loaded.recipe.model.family
    backbone = model.backbone
    _check_tasks(loaded)
    if not isinstance(backbone, SUPPORTED_BACKBONES):
        supported = [
            name for name, family_class in MODEL_FAMILIES.items() if issubclass(family_class, SUPPORTED_BACKBONES)
        ]
        raise MeristemError(f"the {family} family has no ONNX export; these have one: {', '.join(supported)}")
    if isinstance(backbone, Transformer):
        if "seq2seq" not in model.heads:
            raise MeristemError(f"this {family} has no seq2seq head, which the decoder's graph needs")
        return "encoder-decoder", encoder_decoder_graphs.build_encoder_decoder_graphs(model)
    if "clm" in model.heads:
        graphs = [causal_graphs.build_causal_graph(model)]
        if "mlm" in model.heads:
            graphs.append(encoder_graphs.build_encoder_graph(model, "encoder_model.onnx"))
        return "causal", graphs
    if "bidirectional" in backbone.capabilities:
        return "encoder", [encoder_graphs.build_encoder_graph(model, untrained=loaded.state.get("new", ()))]
    raise MeristemError(f"this {family} has no language-model head (clm), which its graph needs")


def _check_tasks(loaded: LoadedRun) -> None:
    """Raise if the logits of a task are not those of its head on the states of one row, which is what a graph has."""
    for task in (candidate for candidate in loaded.learner.objectives.values() if isinstance(candidate, Task)):
        if obstacles := task.parts.graph_obstacles:
            raise MeristemError(
                f"task {task.name}: no graph computes {' and '.join(obstacles)}, so its logits would not be those of "
                "meristem predict; train without it what is to be exported as ONNX"
            )


def _text_files(loaded: LoadedRun, kind: str, graphs: list[OnnxGraph]) -> dict[str, str]:
    config = _build_config(loaded, kind, graphs)
    lm_kinds: dict[str, LMKind] = {"causal": "causal", "encoder-decoder": "source"}
    template = input_template(loaded.learner.model, loaded.tokenizer, lm_kinds.get(kind))
    description = describe_tokenizer(loaded.tokenizer, template)
    return {
        "config.json": untrusted_files.to_json(config, indent=2, ascii_only=True) + "\n",
        "tokenizer.json": untrusted_files.to_json(description, indent=1) + "\n",
        "recipe.yaml": loaded.run.recipe_path.read_text(encoding="utf-8"),
        "README.md": build_readme(loaded, kind, config),
    }


def _build_config(loaded: LoadedRun, kind: str, graphs: list[OnnxGraph]) -> dict[str, Any]:
    """What a user of the graphs needs; special tokens have transformers' names."""
    tokenizer, model, recipe = loaded.tokenizer, loaded.learner.model, loaded.recipe
    config: dict[str, Any] = {
        "family": recipe.model.family,
        "kind": kind,
        "length": recipe.model.max_length,
        "vocab_size": len(model.backbone.embedding().weight),
        "hidden_size": recipe.model.hidden_size,
        "pad_token_id": tokenizer.pad,
        "unk_token_id": tokenizer.unknown,
        "bos_token_id": tokenizer.start,
        "eos_token_id": tokenizer.end,
        "mask_token_id": tokenizer.mask,
    }
    if kind == "encoder":
        config["suppress_tokens"] = tokenizer.special_mask.nonzero()[0].tolist()
    else:
        template = input_template(model, tokenizer, "source" if kind == "encoder-decoder" else "causal")
        start_ids = template.decoder_start_ids if kind == "encoder-decoder" else template.prompt_start_ids
        config |= {"decoder_start_token_ids": list(start_ids), "suppress_tokens": banned_token_ids(model, tokenizer)}
    labels = {name: list(head.labels) for name, head in recipe.heads.items() if head.labels}
    config |= {"labels": labels} if labels else {}
    config["graphs"] = {
        graph.file: {
            "inputs": {graph_input.name: list(graph_input.axes) for graph_input in graph.all_inputs},
            "outputs": list(graph.outputs),
        }
        for graph in graphs
    }
    return config
