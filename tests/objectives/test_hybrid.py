from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from meristem.config.errors import RecipeError
from meristem.config.recipe import resolve_recipe
from meristem.dataset.dataset_view import DATASET_VIEWS
from meristem.dataset.token_dataset import TokenDataset
from meristem.inputs.batch import Batch, collate
from meristem.interfaces.backbone import MODEL_FAMILIES, Model
from meristem.learning.build import check_recipe
from meristem.learning.learner import Learner
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

Make, Run = Callable[..., Any], Callable[..., Any]


def test_rows_are_causal_or_masked_by_their_share(make: Make, prepared: Run) -> None:
    objective, num_rows, bidirectional = make("hybrid", mntp_share=0.25), 0, 0
    masked = candidates = 0
    for before, (after,) in prepared(objective, epochs=30):
        tokens, inputs = before.inputs["tokens"], after.inputs["tokens"]
        num_rows += 1
        if after.inputs["causal"].item():
            assert np.array_equal(inputs, tokens[:-1])
            assert np.array_equal(after.targets["clm"]["values"], tokens[1:])
            assert np.array_equal(after.targets["clm"]["at"], np.arange(len(inputs)))
            assert "mntp" not in after.targets
            continue
        bidirectional += 1
        labels = after.targets["mntp"]
        positions = labels["at"] + 1
        assert np.array_equal(labels["values"], tokens[positions])
        assert np.array_equal(np.delete(inputs, positions), np.delete(tokens[:-1], positions))
        assert positions.min() >= 1 and not before.metadata["special"][positions].any()
        masked += len(positions)
        candidates += int((~before.metadata["special"][1:-1]).sum())
    assert num_rows > 800
    assert bidirectional / num_rows == pytest.approx(0.25, abs=0.05)  # more than three standard deviations
    assert masked / candidates == pytest.approx(0.15, abs=0.01)


def test_the_mode_depends_on_seed_epoch_and_sample_alone(make: Make, store: TokenDataset, tokenizer: Tokenizer) -> None:
    objective = make("hybrid")
    view = DATASET_VIEWS["windows"](store.split("train"), tokenizer, 24, frame=False, ahead=1)

    def modes(seed: int, epoch: int) -> list[bool]:
        draws = [SampleRng(seed, epoch, index) for index in range(len(view))]
        return [bool(objective.prepare(view.row(d.sample, d), d).inputs["causal"]) for d in draws]

    assert modes(1, 0) == modes(1, 0)
    assert modes(1, 0) != modes(2, 0) and modes(1, 0) != modes(1, 1)


def build_batch(objective: Any, store: TokenDataset, tokenizer: Tokenizer, *, shorten: bool = False) -> Batch:
    """Eight rows of both modes, of unequal length if `shorten`."""
    view = DATASET_VIEWS["windows"](store.split("train"), tokenizer, 24, frame=False, ahead=1)
    rows = []
    for index in range(8):
        draw = SampleRng(0, 0, index)
        row = view.row(index, draw)
        if shorten:
            row.inputs["tokens"] = row.inputs["tokens"][: 24 - index]
            row.metadata["special"] = row.metadata["special"][: 24 - index]
        rows.append(objective.prepare(row, draw))
    modes = [bool(row.inputs["causal"]) for row in rows]
    assert True in modes and False in modes
    return collate(rows, objective, {"tokens": tokenizer.pad or 0})


@pytest.fixture(scope="module")
def build_model(tokenizer: Tokenizer) -> Callable[[Any], Model]:
    """A small `modern` model with the heads of an objective; no projection is zero."""

    def build(objective: Any) -> Model:
        family = MODEL_FAMILIES["modern"]
        torch.manual_seed(5)
        settings = family.Settings(
            layers=2, hidden_size=32, heads=4, ffn_size=64, max_length=32, init_std=0.3, output_init="normal"
        )
        return Learner(Model(family(settings, tokenizer.vocab_size), objective.heads), {"main": objective}).model

    return build


@pytest.mark.parametrize("shorten", [False, True])
def test_a_mixed_batch_equals_one_batch_per_mode(
    make: Make, store: TokenDataset, tokenizer: Tokenizer, build_model: Callable[[Any], Model], shorten: bool
) -> None:
    objective = make("hybrid")
    batch, model = build_batch(objective, store, tokenizer, shorten=shorten), build_model(objective).double().eval()
    mixed = model.backbone(**batch.inputs).last_hidden_state
    is_causal = batch.inputs["causal"][:, 0]
    plain = {key: value for key, value in batch.inputs.items() if key != "causal"}
    for causal in (True, False):
        rows = {key: value[is_causal == causal] for key, value in plain.items()}
        expected = model.backbone(causal=causal, **rows).last_hidden_state
        own_rows = mixed[is_causal == causal]
        present = rows.get("present", torch.ones(own_rows.shape[:2], dtype=torch.bool))
        torch.testing.assert_close(own_rows[present], expected[present], atol=1e-12, rtol=1e-12)


def test_no_row_sees_its_targets(
    make: Make, store: TokenDataset, tokenizer: Tokenizer, build_model: Callable[[Any], Model]
) -> None:
    objective = make("hybrid", mask_replace_prob=1.0, random_replace_prob=0.0)
    batch, model = build_batch(objective, store, tokenizer), build_model(objective).eval()
    embedded: list[torch.Tensor] = []

    def hold(module: Any, arguments: Any, output: torch.Tensor) -> torch.Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[0]

    handle = model.backbone.embedding().register_forward_hook(hold)
    hidden = model.backbone(**batch.inputs).last_hidden_state
    handle.remove()
    is_causal, position = batch.inputs["causal"][:, 0], 11
    (gradient,) = torch.autograd.grad(hidden[:, position].pow(2).sum(), embedded[0])
    reach = gradient.abs().amax(-1)
    assert reach[is_causal][:, position + 1 :].max() == 0
    assert reach[~is_causal][:, position + 1 :].min() > 0
    masked = batch.targets["mntp"]["at"] + 1
    assert (batch.inputs["tokens"].flatten()[masked] == tokenizer.mask).all()


def test_terms_are_weighted_by_their_share(
    make: Make, store: TokenDataset, tokenizer: Tokenizer, build_model: Callable[[Any], Model]
) -> None:
    objective = make("hybrid", mntp_share=0.3, weight=2.0)
    batch, model = build_batch(objective, store, tokenizer), build_model(objective).eval()
    outcome = objective.loss(model, objective.encode(model, batch), batch)
    assert objective.loss_weights == pytest.approx({"clm": 1.4, "mntp": 0.6})
    logits = model.heads["clm"](model.backbone(**batch.inputs).last_hidden_state).flatten(0, 1)
    for term, labels in batch.targets.items():
        expected = F.cross_entropy(logits[labels["at"]], labels["values"], reduction="sum")
        torch.testing.assert_close(outcome.loss_sums[term], expected)


def test_a_backbone_with_one_mode_is_refused() -> None:
    for family in ("bert", "gpt2", "multitask"):
        recipe = {"model": {"family": family}, "objective": [{"name": "hybrid"}]}
        with pytest.raises(RecipeError, match=f"mixed-rows.*{family}.*modern"):
            check_recipe(resolve_recipe("x", recipe))
