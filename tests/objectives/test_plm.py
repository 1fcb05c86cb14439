from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np
import pytest
import torch

from meristem.config.recipe import resolve_recipe
from meristem.dataset.token_dataset import TokenDataset
from meristem.inputs.batch import Row, collate
from meristem.interfaces.backbone import Model
from meristem.learning.build import build_feeds, build_learner
from meristem.models.xlnet import XLNet, XLNetSettings
from meristem.objectives.plm import sample_spans
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng


def row_of(length: int, special: tuple[int, ...] = ()) -> Row:
    """A row of distinct tokens."""
    marks = np.zeros(length, bool)
    marks[list(special)] = True
    return Row(inputs={"tokens": 5 + np.arange(length)}, metadata={"special": marks})


def test_every_order_is_equally_frequent(make: Callable[..., Any]) -> None:
    """All 120 orders of five tokens: chi-square with 119 degrees of freedom stays below its 1e-6 point."""
    objective, times = make("plm", context="ordered"), 12_000
    counts = Counter(
        tuple(objective.prepare(row_of(5), SampleRng(0, 0, number)).inputs["order"].tolist()) for number in range(times)
    )
    assert set(next(iter(counts))) == set(range(2, 7))
    assert len(counts) == 120
    expected = times / 120
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 206


def test_every_place_is_predicted_equally_often_and_a_sixth_of_all(make: Callable[..., Any]) -> None:
    objective, times, length = make("plm"), 3_000, 60
    hits = np.zeros(length)
    for number in range(times):
        hits[objective.prepare(row_of(length), SampleRng(1, 0, number)).inputs["slots"]] += 1
    assert hits.sum() == times * 10
    assert ((hits - times / 6) ** 2 / (times / 6 * 5 / 6)).sum() < 130  # 59 degrees of freedom, 1e-6


@pytest.mark.parametrize("one_in", [6, 4.5, 2])
def test_spans_are_a_share_of_the_text_and_of_every_length(one_in: float) -> None:
    """Each span lies in K times its length, so that 1/K is predicted; lengths 1 to 5 are equally frequent."""
    total = num_predicted = 0
    lengths: Counter[int] = Counter()
    hits = np.zeros(503)
    for number in range(700):
        spans = sample_spans(503, one_in, 5, np.random.default_rng(number))
        assert len(set(spans.tolist())) == len(spans)
        hits[spans] += 1
        total, num_predicted = total + 503, num_predicted + len(spans)
        inside = np.isin(np.arange(503), spans)[:400]  # the end of a text may cut its last span short
        runs = [len(list(group)) for is_in, group in groupby(inside) if is_in]
        lengths.update(runs[:-1])
    assert abs(num_predicted / total - 1 / one_in) < 0.003
    middle = hits[100:400] / 700
    assert abs(middle.mean() - 1 / one_in) < 0.005
    assert middle.min() > 0.6 / one_in
    if one_in == 6:  # neighbouring spans seldom touch, so that runs are spans
        shares = np.array([lengths[size] for size in range(1, 6)]) / sum(lengths.values())
        assert (abs(shares - 0.2) < 0.02).all()
        assert sum(lengths[size] for size in lengths if size > 5) / sum(lengths.values()) < 0.04


def test_spans_of_a_few_tokens_are_chosen_when_asked_for(make: Callable[..., Any]) -> None:
    runs: list[int] = []
    for number in range(300):
        slots = make("plm", unit="span").prepare(row_of(120), SampleRng(0, 0, number)).inputs["slots"]
        runs += [len(part) for part in np.split(slots, np.flatnonzero(np.diff(slots) > 1) + 1)]
    scattered = make("plm").prepare(row_of(120), SampleRng(0, 0, 0)).inputs["slots"]
    assert 2.5 < np.mean(runs) < 3.5
    assert np.mean([len(p) for p in np.split(scattered, np.flatnonzero(np.diff(scattered) > 1) + 1)]) < 2


@pytest.mark.parametrize("unit", ["token", "span"])
@pytest.mark.parametrize("context", ["whole", "ordered"])
@pytest.mark.parametrize("length", [1, 2, 7, 13, 64])
def test_predicted_tokens_come_last_and_positions_are_unchanged(
    make: Callable[..., Any], unit: str, context: str, length: int
) -> None:
    objective, row = make("plm", unit=unit, context=context), row_of(length)
    for number in range(20):
        prepared = objective.prepare(row, SampleRng(0, 0, number))
        order, slots = prepared.inputs["order"], prepared.inputs["slots"]
        assert prepared.inputs["tokens"].tolist() == row.inputs["tokens"].tolist()
        assert slots.tolist() == sorted(set(slots.tolist()))
        assert len(slots) >= 1
        assert prepared.targets["plm"]["at"].tolist() == list(range(len(slots)))
        assert prepared.targets["plm"]["values"].tolist() == row.inputs["tokens"][slots].tolist()
        assert len(set(order[slots].tolist())) == len(slots)
        rest = np.delete(order, slots)
        assert order.min() >= 1
        assert not len(rest) or rest.max() < order[slots].min()
        assert context == "ordered" or set(rest.tolist()) <= {1}


