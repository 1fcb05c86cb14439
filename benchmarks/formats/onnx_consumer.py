"""onnxruntime as the consumer of exported graphs, in float32 and with int8 weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.formats import our_outputs
from benchmarks.formats.comparison import Comparison
from benchmarks.formats.our_outputs import Floats
from benchmarks.formats.runs import SENTENCES
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.generation.generation_inputs import input_template
from meristem.interop.onnx_export import export_onnx

STEPS = 12


def open_graph(path: Path) -> Any:
    """A graph in onnxruntime, with one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def graph_outputs(session: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The outputs of a graph for one text without padding and without a past; `given` has its ids, whole."""
    inputs: dict[str, Any] = {}
    for port in session.get_inputs():
        if port.name in given:
            inputs[port.name] = given[port.name]
        elif port.name == "attention_mask":
            inputs[port.name] = np.ones_like(given["input_ids"])
        elif port.name == "token_type_ids":
            inputs[port.name] = np.zeros_like(given["input_ids"])
        else:
            _, heads, _, channels = port.shape
            inputs[port.name] = np.zeros((1, heads, 0, channels), np.float32)
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def causal_graph_logits(session: Any, ids: Sequence[int]) -> Floats:
    """[T, V] logits of a causal graph at every position of a new text."""
    return np.asarray(graph_outputs(session, {"input_ids": np.array([ids], np.int64)})["logits"][0], np.float64)


def compare_onnx(run: Path, folder: Path, *, int8: bool = False) -> Comparison:
    """Export a run, run its graphs, and compare logits or states, and the most probable tokens."""
    import onnxruntime

    export_onnx(run, folder, int8=int8)
    loaded = load_run(run)
    heads = loaded.learner.model.heads
    compute = _states
    if "seq2seq" in heads:
        compute = _target_logits
    elif "clm" in heads:
        compute = _causal_logits
    differences, values, same = [], [], 0
    outputs = list(compute(loaded, folder))
    for ours, theirs in outputs:
        differences.append(float(np.abs(ours - theirs).max()))
        values.append(ours)
        same += bool((ours.argmax(-1) == theirs.argmax(-1)).all())
    is_states = compute is _states
    return Comparison(
        consumer=f"onnxruntime {onnxruntime.__version__}",
        family=loaded.recipe.name + (" int8" if int8 else ""),
        compared="states" if is_states else "logits, most probable tokens",
        difference=max(differences),
        scale=our_outputs.relative(values),
        identical="–" if is_states else f"{same} of {len(outputs)}",
    )


Outputs = Iterator[tuple[Floats, Floats]]
"""Ours and theirs, of each sentence."""


def _states(run: LoadedRun, folder: Path) -> Outputs:
    session = open_graph(folder / "model.onnx")
    for text in SENTENCES:
        ids = our_outputs.encoder_ids(run, text)
        theirs = graph_outputs(session, {"input_ids": np.array([ids], np.int64)})["last_hidden_state"]
        yield our_outputs.encoder_states(run, ids), np.asarray(theirs[0], np.float64)


def _causal_logits(run: LoadedRun, folder: Path) -> Outputs:
    session = open_graph(folder / "model.onnx")
    for text in SENTENCES:
        ids = run.tokenizer.encode(text).ids.tolist()
        yield our_outputs.causal_logits(run, ids), causal_graph_logits(session, ids)


def _target_logits(run: LoadedRun, folder: Path) -> Outputs:
    encoder, decoder = open_graph(folder / "encoder_model.onnx"), open_graph(folder / "decoder_model.onnx")
    start = list(input_template(run.learner.model, run.tokenizer, "source").decoder_start_ids)
    for text in SENTENCES:
        source = our_outputs.source_ids(run, text)
        target = [*start, *our_outputs.greedy_target(run, source, start, STEPS)[:-1]]
        states = graph_outputs(encoder, {"input_ids": np.array([source], np.int64)})["last_hidden_state"]
        theirs = graph_outputs(
            decoder,
            {
                "input_ids": np.array([target], np.int64),
                "encoder_hidden_states": states,
                "encoder_attention_mask": np.ones((1, len(source)), np.int64),
            },
        )["logits"]
        yield our_outputs.decoder_logits(run, source, target), np.asarray(theirs[0], np.float64)
