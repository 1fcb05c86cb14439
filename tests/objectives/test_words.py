from __future__ import annotations

import numpy as np
import pytest
import torch

from meristem.batch import Head, Hidden, Model, Row, collate
from meristem.models.gpt2 import GPT2, GPT2Settings
from meristem.objectives.clm import CLM, CLMSettings
from meristem.randomness import Draw
from meristem.tokenizers.tokenizer import Tokenizer


def ready(tokenizer: Tokenizer, **settings: float) -> tuple[CLM, Model, object]:
    objective = CLM(CLMSettings(**settings), tokenizer)
    torch.manual_seed(0)
    model = Model(
        GPT2(GPT2Settings(layers=1, width=16, heads=2, length=16), tokenizer.size), {"clm": Head("vocabulary")}
    )
    rows = [Row(inputs={"tokens": np.arange(5, 5 + n)}, notes={"special": np.zeros(n, bool)}, sample=n) for n in (4, 9)]
    made = [objective.prepare(row, Draw(0, 0, 0)) for row in rows]
    return objective, model, collate(made, objective, {})


def test_held_states_are_a_term_of_their_own_without_padding(tokenizer: Tokenizer) -> None:
    objective, model, batch = ready(tokenizer, l1_states=0.5, weight=2.0)
    assert objective.weights == {"clm": 2.0, "clm.states": 0.5}
    assert batch.counts == {"clm": 11, "clm.states": 11}
    hidden = objective.encode(model, batch)
    outcome = objective.loss(model, hidden, batch)
    expected = hidden.last[0, :3].abs().mean(-1).sum() + hidden.last[1].abs().mean(-1).sum()
    torch.testing.assert_close(outcome.sums["clm.states"], expected)


def test_accuracies_are_counted_where_there_is_no_gradient(tokenizer: Tokenizer) -> None:
    objective, model, batch = ready(tokenizer)
    assert objective.loss(model, objective.encode(model, batch), batch).metrics == {}
    with torch.no_grad():
        hidden = objective.encode(model, batch)
        outcome = objective.loss(model, hidden, batch)
        logits = model.heads["clm"](hidden.at(batch.goals["clm"]["at"]))
    best = logits.topk(5).indices
    hit = best == batch.goals["clm"]["values"][:, None]
    assert outcome.metrics["clm.top1"][0].item() == hit[:, 0].sum().item()
    assert outcome.metrics["clm.top5"][0].item() == hit.any(1).sum().item()
    assert outcome.metrics["clm.top5"][1].item() == 11


def test_sums_are_sums(tokenizer: Tokenizer) -> None:
    objective, model, batch = ready(tokenizer)
    outcome = objective.loss(model, objective.encode(model, batch), batch)
    assert outcome.sums["clm"].item() / 11 == pytest.approx(np.log(tokenizer.size), rel=0.05)
    assert isinstance(objective.encode(model, batch), Hidden)


def test_smoothing_and_penalties_teach_but_are_not_measured(tokenizer: Tokenizer) -> None:
    """Perplexity is that of the words, however they were learned."""
    plain, model, batch = ready(tokenizer)
    held = CLM(CLMSettings(label_smoothing=0.2, l1_outputs=0.3), tokenizer)
    learned = [one.loss(model, one.encode(model, batch), batch).sums["clm"].item() for one in (plain, held)]
    with torch.no_grad():
        measured = [one.loss(model, one.encode(model, batch), batch).sums["clm"].item() for one in (plain, held)]
    assert learned[1] > learned[0] + 0.01
    assert measured[0] == measured[1] == pytest.approx(learned[0], rel=1e-6)
