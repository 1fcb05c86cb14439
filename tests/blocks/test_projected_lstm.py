from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from meristem.blocks.recurrent.projected_lstm import LSTMClipping, ProjectedLSTM

FREE = LSTMClipping(cell=None, state=None)


def ours_in(lstm: nn.LSTM) -> ProjectedLSTM:
    """Torch's bidirectional LSTM with projection as ours: its gates are input, forget, new, output."""
    layer = ProjectedLSTM(2, lstm.input_size, lstm.hidden_size, lstm.proj_size, FREE).to(lstm.weight_ih_l0.dtype)

    def to_gate_order(weight: Tensor) -> Tensor:
        return weight.unflatten(0, (4, -1))[[0, 1, 3, 2]].flatten(0, 1)

    with torch.no_grad():
        for index, end in enumerate(("", "_reverse")):
            w, u, b, c, p = (
                getattr(lstm, f"{kind}_l0{end}")
                for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
            )
            layer.read[index], layer.recur[index], layer.project[index] = (
                to_gate_order(w).t(),
                to_gate_order(u).t(),
                p.t(),
            )
            layer.bias.view(2, -1)[index] = to_gate_order(b + c)
    return layer


def test_without_clipping_it_equals_torchs_lstm() -> None:
    torch.manual_seed(0)
    lstm = nn.LSTM(5, 9, proj_size=4, bidirectional=True).double()
    layer, x = ours_in(lstm), torch.randn(7, 3, 5, dtype=torch.float64, requires_grad=True)
    states, cells = layer(torch.stack([x, x.flip(0)]))
    ours = torch.cat([states[0], states[1].flip(0)], -1)
    theirs, (_, last) = lstm(x)
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)
    torch.testing.assert_close(cells[:, -1], last, atol=1e-12, rtol=0)
    assert not cells.requires_grad
    weight = torch.randn_like(ours)
    (actual,) = torch.autograd.grad((ours * weight).sum(), x, retain_graph=True)
    (other,) = torch.autograd.grad((theirs * weight).sum(), x)
    torch.testing.assert_close(actual, other, atol=1e-12, rtol=0)


def test_gradients_are_those_of_finite_differences() -> None:
    torch.manual_seed(0)
    layer = ProjectedLSTM(2, 3, 4, 2, LSTMClipping(cell=0.5, state=0.2)).double()
    names = [name for name, _ in layer.named_parameters()]
    going_on = torch.rand(2, 5, 3, 1) > 0.3

    def run(x: Tensor, *weights: Tensor) -> Tensor:
        parameters = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(layer, parameters, (x, None, going_on))[0]

    weights = [torch.randn_like(p).requires_grad_() for p in layer.parameters()]
    x = torch.randn(2, 5, 3, 3, dtype=torch.float64, requires_grad=True)
    output = run(x, *weights)
    assert 0 < (output.abs() == 0.2).double().mean() < 1
    assert torch.autograd.gradcheck(run, (x, *weights))


def test_flops_are_counted_exactly() -> None:
    """On shapes alone all steps are taken at once, and cost what they would one by one."""
    time, rows, inputs, cells, width = 6, 3, 5, 8, 4
    with torch.device("meta"):
        layer, x = ProjectedLSTM(2, inputs, cells, width, FREE), torch.empty(2, time, rows, inputs, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        layer(x)[0].sum().backward()
    forth = 2 * 2 * time * rows * (4 * cells * (inputs + width) + cells * width)
    assert counter.get_total_flops() == 3 * forth


def test_the_forget_gate_bias_starts_at_one() -> None:
    layer = ProjectedLSTM(2, 3, 4, 2, FREE)
    assert torch.equal(layer.bias.view(2, 4, 4)[:, 1], torch.ones(2, 4)) and layer.bias.sum() == 8
