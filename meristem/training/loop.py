"""Training loop: steps, evaluation, early stopping, logging and checkpoints; independent of the objective."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from meristem.checkpoint.folder_layout import list_steps
from meristem.checkpoint.run_folder import RunFolder
from meristem.checkpoint.save import save_checkpoint
from meristem.config.errors import MeristemError
from meristem.dataset.feed import PREFETCHED_PER_WORKER, Feed, iter_batches
from meristem.dataset.mixture import SourceMixture
from meristem.dataset.phases import PhaseSchedule
from meristem.dataset.step_ramp import StepWork
from meristem.inputs.batch import Batch
from meristem.training.budget import memory_in_use
from meristem.training.data.training_data import EvaluateFn, MetricsCallback
from meristem.training.metrics_format import format_metrics
from meristem.training.privacy.record import PrivacyRecord
from meristem.training.ramp_planning import flops_key
from meristem.training.replanning import FULL_STEPS, StepReplanner
from meristem.training.resume_state import gather_snapshot
from meristem.training.run_logger import RunLogger
from meristem.training.settings import Interval, TrainSettings
from meristem.training.step import Stepper, StepResult
from meristem.training.step_decisions import IntervalTimer, StepDecisions
from meristem.training.stop_signals import StopSignals, TrainingStopped
from meristem.training.train_state import TrainState

EPSILON_LINES = 50
"""Lines of metrics with the spent privacy budget in a private run."""
LINE_SECONDS = 10.0
"""Metrics are written after this many seconds even if `train.log_every` has not passed."""


@dataclass(kw_only=True)
class TrainingLoop:
    """Trains a run from its current step to the end of its budget."""

    run: RunFolder
    recipe_yaml: str
    settings: TrainSettings
    stepper: Stepper
    feeds: Mapping[str, Feed]
    mix: SourceMixture | PhaseSchedule
    logger: RunLogger
    state: TrainState
    flops_per_token: Mapping[str, float]
    """FLOPs per token of each source (`flops_key`); steps may differ in tokens."""
    peak_flops: float
    """Peak FLOP/s of this machine, the denominator of MFU."""
    evaluate: EvaluateFn | None
    selection_loss: Callable[[Mapping[str, float]], float]
    """Loss by which evaluations are compared; lower is better."""
    preview_samples: Callable[[str, Sequence[int]], list[str]]
    unfreeze: Callable[[int], None]
    """Freezes and unfreezes parameters for a step."""
    on_metrics: MetricsCallback | None = None
    evaluation_count: int = 10
    """Evaluations in a run without `train.evaluate_every`."""
    work: StepWork = FULL_STEPS
    """What steps cost relative to a full one."""
    clock: Callable[[], float] = time.monotonic
    """Seconds of this process. What processes must do together is decided by the clock of rank 0."""

    def __post_init__(self) -> None:
        self._evaluation_timer = self._timer(self._evaluation_interval())
        self._save_timer, self._log_timer = self._timer(self.settings.save_every), self._timer(self.settings.log_every)
        kind, minutes = self.settings.budget
        self._replanner = (
            StepReplanner(minutes=minutes, state=self.state, clock=self.clock, work=self.work)
            if kind == "minutes"
            else None
        )
        self._start_time = self.clock()
        self._seconds_before, self._start_step = self.state.seconds, self.state.step
        self._last_logged = (self._start_time, self.state.tokens, self.state.flops)
        self._last_write_time = self._start_time
        self._epsilon_step = -self.state.total

    @property
    def _num_workers(self) -> int:
        workers = self.settings.dataloader_workers
        return workers if workers is not None else (0 if self.stepper.device.type == "cpu" else 2)

    def _timer(self, interval: Interval) -> IntervalTimer:
        first_feed = next(iter(self.feeds.values()))
        return IntervalTimer(interval, len(first_feed.view) / first_feed.batch_size, self.clock)

    def _evaluation_interval(self) -> Interval:
        default_interval = max(1, self.state.total // self.evaluation_count)
        return self.settings.evaluate_every if self.settings.evaluate_every is not None else default_interval

    def fit(self) -> dict[str, float]:
        """Train to the end of the budget; returns the metrics of the last evaluation."""
        state, metrics, distributed = self.state, dict[str, float](), self.stepper.distributed
        batches = iter_batches(self.feeds, self._batch_keys(), self._num_workers)
        self.stepper.learner.train()
        self.logger.start_progress(state.step, state.total)
        with StopSignals() as signals:
            while state.step < state.total:
                self.unfreeze(state.step)
                source, source_step = self.mix(state.step)
                result = self.stepper.train_step(
                    state.step,
                    state.total,
                    source,
                    _take_batches(batches, self.feeds[source].micro_steps_of(source_step)),
                )
                self._record_step(result, source_step)
                state.stopped = result.stop_reason or ""
                decisions = self._decide_together(signals)
                is_last = state.step >= state.total or bool(state.stopped)
                stop_early, stop_requested = False, decisions.stop
                if self.evaluate is not None and (decisions.evaluate or is_last):
                    metrics = self._evaluate(self.evaluate)
                    stop_early = self.settings.patience is not None and state.stale >= self.settings.patience
                    (stop_requested,) = distributed.all_reduce_any(signals.received is not None)
                is_best = state.best_step == state.step  # the best is saved even if `save_every` has not passed
                if is_last or stop_early or is_best or stop_requested or decisions.save:
                    self.save()
                if stop_early:
                    self.logger.log(
                        f"stopped early at step {state.step}: validation has not improved in "
                        f"{self.settings.patience} evaluations ({state.describe_best()})"
                    )
                    break
                if state.stopped:
                    self.logger.write_metrics("stopped", state.step, {"why": state.stopped})
                    self.logger.log(f"stopped at step {state.step}: {state.stopped}")
                    break
                if stop_requested and not is_last:
                    raise TrainingStopped(
                        signals.received or signal.SIGTERM,
                        f"stopped at step {state.step} of {state.total}, saved in {self.run.path}; "
                        "run the same command again to resume",
                    )
        return metrics

    def _decide_together(self, signals: StopSignals) -> StepDecisions:
        """What to do after this step, agreed in one all-reduce: processes whose clocks differ would wait for each other
        forever. Intervals and a new number of steps are rank 0's decision; a signal counts on any process."""
        state, decides = self.state, self.stepper.distributed.is_rank_zero
        new_total = self._replanner.plan() if decides and self._replanner is not None else 0
        stop, save, evaluate, new_total = map(
            round,
            self.stepper.distributed.all_reduce_sum(
                [
                    signals.received is not None,
                    decides and self._save_timer.is_due(state.step),
                    decides and self._evaluation_timer.is_due(state.step),
                    new_total,
                ]
            ),
        )
        if new_total and new_total != state.total:
            self._set_total(new_total)
        return StepDecisions(stop=stop > 0, save=save > 0 or new_total > 0, evaluate=evaluate > 0)

    def _set_total(self, total: int) -> None:
        """Continue with another number of steps in the budget; the schedule follows."""
        state = self.state
        self.logger.log(
            f"step {state.step}: {self.settings.budget[1]:g} minutes are {total:,} steps at the present pace "
            f"(planned before: {state.total:,})"
        )
        state.total = total
        if isinstance(self.mix, PhaseSchedule):
            self.mix.replan(state.step + PREFETCHED_PER_WORKER * self._num_workers, total)  # keys read ahead stay
            state.phase_starts = self.mix.starts
        self.logger.set_total(total)
        if self.settings.evaluate_every is None:
            self._evaluation_timer = self._timer(self._evaluation_interval())

    def _batch_keys(self) -> Iterator[tuple[str, int, int]]:
        # a budget in minutes may become more steps while workers read ahead
        for step in range(self.state.step, self.state.total) if self._replanner is None else count(self.state.step):
            source, source_step = self.mix(step)
            for micro_step in range(self.feeds[source].micro_steps_of(source_step)):
                yield source, source_step, micro_step

    # ------------------------------------------------------------ after each step

    def _record_step(self, result: StepResult, source_step: int) -> None:
        state = self.state
        state.step += 1
        state.samples += result.samples
        state.tokens += result.tokens
        parts = self.feeds[result.source].ramp.row_parts(source_step)
        state.flops += self.flops_per_token[flops_key(result.source, parts)] * result.tokens
        state.seconds = self._seconds_before + self.clock() - self._start_time
        if result.is_finite:
            state.bad_in_row = 0
            state.add_to_window(result.window_metrics(is_mixed=len(self.feeds) > 1))
        else:
            self._skip_nonfinite(result.source, list(self.feeds[result.source].sample_range(source_step)))
        if state.privacy:
            state.privacy["steps"][result.source] += 1
        is_due = self._log_timer.is_due(state.step) or state.step == state.total
        if is_due or state.step == 1 or self.clock() - self._last_write_time > LINE_SECONDS:
            self._log_metrics(result, is_due=is_due)
        else:
            self.logger.update_progress(state.step, self._seconds_left())

    def _seconds_left(self) -> float:
        """Seconds left at the pace since this start: a resumed run may be on another machine."""
        state = self.state
        return (state.total - state.step) * (self.clock() - self._start_time) / max(1, state.step - self._start_step)

    def _log_metrics(self, result: StepResult, *, is_due: bool) -> None:
        """Write the means since the last line that was due; a line in between does not reset the window."""
        state, now = self.state, self.clock()
        self._last_write_time = now
        last_time, tokens, flops = self._last_logged
        tokens_per_second = (state.tokens - tokens) / (now - last_time)
        flops_per_second = (state.flops - flops) / (now - last_time)
        self.peak_flops = max(self.peak_flops, flops_per_second)  # the measured peak may be too low on a busy machine
        mfu = flops_per_second / self.peak_flops
        if is_due:
            self._last_logged = (now, state.tokens, state.flops)
        means = state.pop_means() if is_due else state.means()
        spent = self._spent_budget()
        self.logger.write_metrics(
            "train",
            state.step,
            {
                **means,
                "rate": result.learning_rate,
                "tokens": state.tokens,
                "tokens_per_second": round(tokens_per_second, 1),
                "mfu": round(mfu, 4),
                "memory": memory_in_use(self.stepper.device),
                "seconds": round(state.seconds, 2),
                "skipped": state.skipped,
                **spent,
            },
        )
        seconds_left = self._seconds_left()
        self.logger.show_metrics(
            state.step,
            state.total,
            {
                "loss": f"{means['loss']:.3f}" if "loss" in means else "none",
                "tok/s": f"{tokens_per_second:,.0f}",
                "MFU": f"{mfu:.0%}",
                **({"ε": f"{spent['epsilon']:.3g}"} if spent else {}),
            },
            seconds_left=seconds_left,
        )
        if self.on_metrics is not None:
            self.on_metrics(state.step, means, seconds_left)

    def _spent_budget(self) -> dict[str, float]:
        """ε spent so far, in about fifty lines of a private run: computing it takes a part of a second."""
        state = self.state
        if not state.privacy or (
            state.step < state.total and state.step - self._epsilon_step < state.total / EPSILON_LINES
        ):
            return {}
        self._epsilon_step = state.step
        return {"epsilon": PrivacyRecord.from_dict(state.privacy).epsilon}

    def _skip_nonfinite(self, source: str, sample_ids: Sequence[int]) -> None:
        state = self.state
        state.skipped += 1
        state.bad_in_row += 1
        texts = self.preview_samples(source, sample_ids[:3])
        self.logger.write_metrics("skipped", state.step, {"source": source, "samples": sample_ids, "texts": texts})
        self.logger.log(
            f"step {state.step}: the loss or its gradient is not finite; the step is skipped "
            f"(samples {_format_ids(sample_ids)} of {source}, for instance {texts[0]!r})"
        )
        if state.bad_in_row >= self.settings.max_nonfinite_steps:
            checkpoint_note = "no checkpoint had been saved yet"
            if list_steps(self.run.checkpoints):
                checkpoint_note = f"the last good checkpoint is kept in {self.run.checkpoints}"
            raise MeristemError(
                f"{state.bad_in_row} steps in a row were not finite (the last on samples {_format_ids(sample_ids)} of "
                f"{source}); {checkpoint_note}. A lower train.learning_rate, a lower train.max_grad_norm or "
                "train.precision=float32 usually help; metrics.jsonl names the samples of each skipped step"
            )

    def _evaluate(self, evaluate: EvaluateFn) -> dict[str, float]:
        state = self.state
        with self.stepper.averaged_weights():
            metrics = evaluate()
        self.stepper.reshard()
        # rank 0's value on all: other processors may round differently, and disagree about the best
        own_loss = self.selection_loss(metrics) if self.stepper.distributed.is_rank_zero else 0.0
        (loss,) = self.stepper.distributed.all_reduce_sum([own_loss])
        state.record_evaluation(loss)
        self.logger.write_metrics("evaluation", state.step, metrics)
        self.logger.log_metrics(f"step {state.step}/{state.total}  validation", format_metrics(metrics))
        return metrics

    # ------------------------------------------------------------ checkpoints

    def save(self) -> None:
        """Save a checkpoint of the current step; all ranks gather their shards, and rank 0 writes."""
        self.stepper.reshard()
        with self.stepper.averaged_weights():
            snapshot = gather_snapshot(self.stepper, self.feeds, self.state, self.recipe_yaml, self.run.tokenizer_path)
            self._save_timer.reset()
            if self.stepper.distributed.is_rank_zero:
                save_checkpoint(
                    self.run.checkpoints,
                    snapshot,
                    keep_checkpoints=self.settings.keep_checkpoints,
                    is_best=self.state.best_step == self.state.step,
                )


def _take_batches(batches: Iterator[Batch], count: int) -> list[Batch]:
    return [next(batches) for _ in range(count)]


def _format_ids(sample_ids: Sequence[int]) -> str:
    return ", ".join(map(str, sample_ids[:8])) + (f" … ({len(sample_ids)})" if len(sample_ids) > 8 else "")
