"""Training loop: budgets, resuming, non-finite steps, freezing, early stopping and evaluation intervals."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import Case, bits, loop_of, real, resume, stepper_of, steps

from meristem.checkpoint import load
from meristem.config.errors import MeristemError
from meristem.dataset.token_dataset import TokenDataset
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.loop import TrainingLoop
from meristem.training.metrics_format import format_metrics_line
from meristem.training.stop_signals import TrainingStopped
from meristem.training.train_state import TrainState

CASE = Case("mlm", "bert")


def build_loop(
    folder: Path,
    tokenizer: Tokenizer,
    store: TokenDataset,
    *,
    total: int = 6,
    train_state: TrainState | None = None,
    resumed: bool = False,
    train: dict[str, Any] | None = None,
    **loop_options: Any,
) -> TrainingLoop:
    learner, feed, settings = real(
        CASE, tokenizer, store, dropout=0.1, **{"log_every": 1, "steps": total, **(train or {})}
    )
    stepper = stepper_of(learner, settings)
    train_state = (
        resume(folder, stepper, feed) if resumed else train_state or TrainState(total=total, budget=f"{total} steps")
    )
    return loop_of(folder, stepper, feed, settings, train_state, **loop_options)


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in records if line["kind"] == kind]


def spoil(loop: TrainingLoop, bad: set[int]) -> None:
    """Make these steps of a loop not finite."""

    def hook(module: Any, arguments: Any, hidden: Any) -> None:
        if loop.state.step in bad:
            hidden.last_hidden_state = hidden.last_hidden_state * torch.nan

    loop.stepper.learner.model.backbone.register_forward_hook(hook)


def test_a_run_goes_to_the_end_of_its_budget_and_writes_it_down(
    tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    loop = build_loop(tmp_path, tokenizer, store)
    loop.fit()
    assert loop.state.step == 6
    assert loop.state.samples == 48
    assert loop.state.tokens == 48 * 24
    assert [line["step"] for line in lines(tmp_path, "train")] == [1, 2, 3, 4, 5, 6]
    first = lines(tmp_path, "train")[0]
    assert {"loss", "gradient_norm", "rate", "tokens_per_second", "mfu", "memory", "skipped"} <= first.keys()
    checkpoint = load.load_checkpoint(tmp_path / "checkpoints")
    assert checkpoint is not None
    assert checkpoint.snapshot.step == 6
    plain = real(CASE, tokenizer, store, dropout=0.1, steps=6)
    stepper = stepper_of(plain[0], plain[2])
    assert [float(t.loss) for t in steps(stepper, plain[1], range(6))] == [
        line["loss"] for line in lines(tmp_path, "train")
    ]


def test_a_stopped_loop_resumes_bit_for_bit(tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset) -> None:
    uninterrupted = build_loop(tmp_path / "whole", tokenizer, store)
    uninterrupted.fit()
    first = build_loop(tmp_path / "run", tokenizer, store)
    first.stepper.learner.model.backbone.register_forward_hook(
        lambda *_: os.kill(os.getpid(), signal.SIGTERM) if first.state.step == 3 else None
    )
    with pytest.raises(
        TrainingStopped, match=r"stopped at step 4 of 6, saved in .*run; run the same command again"
    ) as error:
        first.fit()
    assert error.value.signal_number == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    second = build_loop(tmp_path / "run", tokenizer, store, resumed=True)
    assert second.state.step == 4
    second.fit()
    expected_bits, other = bits(uninterrupted.stepper), bits(second.stepper)
    assert all(torch.equal(expected_bits[name], other[name]) for name in expected_bits)
    assert [line["loss"] for line in lines(tmp_path / "run", "train")] == [
        line["loss"] for line in lines(tmp_path / "whole", "train")
    ]


def test_a_bad_step_is_skipped_counted_and_its_samples_named(
    tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    loop = build_loop(tmp_path, tokenizer, store)
    spoil(loop, {2, 4})
    loop.fit()
    assert (loop.state.step, loop.state.skipped, loop.state.bad_in_row) == (6, 2, 0)
    (skipped, other) = lines(tmp_path, "skipped")
    assert skipped["samples"] == list(range(16, 24))
    assert other["step"] == 5
    assert skipped["texts"] == ["sample 16", "sample 17", "sample 18"]
    assert "the step is skipped (samples 16, 17, 18" in (tmp_path / "log.txt").read_text()


def test_five_bad_steps_in_a_row_stop_the_run(tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset) -> None:
    loop = build_loop(tmp_path, tokenizer, store, total=12)
    before = {name: value.clone() for name, value in loop.stepper.learner.state_dict().items()}
    spoil(loop, set(range(12)))
    with pytest.raises(MeristemError, match=r"5 steps in a row were not finite.*lower train\.learning_rate"):
        loop.fit()
    assert loop.state.step == 5
    assert all(torch.equal(before[name], value) for name, value in loop.stepper.learner.state_dict().items())


def test_four_bad_steps_and_a_good_one_do_not(tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset) -> None:
    loop = build_loop(tmp_path, tokenizer, store, total=11)
    spoil(loop, {0, 1, 2, 3, 5, 6, 7, 8})
    loop.fit()
    assert loop.state.skipped == 8


def test_only_the_embeddings_learn_while_the_rest_is_frozen(
    tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    loop = build_loop(
        tmp_path,
        tokenizer,
        store,
        frozen=3,
        train={"save_every": 1, "keep_checkpoints": 9, "optimizer": "muon"},
    )
    names = [name for name, _ in loop.stepper.learner.model.named_parameters()]
    fresh = {name: value.clone() for name, value in loop.stepper.learner.model.state_dict().items()}
    loop.fit()

    def moved(step: int) -> set[str]:
        checkpoint = load.load_checkpoint(tmp_path / "checkpoints", step=step)
        assert checkpoint is not None
        return {name for name in names if not torch.equal(checkpoint.snapshot.model[name], fresh[name])}

    assert moved(1) == moved(3) == {"backbone.embed.tokens.weight"}
    assert moved(4) == set(names)


def test_a_frozen_start_can_be_interrupted(tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset) -> None:
    uninterrupted = build_loop(tmp_path / "whole", tokenizer, store, frozen=3)
    uninterrupted.fit()
    for stop in (2, 3, 4):
        folder = tmp_path / str(stop)
        first = build_loop(folder, tokenizer, store, frozen=3)
        first.stepper.learner.model.backbone.register_forward_hook(
            lambda *_, first=first, stop=stop: (
                os.kill(os.getpid(), signal.SIGINT) if first.state.step == stop - 1 else None
            )
        )
        with pytest.raises(TrainingStopped):
            first.fit()
        second = build_loop(folder, tokenizer, store, frozen=3, resumed=True)
        second.fit()
        expected_bits, other = bits(uninterrupted.stepper), bits(second.stepper)
        assert expected_bits.keys() == other.keys()
        assert all(torch.equal(expected_bits[name], other[name]) for name in expected_bits)


def test_the_best_is_kept_and_patience_ends_a_run(tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset) -> None:
    losses = iter([3.0, 2.0, 2.5, 2.4, 2.3, 2.2])
    loop = build_loop(
        tmp_path,
        tokenizer,
        store,
        total=20,
        evaluate=lambda: {"loss": next(losses)},
        train={"evaluate_every": 2, "patience": 3, "save_every": 1, "keep_checkpoints": 1},
    )
    metrics = loop.fit()
    assert loop.state.step == 10
    assert metrics == {"loss": 2.3}
    assert (loop.state.best, loop.state.best_step, loop.state.stale) == (2.0, 4, 3)
    best = load.load_checkpoint(tmp_path / "checkpoints", which="best")
    assert best is not None
    assert best.snapshot.step == 4
    assert "stopped early at step 10" in (tmp_path / "log.txt").read_text()


def test_evaluations_are_at_every_tenth_of_the_run_unless_set(
    tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    loop = build_loop(tmp_path, tokenizer, store, total=25, evaluate=lambda: {"loss": 1.0}, train={"save_every": "1h"})
    loop.fit()
    assert [line["step"] for line in lines(tmp_path, "evaluation")] == [*range(2, 25, 2), 25]


def test_workers_change_nothing(tmp_path: Path, tokenizer: Tokenizer, store: TokenDataset) -> None:
    losses = []
    for workers in (0, 2):
        build_loop(tmp_path / str(workers), tokenizer, store, train={"dataloader_workers": workers}).fit()
        losses.append([line["loss"] for line in lines(tmp_path / str(workers), "train")])
    assert losses[0] == losses[1]


def test_numbers_in_one_line() -> None:
    assert format_metrics_line({"loss": 3.14159, "flops": 1.5e12}) == "loss 3.142  flops 1.500e+12"
