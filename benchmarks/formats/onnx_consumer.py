"""onnxruntime as the consumer of exported graphs, in float32 and with int8 weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.formats import our_outputs
from benchmarks.formats.comparison import Comparison
from benchmarks.formats.runs import SENTENCES
from meristem.checkpoint.load_run import load_run
from meristem.interop.onnx_export import export_onnx


def open_graph(path: Path) -> Any:
    """A graph in onnxruntime, with one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def graph_outputs(session: Any, ids: list[int]) -> dict[str, Any]:
    """The outputs of a graph for one text without a past."""
    inputs: dict[str, Any] = {}
    for port in session.get_inputs():
        if port.name == "input_ids":
            inputs[port.name] = np.array([ids], np.int64)
        elif port.name == "attention_mask":
            inputs[port.name] = np.ones((1, len(ids)), np.int64)
        elif port.name == "token_type_ids":
            inputs[port.name] = np.zeros((1, len(ids)), np.int64)
        else:
            _, heads, _, channels = port.shape
            inputs[port.name] = np.zeros((1, heads, 0, channels), np.float32)
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def compare_onnx(run: Path, folder: Path, *, int8: bool = False) -> Comparison:
    """Export a run, run its graph, and compare logits or states."""
    import onnxruntime

    export_onnx(run, folder, int8=int8)
    loaded, session = load_run(run), open_graph(folder / "model.onnx")
    is_causal = "clm" in loaded.learner.model.heads
    differences, values, same = [], [], 0
    for text in SENTENCES:
        ids = loaded.tokenizer.encode(text).ids.tolist() if is_causal else our_outputs.encoder_ids(loaded, text)
        outputs = graph_outputs(session, ids)
        theirs = np.asarray(outputs["logits" if is_causal else "last_hidden_state"][0], np.float64)
        compute = our_outputs.causal_logits if is_causal else our_outputs.encoder_states
        ours = compute(loaded, ids)
        differences.append(float(np.abs(ours - theirs).max()))
        values.append(ours)
        same += bool((ours.argmax(-1) == theirs.argmax(-1)).all())
    return Comparison(
        consumer=f"onnxruntime {onnxruntime.__version__}",
        family=loaded.recipe.name + (" int8" if int8 else ""),
        compared="logits, most probable tokens" if is_causal else "states",
        difference=max(differences),
        scale=our_outputs.relative(values),
        identical=f"{same} of {len(SENTENCES)}" if is_causal else "–",
    )
