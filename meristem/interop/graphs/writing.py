"""A run becomes a folder of graphs with everything that their reader needs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from meristem import bounded
from meristem.checkpoint import disk
from meristem.checkpoint.revive import Revived, revive
from meristem.errors import MeristemError
from meristem.generation.given import opening, start_of
from meristem.generation.write import unwanted
from meristem.interop.exporting import Exported
from meristem.interop.graphs import causal, pair, reading
from meristem.interop.graphs.graph import Graph, save
from meristem.interop.graphs.page import page
from meristem.interop.graphs.words import framed
from meristem.interop.whole import whole
from meristem.models.bert import Bert
from meristem.models.gpt2 import GPT2
from meristem.models.transformer import Transformer
from meristem.models.transformer_xl import TransformerXL
from meristem.models.xlnet import XLNet
from meristem.settings import find, names
from meristem.terminal import emit

FAMILIES = (Bert, GPT2, Transformer, TransformerXL, XLNet)
"""Backbones that become graphs, and whatever is made of them."""


def export_run(run: Path, out: Path) -> Exported:
    """Write the graphs, tokenizer.json, config.json, recipe.yaml and a README, whole or not at all."""
    _libraries()
    revived = revive(run)
    model = revived.learner.model.float()
    kind, graphs = plan(revived)
    with whole(out) as folder:
        for graph in graphs:
            began = time.perf_counter()
            emit(f"{graph.file} … ", end="", err=True, flush=True)
            save(graph, folder)
            emit(f"{time.perf_counter() - began:.0f} s", err=True)
        for name, text in _texts(revived, kind, graphs).items():
            disk.store(folder / name, [text.encode()])
    asked = {name for graph in graphs for name in graph.heads}
    return Exported(
        folder=out,
        architecture=f"{' and '.join(graph.file for graph in graphs)} ({revived.recipe.model.family}, {kind})",
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        notes=tuple(
            f"{name}: left out, since no graph has a place for it" for name in model.heads if name not in asked
        ),
    )


def _libraries() -> None:
    try:
        import onnx  # noqa: F401  # torch's exporter needs both
        import onnxscript  # noqa: F401
    except ImportError:
        raise MeristemError('writing ONNX needs onnx and onnxscript: pip install "meristem[export]"') from None


def plan(revived: Revived) -> tuple[str, list[Graph]]:
    """What kind of model it is, and its graphs; a model that has none is refused by name."""
    model, family = revived.learner.model, revived.recipe.model.family
    backbone = model.backbone
    if not isinstance(backbone, FAMILIES):
        able = [name for name in names("models") if issubclass(find("models", name), FAMILIES)]
        raise MeristemError(
            f"the {family} family has no ONNX form here; these have: {', '.join(able)}. The run stays readable here"
        )
    if isinstance(backbone, Transformer):
        if "seq2seq" not in model.heads:
            raise MeristemError(f"this {family} has no head that writes (seq2seq), and a decoder's graph ends with it")
        return "encoder-decoder", pair.reader_and_writer(model)
    if "clm" in model.heads:
        graphs = [causal.writer(model)]
        if "mlm" in model.heads:
            graphs.append(reading.encoder(model, "encoder_model.onnx"))
        return "causal", graphs
    if "bidirectional" in backbone.can:
        return "encoder", [reading.encoder(model, unlearnt=revived.state.get("new", ()))]
    raise MeristemError(f"this {family} was not trained to write (clm), and its graph would have nothing to say")


def _texts(revived: Revived, kind: str, graphs: list[Graph]) -> dict[str, str]:
    config = _config(revived, kind, graphs)
    return {
        "config.json": bounded.to_json(config, indent=2, ascii_only=True) + "\n",
        "tokenizer.json": framed(revived.tokenizer, kind) + "\n",
        "recipe.yaml": revived.run.recipe_path.read_text(encoding="utf-8"),
        "README.md": page(revived, kind, config),
    }


def _config(revived: Revived, kind: str, graphs: list[Graph]) -> dict[str, Any]:
    """What a reader of the graphs must know; names of tokens' roles are those of transformers."""
    tokenizer, model, recipe = revived.tokenizer, revived.learner.model, revived.recipe
    out: dict[str, Any] = {
        "family": recipe.model.family,
        "kind": kind,
        "length": recipe.model.length,
        "vocab_size": len(model.backbone.embedding().weight),
        "hidden_size": recipe.model.width,
        "pad_token_id": tokenizer.pad,
        "unk_token_id": tokenizer.unknown,
        "bos_token_id": tokenizer.start,
        "eos_token_id": tokenizer.end,
        "mask_token_id": tokenizer.mask,
    }
    if kind == "encoder":
        out["suppress_tokens"] = tokenizer.specials.nonzero()[0].tolist()
    else:
        begin = start_of(model, tokenizer) if kind == "encoder-decoder" else list(opening(model, tokenizer))
        out |= {"decoder_start_token_ids": begin, "suppress_tokens": unwanted(model, tokenizer)}
    labels = {name: list(head.labels) for name, head in recipe.heads.items() if head.labels}
    out |= {"labels": labels} if labels else {}
    out["graphs"] = {
        graph.file: {"inputs": {port.name: list(port.axes) for port in graph.ports}, "outputs": list(graph.outputs)}
        for graph in graphs
    }
    return out
