from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from transformers import XLNetConfig, XLNetLMHeadModel

from meristem.config.errors import MeristemError, RecipeError
from meristem.interfaces.backbone import Head, Model
from meristem.models.xlnet import XLNet, XLNetSettings

WORDS, WIDTH, HEADS, MEMORY = 61, 32, 4, 7
Close = Callable[[Tensor, Tensor], None]
LAYER = {
    "attention.query.weight": "rel_attn.q",
    "attention.output.weight": "rel_attn.o",
    "attention.relative.weight": "rel_attn.r",
    "attention.segments": "rel_attn.seg_embed",
    "attention.biases.content": "rel_attn.r_w_bias",
    "attention.biases.distance": "rel_attn.r_r_bias",
    "attention.biases.segment": "rel_attn.r_s_bias",
    "attention_norm": "rel_attn.layer_norm",
    "feed_forward.widen": "ff.layer_1",
    "feed_forward.narrow": "ff.layer_2",
    "feed_forward_norm": "ff.layer_norm",
}


def in_full_precision(position: Tensor, frequency: Tensor, rows: int | None = None) -> Tensor:
    """Their positions are made in single precision whatever the model is; here they must not be."""
    angle = position.double()[:, None] * 10_000.0 ** -(torch.arange(len(frequency)).double() / len(frequency))
    encoding = torch.cat([angle.sin(), angle.cos()], -1)[:, None]
    return encoding if rows is None else encoding.expand(-1, rows, -1)


def build_both(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> tuple[Model, XLNetLMHeadModel]:
    names = {"clamp_distance": "clamp_len", "bidirectional_data": "bi_data"}
    config = XLNetConfig(
        vocab_size=WORDS,
        d_model=WIDTH,
        n_layer=3,
        n_head=HEADS,
        d_inner=80,
        ff_activation="gelu",
        mem_len=MEMORY,
        dropout=0.0,
        **{names[key]: value for key, value in settings.items()},
    )
    other = XLNetLMHeadModel(config).to(dtype)
    if dtype == torch.float64:
        monkeypatch.setattr(other.transformer, "positional_embedding", in_full_precision)
    xl_net = XLNet(
        XLNetSettings(layers=3, hidden_size=WIDTH, heads=HEADS, ffn_size=80, memory_length=MEMORY, **settings), WORDS
    )
    return Model(xl_net, {"plm": Head("vocabulary")}).to(dtype), other


def theirs(name: str, named: dict[str, Tensor]) -> Tensor:
    """What transformers keeps of one of our tensors, laid as ours."""
    fixed = {"backbone.tokens.weight": "transformer.word_embedding.weight", "heads.plm.bias": "lm_loss.bias"}
    if name in fixed:
        return named[fixed[name]]
    if name == "backbone.query":
        return named["transformer.mask_emb"].flatten()
    number, rest = name.removeprefix("backbone.stack.layers.").split(".", 1)
    layer_prefix = f"transformer.layer.{number}."
    if rest == "attention.key_value.weight":
        return torch.cat([named[f"{layer_prefix}rel_attn.{part}"].reshape(WIDTH, -1).t() for part in "kv"])
    their_name = next(
        layer_prefix + other + rest.removeprefix(our_name)
        for our_name, other in LAYER.items()
        if rest.startswith(our_name)
    )
    if their_name.endswith((".q", ".r", ".o")):
        flat = named[their_name].reshape(WIDTH, -1)
        return flat if their_name.endswith(".o") else flat.t()
    return named[their_name]


def copy(our_model: Model, other: nn.Module) -> None:
    named = dict(other.named_parameters())
    assert sum(p.numel() for p in our_model.parameters()) == sum(p.numel() for p in named.values())
    with torch.no_grad():
        for name, parameter in our_model.named_parameters():
            parameter.copy_(theirs(name, named))


def agree(our_model: Model, other: nn.Module, close: Close) -> None:
    named = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in other.named_parameters()}
    for name, parameter in our_model.named_parameters():
        close(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad, theirs(name, named))


def orders(rows: int, time: int, predicted: int, covers_all: bool) -> tuple[Tensor, Tensor]:
    """Ranks from 1 on, and the slots of the last of them; tokens that are not predicted may share the first rank."""
    rank = torch.stack([torch.randperm(time) for _ in range(rows)])
    slots = (rank >= time - predicted).nonzero()[:, 1].view(rows, predicted)
    if covers_all:
        rank = (rank - (time - predicted - 1)).clamp(min=0)
    return rank + 1, slots


