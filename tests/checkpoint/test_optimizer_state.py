"""Optimizer state: bit-identical resuming, names and types, and refusal of invalid state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from meristem.checkpoint import optimizer_state
from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.save import save_checkpoint
from meristem.checkpoint.snapshot import Snapshot
from meristem.checkpoint.weight_transfer import load_exact
from meristem.config.errors import MeristemError
from meristem.training.optim.muon import Muon


class Counting(Optimizer):
    """Keeps plain numbers beside its tensors, as some optimizers do."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            count = state.get("count", 0)
            rate = state.get("rate", 0.1) * 0.97
            assert type(count) is int and type(rate) is float and state.get("even", True) in (True, False)
            parameter.add_(parameter.grad, alpha=-rate / (1 + count))
            state.update(count=count + 1, rate=rate, even=count % 2 == 1, nothing=None)


OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=1e-2, fused=True),
    "adamw amsgrad": lambda p: torch.optim.AdamW(p, lr=1e-2, amsgrad=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2),
    "sgd momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-2),
    "rprop": lambda p: torch.optim.Rprop(p, lr=1e-2),
    "asgd": lambda p: torch.optim.ASGD(p, lr=1e-2),
    "counting": Counting,
}


def network() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3), nn.Linear(5, 5))  # the last is never used
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=rng))
        model[0].weight.data = model[0].weight.data.t().contiguous().t()  # laid out the other way round
    return model


def names_of(model: nn.Module) -> dict[nn.Parameter, str]:
    return {parameter: name for name, parameter in model.named_parameters()}


def train(model: nn.Module, optimizer: Optimizer, steps: range) -> None:
    for step in steps:
        inputs = torch.randn(4, 6, generator=torch.Generator().manual_seed(step))
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter) if isinstance(optimizer, Counting) else None
        model[2](model[1](model[0](inputs))).square().mean().backward()  # type: ignore[index]
        optimizer.step()


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_resuming_equals_never_having_stopped(kind: str, tmp_path: Path) -> None:
    uninterrupted = network()
    train(uninterrupted, OPTIMIZERS[kind](uninterrupted.parameters()), range(12))

    first = network()
    optimizer = OPTIMIZERS[kind](first.parameters())
    train(first, optimizer, range(5))
    flat = optimizer_state.flatten_state(optimizer, names_of(first))
    model = first.state_dict()
    save_checkpoint(
        tmp_path, Snapshot(step=5, model=model, optimizer=flat, memory={}, state={}, recipe="", tokenizer=None)
    )
    loaded = load_checkpoint(tmp_path)
    assert loaded is not None

    second = network()
    resumed = OPTIMIZERS[kind](second.parameters())
    train(second, resumed, range(50, 52))  # whatever it remembers is replaced
    load_exact(second, loaded.snapshot.model)
    optimizer_state.restore_state(resumed, names_of(second), loaded.snapshot.optimizer)
    train(second, resumed, range(5, 12))
    for name, parameter in second.named_parameters():
        assert torch.equal(parameter, uninterrupted.get_parameter(name)), name
        assert parameter.isfinite().all()
    assert not torch.equal(second[2].weight, network()[2].weight)  # type: ignore[index]


def test_the_names_are_flat_and_the_types_exact() -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    train(model, optimizer, range(2))
    flat = optimizer_state.flatten_state(optimizer, names_of(model))
    assert {name.split("/")[0] for name in flat} == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert {name.split("/")[1] for name in flat} == {"exp_avg", "exp_avg_sq", "step"}
    assert flat["0.weight/step"].dtype is torch.float32 and flat["0.weight/step"].shape == ()


def test_the_types_of_the_state_do_not_follow_the_parameter() -> None:
    model = nn.Linear(3, 3).to(torch.bfloat16)
    names = names_of(model)
    flat = {
        "weight/exp_avg": torch.full((3, 3), 1 / 3),
        "weight/exp_avg_sq": torch.full((3, 3), 1 / 7),
        "weight/step": torch.tensor(4.0),
    }
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer_state.restore_state(optimizer, names, flat)
    restored = optimizer_state.flatten_state(optimizer, names)
    assert restored.keys() == flat.keys()
    assert all(restored[name].dtype is torch.float32 and torch.equal(restored[name], flat[name]) for name in flat)


