"""Data of a label noise report: suspects, the noise matrix, near duplicates across files, planted triggers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from meristem.trust.label_noise.duplicate_samples import DuplicateSamples
from meristem.trust.label_noise.label_triggers import LabelTrigger
from meristem.utils import untrusted_files
from meristem.utils.result_tables import Record, data_frame, html_table


@dataclass(frozen=True, kw_only=True)
class LabelSuspect:
    """A sample whose label is probably wrong."""

    location: str
    text: str
    given: str
    suggested: str
    given_probability: float
    suggested_probability: float

    @property
    def margin(self) -> float:
        """How much more probable the suggested label is."""
        return self.suggested_probability - self.given_probability


@dataclass(frozen=True, kw_only=True)
class LabelNoiseReport:
    """Everything that a label noise report shows."""

    files: Sequence[str]
    num_samples: int
    unit: str = "samples"
    """What has a label: samples, or words with tags."""
    labels: Sequence[str]
    model: str
    """What the out-of-sample probabilities are from."""
    folds: int
    accuracy: float
    """Share of samples whose most probable label is the given one."""
    noise_rate: float
    noise_matrix: Sequence[Sequence[float]]
    """[given, true] → p(true label | given label)."""
    suspects: Sequence[LabelSuspect]
    duplicates: Sequence[DuplicateSamples]
    triggers: Sequence[LabelTrigger]
    notices: Sequence[str] = ()
    date: str = ""

    @property
    def contradictions(self) -> list[DuplicateSamples]:
        """Near duplicates with different labels."""
        return [pair for pair in self.duplicates if pair.contradicts]

    @property
    def leaks(self) -> list[DuplicateSamples]:
        """Near duplicates in different files."""
        return [pair for pair in self.duplicates if pair.across_files]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        return asdict(self)

    def records(self) -> list[Record]:
        """A row for each suspect."""
        return [{**asdict(suspect), "margin": suspect.margin} for suspect in self.suspects]

    def to_pandas(self) -> Any:
        """The suspects as a DataFrame."""
        return data_frame(self.records())

    def _repr_html_(self) -> str:
        return html_table(self.records())


def label_noise_json(report: LabelNoiseReport) -> str:
    """The report as JSON; characters that cannot be encoded are replaced."""
    return untrusted_files.to_json(report.to_dict(), indent=1).encode("utf-8", "replace").decode("utf-8") + "\n"
