"""The loop: it knows steps, clocks and checkpoints, and nothing of what is being learned."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from meristem.batch import Batch
from meristem.checkpoint import optimizer_state
from meristem.checkpoint.layout import steps as steps_in
from meristem.checkpoint.run import Run
from meristem.checkpoint.save import save
from meristem.checkpoint.snapshot import Snapshot
from meristem.errors import MeristemError
from meristem.learning.feed import Feed, stream
from meristem.learning.mix import Mix
from meristem.learning.spread import gathered
from meristem.training.budget import memory_now
from meristem.training.journal import Journal
from meristem.training.material import Evaluate, Watch
from meristem.training.optimizers import names_of
from meristem.training.restoring import remembered
from meristem.training.settings import Interval, TrainSettings, seconds, steps
from meristem.training.signals import Signals, Stopped
from meristem.training.standing import Standing
from meristem.training.step import Stepper, Taken

LINE_SECONDS = 10.0
"""After which a step has a line of numbers, however many steps are to pass between two."""


@dataclass(kw_only=True)
class Loop:
    """A run from where it stands to the end of its budget."""

    run: Run
    recipe: str
    settings: TrainSettings
    stepper: Stepper
    feeds: Mapping[str, Feed]
    mix: Mix
    journal: Journal
    standing: Standing
    flops: Mapping[str, float]
    """Operations for each token of a source; steps may differ in tokens."""
    peak: float
    """Operations a second this machine could do."""
    evaluate: Evaluate | None
    regret: Callable[[Mapping[str, float]], float]
    """What an evaluation is judged by; the lowest is the best."""
    describe_samples: Callable[[str, Sequence[int]], list[str]]
    thaw: Callable[[int], None]
    """Freezes and thaws parameters as a step wants it."""
    watch: Watch | None = None
    evaluations: int = 10
    """How many there are in a run whose recipe does not say how often."""

    def __post_init__(self) -> None:
        rows = next(iter(self.feeds.values()))
        per_epoch = len(rows.view) / rows.rows
        every = self.settings.evaluate_every
        default = max(1, self.standing.total // self.evaluations)
        self._evaluations = _Due(every if every is not None else default, per_epoch)
        self._saves, self._logs = _Due(self.settings.save_every, per_epoch), _Due(self.settings.log_every, per_epoch)
        self._started = time.monotonic()
        self._before, self._from = self.standing.seconds, self.standing.step
        self._shown = (self._started, self.standing.tokens, self.standing.flops)
        self._written = self._started

    def fit(self) -> dict[str, float]:
        """Train to the end; the last evaluation's numbers."""
        s, found = self.standing, dict[str, float]()
        workers = self.settings.workers
        workers = workers if workers is not None else (0 if self.stepper.device.type == "cpu" else 2)
        batches = stream(self.feeds, self._keys(), workers)
        self.stepper.learner.train()
        self.journal.start(s.step, s.total)
        with Signals() as signals:
            while s.step < s.total:
                self.thaw(s.step)
                source, use = self.mix(s.step)
                taken = self.stepper.take(s.step, s.total, source, _next(batches, self.feeds[source].micro_steps))
                self._note(taken, use)
                s.stopped = taken.stop or ""
                last = s.step == s.total or bool(s.stopped)
                stop = False
                if self.evaluate is not None and (self._evaluations.now(s.step) or last):
                    found = self._evaluation(self.evaluate)
                    stop = self.settings.patience is not None and s.stale >= self.settings.patience
                better = s.best_step == s.step  # the best is kept, wherever the interval of saves falls
                asked, due = self.stepper.team.any(signals.received is not None, self._saves.now(s.step))
                if last or stop or better or asked or due:
                    self.save()
                if stop:
                    self.journal.say(
                        f"stopped early at step {s.step}: no better validation in "
                        f"{self.settings.patience} evaluations ({s.best_told()})"
                    )
                    break
                if s.stopped:
                    self.journal.record("stopped", s.step, {"why": s.stopped})
                    self.journal.say(f"stopped at step {s.step}: {s.stopped}")
                    break
                if asked and not last:
                    raise Stopped(
                        signals.received or signal.SIGTERM,
                        f"stopped at step {s.step} of {s.total}, saved in {self.run.path}; "
                        "run the same command again to go on",
                    )
        return found

    def _keys(self) -> Iterator[tuple[str, int, int]]:
        for step in range(self.standing.step, self.standing.total):
            source, use = self.mix(step)
            for micro in range(self.feeds[source].micro_steps):
                yield source, use, micro

    # ------------------------------------------------------------ after each step

    def _note(self, taken: Taken, use: int) -> None:
        s = self.standing
        s.step += 1
        s.samples += taken.samples
        s.tokens += taken.tokens
        s.flops += self.flops[taken.source] * taken.tokens
        s.seconds = self._before + time.monotonic() - self._started
        if taken.finite:
            s.bad_in_row = 0
            s.add(_numbers(taken, mixed=len(self.feeds) > 1))
        else:
            rows = self.feeds[taken.source].rows
            self._bad(taken.source, list(range(use * rows, (use + 1) * rows)))
        due = self._logs.now(s.step) or s.step == s.total
        if due or s.step == 1 or time.monotonic() - self._written > LINE_SECONDS:
            self._write(taken, due=due)
        else:
            self.journal.move(s.step, self._left())

    def _left(self) -> float:
        """Seconds, at the pace since it was started: a run that goes on may do so on another machine."""
        s = self.standing
        return (s.total - s.step) * (time.monotonic() - self._started) / max(1, s.step - self._from)

    def _write(self, taken: Taken, *, due: bool) -> None:
        """A line of numbers: means since the last one that was due; one between them leaves the window as it is."""
        s, now = self.standing, time.monotonic()
        self._written = now
        then, tokens, flops = self._shown
        speed, rate = (s.tokens - tokens) / (now - then), (s.flops - flops) / (now - then)
        self.peak = max(self.peak, rate)  # what was done can be done, whatever kept the trial from it
        used = rate / self.peak
        if due:
            self._shown = (now, s.tokens, s.flops)
        means = s.drain() if due else s.means()
        self.journal.record(
            "train",
            s.step,
            {
                **means,
                "rate": taken.rate,
                "tokens": s.tokens,
                "tokens_per_second": round(speed, 1),
                "mfu": round(used, 4),
                "memory": memory_now(self.stepper.device),
                "seconds": round(s.seconds, 2),
                "skipped": s.skipped,
            },
        )
        left = self._left()
        self.journal.show(
            s.step,
            s.total,
            {
                "loss": f"{means['loss']:.3f}" if "loss" in means else "none",
                "tok/s": f"{speed:,.0f}",
                "MFU": f"{used:.0%}",
            },
            left=left,
        )
        if self.watch is not None:
            self.watch(s.step, means, left)

    def _bad(self, source: str, ids: Sequence[int]) -> None:
        s = self.standing
        s.skipped += 1
        s.bad_in_row += 1
        texts = self.describe_samples(source, ids[:3])
        self.journal.record("skipped", s.step, {"source": source, "samples": ids, "texts": texts})
        self.journal.say(
            f"step {s.step}: the loss or its gradient is not finite; the step is skipped "
            f"(samples {_some(ids)} of {source}, for instance {texts[0]!r})"
        )
        if s.bad_in_row >= self.settings.bad_steps:
            kept = f"the last good checkpoint is kept in {self.run.checkpoints}"
            kept = kept if steps_in(self.run.checkpoints) else "no checkpoint had been saved yet"
            raise MeristemError(
                f"{s.bad_in_row} steps in a row were not finite (the last on samples {_some(ids)} of "
                f"{source}); {kept}. A lower train.rate, a lower train.clip or "
                "train.precision=float32 usually help; metrics.jsonl names the samples of each skipped step"
            )

    def _evaluation(self, evaluate: Evaluate) -> dict[str, float]:
        s = self.standing
        found = evaluate()
        self.stepper.settle()
        regret = self.regret(found)
        if math.isnan(regret):
            pass  # nothing was predicted: neither the best nor a reason to stop
        elif math.isfinite(regret) and (s.best is None or regret < s.best):
            s.best, s.best_step, s.best_since, s.stale = regret, s.step, s.step, 0
        else:
            s.stale += 1
            if regret == s.best:  # of equals the one that has learned longest
                s.best_step = s.step
        self.journal.record("evaluation", s.step, found)
        self.journal.say_numbers(f"step {s.step}/{s.total}  validation", entries(found))
        return found

    # ------------------------------------------------------------ checkpoints

    def save(self) -> None:
        """Write a checkpoint of this very moment; every process brings its part, and the first one writes."""
        self.stepper.settle()
        s, model = self.standing, self.stepper.learner.model
        names = names_of(model)
        optimizer: dict[str, Tensor] = {}
        for one in self.stepper.optimizers:
            optimizer.update(gathered(optimizer_state.flatten(one, names)))
        weights, memory = gathered(model.state_dict(keep_vars=True)), remembered(self.stepper, self.feeds)
        self._saves.done()
        if not self.stepper.team.first:
            return
        save(
            self.run.checkpoints,
            Snapshot(
                step=s.step,
                model=weights,
                optimizer=optimizer,
                memory=memory,
                state=s.plain(),
                recipe=self.recipe,
                tokenizer=self.run.tokenizer_path,
            ),
            keep=self.settings.keep,
            best=s.best_step == s.step,
        )


