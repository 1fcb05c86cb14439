"""Train state: the progress of a run between two steps (counters, metric window, best evaluation), saved as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from types import NoneType
from typing import Any

from meristem.config.errors import MeristemError

FIELD_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "str": (str,),
    "float": (int, float),
    "float | None": (int, float, NoneType),
}
"""Annotation of a field → types that its JSON value may have."""
ADDED_TOGETHER = ("muon_split", "precision", "planned_total", "replans")
"""Entries that states of earlier versions lack, all of them; a state that lacks only some was changed."""
LAYERS, NOTHING = "layers", "nothing"
"""What torch.compile compiles."""
DECLARED_SPLIT, SHAPE_SPLIT = "declared", "shape"
"""How Muon splits fused matrices: as their modules declare, or, in runs of older versions, into squares by shape."""


@dataclass(kw_only=True)
class TrainState:
    """Progress of a run: the content of `state.json`."""

    step: int = 0
    total: int = 0
    """Steps of the budget; fixed at the start, so that the learning-rate schedule never shifts, except for a budget in
    minutes, which is planned again at a few points."""
    planned_total: int = 0
    """Steps of the first plan, from which the size of evaluations follows: they stay comparable; 0 in older runs."""
    replans: int = 0
    """Points of a budget in minutes that have passed, at which its steps were planned again."""
    budget: str = ""
    batch_ramp_steps: int = 0
    """Steps in which the batch grows; fixed at the start, like the next."""
    length_ramp_steps: int = 0
    """Steps in which rows are cut into parts."""
    phase_starts: list[int] = field(default_factory=list)
    """First step of each phase of a recipe with phases; one that has begun is never moved."""
    samples: int = 0
    tokens: int = 0
    flops: float = 0.0
    flops_per_token: dict[str, float] = field(default_factory=dict)
    """FLOPs per token of each source, counted once at the start of the run: rollouts would be other texts of another
    cost where it resumes."""
    seconds: float = 0.0
    """Training time, summed over all resumes."""
    skipped: int = 0
    bad_in_row: int = 0
    best: float | None = None
    best_step: int = 0
    """Step of the best evaluation, the last one among equals: its checkpoint is kept."""
    best_since: int = 0
    """Step of the best evaluation, the first one among equals: patience counts from there."""
    stale: int = 0
    """Evaluations without an improvement since the best one."""
    window: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Metric → (sum, count) since the last line of metrics.jsonl."""
    histories: dict[str, Any] = field(default_factory=dict)
    """Per source the JSON data that its objective carries from step to step."""
    threads: int = 0
    """CPU threads of each process that the run started with."""
    processes: int = 0
    """Processes that the run started with; 0 in runs of earlier versions."""
    muon_split: str = DECLARED_SPLIT
    """How Muon splits fused matrices; kept for the whole run, so that an older run resumes as it started."""
    precision: str = "float32"
    """Precision that the run started in; empty in runs of earlier versions, which were float32 on CPUs."""
    compiled: str = ""
    """What torch.compile compiles in this run, layers or nothing; empty in runs of earlier versions."""
    privacy: dict[str, Any] = field(default_factory=dict)
    """Noise, sampling rates and steps of private training (`PrivacyRecord`); empty without it."""
    stopped: str = ""
    """Why the objective stopped the run; empty if it did not."""

    def add_to_window(self, values: dict[str, tuple[float, float]]) -> None:
        """Add the (sum, count) pairs of a step to the window."""
        for name, (total, count) in values.items():
            previous = self.window.get(name, (0.0, 0.0))
            self.window[name] = (previous[0] + total, previous[1] + count)

    def pop_means(self) -> dict[str, float]:
        """Means of the window, which is then emptied."""
        means = self.means()
        self.window = {}
        return means

    def means(self) -> dict[str, float]:
        """Means of the window so far."""
        return {name: total / count for name, (total, count) in self.window.items() if count}

    def record_evaluation(self, loss: float) -> None:
        """Compare an evaluation with the best; without targets (NaN) it is neither the best nor a reason to stop."""
        if math.isnan(loss):
            return
        if math.isfinite(loss) and (self.best is None or loss < self.best):
            self.best, self.best_step, self.best_since, self.stale = loss, self.step, self.step, 0
            return
        self.stale += 1
        if loss == self.best:  # among equals the one trained longest
            self.best_step = self.step

    def is_finished(self, patience: int | None) -> bool:
        """Whether the budget is used up or the run stopped early."""
        is_stale = patience is not None and self.stale >= patience
        return self.step >= self.total or is_stale or bool(self.stopped)

    def describe_best(self) -> str:
        """A phrase that names the step of the best evaluation."""
        if not self.best_step:
            return "no evaluation could be compared"
        equalled = f", equalled at step {self.best_step}" if 0 < self.best_since < self.best_step else ""
        return f"the best was at step {self.best_since or self.best_step}{equalled}"

    def to_dict(self) -> dict[str, Any]:
        """Content of state.json."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: dict[str, Any], *, step: int | None = None) -> TrainState:
        """State from the content of state.json, which must be of `step`; keys of newer versions are ignored."""
        types = {item.name: FIELD_TYPES[str(item.type)] for item in fields(cls) if str(item.type) in FIELD_TYPES}
        earlier_version = {"muon_split": SHAPE_SPLIT, "precision": ""}
        counters = earlier_version | {key: value for key, value in saved.items() if key in types}
        window = saved.get("window", {})
        invalid = [
            key
            for key, value in counters.items()
            if not isinstance(value, types[key]) or not _is_valid_value(key, value)
        ]
        missing = [name for name in ADDED_TOGETHER if name not in saved]
        if 0 < len(missing) < len(ADDED_TOGETHER):
            invalid += missing
        if counters["muon_split"] not in (DECLARED_SPLIT, SHAPE_SPLIT):
            invalid.append("muon_split")
        unknown_precision = "" if counters["muon_split"] == SHAPE_SPLIT else None  # only earlier versions recorded none
        if counters["precision"] not in ("float32", "bfloat16", unknown_precision):
            invalid.append("precision")
        if counters.get("compiled", "") not in ("", LAYERS, NOTHING):
            invalid.append("compiled")
        if not isinstance(window, dict) or not all(map(_is_sum_and_count, window.values())):
            invalid.append("window")
        flops_per_token = saved.get("flops_per_token", {})
        if not isinstance(flops_per_token, dict) or not all(map(_is_flops_value, flops_per_token.values())):
            invalid.append("flops_per_token")
        phase_starts = saved.get("phase_starts", [])
        if not isinstance(phase_starts, list) or not _are_increasing_steps(phase_starts):
            invalid.append("phase_starts")
        if not isinstance(privacy := saved.get("privacy", {}), dict):
            invalid.append("privacy")
        if not isinstance(histories := saved.get("histories", {}), dict):
            invalid.append("histories")
        if invalid:
            raise MeristemError(f"state.json: {invalid[0]} has an invalid value: the file was changed")
        if step is not None and counters.get("step", 0) != step:
            raise MeristemError(
                f"state.json is of step {counters.get('step', 0)} and its checkpoint of step {step}: "
                "the file was changed"
            )
        pairs = {name: (pair[0], pair[1]) for name, pair in window.items()}
        return cls(
            **counters,
            phase_starts=phase_starts,
            window=pairs,
            flops_per_token=flops_per_token,
            histories=histories,
            privacy=privacy,
        )


def _is_valid_value(key: str, value: Any) -> bool:
    """Whether a counter can have this value: finite, and only `best` may be negative."""
    if isinstance(value, str | NoneType):
        return True
    return not isinstance(value, bool) and math.isfinite(value) and (value >= 0 or key == "best") and value < 2**63


def _are_increasing_steps(values: list[Any]) -> bool:
    """Whether values are steps of phases: they start at 0 and increase."""
    if not all(type(value) is int for value in values):
        return False
    return values == sorted(set(values)) and values[:1] in ([], [0])


def _is_flops_value(value: Any) -> bool:
    """Whether a value is a valid number of FLOPs."""
    return type(value) in (int, float) and _is_valid_value("flops_per_token", value)


def _is_sum_and_count(value: Any) -> bool:
    """Whether a value is a finite sum and a finite count."""
    if not isinstance(value, list | tuple):
        return False
    return [type(number) in (int, float) and math.isfinite(number) for number in value] == [True, True]
