from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from torch import Tensor, nn

from meristem.blocks.heads.adaptive_softmax import AdaptiveSoftmaxHead
from meristem.config.errors import MeristemError
from meristem.generation.incremental_decoder import DecodeSession
from meristem.interfaces.backbone import Head, Model
from meristem.models.transformer_xl import TransformerXL, TransformerXLSettings

Close = Callable[[Tensor, Tensor], None]
SEGMENTS = (5, 7, 1, 3)
SMALL = {"layers": 2, "hidden_size": 16, "heads": 4, "ffn_size": 24, "max_length": 8, "memory_length": 7}
CASES = {
    "plain": {},
    "adaptive": {"adaptive_cutoffs": (10, 20), "shared_biases": False, "clamp_distance": 6},
    "same": {"shared_biases": False, "same_length": True},
}
LAYER = {
    "attention.output.weight": "dec_attn.o_net.weight",
    "attention.relative.weight": "dec_attn.r_net.weight",
    "attention_norm.weight": "dec_attn.layer_norm.weight",
    "attention_norm.bias": "dec_attn.layer_norm.bias",
    "feed_forward.widen.weight": "pos_ff.CoreNet.0.weight",
    "feed_forward.widen.bias": "pos_ff.CoreNet.0.bias",
    "feed_forward.narrow.weight": "pos_ff.CoreNet.3.weight",
    "feed_forward.narrow.bias": "pos_ff.CoreNet.3.bias",
    "feed_forward_norm.weight": "pos_ff.layer_norm.weight",
    "feed_forward_norm.bias": "pos_ff.layer_norm.bias",
}
BIASES = {"content": "r_w_bias", "distance": "r_r_bias"}
HEAD = {"bias": "crit.out_layers.0.bias", "bands": "crit.cluster_weight", "bands_bias": "crit.cluster_bias"}


def theirs(case: str, name: str, tensors: dict[str, Tensor], kind: str) -> Tensor:
    """What transformers keeps of one of our tensors: its weight or its gradient."""

    def get(their_name: str) -> Tensor:
        return tensors[f"{case}/{kind}.{their_name}"]

    if name == "backbone.tokens.weight":
        return get("transformer.word_emb.emb_layers.0.weight")
    if name.startswith("heads.clm."):
        return get(HEAD[name.removeprefix("heads.clm.")])
    number, rest = name.removeprefix("backbone.stack.layers.").split(".", 1)
    layer_prefix = f"transformer.layers.{number}."
    if rest.startswith("attention.biases."):
        bias = BIASES[rest.removeprefix("attention.biases.")]
        return get(f"transformer.{bias}" if case == "plain" else f"{layer_prefix}dec_attn.{bias}")
    if rest in ("attention.query.weight", "attention.key_value.weight"):
        qkv = get(f"{layer_prefix}dec_attn.qkv_net.weight")
        return qkv[:16] if "query" in rest else qkv[16:]
    return get(layer_prefix + LAYER[rest])


