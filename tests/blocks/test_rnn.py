from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from meristem.blocks.recurrent.rnn import RecurrentNetwork
from meristem.blocks.recurrent.rnn_attention import SourceAttention
from meristem.blocks.recurrent.rnn_decoder import BahdanauDecoder, LuongDecoder


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_steps_equal_the_fused_call_and_a_state_continues(cell: Any) -> None:
    torch.manual_seed(0)
    net = RecurrentNetwork(cell, 5, 4, 3).double()
    x = torch.randn(2, 7, 5, dtype=torch.float64)
    full_output, end = net(x)
    assert end.shape == (2, 3, 2 if cell == "lstm" else 1, 4)
    state = net.unpack_state(torch.zeros_like(end))
    for index, gates in enumerate(net.input_gates(x[..., :3]).unbind(1)):  # the last two columns come step by step
        state = net.step(gates, x[:, index, 3:], state)
        torch.testing.assert_close(state[-1][0], full_output[:, index], atol=1e-12, rtol=0)
    torch.testing.assert_close(net.pack_state(state), end, atol=1e-12, rtol=0)
    _, middle = net(x[:, :3])
    torch.testing.assert_close(net(x[:, 3:], None, middle)[0], full_output[:, 3:], atol=1e-12, rtol=0)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_backward_direction_starts_at_each_rows_own_end(cell: Any) -> None:
    torch.manual_seed(0)
    net = RecurrentNetwork(cell, 5, 4, 2, bidirectional=True).double()
    x, sizes = torch.randn(3, 6, 5, dtype=torch.float64), [6, 2, 5]
    present = torch.arange(6)[None] < torch.tensor(sizes)[:, None]
    out, end = net(x, present)
    for row, size in enumerate(sizes):
        single_output, last = net(x[row : row + 1, :size])
        torch.testing.assert_close(out[row, :size], single_output[0], atol=1e-12, rtol=0)
        torch.testing.assert_close(end[row], last[0], atol=1e-12, rtol=0)
    assert end.shape[-1] == 8


def test_dropout_lies_between_layers_only() -> None:
    torch.manual_seed(0)
    one_layer, two_layers = (RecurrentNetwork("gru", 3, 32, layers, dropout=0.5) for layers in (1, 2))
    x = torch.ones(1, 5, 3)
    assert torch.equal(one_layer(x)[0], one_layer(x)[0])
    assert not torch.equal(two_layers(x)[0], two_layers(x)[0])
    assert torch.equal(two_layers.eval()(x)[0], two_layers(x)[0])
    state = two_layers.unpack_state(torch.zeros(1, 2, 1, 32))
    gates = two_layers.input_gates(x)[:, 0]
    assert torch.equal(two_layers.step(gates, None, state)[1][0], two_layers.step(gates, None, state)[1][0])
    two_layers.train()
    assert not torch.equal(two_layers.step(gates, None, state)[1][0], two_layers.step(gates, None, state)[1][0])


def flops(run: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        run().sum().backward()
    return int(counter.get_total_flops())


@pytest.mark.parametrize("kind", ["encoder", "feeding", "bahdanau"])
def test_flops_are_counted_exactly(kind: str) -> None:
    """On shapes alone all steps are taken at once, and cost what they do one by one but for the first gradient."""
    rows, time, num_sources, width = 2, 9, 5, 8

    def run(device: str) -> int:
        with torch.device(device):
            x, values = (
                torch.randn(rows, time, 6, requires_grad=True),
                torch.randn(rows, num_sources, 4, requires_grad=True),
            )
            initial_state = torch.randn(rows, 2, 1, width, requires_grad=True)
            if kind == "encoder":
                net = RecurrentNetwork("gru", 6, width, 2, bidirectional=True)
                return flops(lambda: net(x.double() if device == "cpu" else x)[0])
            source_attention: Any = SourceAttention("general", width, 4)
            part = {"source_attention": source_attention, "annotation": 4}
            decoder: Any = (
                LuongDecoder("gru", 6, width, 2, input_feeding=True, **part)
                if kind == "feeding"
                else BahdanauDecoder("gru", 6, width, 2, **part)
            )
            return flops(lambda: decoder(x, initial_state, source_attention.encode_source(values, None)).states)

    if kind == "encoder":
        gates = 2 * 2 * rows * time * 3 * width  # two directions, two operations
        assert run("meta") == 3 * gates * (6 + width + 2 * width + width)
    else:
        assert run("meta") == pytest.approx(run("cpu"), rel=0.05)
