from __future__ import annotations

import numpy as np
import pytest
import torch

from meristem.inputs.batch import Row, collate
from meristem.interfaces.backbone import Head, Hidden, Model
from meristem.models.gpt2 import GPT2, GPT2Settings
from meristem.objectives.clm import CLMObjective, CLMObjectiveSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng


def ready(tokenizer: Tokenizer, **settings: float) -> tuple[CLMObjective, Model, object]:
    objective = CLMObjective(CLMObjectiveSettings(**settings), tokenizer)
    torch.manual_seed(0)
    model = Model(
        GPT2(GPT2Settings(layers=1, hidden_size=16, heads=2, max_length=16), tokenizer.vocab_size),
        {"clm": Head("vocabulary")},
    )
    rows = [
        Row(inputs={"tokens": np.arange(5, 5 + n)}, metadata={"special": np.zeros(n, bool)}, sample_id=n)
        for n in (4, 9)
    ]
    prepared_rows = [objective.prepare(row, SampleRng(0, 0, 0)) for row in rows]
    return objective, model, collate(prepared_rows, objective, {})


def test_the_hidden_l1_penalty_is_a_term_without_padding(tokenizer: Tokenizer) -> None:
    objective, model, batch = ready(tokenizer, l1_hidden_states=0.5, weight=2.0)
    assert objective.loss_weights == {"clm": 2.0, "clm.states": 0.5}
    assert batch.target_counts == {"clm": 11, "clm.states": 11}
    hidden = objective.encode(model, batch)
    outcome = objective.loss(model, hidden, batch)
    expected = hidden.last_hidden_state[0, :3].abs().mean(-1).sum() + hidden.last_hidden_state[1].abs().mean(-1).sum()
    torch.testing.assert_close(outcome.loss_sums["clm.states"], expected)
    evaluated = objective.loss(model.eval(), hidden, batch)
    assert "clm.states" not in evaluated.loss_sums
    torch.testing.assert_close(evaluated.metrics["clm.states"], (expected, torch.tensor(11.0)))


def test_accuracies_are_computed_in_evaluation_only(tokenizer: Tokenizer) -> None:
    objective, model, batch = ready(tokenizer)
    assert objective.loss(model, objective.encode(model, batch), batch).metrics == {}
    with torch.no_grad():
        hidden = objective.encode(model, batch)
        outcome = objective.loss(model, hidden, batch)
        logits = model.heads["clm"](hidden.select(batch.targets["clm"]["at"]))
    best = logits.topk(5).indices
    hit = best == batch.targets["clm"]["values"][:, None]
    assert outcome.metrics["clm.top1"][0].item() == hit[:, 0].sum().item()
    assert outcome.metrics["clm.top5"][0].item() == hit.any(1).sum().item()
    assert outcome.metrics["clm.top5"][1].item() == 11


def test_sums_are_sums(tokenizer: Tokenizer) -> None:
    objective, model, batch = ready(tokenizer)
    outcome = objective.loss(model, objective.encode(model, batch), batch)
    assert outcome.loss_sums["clm"].item() / 11 == pytest.approx(np.log(tokenizer.vocab_size), rel=0.05)
    assert isinstance(objective.encode(model, batch), Hidden)


def test_smoothing_and_penalties_apply_in_training_only(tokenizer: Tokenizer) -> None:
    """Perplexity is that of the words, however they were learned."""
    plain, model, batch = ready(tokenizer)
    clm_objective = CLMObjective(CLMObjectiveSettings(label_smoothing=0.2, l1_logits=0.3), tokenizer)
    training_losses = [
        objective_variant.loss(model, objective_variant.encode(model, batch), batch).loss_sums["clm"].item()
        for objective_variant in (plain, clm_objective)
    ]
    with torch.no_grad():  # the mode is the model's, not whether gradients are recorded
        assert (
            clm_objective.loss(model, clm_objective.encode(model, batch), batch).loss_sums["clm"].item()
            == training_losses[1]
        )
    model.eval()
    measured = [
        objective_variant.loss(model, objective_variant.encode(model, batch), batch).loss_sums["clm"].item()
        for objective_variant in (plain, clm_objective)
    ]
    assert training_losses[1] > training_losses[0] + 0.01
    assert measured[0] == measured[1] == pytest.approx(training_losses[0], rel=1e-6)