def their_masks(rank: Tensor, slots: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    """perm_mask and target_mapping that say the same."""
    time = rank.shape[1]
    mapping = nn.functional.one_hot(slots, time).to(dtype)
    itself = torch.diag_embed(mapping.sum(1))
    return {
        "perm_mask": ((rank[:, None] > rank[:, :, None]).to(dtype) + itself).clamp(max=1),
        "target_mapping": mapping,
    }


@pytest.mark.parametrize("covers_all", [True, False], ids=["whole", "ordered"])
@pytest.mark.parametrize("time", [13, 8, 3])
@pytest.mark.parametrize("settings", [{}, {"clamp_distance": 5}, {"bidirectional_data": True}], ids=str)
def test_two_streams_over_three_segments(
    time: int, covers_all: bool, settings: dict[str, Any], dtype: torch.dtype, close: Close,
    randomised: Callable[[nn.Module], None], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Memory, orders, query slots, segments and odd lengths at once: logits, memories and every gradient."""
    torch.manual_seed(0)
    our_model, other = build_both(dtype, monkeypatch, **settings)
    randomised(other)
    copy(our_model, other)
    mems, state, rows = None, None, 4
    backwards = (torch.arange(rows) >= rows // 2)[:, None] if settings.get("bidirectional_data") else None
    ours, expected = torch.zeros((), dtype=dtype), torch.zeros((), dtype=dtype)
    for number in range(3):
        tokens = torch.randint(WORDS, (rows, time))
        segments = (torch.arange(time) > torch.randint(time, (rows, 1))).long()
        rank, slots = orders(rows, time, max(1, time // 3), covers_all)
        out = other(
            input_ids=tokens, token_type_ids=segments, mems=mems, use_mems=True, **their_masks(rank, slots, dtype)
        )
        mems = out.mems
        hidden = our_model.backbone(
            tokens=tokens,
            order=rank,
            slots=slots,
            segments=segments,
            backwards=backwards,
            fresh=torch.full((rows, 1), number == 0),
            state=state,
        )
        state = hidden.state
        logits = our_model.heads["plm"](hidden.last_hidden_state)
        close(logits, out.logits)
        memory = torch.stack([mem.transpose(0, 1) for mem in mems], 1)
        close(state["memory"][:, :, -memory.shape[2] :], memory)
        weight = torch.randn(logits.shape, dtype=dtype) / 50
        ours, expected = ours + (logits * weight).sum(), expected + (out.logits * weight).sum()
    ours.backward()
    expected.backward()
    agree(our_model, other, close)


@pytest.mark.parametrize("remembers", [False, True])
def test_content_alone_with_padding(
    remembers: bool, dtype: torch.dtype, close: Close, ragged: tuple[Tensor, Tensor],
    randomised: Callable[[nn.Module], None], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """As it is used after pretraining: bidirectional, no order, rows of odd lengths, perhaps with memory."""
    tokens, present = ragged
    our_model, other = build_both(dtype, monkeypatch)
    randomised(other)
    copy(our_model, other)
    segments = (torch.arange(13)[None] > torch.tensor([[6], [3], [0]])).long()
    mems, state = None, None
    if remembers:
        before = torch.randint(WORDS, (3, 5))
        mems = other(input_ids=before, use_mems=True).mems
        state = our_model.backbone(tokens=before, fresh=torch.ones(3, 1, dtype=torch.bool)).state
    out = other(input_ids=tokens, attention_mask=present.to(dtype), token_type_ids=segments, mems=mems).logits
    logits = our_model.heads["plm"](
        our_model.backbone(tokens=tokens, segments=segments, present=present, state=state).last_hidden_state
    )
    close(logits[present], out[present])
    weight = torch.randn(logits[present].shape, dtype=dtype) / 50
    (logits[present] * weight).sum().backward()
    (out[present] * weight).sum().backward()
    agree(our_model, other, close)


def small(**settings: Any) -> XLNet:
    torch.manual_seed(0)
    xlnet_settings = {
        "layers": 3,
        "hidden_size": 16,
        "heads": 4,
        "max_length": 8,
        "memory_length": 5,
        "init_std": 0.3,
        **settings,
    }
    return XLNet(XLNetSettings(**xlnet_settings), WORDS).double().eval()


def record_embeddings(model: XLNet) -> list[Tensor]:
    """The vectors tokens are looked up as, ready to hold a gradient."""
    embedded: list[Tensor] = []
    model.tokens.register_forward_hook(lambda m, i, out: embedded.append(out.detach().requires_grad_()) or embedded[-1])
    return embedded


@pytest.mark.parametrize("time", [9, 6, 1])
@pytest.mark.parametrize("covers_all", [True, False], ids=["whole", "ordered"])
@pytest.mark.parametrize("layers", [1, 4])
def test_a_query_sees_what_comes_before_in_the_order_and_nothing_else(time: int, covers_all: bool, layers: int) -> None:
    model, new = small(layers=layers), torch.ones(1, 1, dtype=torch.bool)
    state = model(tokens=torch.randint(WORDS, (1, 7)), fresh=new).state
    embedded = record_embeddings(model)
    tokens = torch.randint(WORDS, (1, time))
    rank, slots = orders(1, time, max(1, time // 2), covers_all)
    last = model(tokens=tokens, order=rank, slots=slots, fresh=~new, state=state).last_hidden_state
    for number, slot in enumerate(slots[0].tolist()):
        (grad,) = torch.autograd.grad(last[0, number].square().sum(), embedded[0], retain_graph=True)
        reached = grad[0].abs().amax(-1) > 0
        assert reached.tolist() == (rank[0] < rank[0, slot]).tolist()
        changed = tokens.clone()
        changed[0, rank[0] >= rank[0, slot]] += 1
        hidden = model(tokens=changed % WORDS, order=rank, slots=slots, fresh=~new, state=state).last_hidden_state
        assert torch.equal(hidden[0, number], last[0, number])


def test_content_may_see_its_own_token() -> None:
    model = small()
    embedded = record_embeddings(model)
    rank, _ = orders(1, 9, 3, False)
    hidden = model(tokens=torch.randint(WORDS, (1, 9)), order=rank)
    for index in range(9):
        (grad,) = torch.autograd.grad(hidden.last_hidden_state[0, index].square().sum(), embedded[0], retain_graph=True)
        assert (grad[0].abs().amax(-1) > 0).tolist() == (rank[0] <= rank[0, index]).tolist()


def test_what_was_predicted_is_remembered_only_in_the_next_segment() -> None:
    model = small()
    first, second = torch.randint(WORDS, (2, 1, 8))
    rank, slots = orders(1, 8, 2, True)
    new = torch.ones(1, 1, dtype=torch.bool)

    def after(tokens: Tensor) -> tuple[Tensor, Tensor]:
        outputs = model(tokens=tokens, order=rank, slots=slots, fresh=new)
        return outputs.last_hidden_state, model(
            tokens=second, order=rank, slots=slots, fresh=~new, state=outputs.state
        ).last_hidden_state

    changed = first.clone()
    changed[0, rank.argmax()] += 1  # nobody in its own segment may know the last of the order
    unchanged, changed_hidden = after(first), after(changed % WORDS)
    assert torch.equal(unchanged[0], changed_hidden[0])
    assert not torch.equal(unchanged[1], changed_hidden[1])


def test_a_fully_masked_query_does_not_depend_on_the_text() -> None:
    """The first of an order has no context; a softmax over hidden keys alone would leak all of them."""
    model = small()
    rank, slots = torch.tensor([[1, 2, 3]]), torch.tensor([[0]])
    outputs = [model(tokens=torch.randint(WORDS, (1, 3)), order=rank, slots=slots).last_hidden_state for _ in range(2)]
    assert torch.equal(*outputs)
    assert torch.isfinite(outputs[0]).all()


def test_reading_backwards_mirrors_the_text() -> None:
    """Backwards rows turn their distances round: a mirrored text read so gives the mirrored states."""
    model = small()
    tokens = torch.randint(WORDS, (2, 9))
    backwards = torch.tensor([[False], [True]])
    mixed = torch.stack([tokens[0], tokens[1].flip(0)])
    hidden = model(tokens=mixed, backwards=backwards)
    plain = model(tokens=tokens).last_hidden_state
    torch.testing.assert_close(hidden.last_hidden_state[0], plain[0], atol=1e-12, rtol=0)
    torch.testing.assert_close(hidden.last_hidden_state[1].flip(0), plain[1], atol=1e-12, rtol=0)
    assert (model(tokens=mixed).last_hidden_state[1].flip(0) - plain[1]).abs().max() > 1e-3


def test_padding_in_an_order_changes_nothing() -> None:
    model = small()
    tokens, (rank, slots) = torch.randint(WORDS, (1, 6)), orders(1, 6, 2, True)
    new = torch.ones(1, 1, dtype=torch.bool)
    outputs = model(tokens=tokens, order=rank, slots=slots, fresh=new)
    padded = model(
        tokens=nn.functional.pad(tokens, (0, 3)),
        order=nn.functional.pad(rank, (0, 3)),
        slots=nn.functional.pad(slots, (0, 1)),
        fresh=new,
    )
    torch.testing.assert_close(padded.last_hidden_state[:, :2], outputs.last_hidden_state, atol=1e-12, rtol=0)
    torch.testing.assert_close(padded.state["memory"], outputs.state["memory"], atol=1e-12, rtol=0)


def test_documents_are_kept_apart_for_both_streams() -> None:
    model = small()
    tokens, documents = torch.randint(WORDS, (1, 8)), torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1]])
    rank, slots = torch.tensor([[1, 1, 1, 2, 5, 1, 3, 4]]), torch.tensor([[3, 4, 6, 7]])
    hidden = model(tokens=tokens, documents=documents, order=rank, slots=slots).last_hidden_state
    second = model(tokens=tokens[:, 5:], order=rank[:, 5:], slots=slots[:, 2:] - 5).last_hidden_state
    torch.testing.assert_close(hidden[:, 2:], second, atol=1e-12, rtol=0)


def test_xlnet_base_has_its_published_parameters() -> None:
    """117 M: the published xlnet-base-cased holds 116,718,336, and its output bias 32,000 more."""
    with torch.device("meta"):
        model = Model(XLNet(XLNetSettings(), 32_000), {"plm": Head("vocabulary")})
    assert sum(p.numel() for p in model.backbone.parameters()) == 116_718_336
    assert sum(p.numel() for p in model.parameters()) == 116_750_336


def test_heads_and_refusals() -> None:
    model = small(segments=False)
    assert not [name for name, _ in model.named_parameters() if "segment" in name]
    assert model.build_head("pooled", classes=3)(torch.zeros(2, 16)).shape == (2, 3)
    with pytest.raises(
        MeristemError, match="has no head 'spans'; it has vocabulary, token_score, generator, pooled, tags"
    ):
        model.build_head("spans")
    with pytest.raises(ValidationError, match="bidirectional_data: needs memory_length > 0"):
        XLNetSettings(bidirectional_data=True)
    with pytest.raises(
        RecipeError,
        match=r"generator_size: 1/3 of a hidden size of 16 is not an even integer; choose 1/1 or 1/2 or 1/4 or 1/8",
    ):
        model.build_head("generator", divide=3)


def test_the_generator_is_bidirectional() -> None:
    """The generator of replaced token detection: states at the wanted positions, padding unseen."""
    model = small(memory_length=0)
    generator = model.build_head("generator", divide=2).double()
    assert generator.words.weight is model.tokens.weight
    tokens, output_positions = torch.randint(WORDS, (2, 6)), torch.tensor([0, 8])
    present = torch.arange(6) < torch.tensor([[6], [4]])
    states = generator(tokens=tokens, present=present, output_positions=output_positions).last_hidden_state
    hidden = generator(tokens=tokens[1:, :4], output_positions=torch.tensor([2])).last_hidden_state
    torch.testing.assert_close(states[1:], hidden, atol=1e-12, rtol=0)
    changed = tokens.clone()
    changed[0, 5] += 1
    hidden_states = generator(
        tokens=changed % WORDS, present=present, output_positions=output_positions
    ).last_hidden_state
    assert (hidden_states != states).any(1).tolist() == [True, False]


def test_layers_and_attention_belong_to_the_returned_stream() -> None:
    model, (rank, slots) = small(), orders(2, 8, 3, True)
    hidden = model(tokens=torch.randint(WORDS, (2, 8)), order=rank, slots=slots, want=("layers", "attention"))
    assert [layer.shape for layer in hidden.layers] == [(2, 3, 16)] * 4
    assert [weights.shape for weights in hidden.attention] == [(2, 4, 3, 8)] * 3
    own_weights = hidden.attention[0].gather(3, slots[:, None, :, None].expand(-1, 4, -1, -1))
    assert own_weights.max() == 0
