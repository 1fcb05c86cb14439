from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import MambaConfig, MambaForCausalLM

from meristem.interfaces.backbone import Head, Model
from meristem.interop.families.mamba import MambaModelType
from meristem.interop.weight_map import match_weights
from meristem.models.mamba import Mamba, MambaSettings
from meristem.training.optim.param_groups import build_optimizers
from meristem.training.settings import TrainSettings

WORDS = 61
SMALL: dict[str, Any] = {"layers": 3, "hidden_size": 32, "state_size": 5, "kernel_size": 3, "max_length": 24}


def build_model(**settings: Any) -> Model:
    torch.manual_seed(0)
    return Model(Mamba(MambaSettings(**{**SMALL, **settings}), WORDS), {"clm": Head("vocabulary")})


def run(model: Model, tokens: Tensor, **inputs: Any) -> Tensor:
    return model.backbone(tokens=tokens, **inputs).last_hidden_state  # type: ignore[no-any-return]


@pytest.fixture
def model(randomised: Callable[[Any], None]) -> Model:
    """Random weights everywhere, in double precision."""
    model = build_model(carry_state=True).double()
    randomised(model)
    return model.eval()


def test_the_same_as_transformers(ragged: tuple[Tensor, Tensor], randomised: Callable[[Any], None]) -> None:
    """In float32, which their scan is computed in whatever the weights are."""
    tokens, present = ragged
    model = build_model()
    config = MambaConfig(
        vocab_size=WORDS, num_hidden_layers=3, hidden_size=32, state_size=5, conv_kernel=3, use_cache=False
    )
    other = MambaForCausalLM(config).train()  # without a cache; nothing is dropped
    randomised(other)
    their_parameters = dict(other.named_parameters())
    matches = list(
        match_weights(MambaModelType.weight_rules(["clm"]), dict(model.named_parameters()), model.backbone.settings)
    )
    assert {name for match in matches for name in match.theirs} == set(their_parameters)
    with torch.no_grad():
        for match in matches:
            theirs = [their_parameters[name] for name in match.theirs]
            model.get_parameter(match.ours).copy_(match.transform.to_ours(theirs, model.backbone.settings))
    actual = model.heads["clm"](run(model, tokens, present=present)[present])
    expected = other(input_ids=tokens, attention_mask=present.long()).logits[present]
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    weight = torch.randn(actual.shape) / 50
    (actual * weight).sum().backward()
    (expected * weight).sum().backward()
    for match in matches:
        gradients = [their_parameters[name].grad for name in match.theirs]
        assert all(gradient is not None for gradient in gradients)
        expected_gradient = match.transform.to_ours(gradients, model.backbone.settings)  # type: ignore[arg-type]
        gradient = model.get_parameter(match.ours).grad
        assert gradient is not None
        scale = max(1.0, float(expected_gradient.abs().max()))
        torch.testing.assert_close(gradient / scale, expected_gradient / scale, atol=1e-5, rtol=1e-4)


def test_initial_time_steps_and_decays_are_the_papers() -> None:
    backbone = build_model(hidden_size=256, state_size=16, time_step_min=0.002, time_step_max=0.05).backbone
    mixer = backbone.layers[0].mixer  # type: ignore[union-attr, index]
    steps = torch.nn.functional.softplus(mixer.time_step.bias.detach())
    assert 0.002 <= float(steps.min()) < 0.0022 and 0.045 < float(steps.max()) <= 0.0501
    assert float(steps.median()) == pytest.approx(0.01, rel=0.25)  # log-uniform: the geometric mean of the bounds
    torch.testing.assert_close(mixer.log_decay.exp().view(512, 16), torch.arange(1.0, 17).expand(512, 16))


def test_segments_with_memory_equal_one_forward_pass(model: Model) -> None:
    tokens = torch.randint(WORDS, (3, 20), generator=torch.Generator().manual_seed(1))
    expected = run(model, tokens)
    state, outputs, fresh = model.backbone.empty_memory(3), [], torch.tensor([[True]] * 3)
    for segment in tokens.split([5, 7, 1, 1, 6], 1):
        hidden = model.backbone(tokens=segment, state=state, fresh=fresh)
        outputs.append(hidden.last_hidden_state)
        state, fresh = hidden.state, torch.zeros_like(fresh)
    torch.testing.assert_close(torch.cat(outputs, 1), expected, atol=1e-12, rtol=1e-12)
    assert all(not tensor.requires_grad for tensor in state.values())
    begun_again = model.backbone(tokens=tokens[:, :4], state=state, fresh=torch.tensor([[True], [False], [True]]))
    changed = (begun_again.last_hidden_state - expected[:, :4]).abs().amax((1, 2)) > 1e-6
    assert changed.tolist() == [False, True, False]


