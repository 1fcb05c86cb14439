"""Incremental decoding with a KV cache against full forward passes, and against transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from meristem.generation.incremental_decoder import DecodeSession, limit_threads
from meristem.interfaces.backbone import Model

VOCABULARY = 61
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", {}),
    "gpt3": ("gpt2", {"attention_window": 3, "attention_window_every": 2}),
    "post": ("gpt2", {"norm_position": "post"}),
    "gpt": ("gpt", {}),
    "modern": ("modern", {}),
    "grouped": ("modern", {"kv_heads": 2, "output_transform": True}),
    "normed queries": ("modern", {"kv_heads": 2, "qk_norm": True, "activation": "relu2"}),
    "normed queries of learned positions": ("gpt2", {"qk_norm": True}),
    "shortcuts": (
        "modern",
        {"kv_heads": 2, "value_embeddings": 1, "embedding_shortcut": True, "logit_soft_cap": 0.3},
    ),
    "value embeddings of learned positions": ("gpt2", {"value_embeddings": 1, "logit_soft_cap": 0.3}),
    "mamba": ("mamba", {"state_size": 5, "kernel_size": 3}),
    "sinusoidal": ("gpt2", {"position_encoding": "sinusoidal", "activation": "relu"}),
}


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, make: Any) -> Model:
    family, settings = KINDS[request.param]
    return make(family, ("clm",), VOCABULARY, **settings)  # type: ignore[no-any-return]


def uncached(model: Model, text: list[int]) -> Tensor:
    """The next token's logits the plain way: the whole text read at once, without any cache."""
    with torch.inference_mode():
        return model.heads["clm"](model.backbone(tokens=torch.tensor([text]), causal=True).last_hidden_state[0, -1])  # type: ignore[no-any-return]


def texts(sizes: list[int], seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(VOCABULARY, (size,), generator=generator).tolist() for size in sizes]


def padded(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, rows))
    return torch.tensor([row + [5] * (longest - len(row)) for row in rows]), torch.tensor([len(row) for row in rows])