def test_special_tokens_are_never_predicted_and_always_seen(
    make: Callable[..., Any], prepared: Callable[..., Any], tokenizer: Tokenizer
) -> None:
    for settings in ({}, {"unit": "span"}, {"context": "ordered"}):
        for before, (after,) in prepared(make("plm", **settings), max_length=25):
            special = before.metadata["special"]
            assert special.any()
            assert not special[after.inputs["slots"]].any()
            assert (after.inputs["order"][special] == 1).all()
            assert not tokenizer.special_mask[after.targets["plm"]["values"]].any()
    prepared_row = make("plm").prepare(row_of(3, special=(0, 1, 2)), SampleRng(0, 0, 0))
    assert len(prepared_row.inputs["slots"]) == 0


def test_padded_rows_are_predicted_as_they_are_alone(make: Callable[..., Any]) -> None:
    """Rows of 9, 4 and 1 tokens in one batch, one of them with nothing to predict: padding changes no prediction."""
    objective = make("plm", predict_one_in=2)
    rows = [row_of(9, (0,)), row_of(4), row_of(1, (0,)), row_of(1)]
    prepared_rows = [objective.prepare(row, SampleRng(0, 0, number)) for number, row in enumerate(rows)]
    torch.manual_seed(0)
    settings = XLNetSettings(layers=2, hidden_size=16, heads=2, max_length=9, init_std=0.3)
    model = Model(XLNet(settings, 20), objective.heads).double().eval()
    batch = collate(prepared_rows, objective, {"tokens": 0})
    assert batch.target_counts == {"plm": 4 + 2 + 0 + 1}
    loss = objective.loss(model, objective.encode(model, batch), batch)
    single_losses = []
    for row in prepared_rows:
        if len(row.inputs["slots"]):
            single_batch = collate([row], objective, {"tokens": 0})
            single_losses.append(
                objective.loss(model, objective.encode(model, single_batch), single_batch).loss_sums["plm"]
            )
    torch.testing.assert_close(loss.loss_sums["plm"], torch.stack(single_losses).sum(), atol=1e-12, rtol=0)


@pytest.mark.parametrize("memory", [0, 16])
@pytest.mark.parametrize("context", ["whole", "ordered"])
def test_what_is_predicted_changes_no_logit_of_its_prediction(
    memory: int, context: str, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    """From the store to the logits, from windows and from lanes with what the segment before left behind."""
    model = {
        "family": "xlnet",
        "layers": 3,
        "hidden_size": 16,
        "heads": 2,
        "max_length": 23,
        "memory_length": memory,
        "init_std": 0.3,
        "bidirectional_data": memory > 0,
    }
    recipe = resolve_recipe(
        "test",
        {
            "model": model,
            "objective": [{"name": "plm", "context": context}],
            "train": {"steps": 1, "batch_tokens": 4 * 23, "seed": 0},
        },
    )
    learner = build_learner(recipe, tokenizer).double().eval()
    (feed,) = build_feeds(recipe, learner.objectives, tokenizer, {"main": store}, split="train", seed=0).values()
    objective, head = feed.objective, learner.model.heads["plm"]
    first, second = feed.batch(0, 0), feed.batch(1, 0)
    assert ("fresh" in first.inputs) == ("backwards" in first.inputs) == (memory > 0)
    state = objective.encode(learner.model, first).state
    assert bool(state) == (memory > 0)
    logits = head(objective.encode(learner.model, second, state or None).last_hidden_state)
    tokens, order, slots = (second.inputs[key] for key in ("tokens", "order", "slots"))
    for row in range(4):
        for number, slot in enumerate(slots[row].tolist()):
            changed = tokens.clone()
            later = order[row] >= order[row, slot]
            changed[row, later] = (changed[row, later] + 3) % tokenizer.vocab_size
            second.inputs["tokens"] = changed
            changed_logits = head(objective.encode(learner.model, second, state or None).last_hidden_state)
            second.inputs["tokens"] = tokens
            assert torch.equal(changed_logits[row, number], logits[row, number])
    changed = tokens.clone()
    changed[:, 0] = (changed[:, 0] + 3) % tokenizer.vocab_size
    second.inputs["tokens"] = changed
    assert not torch.equal(head(objective.encode(learner.model, second, state or None).last_hidden_state), logits)


def test_the_hidden_l1_penalty_is_counted_at_the_slots(make: Callable[..., Any]) -> None:
    objective = make("plm", l1_hidden_states=0.1)
    prepared_rows = [objective.prepare(row_of(size), SampleRng(0, 0, size)) for size in (12, 18)]
    assert collate(prepared_rows, objective, {"tokens": 0}).target_counts == {"plm": 5, "plm.states": 5}
