"""Per-sample gradients of private training against an exact reference: each unit alone, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from cases import LENGTH, NARROW, PRODUCT, REAL, ROWS, SIDES, SMALL, SOURCE, Case, two_sided
from torch import Tensor

from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.config.recipe import Recipe, resolve_recipe
from meristem.dataset.poisson_feed import PoissonFeed, UnitBatch
from meristem.dataset.token_dataset import TokenDataset
from meristem.interfaces.backbone import MODEL_FAMILIES
from meristem.learning.build import build_feeds, build_learner
from meristem.learning.learner import Learner
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.privacy.ghost_clipping import GhostClipping
from meristem.training.privacy.per_sample import GradientMethod, PerSampleGradients, clip_factors
from meristem.training.privacy.use_recorder import UnsupportedUseError

CLIP = 0.5
GHOST_FAMILIES = {"bert", "roberta", "gpt", "gpt2", "electra", "modern", "modernbert", "transformer"}
"""Families whose gradients ghost clipping must be able to compute with their usual settings."""


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def private_recipe(case: Case, model: dict[str, Any] | None = None, **privacy: Any) -> Recipe:
    """A recipe of two narrow layers that trains privately."""
    objective = case.objective
    if objective == "nsp" or objective == ["mlm", "nsp"]:
        nsp = {"name": "nsp", "negatives": "swap"}
        objective = nsp if objective == "nsp" else ["mlm", nsp]
    settings = {"family": case.family, **SMALL.get(case.family, NARROW), "max_length": LENGTH, **(model or {})}
    if "dropout" in MODEL_FAMILIES[case.family].Settings.model_fields:
        settings["dropout"] = 0.0
    train = {"steps": 6, "batch_tokens": ROWS * LENGTH, "seed": 3, "privacy": {"epsilon": 8, **privacy}}
    dataset = {"contiguous_batches": False}
    mapping = {"model": settings, "objective": objective, "train": train, "dataset": dataset}
    return resolve_recipe("test", mapping)


def private_case(
    case: Case, tokenizer: Tokenizer, store: TokenDataset, model: dict[str, Any] | None = None, **privacy: Any
) -> tuple[Learner, PoissonFeed]:
    """A learner in float64, and its feed of units."""
    recipe = private_recipe(case, model, **privacy)
    learner = build_learner(recipe, tokenizer).double().train()
    mark = SIDES.get(learner.objectives[SOURCE].view.kind, "")
    fitting = two_sided(mark, tokenizer, store) if mark else store
    (feed,) = build_feeds(recipe, learner.objectives, tokenizer, {SOURCE: fitting}, split="train", seed=3).values()
    assert isinstance(feed, PoissonFeed)
    with torch.no_grad():  # fresh biases and scales of zero would hide a part of the gradient
        for parameter in learner.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return learner, feed


def reference(learner: Learner, batch: UnitBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """Norm of each unit's gradient, and the sum of clipped gradients, from each unit's own backward pass."""
    norms, sums = [], {name: torch.zeros_like(p) for name, p in learner.named_parameters()}
    for unit in batch.units:
        learner.zero_grad()
        totals = {term: max(1, count) for term, count in unit.target_counts.items()}
        loss = learner(SOURCE, unit, totals).loss
        if loss.requires_grad:
            loss.backward()
        gradients = {name: p.grad for name, p in learner.named_parameters() if p.grad is not None}
        norm = torch.sqrt(sum((g.square().sum() for g in gradients.values()), torch.zeros(())))
        norms.append(norm)
        for name, gradient in gradients.items():
            sums[name] += gradient * min(1.0, CLIP / max(float(norm), 1e-30))
    learner.zero_grad()
    return torch.stack(norms), sums


def assert_equal_to_reference(method: GradientMethod, learner: Learner, batch: UnitBatch) -> None:
    """Norms and clipped sums are those of the reference, to 1e-6 relative."""
    expected_norms, expected = reference(learner, batch)
    parameters = dict(learner.named_parameters())
    sums = {parameter: torch.zeros_like(parameter) for parameter in parameters.values()}
    unit_pass = method.add(SOURCE, batch, sums, CLIP)
    assert expected_norms.max() > CLIP  # or nothing would be clipped
    torch.testing.assert_close(unit_pass.norms.double(), expected_norms, rtol=1e-6, atol=1e-9)
    for name, parameter in parameters.items():
        scale = float(expected[name].norm())
        assert float((sums[parameter] - expected[name]).norm()) <= 1e-6 * scale + 1e-12, name
    whole = torch.cat([value.flatten() for value in expected.values()]).norm()
    assert whole <= CLIP * len(batch.units) * (1 + 1e-9)


def is_private(case: Case) -> bool:
    """Whether the units of an objective are independent of each other."""
    return case.objective != "contrastive"


CASES = [case for case in REAL if is_private(case)]
REST = [
    pytest.param(case, marks=pytest.mark.slow, id=str(case))
    for case in PRODUCT
    if is_private(case) and case not in REAL
]


@pytest.mark.parametrize("case", [*CASES, *REST], ids=str)
def test_gradients_are_those_of_each_unit_alone(case: Case, tokenizer: Tokenizer, store: TokenDataset) -> None:
    """Every objective on every backbone, tied and untied as the family has it."""
    learner, feed = private_case(case, tokenizer, store, max_rows_per_document=2)
    batch = feed.batch(1, 0)
    assert isinstance(batch, UnitBatch)
    assert len(batch.units) > 2
    assert_equal_to_reference(PerSampleGradients(learner), learner, batch)
    try:
        assert_equal_to_reference(GhostClipping(learner), learner, batch)
    except UnsupportedUseError as error:
        assert case.family not in GHOST_FAMILIES, error


VARIANTS: list[tuple[Case, dict[str, Any]]] = [
    (Case("clm", "gpt2"), {"position_encoding": "rotary", "norm": "rms"}),
    (Case(["mlm", "nsp"], "bert"), {"embedding_size": 16}),
    (Case({"name": "mlm", "label_smoothing": 0.1}, "bert"), {"segments": 2}),
    (Case({"name": "mlm", "l1_hidden_states": 0.1}, "bert"), {}),
    (Case({"name": "rtd"}, "electra"), {}),
]


@pytest.mark.parametrize(("case", "model"), VARIANTS, ids=lambda value: str(value)[:40])
def test_ghost_clipping_of_variants(
    case: Case, model: dict[str, Any], tokenizer: Tokenizer, store: TokenDataset
) -> None:
    """Settings that change which parameters there are, and how their gradients add up."""
    learner, feed = private_case(case, tokenizer, store, model, max_rows_per_document=3)
    batch = feed.batch(1, 0)
    assert isinstance(batch, UnitBatch)
    assert_equal_to_reference(GhostClipping(learner), learner, batch)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_untied_embeddings(family: str, tokenizer: Tokenizer, store: TokenDataset) -> None:
    """The output layer with a weight of its own; and a part of the gradient comes from each of the two."""
    learner, feed = private_case(Case("mlm" if family == "bert" else "clm", family), tokenizer, store)
    (head,) = [module for module in learner.modules() if isinstance(module, VocabularyHead)]
    batch = feed.batch(1, 0)
    assert isinstance(batch, UnitBatch)
    tied_norms, _ = reference(learner, batch)
    head.weight = torch.nn.Parameter(head.weight.detach().clone())
    untied_norms, _ = reference(learner, batch)
    assert not torch.allclose(tied_norms, untied_norms, rtol=1e-3)
    assert_equal_to_reference(GhostClipping(learner), learner, batch)
    assert_equal_to_reference(PerSampleGradients(learner), learner, batch)


def test_frozen_parameters_are_left_out(tokenizer: Tokenizer, store: TokenDataset) -> None:
    """With frozen embeddings the norm is that of the rest."""
    learner, feed = private_case(Case("clm", "gpt2"), tokenizer, store)
    learner.model.backbone.embedding().weight.requires_grad_(False)
    batch = feed.batch(1, 0)
    assert isinstance(batch, UnitBatch)
    trained = {p: torch.zeros_like(p) for p in learner.parameters() if p.requires_grad}
    ghost = GhostClipping(learner).add(SOURCE, batch, trained, CLIP)
    norms, _ = reference(learner, batch)
    torch.testing.assert_close(ghost.norms, norms, rtol=1e-6, atol=1e-9)


def test_a_gradient_that_is_not_finite_adds_nothing(tokenizer: Tokenizer, store: TokenDataset) -> None:
    """One unit cannot spoil the sum, nor can whether it did be seen in a skipped step."""
    assert clip_factors(torch.tensor([2.0, float("nan"), float("inf"), 0.1]), 1.0).tolist() == [0.5, 0.0, 0.0, 1.0]