def agrees(session: DecodeSession, model: Model, rows: list[list[int]]) -> None:
    expected = torch.stack([uncached(model, row) for row in rows])
    torch.testing.assert_close(session.logits, expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("sizes", [[4], [6, 6, 6], [3, 9, 1, 7]], ids=["one", "even", "ragged"])
def test_cached_is_uncached_after_every_decode_step(model: Model, sizes: list[int]) -> None:
    rows = texts(sizes)
    tokens, lengths = padded(rows)
    session = DecodeSession(model, tokens, lengths, capacity=16)
    for step in range(8):
        agrees(session, model, rows)
        new = texts([1] * len(rows), seed=step + 1)
        session.decode_step(torch.tensor(new)[:, 0])
        rows = [row + new_ids for row, new_ids in zip(rows, new, strict=True)]
    agrees(session, model, rows)


def test_select_rows_reorders_repeats_and_drops(model: Model) -> None:
    rows = texts([3, 8, 5])
    tokens, lengths = padded(rows)
    session = DecodeSession(model, tokens, lengths, capacity=20)
    for step, selected_rows in enumerate([[2, 0, 1], [1, 1, 2, 0], [3], [0, 0]]):
        session.select_rows(torch.tensor(selected_rows))
        rows = [rows[row_index] for row_index in selected_rows]
        agrees(session, model, rows)
        new = texts([1] * len(rows), seed=50 + step)
        session.decode_step(torch.tensor(new)[:, 0])
        rows = [row + new_ids for row, new_ids in zip(rows, new, strict=True)]
        agrees(session, model, rows)


def test_goes_on_past_the_length_row_by_row(make: Any) -> None:
    model = make("gpt2", ("clm",), VOCABULARY, max_length=8)
    rows = texts([2, 7, 5])
    tokens, lengths = padded(rows)
    session = DecodeSession(model, tokens, lengths, capacity=4)  # less than it will need: room is made on the way
    for step in range(20):
        new = texts([1] * len(rows), seed=90 + step)
        session.decode_step(torch.tensor(new)[:, 0])
        rows = [row + new_ids for row, new_ids in zip(rows, new, strict=True)]
        agrees(session, model, [row[-window(len(row), 8) :] for row in rows])


def window(size: int, length: int) -> int:
    """How many tokens a text that grew one by one has in view."""
    num_visible = min(size, length)
    for _ in range(size - length):
        num_visible = length // 2 + 1 if num_visible == length else num_visible + 1
    return num_visible


@pytest.mark.parametrize("size", range(7, 30))
def test_a_long_prompt_is_read_as_if_it_had_grown(make: Any, size: int) -> None:
    model = make("gpt2", ("clm",), VOCABULARY, max_length=9)
    (row,) = texts([size])
    decode_session = DecodeSession(model, torch.tensor([row[:5]]), capacity=9)
    for token in row[5:]:
        decode_session.decode_step(torch.tensor([token]))
    at_once = DecodeSession(model, torch.tensor([row]), capacity=9)
    torch.testing.assert_close(at_once.logits, decode_session.logits, atol=2e-4, rtol=2e-4)


def test_greedy_equals_transformers(make: Any) -> None:
    transformers = pytest.importorskip("transformers")
    width, layers, length = 32, 2, 40
    ours = make("gpt2", ("clm",), VOCABULARY, max_length=length)
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=length,
            n_embd=width,
            n_layer=layers,
            n_head=4,
            eos_token_id=None,
            bos_token_id=0,
        )
    )
    theirs.load_state_dict(as_transformers(ours), strict=False)
    theirs.eval()
    prompts = torch.tensor(texts([5, 5, 5]))
    expected = theirs.generate(
        prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=30, do_sample=False, pad_token_id=0
    )
    session, token_columns = DecodeSession(ours, prompts, capacity=35), []
    for _ in range(30):
        token_columns.append(session.logits.argmax(-1))
        session.decode_step(token_columns[-1])
    assert torch.equal(torch.stack(token_columns, 1), expected[:, 5:])
    assert (
        len(set(torch.stack(token_columns, 1).flatten().tolist())) > 3
    )  # a text that repeats one token would show little


def as_transformers(model: Model) -> dict[str, Tensor]:
    """Our weights under GPT-2's published names; its linear layers are stored transposed."""
    state = model.state_dict()
    names = {
        "attention_norm": "ln_1",
        "feed_forward_norm": "ln_2",
        "attention.project": "attn.c_attn",
        "attention.output": "attn.c_proj",
        "feed_forward.widen": "mlp.c_fc",
        "feed_forward.narrow": "mlp.c_proj",
    }
    out = {
        "transformer.wte.weight": state["backbone.embed.tokens.weight"],
        "transformer.wpe.weight": state["backbone.embed.positions.weight"],
        "lm_head.weight": state["backbone.embed.tokens.weight"],
        "transformer.ln_f.weight": state["backbone.stack.final_norm.weight"],
        "transformer.ln_f.bias": state["backbone.stack.final_norm.bias"],
    }
    for layer in range(2):
        for ours, theirs in names.items():
            for kind in ("weight", "bias"):
                value = state[f"backbone.stack.layers.{layer}.{ours}.{kind}"]
                out[f"transformer.h.{layer}.{theirs}.{kind}"] = value.t() if value.ndim == 2 else value
    return out


def test_limit_threads_restores_the_number_of_threads() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), limit_threads(1):
        assert torch.get_num_threads() == 1
        _ = 1 / 0
    assert torch.get_num_threads() == before


def test_an_empty_row_is_refused(causal: Model) -> None:
    with pytest.raises(ValueError, match="at least one token"):
        DecodeSession(causal, torch.tensor([[1, 2]]), torch.tensor([0]), capacity=4)