def ours(case: str, tensors: dict[str, Tensor], dtype: torch.dtype) -> Model:
    model = Model(TransformerXL(TransformerXLSettings(**SMALL, **CASES[case]), 37), {"clm": Head("vocabulary")})
    model.to(dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(theirs(case, name, tensors, "weight"))
    return model


@pytest.fixture(scope="module")
def golden_tensors() -> dict[str, Tensor]:
    """What transformers 4.37.2 computed; golden/make_transformer_xl.py wrote it."""
    return load_file(Path(__file__).parent.parent / "golden" / "transformer_xl.safetensors")


@pytest.mark.parametrize("case", CASES)
def test_the_same_as_transformers_over_several_segments(
    case: str, golden_tensors: dict[str, Tensor], dtype: torch.dtype, close: Close
) -> None:
    model = ours(case, golden_tensors, dtype)
    sizes = [tensor.numel() for name, tensor in golden_tensors.items() if name.startswith(f"{case}/weight.")]
    assert sum(sizes) == sum(parameter.numel() for parameter in model.parameters())
    tokens, start, state, total = golden_tensors[f"{case}/tokens"], 0, None, torch.zeros((), dtype=dtype)
    for number, length in enumerate(SEGMENTS):
        next_ids = tokens[:, start + 1 : start + length + 1]
        fresh = torch.full((2, 1), number == 0)
        hidden = model.backbone(tokens=tokens[:, start : start + length], fresh=fresh, state=state)
        start, state = start + length, hidden.state
        close(
            model.heads["clm"](hidden.last_hidden_state).log_softmax(-1),
            golden_tensors[f"{case}/scores.{number}"].to(dtype),
        )
        memory = golden_tensors[f"{case}/memory.{number}"].to(dtype)
        close(state["memory"][:, :, -memory.shape[2] :], memory)
        assert (state["documents"] >= 0).sum() == 2 * memory.shape[2]
        total = (
            total + model.heads["clm"].compute_loss(hidden.last_hidden_state.flatten(0, 1), next_ids.flatten()).total
        )
    close(total, golden_tensors[f"{case}/loss"].to(dtype))
    total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        close(parameter.grad, theirs(case, name, golden_tensors, "gradient").to(dtype))


def small(**settings: object) -> TransformerXL:
    torch.manual_seed(0)
    return TransformerXL(TransformerXLSettings(**{**SMALL, "init_std": 0.3, **settings}), 37).double().eval()


def run(model: nn.Module, parts: list[Tensor], fresh: list[list[bool]]) -> list[Tensor]:
    state, hidden_states = None, []
    for part, new in zip(parts, fresh, strict=True):
        hidden = model(tokens=part, fresh=torch.tensor(new)[:, None], state=state)
        state = hidden.state
        hidden_states.append(hidden.last_hidden_state)
    return hidden_states


def test_a_fresh_row_has_no_memory_and_others_continue() -> None:
    model = small()
    parts = [torch.randint(37, (2, 8)) for _ in range(3)]
    last = run(model, parts, [[True, True], [False, False], [True, False]])[2]
    hidden = model(tokens=parts[2]).last_hidden_state
    torch.testing.assert_close(last[0], hidden[0], atol=1e-12, rtol=0)
    assert (last[1] - hidden[1]).abs().max() > 1e-3
    going_on = run(model, [part[1:] for part in parts], [[True], [False], [False]])[2]
    torch.testing.assert_close(last[1], going_on[0], atol=1e-12, rtol=0)


def test_memory_as_long_as_the_text_is_the_text_in_one_piece() -> None:
    """Every layer's states are exactly what one long segment would hold, as long as memory holds all of them."""
    model = small(memory_length=20)
    tokens = torch.randint(37, (2, 19))
    hidden_states = run(model, list(tokens.split([7, 8, 4], 1)), [[True] * 2, [False] * 2, [False] * 2])
    torch.testing.assert_close(torch.cat(hidden_states, 1), model(tokens=tokens).last_hidden_state, atol=1e-12, rtol=0)


def test_no_gradient_enters_memory() -> None:
    model = small()
    memories: list[Tensor] = []
    model.tokens.register_forward_hook(lambda m, i, out: memories.append(out.detach().requires_grad_()) or memories[-1])
    first, second = run(model, [torch.randint(37, (1, 8)) for _ in range(2)], [[True], [False]])
    second.sum().backward()
    assert memories[0].grad is None
    assert memories[1].grad.abs().max() > 0
    assert first.requires_grad


def test_no_later_token_is_seen_and_all_memory_is() -> None:
    model = small(memory_length=5)
    tokens = torch.randint(37, (1, 16))
    before = run(model, list(tokens.split(8, 1)), [[True], [False]])[1]
    for index in range(16):
        changed = tokens.clone()
        changed[0, index] = (changed[0, index] + 1) % 37
        after = run(model, list(changed.split(8, 1)), [[True], [False]])[1]
        moved = (after - before).abs().amax(-1)[0] > 0
        assert moved.tolist() == [
            index <= 8 + position for position in range(8)
        ]  # two layers look back farther than memory


@pytest.mark.parametrize("same_length", [False, True])
def test_evaluation_may_use_a_longer_memory(same_length: bool) -> None:
    model = small(memory_length=4, eval_memory_length=20, same_length=same_length)
    tokens = torch.randint(37, (1, 16))
    parts, fresh = list(tokens.split(8, 1)), [[True], [False]]
    torch.testing.assert_close(
        run(model, parts, fresh)[1], model(tokens=tokens).last_hidden_state[:, 8:], atol=1e-12, rtol=0
    )
    model.train()
    assert run(model, parts, fresh)[1].shape == (1, 8, 16)
    assert model(tokens=parts[0], fresh=torch.tensor([[True]])).state["memory"].shape == (1, 2, 4, 16)


def test_padding_changes_nothing_and_never_enters_memory() -> None:
    model = small()
    tokens, sizes = torch.randint(37, (3, 9)), [9, 4, 1]
    present = torch.arange(9) < torch.tensor(sizes)[:, None]
    fresh = torch.ones(3, 1, dtype=torch.bool)
    hidden = model(tokens=tokens, present=present, fresh=fresh)
    for row, size in enumerate(sizes):
        outputs = model(tokens=tokens[row : row + 1, :size], fresh=fresh[:1])
        torch.testing.assert_close(
            hidden.last_hidden_state[row, :size], outputs.last_hidden_state[0], atol=1e-12, rtol=0
        )
        for key in ("memory", "documents"):
            torch.testing.assert_close(hidden.state[key][row], outputs.state[key][0], atol=1e-12, rtol=0)


def test_documents_are_kept_apart_in_memory_too() -> None:
    model = small()
    tokens, documents = torch.randint(37, (1, 12)), torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2]])
    state, segment_hidden = None, []
    for part, document in zip(tokens.split(8, 1), documents.split(8, 1), strict=True):
        hidden = model(tokens=part, documents=document, fresh=torch.tensor([[state is None]]), state=state)
        state = hidden.state
        segment_hidden.append(hidden.last_hidden_state)
    for start, stop in ((0, 5), (5, 10), (10, 12)):
        hidden_states = model(tokens=tokens[:, start:stop]).last_hidden_state
        torch.testing.assert_close(torch.cat(segment_hidden, 1)[:, start:stop], hidden_states, atol=1e-12, rtol=0)


