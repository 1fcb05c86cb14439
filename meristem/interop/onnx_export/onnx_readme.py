"""The README beside ONNX graphs: the model card, and a program that runs the graphs with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meristem.checkpoint.load_run import LoadedRun
from meristem.interop.readme_templates import render_readme
from meristem.training.report.model_card import read_card


def build_readme(loaded: LoadedRun, kind: str, config: Mapping[str, Any]) -> str:
    """The run's model card, then how to run the graphs."""
    return render_readme(
        "onnx_readme.md.jinja",
        card=read_card(loaded.run.path, loaded.recipe.name).rstrip(),
        graphs=[
            (file, _format_names(graph_config["inputs"]), _format_names(graph_config["outputs"]))
            for file, graph_config in config["graphs"].items()
        ],
        kind=kind,
        config=config,
        context_note=_context_note(loaded),
        program=example_program(loaded, kind, config).rstrip(),
    )


def _format_names(names: Any) -> str:
    """Names in code style; of a KV cache only its pattern."""
    patterns = dict.fromkeys(
        ".".join("N" if part.isdecimal() else "…" if part in ("key", "value") else part for part in name.split("."))
        for name in names
    )
    return ", ".join(f"`{name}`" for name in patterns)


def _context_note(loaded: LoadedRun) -> str:
    if loaded.recipe.model.family == "transformer_xl":
        return "A text may have any length: tokens outside the attention window may be removed from past and mask."
    return f"Past and new tokens together may be up to {loaded.recipe.model.max_length}."


def example_program(loaded: LoadedRun, kind: str, config: Mapping[str, Any]) -> str:
    """A complete program for this model."""
    file, graph_config = next(iter(config["graphs"].items()))
    mask_outputs = ("mlm_logits", "logits") if "mlm" in loaded.learner.model.heads else ()
    fill_output = next((name for name in mask_outputs if name in graph_config["outputs"]), None)
    word = "apple" if fill_output is None else loaded.tokenizer.id_to_token(config["mask_token_id"])
    return render_readme(
        "onnx_example.py.jinja",
        kind=kind,
        file=file,
        takes_images="pixel_values" in graph_config["inputs"],
        fill_output=fill_output,
        texts=[f"The old gardener planted the {word} tree.", f"My sister sold {word} boats and a garden."],
    )
