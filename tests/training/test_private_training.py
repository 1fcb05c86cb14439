"""Differentially private runs: budget, sampling, noise, exact resume, several processes, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_runner import Meristem
from finetune_factory import FinetuneFactory, finetune_factory
from forked_processes import run_processes
from rich.console import Console
from run_factory import RunFactory

from meristem.checkpoint import load
from meristem.config.errors import MeristemError, RecipeError
from meristem.config.recipe import resolve_recipe
from meristem.dataset.poisson_feed import PoissonFeed, poisson_feed
from meristem.dataset.token_dataset import TokenDataset
from meristem.dataset.unit_rows import unit_view
from meristem.distributed.process_group import SINGLE_PROCESS
from meristem.interfaces.objective import OBJECTIVES
from meristem.learning.build import pad_values
from meristem.objectives.clm import CLMObjectiveSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.pretraining import pretrain
from meristem.training.privacy.accountant import SampledSteps, epsilon_of, find_noise_multiplier
from meristem.training.privacy.noise import add_noise
from meristem.training.privacy.privacy_checks import refuse_shared_samples

__all__ = ["finetune_factory"]

PRIVATE = ("train.privacy.epsilon=8", "train.privacy.noise_seed=5", "train.privacy.accountant=rdp")


def expected_epsilon(rate: float, noise: float, count: int, delta: float, accountant: str = "rdp") -> float:
    """ε by dp-accounting itself."""
    from dp_accounting import dp_event
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
    from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant

    ledger = RdpAccountant() if accountant == "rdp" else PLDAccountant(value_discretization_interval=1e-3)
    ledger.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise)), count)
    return float(ledger.get_epsilon(delta))


# ------------------------------------------------------------ budget


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_epsilon_is_that_of_dp_accounting(accountant: Any) -> None:
    """To 1e-9, and steps in two parts count as one."""
    whole = epsilon_of(accountant, [SampledSteps(0.01, 1.1, 300)], 1e-5)
    assert whole == pytest.approx(expected_epsilon(0.01, 1.1, 300, 1e-5, accountant), abs=1e-9)
    parts = epsilon_of(accountant, [SampledSteps(0.01, 1.1, 100), SampledSteps(0.01, 1.1, 200)], 1e-5)
    assert parts == pytest.approx(whole, rel=1e-3)


def test_the_noise_is_the_least_within_the_budget() -> None:
    """A little less noise is beyond it; with an earlier run it takes more."""
    noise = find_noise_multiplier("rdp", 3.0, 1e-5, [(0.02, 500)])
    assert expected_epsilon(0.02, noise, 500, 1e-5) <= 3.0 < expected_epsilon(0.02, noise * 0.99, 500, 1e-5)
    earlier = [SampledSteps(0.02, 2 * noise, 500)]
    assert find_noise_multiplier("rdp", 3.0, 1e-5, [(0.02, 500)], earlier) > noise
    with pytest.raises(RecipeError, match="is spent"):
        find_noise_multiplier("rdp", 0.5, 1e-5, [(0.02, 500)], earlier)


# ------------------------------------------------------------ sampling and noise


def feed_of(store: TokenDataset, tokenizer: Tokenizer, units: int = 12, **changes: Any) -> PoissonFeed:
    """Documents of the small store for a causal objective."""
    objective = OBJECTIVES["clm"](CLMObjectiveSettings(), tokenizer)
    view = unit_view(objective.view, store.split("train"), tokenizer, 16)
    return poisson_feed(
        view,
        objective,
        **{
            "seed": 7, "units_per_step": units, "max_rows": 1, "micro_batch_tokens": 64,
            "vocab_size": tokenizer.vocab_size, "pad_values": pad_values(tokenizer),
            "distributed": SINGLE_PROCESS, "unit": "document", **changes,
        },
    )  # fmt: skip


def test_sampling_is_poisson(store: TokenDataset, tokenizer: Tokenizer) -> None:
    """Each unit is drawn with the same probability, apart from the others: counts are binomial."""
    feed, num_steps = feed_of(store, tokenizer), 4000
    draws = np.zeros((num_steps, len(feed.view)), bool)
    for step in range(num_steps):
        draws[step, feed.step_units(step)] = True
    rate, counts = feed.sampling_rate, draws.sum(1)
    assert rate == 12 / store.split("train").documents
    assert abs(counts.mean() - 12) < 5 * math.sqrt(12 * (1 - rate) / num_steps)
    assert abs(counts.var() / (12 * (1 - rate)) - 1) < 5 * math.sqrt(2 / num_steps)
    frequencies = draws.mean(0)
    assert np.abs(frequencies - rate).max() < 5 * math.sqrt(rate * (1 - rate) / num_steps)
    assert feed.step_units(3) == feed_of(store, tokenizer).step_units(3)
    assert feed.step_units(3) != feed_of(store, tokenizer, seed=8).step_units(3)


def test_rows_are_of_one_document_each(store: TokenDataset, tokenizer: Tokenizer) -> None:
    """All windows of a document together are its tokens, between separators; none has a token of another one."""
    stream, feed = store.split("train"), feed_of(store, tokenizer, max_rows=100)
    for unit in (0, 1, stream.documents - 1):
        span = stream.document(unit)
        text = stream.tokens(span.start, span.stop).tolist()
        predicted: dict[int, int] = {}
        for row in feed.unit_rows(0, unit):
            assert len(row.inputs["tokens"]) <= 16
            predicted.update(zip(row.targets["clm"]["values"].tolist(), row.inputs["tokens"].tolist(), strict=True))
        assert sorted(token for row in feed.unit_rows(0, unit) for token in row.targets["clm"]["values"]) == sorted(
            text
        )
    one_row = feed_of(store, tokenizer).unit_rows(0, 0)
    assert len(one_row) == 1 < len(feed.unit_rows(0, 0))
    starts = {tuple(feed_of(store, tokenizer).unit_rows(step, 0)[0].inputs["tokens"]) for step in range(20)}
    assert len(starts) == len(feed.unit_rows(0, 0))  # every window is drawn sooner or later


def test_noise_is_gaussian_and_a_function_of_seed_and_step() -> None:
    """Mean, deviation and tails; other numbers for other steps, tensors and seeds."""

    def noise(seed: int = 1, step: int = 0, number: int = 0) -> torch.Tensor:
        total = torch.zeros(200_000)
        add_noise(total, 3.0, seed=seed, step=step, tensor_number=number)
        return total

    drawn = noise()
    assert abs(float(drawn.mean())) < 5 * 3 / math.sqrt(200_000)
    assert abs(float(drawn.std()) / 3 - 1) < 5 / math.sqrt(400_000)
    assert abs(float((drawn.abs() > 6).float().mean()) - 0.0455) < 0.003
    assert torch.equal(drawn, noise())
    for other in (noise(seed=1 + (1 << 64)), noise(step=1), noise(number=1)):  # all bits of a seed count
        assert abs(float((drawn * other).mean())) < 5 * 9 / math.sqrt(200_000)


# ------------------------------------------------------------ runs


def test_a_private_run_says_what_it_spent(run_factory: RunFactory) -> None:
    """In the log lines, state, card and finished.json, equal to dp-accounting; and more steps are refused."""
    run_factory.train(*PRIVATE)
    state = run_factory.state()["privacy"]
    (rate,), noise = state["rates"].values(), state["noise_multiplier"]
    logged = [(line["step"], line["epsilon"]) for line in run_factory.lines("train")]
    assert [step for step, _ in logged] == [1, 2, 3, 4, 5, 6]
    for step, epsilon in logged:
        assert epsilon == pytest.approx(expected_epsilon(rate, noise, step, 1e-5), abs=1e-9)
    assert 7.5 < logged[-1][1] <= 8
    assert run_factory.facts()["privacy"]["epsilon"] == logged[-1][1]
    card = (run_factory.root / "run" / "README.md").read_text(encoding="utf-8")
    assert "## Privacy" in card
    assert f"ε = {logged[-1][1]:.4g} at δ = 1e-05 for each document" in card
    assert "The tokenizer was trained on the protected text" in run_factory.output.getvalue()
    with pytest.raises(RecipeError, match=r"would spend ε = .* the budget is 8"):
        run_factory.train(*PRIVATE, "train.steps=12")


def test_resuming_repeats_the_same_noise(run_factory: RunFactory) -> None:
    """A run stopped after three steps ends bit for bit like one that never stopped, with micro-batches and dropout."""
    settings = (*PRIVATE, "train.micro_batch_tokens=64", "model.dropout=0.1")
    run_factory.train(*settings, run="whole")
    run_factory.interrupt(*settings, at=3, run="stopped")
    run_factory.train(*settings, run="stopped")
    run_factory.assert_equal_runs("whole", "stopped")
    assert run_factory.state("stopped")["privacy"] == run_factory.state("whole")["privacy"]


def test_the_secret_seed_is_kept_for_a_resume_and_erased_at_the_end(run_factory: RunFactory) -> None:
    """Two runs draw different secrets; one that lost its secret cannot resume."""
    settings = ("train.privacy.epsilon=8", "train.privacy.accountant=rdp")
    secret = run_factory.root / "run" / "privacy.key"
    run_factory.interrupt(*settings, at=3)
    assert (secret.stat().st_mode & 0o777) == 0o600
    kept = secret.read_bytes()
    secret.unlink()
    with pytest.raises(MeristemError, match="the secret seed of this run's noise is missing"):
        run_factory.train(*settings)
    secret.write_bytes(kept)
    run_factory.train(*settings)
    assert not secret.exists()
    run_factory.train(*settings)  # finished: nothing to do, and nothing to draw
    run_factory.train(*settings, run="other")
    norms = [[line["gradient_norm"] for line in run_factory.lines("train", run)] for run in ("run", "other")]
    assert norms[0] != norms[1]  # a step may draw no unit and have no loss, but it has noise


def test_weights_that_have_read_the_data(run_factory: RunFactory) -> None:
    """Without privacy they are refused; with it, what was spent on the same data counts."""
    run_factory.train(run="open")
    with pytest.raises(RecipeError, match="without privacy, and remember it"):
        run_factory.train(*PRIVATE, "from=open", run="second")
    run_factory.train(*PRIVATE, run="first")
    with pytest.raises(RecipeError, match="is spent"):
        run_factory.train(*PRIVATE, "train.privacy.epsilon=2", "from=first", run="third")
    run_factory.train(*PRIVATE, "train.privacy.epsilon=12", "from=first", run="fourth")
    first, fourth = run_factory.facts("first")["privacy"], run_factory.facts("fourth")["privacy"]
    assert first["epsilon"] < 8 < fourth["epsilon"] <= 12
    assert "has spent ε =" in run_factory.output.getvalue()


@pytest.mark.slow
def test_processes_add_the_same_gradient(tmp_path: Path) -> None:
    """Two processes share the units of each step, and the noise is added once: the weights of one process."""

    def recipe() -> Any:
        corpus = {"source": "builtin:microworld-en?size=40", "processes": 1, "validation": 0.1, "test": 0.1}
        train = {
            "steps": 4, "batch_tokens": 96, "threads": 1, "log_every": 1, "evaluate_every": "none", "warmup": 0,
            "privacy": {"epsilon": 8, "noise_seed": 5, "accountant": "rdp"},
        }  # fmt: skip
        model = {"family": "gpt2", "layers": 1, "hidden_size": 32, "heads": 2, "max_length": 32, "dropout": 0.0}
        return resolve_recipe(
            "tiny",
            {"tokenizer": {"kind": "bpe", "vocab_size": 300}, "model": model, "objective": "clm", "corpus": corpus,
             "train": train},
        )  # fmt: skip

    def work(out: Path) -> Any:
        def train(rank: int) -> None:
            torch.set_default_dtype(torch.float64)
            torch.set_num_threads(1)
            pretrain(recipe(), out, fresh=False, console=Console(quiet=True))

        return train

    weights = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        run_processes(processes, work(out), tmp_path / f"said-{processes}")
        checkpoint = load.load_checkpoint(out / "checkpoints")
        assert checkpoint is not None
        weights.append(checkpoint.snapshot.model)
    for name, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][name], rtol=1e-6, atol=1e-8)


def test_private_fine_tuning_protects_samples(finetune_factory: FinetuneFactory) -> None:
    """A task trains privately too, and all its pieces are of samples that were drawn."""
    settings = {"train.privacy.epsilon": 8.0, "train.privacy.delta": 1e-3, "train.privacy.noise_seed": 3}
    finetune_factory.learn(settings)
    facts = json.loads((finetune_factory.root / "run" / "finished.json").read_bytes())
    assert facts["privacy"]["unit"] == "sample"
    assert facts["privacy"]["rates"] == {"task": 8 / 32}
    assert facts["privacy"]["epsilon"] <= 8
    said = finetune_factory.output.getvalue()
    assert "ghost clipping" in said
    assert "for each sample" in said


# ------------------------------------------------------------ what is refused

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "minutes": ({"train": {"minutes": 3}}, "budget in minutes"),
    "bfloat16": ({"train": {"precision": "bfloat16"}}, "in bfloat16 the norm"),
    "fsdp": ({"train": {"fsdp": True}}, "leave out fsdp"),
    "nsp": ({"model": {"family": "bert"}, "objective": ["mlm", "nsp"]}, "negatives=swap"),
    "contrastive": ({"model": {"family": "bert"}, "objective": "contrastive"}, "compared with the other texts"),
    "adaptive": (
        {"model": {"family": "bert"}, "objective": {"name": "mlm", "adaptive_masking": True}}, "adaptive_masking",
    ),
    "memory": ({"model": {"family": "transformer_xl"}}, "contiguous_batches=false"),
    "unit": ({"train": {"privacy": {"epsilon": 8, "unit": "sample"}}}, "sample cannot be protected"),
    "epsilon": ({"train": {"privacy": {"delta": 1e-5}}}, "epsilon"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_private_is_refused(name: str) -> None:
    """With the reason and what to do, before any data are read."""
    changes, message = REFUSED[name]
    base: dict[str, Any] = {"model": {"family": "gpt2"}, "objective": "clm"}
    train = {"privacy": {"epsilon": 8}, **({} if name == "minutes" else {"steps": 10}), **changes.get("train", {})}
    with pytest.raises(RecipeError, match=message):
        refuse_shared_samples(resolve_recipe("tiny", {**base, **changes, "train": train}))


def test_too_little_data_is_refused(run_factory: RunFactory) -> None:
    """Fewer documents than a step draws, or a δ that would let one be published."""
    with pytest.raises(RecipeError, match="are too few for"):
        run_factory.train(*PRIVATE, "train.batch_tokens=4096")
    with pytest.raises(RecipeError, match=r"must be below 0\.0"):
        run_factory.train(*PRIVATE, "train.privacy.delta=0.1", run="another")


def test_a_memory_is_refused_before_anything_is_measured(meristem: Meristem) -> None:
    result = meristem("pretrain", "transformer-xl-mini", "train.privacy.epsilon=8", "train.steps=2")
    assert result.code != 0 and "carries one text into the rows of the next" in result.err


def test_a_private_recipe_is_described(meristem: Meristem) -> None:
    result = meristem("describe", "gpt2-mini", "train.privacy.epsilon=8", "train.steps=2", "model.layers=1")
    assert result.code == 0, result.err
