"""Where a run stands between two steps: the part of a checkpoint that is not tensors."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from types import NoneType
from typing import Any

from meristem.errors import MeristemError

KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "str": (str,),
    "float": (int, float),
    "float | None": (int, float, NoneType),
}
"""A counter's type → what it may be in a file."""


@dataclass(kw_only=True)
class Standing:
    """Counters and windows; `state.json` holds exactly this."""

    step: int = 0
    total: int = 0
    """Steps the budget bought; fixed at the start, so that the schedule never moves."""
    budget: str = ""
    samples: int = 0
    tokens: int = 0
    flops: float = 0.0
    flops_per_token: dict[str, float] = field(default_factory=dict)
    """Per source, counted when the run began: texts that rewards judge would be others, and cost other operations,
    where it resumes."""
    seconds: float = 0.0
    """Time spent training, over all the times it was started."""
    skipped: int = 0
    bad_in_row: int = 0
    best: float | None = None
    best_step: int = 0
    """Of equally good evaluations the last one: that checkpoint is kept."""
    best_since: int = 0
    """Of equally good evaluations the first one: patience counts from there."""
    stale: int = 0
    """Evaluations since the best one."""
    window: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Name → (sum, count) since the last line of metrics."""
    histories: dict[str, Any] = field(default_factory=dict)
    """Per source the plain data that its objective carries from step to step."""
    threads: int = 0
    stopped: str = ""
    """Why the objective wanted no more steps."""

    def add(self, values: dict[str, tuple[float, float]]) -> None:
        """Add a step's numbers to the window."""
        for name, (total, number) in values.items():
            before = self.window.get(name, (0.0, 0.0))
            self.window[name] = (before[0] + total, before[1] + number)

    def drain(self) -> dict[str, float]:
        """The window's means, and a fresh window."""
        means = self.means()
        self.window = {}
        return means

    def means(self) -> dict[str, float]:
        """The window's means so far."""
        return {name: total / number for name, (total, number) in self.window.items() if number}

    def ended(self, patience: int | None) -> bool:
        """Whether there is nothing left to do: the budget is used up, or the run stopped early."""
        stale = patience is not None and self.stale >= patience
        return self.step >= self.total or stale or bool(self.stopped)

    def best_told(self) -> str:
        """Where the best validation was, in words."""
        if not self.best_step:
            return "no evaluation could be compared"
        later = f", equalled at step {self.best_step}" if 0 < self.best_since < self.best_step else ""
        return f"the best was at step {self.best_since or self.best_step}{later}"

    def plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)

    @classmethod
    def of(cls, plain: dict[str, Any], *, step: int | None = None) -> Standing:
        """From what JSON held, which must be of this step; counters of a newer version are left alone."""
        known = {f.name: KINDS[str(f.type)] for f in fields(cls) if str(f.type) in KINDS}
        kept = {key: value for key, value in plain.items() if key in known}
        window = plain.get("window", {})
        wrong = [key for key, value in kept.items() if not (isinstance(value, known[key]) and _possible(key, value))]
        if not isinstance(window, dict) or not all(map(_pair, window.values())):
            wrong.append("window")
        rates = plain.get("flops_per_token", {})
        if not isinstance(rates, dict) or not all(map(_rate, rates.values())):
            wrong.append("flops_per_token")
        if not isinstance(histories := plain.get("histories", {}), dict):
            wrong.append("histories")
        if wrong:
            raise MeristemError(f"state.json: {wrong[0]} is not what a run writes: the file was changed")
        if step is not None and kept.get("step", 0) != step:
            raise MeristemError(f"state.json is of step {kept.get('step', 0)} and its checkpoint of step {step}: "
                                "the file was changed")
        pairs = {name: (pair[0], pair[1]) for name, pair in window.items()}
        return cls(**kept, window=pairs, flops_per_token=rates, histories=histories)


def _possible(key: str, value: Any) -> bool:
    """Whether a counter can have this value: finite, and only what is minimised may be below zero."""
    if isinstance(value, str | NoneType):
        return True
    return not isinstance(value, bool) and math.isfinite(value) and (value >= 0 or key == "best") and value < 2**63


def _rate(value: Any) -> bool:
    """Whether a value is a finite number of operations."""
    return type(value) in (int, float) and _possible("flops_per_token", value)


def _pair(value: Any) -> bool:
    """Whether a value is a finite sum and a finite count."""
    return isinstance(value, list | tuple) and [type(one) in (int, float) and math.isfinite(one) for one in value] == [
        True,
        True,
    ]
