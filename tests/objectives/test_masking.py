"""A mask rate that falls, and adaptive masking: the training step masks rows again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from meristem.dataset.dataset_view import DATASET_VIEWS
from meristem.dataset.token_dataset import TokenDataset
from meristem.inputs.batch import Batch, collate
from meristem.interfaces.backbone import MODEL_FAMILIES, Model
from meristem.learning.learner import Learner
from meristem.objectives.mlm import MLMObjectiveSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

Make = Callable[..., Any]


def build_batch(objective: Any, store: TokenDataset, tokenizer: Tokenizer, rows: int = 24) -> tuple[Batch, list[Any]]:
    """A batch of this objective and the rows before it."""
    kind, options = objective.view.kind, dict(objective.view.options)
    view = DATASET_VIEWS[kind](store.split("train"), tokenizer, 48, **options)
    draws = [SampleRng(0, 0, index) for index in range(min(rows, len(view)))]
    originals = [view.row(draw.sample, draw) for draw in draws]
    prepared = [objective.prepare(row, draw) for row, draw in zip(originals, draws, strict=True)]
    return collate(prepared, objective, {"tokens": tokenizer.pad or 0}), originals


def build_model(objective: Any, tokenizer: Tokenizer) -> Model:
    family = MODEL_FAMILIES["modern"]
    settings = family.Settings(layers=1, hidden_size=16, heads=2, ffn_size=32, max_length=64)
    return Learner(Model(family(settings, tokenizer.vocab_size), objective.heads), {"main": objective}).model.train()


@pytest.mark.parametrize("name", ["mlm", "hybrid"])
@pytest.mark.parametrize("unit", ["token", "word"])
def test_the_rate_falls_with_the_progress_of_the_run(
    name: str, unit: str, make: Make, store: TokenDataset, tokenizer: Tokenizer
) -> None:
    objective = make(name, initial_mask_rate=0.4, mask_rate=0.1, unit=unit)
    batch, originals = build_batch(objective, store, tokenizer)
    model, term = build_model(objective, tokenizer), {"mlm": "mlm", "hybrid": "mntp"}[name]
    width, shift = batch.inputs["tokens"].shape[1], int(name == "hybrid")
    for progress, rate in ((0.0, 0.4), (0.5, 0.25), (1.0, 0.1)):
        masked = objective.explore(model, replace(batch, progress=progress))
        labels = {key: value.numpy() for key, value in masked.targets[term].items()}
        positions = labels["at"] + shift
        candidates = 0
        for index, row in enumerate(originals):
            tokens, own = row.inputs["tokens"], positions // width == index
            if name == "hybrid" and batch.inputs["causal"][index]:
                assert not own.any()
                continue
            here = positions[own] % width
            assert np.array_equal(labels["values"][own], tokens[here])
            unmasked = masked.inputs["tokens"][index].numpy()
            assert np.array_equal(np.delete(unmasked, here), np.delete(tokens[:width], here))
            candidates += int((~row.metadata["special"][shift:width]).sum())
        assert len(positions) / candidates == pytest.approx(rate, abs=0.02)
        assert masked.target_counts[term] == len(positions)
        assert masked.target_counts.get("clm") == batch.target_counts.get("clm")


def test_fewer_masks_are_a_part_of_more_masks(make: Make, store: TokenDataset, tokenizer: Tokenizer) -> None:
    objective = make("mlm", initial_mask_rate=0.4, mask_rate=0.1)
    batch, _ = build_batch(objective, store, tokenizer)
    model = build_model(objective, tokenizer)
    positions = [
        set(objective.explore(model, replace(batch, progress=progress)).targets["mlm"]["at"].tolist())
        for progress in (0.0, 0.5, 1.0)
    ]
    assert positions[2] < positions[1] < positions[0]


def test_evaluation_reads_the_masks_of_a_constant_rate(make: Make, store: TokenDataset, tokenizer: Tokenizer) -> None:
    objective = make("mlm", initial_mask_rate=0.4, mask_rate=0.1, adaptive_masking=True)
    batch, _ = build_batch(objective, store, tokenizer)
    plain, _ = build_batch(make("mlm", mask_rate=0.1), store, tokenizer)
    evaluated = objective.explore(build_model(objective, tokenizer).eval(), replace(batch, progress=0.0))
    assert torch.equal(evaluated.inputs["tokens"], plain.inputs["tokens"])
    assert torch.equal(evaluated.targets["mlm"]["at"], plain.targets["mlm"]["at"])


def test_known_tokens_are_masked_less_often_at_the_same_rate(
    make: Make, store: TokenDataset, tokenizer: Tokenizer
) -> None:
    objective = make("mlm", adaptive_masking=True, min_adaptive_weight=0.1, mask_rate=0.2)
    batch, originals = build_batch(objective, store, tokenizer, rows=10**6)
    model = build_model(objective, tokenizer)
    text = np.concatenate([row.inputs["tokens"][~row.metadata["special"]] for row in originals])
    known = np.bincount(text).argsort()[-4:]
    share_of_known = np.isin(text, known).mean()
    accuracy = np.zeros(tokenizer.vocab_size)
    accuracy[known] = 0.99  # below the lowest weight
    before, after = (
        objective.explore(model, batch, history).targets["mlm"]["values"].numpy()
        for history in (None, {"accuracy": accuracy.tolist()})
    )
    assert len(before) == len(after)
    assert np.isin(before, known).mean() == pytest.approx(share_of_known, abs=0.03)
    # sampled one after the other with weights 0.1 and 1, until a fifth of each row is selected
    assert np.isin(after, known).mean() < 0.3 * share_of_known


def test_the_history_is_a_running_accuracy_whatever_the_order(make: Make) -> None:
    objective = make("mlm", adaptive_masking=True)
    first = {"ids": [5, 9], "predicted": [10, 1], "correct": [10, 0]}
    second = {"ids": [5, 7], "predicted": [10, 50], "correct": [0, 50]}
    history = objective.update_history(None, [first, second])
    assert history == objective.update_history(None, [second, first])
    accuracy = history["accuracy"]
    assert accuracy[5] == pytest.approx(0.5 * (1 - 0.98**20), abs=1e-6)
    assert accuracy[7] == pytest.approx(1 - 0.98**50, abs=1e-6)
    assert accuracy[9] == 0 and sum(accuracy) == pytest.approx(accuracy[5] + accuracy[7])
    later = objective.update_history(history, [{"ids": [7], "predicted": [1], "correct": [0]}])["accuracy"]
    assert later[7] == pytest.approx(0.98 * accuracy[7], abs=1e-6) and later[5] == accuracy[5]


def test_a_training_pass_counts_what_it_predicted(make: Make, store: TokenDataset, tokenizer: Tokenizer) -> None:
    objective = make("mlm", adaptive_masking=True)
    batch, _ = build_batch(objective, store, tokenizer)
    model = build_model(objective, tokenizer)
    labels = batch.targets["mlm"]
    (observation,) = objective.loss(model, objective.encode(model, batch), batch).observations
    top = model.heads["mlm"](model.backbone(**batch.inputs).last_hidden_state).flatten(0, 1)[labels["at"]].argmax(-1)
    for token, predicted, correct in zip(*(observation[key] for key in ("ids", "predicted", "correct")), strict=True):
        is_token = labels["values"] == token
        assert predicted == is_token.sum() and correct == (top[is_token] == token).sum()
    assert sum(observation["predicted"]) == len(labels["values"])
    assert objective.loss(model.eval(), objective.encode(model, batch), batch).observations == []


def test_spans_cannot_change_in_training() -> None:
    for settings in ({"initial_mask_rate": 0.3}, {"adaptive_masking": True}):
        with pytest.raises(ValidationError, match="unit=token"):
            MLMObjectiveSettings(unit="span", **settings)
