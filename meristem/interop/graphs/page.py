"""The README beside the graphs: what the model is, and a program that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meristem.checkpoint.revive import Revived
from meristem.training.card import read_card

BEGIN = """\
import json
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

config = json.loads(Path("config.json").read_text())
tokenizer = Tokenizer.from_file("tokenizer.json")  # it puts around a text what the model was trained to read there
pad = config["pad_token_id"] or 0
"""

ENCODER = """\
tokenizer.enable_padding(pad_id=pad, pad_token=tokenizer.id_to_token(pad))
session = onnxruntime.InferenceSession("FILE")

rows = tokenizer.encode_batch(TEXTS)
feeds = {
    "input_ids": np.array([row.ids for row in rows], np.int64),
    "attention_mask": np.array([row.attention_mask for row in rows], np.int64),
    "token_type_ids": np.array([row.type_ids for row in rows], np.int64),
}
wanted = {port.name for port in session.get_inputs()}
names = [port.name for port in session.get_outputs()]
outputs = dict(zip(names, session.run(names, {name: feeds[name] for name in feeds if name in wanted})))
for name, value in outputs.items():
    print(name, value.shape)
"""

FILL = """
for row, scores in zip(rows, outputs["LOGITS"]):
    here = scores[row.ids.index(config["mask_token_id"])]
    here[config["suppress_tokens"]] = -np.inf  # special tokens that are no text
    best = np.argsort(-here, kind="stable")[:5]
    print([tokenizer.id_to_token(int(token)) for token in best])
"""

CAUSAL = """\
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
written = [[] for _ in rows]
for _ in range(config["length"] - tokens.shape[1]):
    logits, *present = session.run(None, {"input_ids": tokens, "attention_mask": mask, **past})
    scores = logits[:, -1]
    scores[:, config["suppress_tokens"]] = -np.inf  # special tokens that are no text
    tokens = scores.argmax(-1)[:, None]
    past = dict(zip(past, present))  # every `present.…` stands where its `past_key_values.…` does
    mask = np.pad(mask, ((0, 0), (0, 1)), constant_values=1)
    for text, token in zip(written, tokens[:, 0]):
        if config["eos_token_id"] not in text:
            text.append(int(token))
    if all(config["eos_token_id"] in text for text in written):
        break
for row, text in zip(rows, written):
    print(tokenizer.decode([*row.ids, *text]))
"""

READ = """\
tokenizer.enable_padding(pad_id=pad, pad_token=tokenizer.id_to_token(pad))
encoder = onnxruntime.InferenceSession("encoder_model.onnx")
decoder = onnxruntime.InferenceSession("decoder_model.onnx")

rows = tokenizer.encode_batch(["The old gardener planted the apple tree.", "My sister sold seventeen boats."])
source_mask = np.array([row.attention_mask for row in rows], np.int64)
source = {"input_ids": np.array([row.ids for row in rows], np.int64), "attention_mask": source_mask}
(states,) = encoder.run(None, source)
"""

LOOK = """\
encoder = onnxruntime.InferenceSession("encoder_model.onnx")
decoder = onnxruntime.InferenceSession("decoder_model.onnx")

rows = np.random.default_rng(0).random((2, *encoder.get_inputs()[0].shape[1:]), np.float32)  # pixels from 0 to 1
(states,) = encoder.run(None, {"pixel_values": rows})
source_mask = np.ones(states.shape[:2], np.int64)
"""

WRITE = """
past = {
    port.name: np.zeros((len(rows), port.shape[1], 0, port.shape[3]), np.float32)
    for port in decoder.get_inputs()
    if port.name.startswith("past_key_values")
}
tokens = np.array([config["decoder_start_token_ids"]] * len(rows), np.int64)
written = [[] for _ in rows]
for _ in range(config["length"] - tokens.shape[1]):
    feeds = {"input_ids": tokens, "encoder_hidden_states": states, "encoder_attention_mask": source_mask}
    logits, *present = decoder.run(None, {**feeds, **past})
    scores = logits[:, -1]
    scores[:, config["suppress_tokens"]] = -np.inf  # special tokens that are no text
    tokens = scores.argmax(-1)[:, None]
    past = dict(zip(past, present))  # every `present.…` stands where its `past_key_values.…` does
    states = states[:, :0]  # the source is in the cache now; its mask still goes along
    for text, token in zip(written, tokens[:, 0]):
        if config["eos_token_id"] not in text:
            text.append(int(token))
    if all(config["eos_token_id"] in text for text in written):
        break
for text in written:
    print(tokenizer.decode(text))
"""

NOTES = {
    "encoder": """\
Rows are padded on the right, and `attention_mask` is 0 there. Any number of rows, up to {length} tokens each.
""",
    "causal": """\
`attention_mask` runs over everything so far: what `past_key_values` hold and the new tokens. A token's position is the
number of tokens before it whose mask is 1, so padding may stand on the left, on the right, or between a prompt and what
was written after it. A first call has a past of length 0. {reach}
""",
    "encoder-decoder": """\
The first call of the decoder brings the encoder's states; their keys and values come back in `present.N.encoder.…`, and
later calls bring states of length 0. `encoder_attention_mask` runs over the whole source in every call. Positions of
what is written follow from the length of `past_key_values.N.decoder.…`. Up to {length} tokens on either side.
""",
}


def page(revived: Revived, kind: str, config: Mapping[str, Any]) -> str:
    """The run's own card, then how to run the graphs."""
    card = read_card(revived.run.path, revived.recipe.name)
    graphs = [
        f"- `{file}`: {_listed(told['inputs'])} → {_listed(told['outputs'])}" for file, told in config["graphs"].items()
    ]
    lines = [
        card.rstrip(),
        "",
        "## With onnxruntime",
        "",
        *graphs,
        "",
        NOTES[kind].format(length=config["length"], reach=_reach(revived)),
        "In this folder, after `pip install onnxruntime tokenizers`:",
        "",
        "```python",
        program(revived, kind, config).rstrip(),
        "```",
        "",
    ]
    return "\n".join(lines)


def _listed(names: Any) -> str:
    """Names in code style; of a cache only its pattern."""
    shown = dict.fromkeys(
        ".".join("N" if part.isdecimal() else "…" if part in ("key", "value") else part for part in name.split("."))
        for name in names
    )
    return ", ".join(f"`{name}`" for name in shown)


def _reach(revived: Revived) -> str:
    if revived.recipe.model.family == "transformer_xl":
        return "A text may have any length: what is too far back is out of sight, and may be cut off past and mask."
    return f"Past and new tokens together may be up to {revived.recipe.model.length}."


def program(revived: Revived, kind: str, config: Mapping[str, Any]) -> str:
    """A whole program for this very model."""
    if kind == "encoder-decoder":
        pictures = "pixel_values" in config["graphs"]["encoder_model.onnx"]["inputs"]
        return BEGIN + (LOOK if pictures else READ) + WRITE
    file, told = next(iter(config["graphs"].items()))
    if kind == "causal":
        return BEGIN + CAUSAL.replace("FILE", file)
    logits = next((name for name in ("mlm_logits", "logits") if name in told["outputs"]), None)
    fills = logits is not None and "mlm" in revived.learner.model.heads
    mask = revived.tokenizer.token(config["mask_token_id"]) if fills else "apple"
    texts = [f"The old gardener planted the {mask} tree.", f"My sister sold {mask} boats and a garden."]
    return (
        BEGIN
        + ENCODER.replace("FILE", file).replace("TEXTS", repr(texts))
        + (FILL.replace("LOGITS", str(logits)) if fills else "")
    )