def test_documents_of_a_row_do_not_see_each_other(model: Model) -> None:
    """Nor across segments, where the convolution's window reaches back over the beginning of a document."""
    tokens = torch.randint(WORDS, (1, 20), generator=torch.Generator().manual_seed(1))
    parts = [6, 1, 3, 2, 8]
    documents = torch.repeat_interleave(torch.arange(5), torch.tensor(parts))[None]
    expected = torch.cat([run(model, part) for part in tokens.split(parts, 1)], 1)
    torch.testing.assert_close(run(model, tokens, documents=documents), expected, atol=1e-12, rtol=1e-12)
    assert not torch.allclose(run(model, tokens), expected)
    for length in (4, 7, 8, 11):
        state, outputs = model.backbone.empty_memory(1), []
        for ids, document in zip(tokens.split(length, 1), documents.split(length, 1), strict=True):
            fresh = torch.tensor([[not outputs]])
            hidden = model.backbone(tokens=ids, documents=document, state=state, fresh=fresh)
            outputs.append(hidden.last_hidden_state)
            state = hidden.state
        torch.testing.assert_close(torch.cat(outputs, 1), expected, atol=1e-12, rtol=1e-12)


def test_gradient_checkpointing_changes_no_gradient(model: Model) -> None:
    tokens = torch.randint(WORDS, (2, 20), generator=torch.Generator().manual_seed(1))
    gradients = []
    for recompute in (False, True):
        model.zero_grad()
        model.backbone.recompute = recompute  # type: ignore[assignment]
        run(model.train(), tokens).pow(3).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    assert len(gradients[0]) == len(list(model.parameters()))
    assert all(torch.equal(first, second) for first, second in zip(*gradients, strict=True))


def test_bfloat16_keeps_the_state_in_float32() -> None:
    model = build_model(carry_state=True)
    tokens = torch.randint(WORDS, (2, 20), generator=torch.Generator().manual_seed(1))
    expected, fresh = run(model, tokens), torch.tensor([[True]] * 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model.backbone(tokens=tokens, fresh=fresh)
        assert hidden.state["state"].dtype == hidden.state["convolution"].dtype == torch.float32
        assert model.backbone.layers[0].mixer.in_projection(expected).dtype == torch.bfloat16  # type: ignore[union-attr, index, operator]
    difference, expected = (hidden.last_hidden_state.float() - expected).detach(), expected.detach()
    assert 0 < float(difference.abs().mean()) < 0.02 * float(expected.abs().mean())


def test_optimizers_do_not_decay_the_recurrence() -> None:
    model = build_model()
    names = {parameter: name.rpartition("mixer.")[2] for name, parameter in model.named_parameters()}
    for optimizer in ("adamw", "muon"):
        optimizers = build_optimizers(model, TrainSettings(optimizer=optimizer, weight_decay=0.1))
        decayed = {
            names[parameter]
            for built in optimizers
            for group in built.param_groups
            if group["weight_decay"]
            for parameter in group["params"]
        }
        assert not decayed & {"log_decay", "skip", "time_step.bias", "convolution_bias"}
        assert decayed >= {"in_projection.weight", "selection.weight", "out_projection.weight"}


def test_flops_are_those_counted_by_hand() -> None:
    model = build_model()
    tokens, (layers, hidden, inner, rank, state) = 2 * 24, (3, 32, 64, 2, 5)
    linear = 2 * (hidden * 2 * inner + inner * (rank + 2 * state) + rank * inner + inner * hidden)
    scan = 2 * inner * state  # C · h; its backward pass has the products of C, B and the input with the states
    with FlopCounterMode(display=False) as counter:
        out = run(model.to("meta"), torch.zeros(2, 24, dtype=torch.long, device="meta"))
        assert counter.get_total_flops() == tokens * layers * (linear + scan)
        out.sum().backward()
    assert counter.get_total_flops() == tokens * layers * (3 * linear + 4 * scan)


def test_impossible_time_steps_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"time_step_max: 0.01 is less than time_step_min=0.1"):
        MambaSettings(time_step_min=0.1, time_step_max=0.01)