def test_the_state_has_the_memory_layout_of_its_parameter_and_is_a_copy() -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    moments = torch.arange(48.0).reshape(8, 6)
    flat = {"exp_avg": moments, "exp_avg_sq": moments, "step": torch.tensor(3.0)}
    optimizer_state.restore_state(optimizer, names_of(model), {f"0.weight/{key}": value for key, value in flat.items()})
    first_moment = optimizer.state[model[0].weight]["exp_avg"]  # type: ignore[index]
    assert first_moment.stride() == model[0].weight.stride() != moments.stride()  # type: ignore[index]
    first_moment.zero_()
    assert moments.sum() > 0


def test_two_optimizers_share_one_set_of_names() -> None:
    model = network()
    names = names_of(model)

    def pair() -> list[Optimizer]:
        return [
            torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9),  # type: ignore[index]
            torch.optim.AdamW(model[2].parameters()),
        ]  # type: ignore[index]

    first = pair()
    train(model, first[0], range(1))
    first[1].step()
    flat = optimizer_state.flatten_state(first[0], names) | optimizer_state.flatten_state(first[1], names)
    second = pair()
    for optimizer in second:
        optimizer_state.restore_state(optimizer, names, flat)
    merged = optimizer_state.flatten_state(second[0], names) | optimizer_state.flatten_state(second[1], names)
    assert merged.keys() == flat.keys() and all(torch.equal(merged[name], flat[name]) for name in flat)


def test_what_does_not_belong_is_refused() -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    with pytest.raises(MeristemError, match=r"does not have: pooler\.weight"):
        optimizer_state.restore_state(optimizer, names_of(model), {"pooler.weight/exp_avg": torch.ones(1)})
    train(model, optimizer, range(1))
    with pytest.raises(MeristemError, match=r"parameter of shape \(8, 6\) without a name"):
        optimizer_state.flatten_state(optimizer, {})
    optimizer.state[model[0].weight]["history"] = [torch.ones(1)]  # type: ignore[index]
    with pytest.raises(MeristemError, match=r"AdamW keeps a list as 'history' of 0\.weight"):
        optimizer_state.flatten_state(optimizer, names_of(model))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("exp_avg", torch.ones(1), r"shape \[1\] instead of \[8, 6\]"),
        ("exp_avg", torch.ones(6, 8), r"shape \[6, 8\] instead of \[8, 6\]"),
        ("exp_avg", torch.ones(0), r"shape \[0\]"),
        ("exp_avg", torch.ones(8, 6, dtype=torch.int64), "int64 instead of"),
        ("exp_avg", torch.ones(8, 6, dtype=torch.float64), "float64 instead of"),
        ("exp_avg_sq", torch.full((8, 6), -1.0), "negative"),
        ("exp_avg_sq", torch.full((8, 6), torch.nan), "not finite"),
        ("exp_avg", torch.full((8, 6), torch.inf), "not finite"),
        ("step", torch.tensor(-1.0), "negative"),
        ("step", torch.tensor(3, dtype=torch.int64), "int64 instead of"),
        ("step", torch.ones(8, 6), r"instead of \[\]"),
        ("exp_avg", None, "entries exp_avg_sq, step instead of exp_avg, exp_avg_sq, step"),
        ("third", torch.ones(8, 6), "entries exp_avg, exp_avg_sq, step, third instead of"),
    ],
)
def test_state_that_no_optimizer_wrote_never_meets_a_kernel(
    fused: bool, key: str, value: Tensor | None, message: str
) -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    train(model, optimizer, range(2))
    flat = optimizer_state.flatten_state(optimizer, names_of(model))
    flat.pop(f"0.weight/{key}", None)
    if value is not None:
        flat[f"0.weight/{key}"] = value
    fresh = torch.optim.AdamW(model.parameters(), fused=fused)
    with pytest.raises(MeristemError, match=message):
        optimizer_state.restore_state(fresh, names_of(model), flat)
    assert not fresh.state  # nothing was restored by halves


def test_muon_checks_its_momentum_too() -> None:
    weight = nn.Parameter(torch.ones(4, 4))
    muon = Muon([weight], 0.1, momentum=0.9, weight_decay=0.0)
    with pytest.raises(MeristemError, match=r"weight/momentum has the shape \[4\] instead of \[4, 4\]"):
        optimizer_state.restore_state(muon, {weight: "weight"}, {"weight/momentum": torch.ones(4)})
