"""The README beside ONNX graphs: the model card, and a program that runs the graphs with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meristem.checkpoint.load_run import LoadedRun
from meristem.training.report.model_card import read_card

SETUP_CODE = """\
import json
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

config = json.loads(Path("config.json").read_text())
tokenizer = Tokenizer.from_file("tokenizer.json")  # adds the special tokens of training
pad = config["pad_token_id"] or 0
"""

ENCODER_CODE = """\
tokenizer.enable_padding(pad_id=pad, pad_token=tokenizer.id_to_token(pad))
session = onnxruntime.InferenceSession("FILE")

rows = tokenizer.encode_batch(TEXTS)
feeds = {
    "input_ids": np.array([row.ids for row in rows], np.int64),
    "attention_mask": np.array([row.attention_mask for row in rows], np.int64),
    "token_type_ids": np.array([row.type_ids for row in rows], np.int64),
}
input_names = {port.name for port in session.get_inputs()}
names = [port.name for port in session.get_outputs()]
outputs = dict(zip(names, session.run(names, {name: feeds[name] for name in feeds if name in input_names})))
for name, value in outputs.items():
    print(name, value.shape)
"""

FILL_CODE = """
for row, scores in zip(rows, outputs["LOGITS"]):
    here = scores[row.ids.index(config["mask_token_id"])]
    here[config["suppress_tokens"]] = -np.inf  # special tokens that are not text
    best = np.argsort(-here, kind="stable")[:5]
    print([tokenizer.id_to_token(int(token)) for token in best])
"""

CAUSAL_CODE = """\
tokenizer.enable_padding(direction="left", pad_id=pad, pad_token=tokenizer.id_to_token(pad))
session = onnxruntime.InferenceSession("FILE")

rows = tokenizer.encode_batch(["The old gardener", "My sister sold"])
tokens = np.array([row.ids for row in rows], np.int64)
mask = np.array([row.attention_mask for row in rows], np.int64)
past = {
    port.name: np.zeros((len(tokens), port.shape[1], 0, port.shape[3]), np.float32)
    for port in session.get_inputs()
    if port.name.startswith("past_key_values")
}
generated = [[] for _ in rows]
for _ in range(config["length"] - tokens.shape[1]):
    logits, *present = session.run(None, {"input_ids": tokens, "attention_mask": mask, **past})
    scores = logits[:, -1]
    scores[:, config["suppress_tokens"]] = -np.inf  # special tokens that are not text
    tokens = scores.argmax(-1)[:, None]
    past = dict(zip(past, present))  # `present.…` are in the order of `past_key_values.…`
    mask = np.pad(mask, ((0, 0), (0, 1)), constant_values=1)
    for text, token in zip(generated, tokens[:, 0]):
        if config["eos_token_id"] not in text:
            text.append(int(token))
    if all(config["eos_token_id"] in text for text in generated):
        break
for row, text in zip(rows, generated):
    print(tokenizer.decode([*row.ids, *text]))
"""

TEXT_SOURCE_CODE = """\
tokenizer.enable_padding(pad_id=pad, pad_token=tokenizer.id_to_token(pad))
encoder = onnxruntime.InferenceSession("encoder_model.onnx")
decoder = onnxruntime.InferenceSession("decoder_model.onnx")

rows = tokenizer.encode_batch(["The old gardener planted the apple tree.", "My sister sold seventeen boats."])
source_mask = np.array([row.attention_mask for row in rows], np.int64)
source = {"input_ids": np.array([row.ids for row in rows], np.int64), "attention_mask": source_mask}
(states,) = encoder.run(None, source)
"""

IMAGE_SOURCE_CODE = """\
encoder = onnxruntime.InferenceSession("encoder_model.onnx")
decoder = onnxruntime.InferenceSession("decoder_model.onnx")