def test_memory_is_off_unless_requested() -> None:
    assert small()(tokens=torch.randint(37, (2, 8))).state == {}
    assert (
        small(memory_length=0)(tokens=torch.randint(37, (2, 8)), fresh=torch.ones(2, 1, dtype=torch.bool)).state == {}
    )


# ---------------------------------------------------------------- writing


def banded(model: TransformerXL, tokens: Tensor, reach: int) -> Tensor:
    """Everything in one pass, each position seeing as far as the writer does."""
    from meristem.blocks.attention.relative_mask import RelativeMaskSpec

    x = model.embed(tokens)
    mask_spec = RelativeMaskSpec(num_tokens=tokens.shape[1], causal=True, device=x.device, dtype=x.dtype, window=reach)
    return model.stack(x, mask_spec).last_hidden_state


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"memory_length": 0},
        {"same_length": True},
        {"norm_position": "pre", "clamp_distance": 5},
        {"eval_memory_length": 11, "shared_biases": False},
    ],
    ids=str,
)
@torch.no_grad()
def test_incremental_decoding_equals_one_pass(settings: dict[str, object]) -> None:
    """Sixty tokens, far beyond what any of them sees: prompts of one and of several segments, then steps."""
    model = small(**settings)
    writer, tokens = model.incremental_decoder(), torch.randint(37, (3, 60))
    assert writer.max_length is None
    expected = banded(model, tokens, writer.context_length)
    sizes = torch.tensor([33, 5, 1])
    last, state = writer.prefill(tokens[:, :33], sizes, writer.grow_state(writer.init_state(3, 4), 33))
    torch.testing.assert_close(last, expected[torch.arange(3), sizes - 1], atol=1e-12, rtol=0)
    for num_new in range(25):
        positions = sizes + num_new
        state = writer.grow_state(state, int(positions.max()) + 1)
        last, state = writer.decode_step(tokens[torch.arange(3), positions], state, None)
        torch.testing.assert_close(last, expected[torch.arange(3), positions], atol=1e-12, rtol=0)
    assert state["cache"].shape[4] == writer.context_length


