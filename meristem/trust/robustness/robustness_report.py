"""Data of a robustness report: metrics under noise, calibration, tests of one's own, hostile input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from meristem.metrics.calibration_error import CoveragePoint, ReliabilityBin
from meristem.utils import untrusted_files
from meristem.utils.result_tables import Record, data_frame, html_table


@dataclass(frozen=True, kw_only=True)
class FlippedExample:
    """A sample that was right, and is wrong with noise."""

    location: str
    before: str
    after: str
    gold: str
    clean_answer: str
    noisy_answer: str
    confidence: float
    """Probability of the wrong answer."""


@dataclass(frozen=True, kw_only=True)
class NoiseResult:
    """One perturbation at one severity."""

    perturbation: str
    summary: str
    severity: float
    skipped: str = ""
    """Why it was not measured; empty if it was."""
    label_risk: str = ""
    """Why labels may have changed with the text."""
    changed: float = 0.0
    """Share of the samples that it changed."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    interval: tuple[float, float] | None = None
    """95 % interval of the main metric."""
    drop: float = 0.0
    """Clean minus noisy main metric."""
    drop_interval: tuple[float, float] | None = None
    calibration_error: float | None = None
    newly_wrong: int = 0
    """Samples with more mistakes than without noise."""
    newly_right: int = 0
    examples: Sequence[FlippedExample] = ()


@dataclass(frozen=True, kw_only=True)
class CalibrationCurve:
    """How well probabilities match accuracy, and what abstaining gains."""

    error: float
    bins: Sequence[ReliabilityBin]
    coverage: Sequence[CoveragePoint]


@dataclass(frozen=True, kw_only=True)
class HostileRequest:
    """An input that is no text of the task, and what the model did with it."""

    name: str
    outcome: str
    """answered, refused or failed."""
    detail: str


@dataclass(frozen=True, kw_only=True)
class FailedCase:
    """A case of a behaviour test that failed, or could not be predicted."""

    location: str
    texts: Sequence[str]
    expected: str
    answer: str


@dataclass(frozen=True, kw_only=True)
class BehaviourResult:
    """All cases of one named test."""

    name: str
    kind: str
    """minimum_functionality, invariance or direction."""
    cases: int
    failures: int
    failure_interval: tuple[float, float]
    """Wilson's 95 % interval of the failure rate."""
    examples: Sequence[FailedCase]

    @property
    def failure_rate(self) -> float:
        """Failed cases as a share."""
        return self.failures / self.cases


@dataclass(frozen=True, kw_only=True)
class RobustnessReport:
    """Everything that a robustness report shows."""

    run: str
    step: int
    task: str
    data: str
    num_samples: int
    seed: int
    metric: str
    clean: Mapping[str, float]
    clean_interval: tuple[float, float] | None
    results: Sequence[NoiseResult] = ()
    calibration: CalibrationCurve | None = None
    noisy_calibration: CalibrationCurve | None = None
    """Over all perturbed samples together."""
    hostile_requests: Sequence[HostileRequest] = ()
    behaviour_tests: Sequence[BehaviourResult] = ()
    notices: Sequence[str] = ()
    date: str = ""

    @property
    def measured(self) -> list[NoiseResult]:
        """The results that were measured, the largest drop first."""
        return sorted((result for result in self.results if not result.skipped), key=lambda result: -result.drop)

    @property
    def worst(self) -> NoiseResult | None:
        """The largest drop."""
        return next(iter(self.measured), None)

    @property
    def mean_drop(self) -> float:
        """The mean drop over everything that was measured."""
        return sum(result.drop for result in self.measured) / max(1, len(self.measured))

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        worst = self.worst
        return {
            **asdict(self),
            "worst": None
            if worst is None
            else {"perturbation": worst.perturbation, "severity": worst.severity, "drop": worst.drop},
            "mean_drop": self.mean_drop,
            "behaviour_tests": [{**asdict(item), "failure_rate": item.failure_rate} for item in self.behaviour_tests],
        }

    def records(self) -> list[Record]:
        """A row for each perturbation and severity."""
        return [
            {
                "perturbation": result.perturbation,
                "severity": result.severity,
                "changed": result.changed,
                self.metric: result.metrics.get(self.metric),
                "drop": result.drop,
                "calibration_error": result.calibration_error,
            }
            for result in self.results
        ]

    def to_pandas(self) -> Any:
        """The rows as a DataFrame."""
        return data_frame(self.records())

    def _repr_html_(self) -> str:
        return html_table(self.records())


def report_json(report: RobustnessReport) -> str:
    """The report as JSON; characters that cannot be encoded are replaced."""
    return untrusted_files.to_json(report.to_dict(), indent=1).encode("utf-8", "replace").decode("utf-8") + "\n"