class _Due:
    """An interval of steps, epochs or time, and whether it is over."""

    def __init__(self, interval: Interval, per_epoch: float) -> None:
        self.steps, self.seconds = steps(interval, per_epoch), seconds(interval)
        self.last = time.monotonic()

    def now(self, step: int) -> bool:
        if self.steps is not None:
            return step % self.steps == 0
        over = time.monotonic() - self.last >= (self.seconds or 0)
        if over:
            self.done()
        return over

    def done(self) -> None:
        self.last = time.monotonic()


def _next(batches: Iterator[Batch], number: int) -> list[Batch]:
    return [next(batches) for _ in range(number)]


def _numbers(taken: Taken, *, mixed: bool) -> dict[str, tuple[float, float]]:
    """A step's numbers as (sum, count) pairs for the window; in a mix each source's loss by itself too."""
    found = {"gradient_norm": (float(taken.norm), 1.0)}
    if taken.terms:
        found = {"loss": (float(taken.loss), 1.0), **found}
        if mixed:
            found[f"{taken.source}.loss"] = found["loss"]
    if len(taken.terms) > 1:
        found.update({term: (float(value), 1.0) for term, value in taken.terms.items()})
    told = {name: pair for name, pair in taken.metrics.items() if not name.startswith("_")}
    found.update({name: (float(total), float(number)) for name, (total, number) in told.items()})
    return found


def _some(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids[:8])) + (f" … ({len(ids)})" if len(ids) > 8 else "")


def told(found: Mapping[str, float]) -> str:
    """Numbers in one line."""
    return "  ".join(entries(found))


def entries(found: Mapping[str, float]) -> list[str]:
    """Each number behind its name."""
    return [f"{name} {_number(value)}" for name, value in found.items()]


def _number(value: float) -> str:
    """Four digits; none for what nothing was counted for."""
    if math.isnan(value):
        return "none"
    return f"{value:.4g}" if abs(value) < 1e5 else f"{value:.3e}"