@torch.no_grad()
def test_generation_has_no_length_limit() -> None:
    model = Model(small(), {"clm": Head("vocabulary")}).double().eval()
    tokens = torch.randint(37, (2, 50))
    session = DecodeSession(model, tokens[:, :3], capacity=4)
    expected = model.heads["clm"](banded(model.backbone, tokens, 15))
    for index in range(3, 50):
        torch.testing.assert_close(session.logits, expected[:, index - 1], atol=1e-12, rtol=0)
        session.decode_step(tokens[:, index])
    session.select_rows(torch.tensor([1, 1]))
    session.decode_step(tokens[[1, 1], 0])
    torch.testing.assert_close(session.logits[0], session.logits[1])


# ---------------------------------------------------------------- heads, sizes, refusals


def test_the_base_model_has_the_papers_parameters() -> None:
    """151 M at 267,735 words (Dai et al. table 1)."""
    settings = TransformerXLSettings(ffn_size=2100, adaptive_cutoffs=(20_000, 40_000, 200_000))
    with torch.device("meta"):
        model = Model(TransformerXL(settings, 267_735), {"clm": Head("vocabulary")})
    assert sum(p.numel() for p in model.parameters()) == 151_107_538
    assert isinstance(model.heads["clm"], AdaptiveSoftmaxHead)


def test_the_output_layer_may_have_weights_of_its_own() -> None:
    model = small(tie_embeddings=False, adaptive_cutoffs=(10,))
    head = model.build_head("vocabulary")
    assert head.weight is not model.tokens.weight
    assert small().build_head("vocabulary").weight.shape == (37, 16)
    assert (
        type(small(adaptive_cutoffs=(37, 90)).build_head("vocabulary")).__name__ == "VocabularyHead"
    )  # no word lies beyond


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValidationError, match="eval_memory_length: needs memory_length > 0"):
        TransformerXLSettings(memory_length=0, eval_memory_length=5)
    with pytest.raises(ValidationError, match="heads: 3 does not divide a hidden size of 16; 2 does"):
        TransformerXLSettings(hidden_size=16, heads=3)
    with pytest.raises(ValidationError, match="hidden_size: 15 must be even"):
        TransformerXLSettings(hidden_size=15, heads=3)
    with pytest.raises(MeristemError, match="transformer_xl family has no head 'spans'; it has vocabulary, pooled"):
        small().build_head("spans")


def test_layers_and_attention_are_returned_on_request() -> None:
    model = small()
    state = model(tokens=torch.randint(37, (2, 8)), fresh=torch.ones(2, 1, dtype=torch.bool)).state
    hidden = model(tokens=torch.randint(37, (2, 5)), state=state, want=("layers", "attention"))
    assert [layer.shape for layer in hidden.layers] == [(2, 5, 16)] * 3
    assert [weights.shape for weights in hidden.attention] == [(2, 4, 5, 12)] * 2
    torch.testing.assert_close(hidden.attention[0].sum(-1), torch.ones(2, 4, 5).double())
    assert hidden.attention[0][:, :, 0, 8:].max() == 0


def test_gradient_checkpointing_changes_no_gradient() -> None:
    gradients = []
    for recompute in (False, True):
        model = small(dropout=0.2).train()
        model.stack.recompute = recompute
        torch.manual_seed(3)
        model(tokens=torch.arange(16).view(2, 8)).last_hidden_state.square().sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    for actual, other in zip(*gradients, strict=True):
        assert torch.equal(actual, other)
