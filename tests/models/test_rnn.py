"""Recurrent seq2seq against the papers' formulas, one row, one layer and one step at a time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from meristem.config.errors import MeristemError
from meristem.interfaces.backbone import Head, Model
from meristem.models.rnn import RNN, RNNSettings

Close = Callable[[Tensor, Tensor], None]
WORDS = 23
SCORES, PLACES, CELLS = ("dot", "general", "additive"), ("luong", "feeding", "bahdanau"), ("lstm", "gru")
MANNERS = [*product(CELLS, SCORES, PLACES), ("lstm", None, "luong"), ("gru", None, "luong")]


def settings(cell: str, score: str | None, attention_position: str, **extra_settings: Any) -> RNNSettings:
    feeding = attention_position == "feeding"
    kind = {
        "cell": cell,
        "attention": score,
        "attention_style": "luong" if feeding else attention_position,
        "input_feeding": feeding,
    }
    return RNNSettings(
        **{
            "layers": 2,
            "hidden_size": 6,
            "embedding_size": 5,
            "encoder_hidden_size": 4,
            "max_length": 16,
            **kind,
            **extra_settings,
        }
    )


def build_model(dtype: torch.dtype, *variant: Any, seed: int = 0, **extra_settings: Any) -> RNN:
    model = RNN(settings(*variant, **extra_settings), WORDS).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return model.eval()


@pytest.fixture
def ragged_pairs() -> dict[str, Tensor]:
    """Three sources and targets of odd lengths, padded with words that exist."""
    generator = torch.Generator().manual_seed(5)
    source, tokens = (torch.randint(WORDS, (3, time), generator=generator) for time in (9, 7))
    return {
        "source": source,
        "source_present": torch.arange(9)[None] < torch.tensor([4, 9, 1])[:, None],
        "tokens": tokens,
        "present": torch.arange(7)[None] < torch.tensor([7, 3, 5])[:, None],
    }


# ---------------------------------------------------------------- the formulas


def cell_step(net: nn.RNNBase, name: str, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Hochreiter and Schmidhuber's cell with a forget gate, or Cho's unit with its reset after the product."""
    w, u, b, d = (getattr(net, f"{kind}_{name}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    input_part, recurrent_part = w @ x + b, u @ state[0] + d
    if isinstance(net, nn.LSTM):
        i, f, g, o = (input_part + recurrent_part).view(4, -1)
        c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c
    (xr, xz, xn), (hr, hz, hn) = input_part.view(3, -1), recurrent_part.view(3, -1)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    return ((1 - z) * torch.tanh(xn + r * hn) + z * state[0],)


def encode(model: RNN, xs: list[Tensor]) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
    """Annotations [S, A], and per layer the last states of both directions side by side."""
    net, width, ends = model.encoder.net, model.encoder.hidden_size, []
    for layer in range(net.num_layers):
        direction_outputs, last = [], []
        for direction in range(2 if net.bidirectional else 1):
            name = f"l{layer}" + ("_reverse" if direction else "")
            state = (xs[0].new_zeros(width),) * model.encoder.num_state_tensors
            outputs = []
            for x in xs[::-1] if direction else xs:
                state = cell_step(net, name, x, state)
                outputs.append(state[0])
            direction_outputs.append(outputs[::-1] if direction else outputs)
            last.append(state)
        xs = [torch.cat(states) for states in zip(*direction_outputs, strict=True)]
        ends.append(tuple(torch.cat(parts) for parts in zip(*last, strict=True)))
    return torch.stack(xs), ends


def bridged(model: RNN, x: Tensor) -> Tensor:
    if isinstance(model.bridge, nn.Identity):
        return x
    y = model.bridge.weight @ x + (0 if model.bridge.bias is None else model.bridge.bias)
    return y.tanh() if model.settings.bridge == "tanh" else y


def attend(model: RNN, s: Tensor, annotations: Tensor) -> tuple[Tensor, Tensor]:
    """c = Σ a_j h_j with a = softmax(score(s, h_j))."""
    score = model.decoder.look.score
    scores = []
    for h in annotations:
        match model.settings.attention:
            case "dot":
                scores.append(s @ (h if isinstance(score.project, nn.Identity) else score.project.weight @ h))
            case "general":
                scores.append(s @ score.project.weight @ h)
            case _:
                joint_weight = torch.cat([score.query.weight, score.project.weight], 1)  # W[s; h]
                scores.append(score.vector.weight[0] @ torch.tanh(joint_weight @ torch.cat([s, h])))
    a = torch.stack(scores).softmax(0)
    return a @ annotations, a


def by_formula(model: RNN, source: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """One row: what is said [T, D] and where it looked [T, S]."""
    table, kind, net = model.words.weight, model.settings, model.decoder.net.net
    annotations, ends = encode(model, list(table[source]))
    states = [tuple(bridged(model, part) for part in end) for end in ends]
    attended, out, weights = table.new_zeros(kind.hidden_size), [], []
    for x in table[tokens]:
        a = table.new_zeros(len(source))
        if kind.attention and kind.attention_style == "bahdanau":
            c, a = attend(model, states[-1][0], annotations)
            x = torch.cat([x, c])
        elif kind.input_feeding:
            x = torch.cat([x, attended])
        for layer in range(kind.layers):
            states[layer] = cell_step(net, f"l{layer}", x, states[layer])
            x = states[layer][0]
        attended = x
        if kind.attention and kind.attention_style == "luong":
            c, a = attend(model, x, annotations)
            attended = torch.tanh(model.decoder.join.weight @ torch.cat([c, x]))
        out.append(attended)
        weights.append(a)
    return torch.stack(out), torch.stack(weights)


@pytest.mark.parametrize("variant", MANNERS, ids=lambda m: "-".join(map(str, m)))
def test_the_same_as_the_formulas(variant: Any, dtype: torch.dtype, close: Close, ragged_pairs: Any) -> None:
    model = build_model(dtype, *variant)
    hidden = model(**ragged_pairs, want=("attention",))
    present, source_present = ragged_pairs["present"], ragged_pairs["source_present"]
    rows = [
        by_formula(model, ragged_pairs["source"][row][source_present[row]], ragged_pairs["tokens"][row][present[row]])
        for row in range(3)
    ]
    ours, theirs = hidden.last_hidden_state[present], torch.cat([row[0] for row in rows])
    close(ours, theirs)
    if variant[1] is None:
        assert hidden.attention == ()
    else:
        (weights,) = hidden.attention
        assert weights.shape == (3, 1, 7, 9)
        for row, (_, expected) in enumerate(rows):
            row_weights = weights[row, 0][present[row]]
            close(row_weights[:, source_present[row]], expected)
            assert not row_weights[:, ~source_present[row]].any()
    weight = torch.randn(ours.shape, dtype=dtype)
    names, parameters = zip(*model.named_parameters(), strict=True)
    grads = [torch.autograd.grad((states * weight).sum(), parameters) for states in (ours, theirs)]
    for name, gradient, other in zip(names, *grads, strict=True):
        assert other.abs().max() > 0, name
        close(gradient, other)


@pytest.mark.parametrize(
    "extra_settings",
    [
        {"bidirectional": False, "encoder_hidden_size": None},
        {"bidirectional": False, "encoder_hidden_size": 5, "bridge": "tanh"},
        {"encoder_hidden_size": None},
        {"bridge": "tanh", "layers": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("cell", CELLS)
def test_other_encoders_and_bridges(
    cell: str, extra_settings: Any, close: Close, ragged_pairs: Any, dtype: torch.dtype
) -> None:
    model = build_model(dtype, cell, "dot", "luong", **extra_settings)
    hidden = model(**ragged_pairs)
    for row in range(3):
        source, tokens = (
            ragged_pairs[k][row][ragged_pairs[p][row]] for k, p in (("source", "source_present"), ("tokens", "present"))
        )
        close(hidden.last_hidden_state[row][: len(tokens)], by_formula(model, source, tokens)[0])
    equal = extra_settings.get("encoder_hidden_size", 4) is None
    assert isinstance(model.bridge, nn.Identity) == (equal and "bridge" not in extra_settings)
    assert isinstance(model.decoder.look.score.project, nn.Identity) == equal


@pytest.mark.parametrize("variant", [("lstm", "general", "luong"), ("gru", "additive", "bahdanau")], ids=str)
def test_what_padding_holds_changes_nothing(variant: Any, ragged_pairs: Any) -> None:
    model = build_model(torch.float32, *variant)
    before = model(**ragged_pairs).last_hidden_state
    other = dict(ragged_pairs)
    for name, mask_name in (("source", "source_present"), ("tokens", "present")):
        other[name] = torch.where(ragged_pairs[mask_name], ragged_pairs[name], (ragged_pairs[name] + 1) % WORDS)
    assert torch.equal(model(**other).last_hidden_state[ragged_pairs["present"]], before[ragged_pairs["present"]])


@pytest.mark.parametrize("attention_position", PLACES)
def test_the_decoder_sees_only_the_past_and_all_of_the_source(attention_position: str, ragged_pairs: Any) -> None:
    model = build_model(torch.float64, "lstm", "additive", attention_position)
    embedded: list[Tensor] = []

    def hold(module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1]

    handle = model.words.register_forward_hook(hold)
    source, tokens = ragged_pairs["source"], ragged_pairs["tokens"]
    last = model(source=source, tokens=tokens).last_hidden_state
    handle.remove()
    for index in range(tokens.shape[1]):
        (grad,) = torch.autograd.grad(last[:, index].sum(), embedded[0], retain_graph=True)
        source_gradient, target_gradient = (
            part.abs().amax(-1).view(3, -1) for part in grad.split([source.numel(), tokens.numel()])
        )
        assert (source_gradient > 0).all() and (target_gradient[:, : index + 1] > 0).all()
        assert not target_gradient[:, index + 1 :].any()
        changed = tokens.clone()
        changed[:, index + 1 :] = (changed[:, index + 1 :] + 1) % WORDS
        assert torch.equal(model(source=source, tokens=changed).last_hidden_state[:, : index + 1], last[:, : index + 1])


# ---------------------------------------------------------------- writing


@pytest.mark.parametrize("variant", MANNERS, ids=lambda m: "-".join(map(str, m)))
def test_incremental_decoding_is_the_same(variant: Any, dtype: torch.dtype, close: Close, ragged_pairs: Any) -> None:
    """Ragged sources and prompts in one session: prompts of 2, 1 and 4 tokens, then one token at a time."""
    model = build_model(dtype, *variant)
    writer, tokens, sizes = model.incremental_decoder(), ragged_pairs["tokens"], torch.tensor([2, 1, 4])
    assert writer.max_length is None
    with torch.inference_mode():
        hidden = model(**{k: v for k, v in ragged_pairs.items() if k != "present"}).last_hidden_state
        source = {k: ragged_pairs[k] for k in ("source", "source_present")}
        state = writer.init_state(3, 8, **source)
        output, state = writer.prefill(tokens[:, :4], sizes, state)
        rows = torch.arange(3)
        for step in range(4):
            assert state["next"].tolist() == (sizes + step).tolist()
            close(output, hidden[rows, sizes + step - 1])
            if step < 3:
                output, state = writer.decode_step(tokens[rows, sizes + step], writer.grow_state(state, 99), None)
        selected_rows = torch.tensor([2, 0, 2])
        selected_output, _ = writer.decode_step(
            torch.tensor([1, 2, 3]), {key: value[selected_rows] for key, value in state.items()}, None
        )
        full_output, _ = writer.decode_step(torch.tensor([2, 5, 1]), state, None)
        close(selected_output[[0, 1]], full_output[[2, 0]])


# ---------------------------------------------------------------- heads, sizes, refusals


def test_heads() -> None:
    tied = Model(build_model(torch.float32, "lstm", "dot", "luong", embedding_size=6), {"seq2seq": Head("vocabulary")})
    assert tied.heads["seq2seq"].weight is tied.backbone.embedding().weight and tied.heads["seq2seq"].transform is None
    narrow = build_model(torch.float32, "lstm", "dot", "luong").build_head("vocabulary")
    assert narrow(torch.zeros(2, 6)).shape == (2, WORDS) and narrow.transform.weight.shape == (5, 6)
    free = Model(
        build_model(torch.float32, "lstm", "dot", "luong", tie_embeddings=False), {"seq2seq": Head("vocabulary")}
    )
    assert free.heads["seq2seq"].weight.shape == (WORDS, 6) and "heads.seq2seq.weight" in dict(free.named_parameters())
    with pytest.raises(MeristemError, match="the rnn family has no head 'spans'; it has vocabulary, pooled"):
        tied.backbone.build_head("spans")


def test_luongs_model_has_the_parameters_his_paper_says() -> None:
    """4 layers × 1000, no bidirectional encoder, 50,000 words a side; his biases are torch's halves."""
    kind = RNNSettings(
        layers=4, hidden_size=1000, bidirectional=False, input_feeding=True, attention="general", tie_embeddings=False
    )
    with torch.device("meta"):
        model = Model(RNN(kind, 50_000), {"seq2seq": Head("vocabulary")})
    lstm = 4 * 1000 * (1000 + 1000 + 2)
    expected = 8 * lstm + 4 * 1000 * 1000 + 1000 * 1000 + 2000 * 1000 + 2 * 50_000_000 + 50_000
    assert sum(p.numel() for p in model.parameters()) == expected


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hidden_size": 7}, "hidden_size: 7 is odd and cannot be split into two directions; set encoder_hidden_size"),
        (
            {"input_feeding": True, "attention_style": "bahdanau"},
            "input_feeding: needs attention with attention_style=luong",
        ),
        ({"input_feeding": True, "attention": None}, "input_feeding: needs attention with attention_style=luong"),
        ({"attention": "cosine"}, "'dot', 'general' or 'additive'"),
    ],
)
def test_refusals(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RNNSettings(**wrong)