rows = np.random.default_rng(0).random((2, *encoder.get_inputs()[0].shape[1:]), np.float32)  # pixels from 0 to 1
(states,) = encoder.run(None, {"pixel_values": rows})
source_mask = np.ones(states.shape[:2], np.int64)
"""

DECODE_CODE = """
past = {
    port.name: np.zeros((len(rows), port.shape[1], 0, port.shape[3]), np.float32)
    for port in decoder.get_inputs()
    if port.name.startswith("past_key_values")
}
tokens = np.array([config["decoder_start_token_ids"]] * len(rows), np.int64)
generated = [[] for _ in rows]
for _ in range(config["length"] - tokens.shape[1]):
    feeds = {"input_ids": tokens, "encoder_hidden_states": states, "encoder_attention_mask": source_mask}
    logits, *present = decoder.run(None, {**feeds, **past})
    scores = logits[:, -1]
    scores[:, config["suppress_tokens"]] = -np.inf  # special tokens that are not text
    tokens = scores.argmax(-1)[:, None]
    past = dict(zip(past, present))  # `present.…` are in the order of `past_key_values.…`
    states = states[:, :0]  # the source is in the cache now; its mask is still needed
    for text, token in zip(generated, tokens[:, 0]):
        if config["eos_token_id"] not in text:
            text.append(int(token))
    if all(config["eos_token_id"] in text for text in generated):
        break
for text in generated:
    print(tokenizer.decode(text))
"""

NOTES = {
    "encoder": """\
Rows are padded on the right, and `attention_mask` is 0 there. Any number of rows, up to {length} tokens each.
""",
    "causal": """\
`attention_mask` covers everything so far: the tokens in `past_key_values` and the new ones. A token's position is the
number of tokens before it whose mask is 1, so padding may be on the left, on the right, or between a prompt and the
tokens generated after it. A first call has a past of length 0. {reach}
""",
    "encoder-decoder": """\
The first call of the decoder takes the encoder's states; their keys and values are returned in `present.N.encoder.…`,
and later calls take states of length 0. `encoder_attention_mask` covers the whole source in every call. Positions of
generated tokens follow from the length of `past_key_values.N.decoder.…`. Up to {length} tokens on either side.
""",
}


def build_readme(loaded: LoadedRun, kind: str, config: Mapping[str, Any]) -> str:
    """The run's model card, then how to run the graphs."""
    card = read_card(loaded.run.path, loaded.recipe.name)
    graphs = [
        f"- `{file}`: {_format_names(graph_config['inputs'])} → {_format_names(graph_config['outputs'])}"
        for file, graph_config in config["graphs"].items()
    ]
    lines = [
        card.rstrip(),
        "",
        "## With onnxruntime",
        "",
        *graphs,
        "",
        NOTES[kind].format(length=config["length"], reach=_context_note(loaded)),
        "In this folder, after `pip install onnxruntime tokenizers`:",
        "",
        "```python",
        example_program(loaded, kind, config).rstrip(),
        "```",
        "",
    ]
    return "\n".join(lines)


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
    if kind == "encoder-decoder":
        takes_images = "pixel_values" in config["graphs"]["encoder_model.onnx"]["inputs"]
        return SETUP_CODE + (IMAGE_SOURCE_CODE if takes_images else TEXT_SOURCE_CODE) + DECODE_CODE
    file, graph_config = next(iter(config["graphs"].items()))
    if kind == "causal":
        return SETUP_CODE + CAUSAL_CODE.replace("FILE", file)
    logits = next((name for name in ("mlm_logits", "logits") if name in graph_config["outputs"]), None)
    fills_masks = logits is not None and "mlm" in loaded.learner.model.heads
    mask = loaded.tokenizer.id_to_token(config["mask_token_id"]) if fills_masks else "apple"
    texts = [f"The old gardener planted the {mask} tree.", f"My sister sold {mask} boats and a garden."]
    return (
        SETUP_CODE
        + ENCODER_CODE.replace("FILE", file).replace("TEXTS", repr(texts))
        + (FILL_CODE.replace("LOGITS", str(logits)) if fills_masks else "")
    )
