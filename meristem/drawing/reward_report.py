"""Data of a reward report: metrics, judges and texts before and after, for HTML, terminal and JSON."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from meristem.metrics.paired_bootstrap import PairedDifference, paired_difference
from meristem.metrics.reward_hacking import RewardHackingWarning
from meristem.metrics.win_rate import WinRate
from meristem.utils import untrusted_files

OptionalFloat = float | None
"""None where it was not measured."""
Preference = Literal["before", "after", "tie", ""]
"""Which of two texts a judge prefers; empty without a judge."""
Direction = Literal["higher", "lower", ""]


@dataclass(frozen=True, kw_only=True)
class RewardStepMetrics:
    """Metrics of one step, averaged over its completions."""

    step: int
    reward: OptionalFloat = None
    """Weighted sum of the rewards."""
    parts: Mapping[str, OptionalFloat] = field(default_factory=dict)
    """By reward, unweighted."""
    kl: OptionalFloat = None
    """KL to the reference model, in nats per completion."""
    coefficient: OptionalFloat = None
    """β, the penalty per nat at this step."""
    entropy: OptionalFloat = None
    """Nats per token."""
    length: OptionalFloat = None
    """Tokens per completion."""
    distinct2: OptionalFloat = None

    def named_values(self) -> dict[str, OptionalFloat]:
        """All metrics by display name, in display order."""
        named = {"reward": self.reward, **{f"· {name}": value for name, value in self.parts.items()}}
        rest = {"KL": self.kl, "coefficient": self.coefficient, "entropy": self.entropy, "length": self.length}
        return named | rest | {"distinct-2": self.distinct2}


METRIC_KEYS = {
    "reward": "reward",
    "kl": "kl",
    "coefficient": "leash",
    "entropy": "entropy",
    "length": "written",
    "distinct2": "distinct2",
}
"""Fields of `RewardStepMetrics` and their keys in metrics.jsonl; parts are `reward.NAME`."""


def step_metrics(step: int, numbers: Mapping[str, Any]) -> RewardStepMetrics:
    """The metrics of a step, from a line of metrics.jsonl."""
    logged = {name: float(value) for name, value in numbers.items() if isinstance(value, int | float)}
    parts = {name.removeprefix("reward."): value for name, value in logged.items() if name.startswith("reward.")}
    return RewardStepMetrics(
        step=step, parts=parts, **{name: logged[key] for name, key in METRIC_KEYS.items() if key in logged}
    )


@dataclass(frozen=True, kw_only=True)
class JudgeResult:
    """How often the trained model's text was preferred to the starting model's."""

    name: str
    won: WinRate
    independent: bool = True
    """Whether training never used it; the rewards themselves were trained for."""


@dataclass(frozen=True, kw_only=True)
class BestOfResult:
    """The mean reward of best-of-N sampling."""

    count: int
    start: OptionalFloat = None
    trained: OptionalFloat = None


@dataclass(frozen=True, kw_only=True)
class BeforeAfterMetric:
    """One metric before and after."""

    name: str
    before: OptionalFloat
    after: OptionalFloat
    before_interval: tuple[float, float] | None = None
    after_interval: tuple[float, float] | None = None
    better: Direction = ""
    """Which direction is better, where one is."""
    change_interval: tuple[float, float] | None = None
    """95 % interval of after − before over the same prompts, where there are enough of them."""
    meaning: str = ""

    @property
    def change(self) -> OptionalFloat:
        """After − before, where both were measured."""
        if self.before is None or self.after is None or not math.isfinite(self.before + self.after):
            return None
        return self.after - self.before

    @property
    def verdict(self) -> str:
        """ "better" or "worse" where the change is significant and one direction is better, else empty."""
        low, high = self.change_interval or (0.0, 0.0)
        if not self.better or low <= 0 <= high:
            return ""
        return "better" if (low > 0) == (self.better == "higher") else "worse"


@dataclass(frozen=True, kw_only=True)
class ScoredText:
    """A text with its scores."""

    text: str
    reward: OptionalFloat = None
    parts: Mapping[str, OptionalFloat] = field(default_factory=dict)
    judge: OptionalFloat = None
    """The score of the independent judge."""
    ended: bool = True

    @property
    def scores(self) -> Mapping[str, OptionalFloat]:
        """All scores by name."""
        judge = {} if self.judge is None else {"judge": self.judge}
        return {"reward": self.reward, **self.parts, **judge}


@dataclass(frozen=True, kw_only=True)
class TextComparison:
    """The texts of both models for one prompt."""

    prompt: str
    before: ScoredText
    after: ScoredText
    preferred: Preference = ""
    """By the independent judge."""
    opinion: str = ""
    """The judge's reasons, in words or numbers."""
    references: tuple[str, ...] = ()
    location: str = ""
    picture: str = ""
    """Where the prompt is an image, a PNG of it as a data URI."""


@dataclass(frozen=True, kw_only=True)
class RewardReport:
    """Everything that a reward report shows."""

    name: str
    """Name of the run."""
    model: str
    """Short description of the model."""
    split: str = "validation"
    """The prompts that texts were generated for before and after; training never used them."""
    prompts: int = 0
    """Number of prompts."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The most important settings, with display names."""
    stopped: str = ""
    """Why the run stopped early, if it did."""
    kl: OptionalFloat = None
    """KL of the trained model to the starting model, on those prompts."""
    kl_target: OptionalFloat = None
    train: tuple[RewardStepMetrics, ...] = ()
    validation: tuple[RewardStepMetrics, ...] = ()
    before: tuple[OptionalFloat, ...] = ()
    """The reward of every text of the starting model."""
    after: tuple[OptionalFloat, ...] = ()
    """The reward of every text of the trained model."""
    judges: tuple[JudgeResult, ...] = ()
    """Independent ones first."""
    best_of: tuple[BestOfResult, ...] = ()
    numbers: tuple[BeforeAfterMetric, ...] = ()
    pairs: tuple[TextComparison, ...] = ()
    warnings: tuple[RewardHackingWarning, ...] = ()
    sources: tuple[str, ...] = ()
    """Sources of prompts, rewards and judges, one line each."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    date: str = ""
    """Date of the report, as year-month-day hour:minute."""


def to_dict(report: RewardReport) -> dict[str, Any]:
    """The report as plain data; NaN and infinity become null."""
    data: dict[str, Any] = untrusted_files.without_nan(asdict(report))
    return data


def to_json(report: RewardReport) -> str:
    """`to_dict` as JSON; characters that cannot be encoded are replaced."""
    text = untrusted_files.to_json(to_dict(report), indent=1)
    return text.encode("utf-8", "replace").decode("utf-8") + "\n"


# ------------------------------------------------------------ derived values


def finite_values(values: Iterable[OptionalFloat]) -> list[float]:
    """The values that are finite numbers."""
    return [value for value in values if value is not None and math.isfinite(value)]


def finite_mean(values: Iterable[OptionalFloat]) -> OptionalFloat:
    """Mean of the finite values; None without any."""
    finite = finite_values(values)
    return math.fsum(finite) / len(finite) if finite else None


def summarize(report: RewardReport) -> str:
    """The result of the run in one sentence."""
    before, after = finite_mean(report.before), finite_mean(report.after)
    judge = next((item for item in report.judges if item.independent), None)
    if before is None or after is None:
        return "No texts were generated before and after, so there is nothing to compare."
    difference = reward_difference(report)
    values = f"{format_number(before)} → {format_number(after)}{_describe_interval(difference)}"
    sentence = f"The reward {_describe_change(difference)} ({values})"
    if judge is not None:
        low, high = judge.won.interval
        rate = f"{100 * judge.won.rate:.0f} % of the time"
        gained = difference is not None and difference.direction == "rose"
        conjunction = "and" if (low > 0.5) == gained else "but"
        no_difference = "sees no difference beyond chance"
        preference = "prefers the new texts" if low > 0.5 else "prefers the old texts" if high < 0.5 else no_difference
        sentence += f", {conjunction} an independent judge {preference} (the new text wins {rate})"
    serious = sum(item.severity == "serious" for item in report.warnings)
    if serious:
        sentence += f"; {serious} serious warning{'s' if serious > 1 else ''} below"
    return f"{sentence}."


def reward_difference(report: RewardReport) -> PairedDifference | None:
    """The paired difference of the rewards for the same prompts; None where they cannot be paired."""
    pairs = [finite_values(pair) for pair in zip(report.before, report.after, strict=False)]
    complete_pairs = [pair for pair in pairs if len(pair) == 2]
    if len(report.before) != len(report.after) or not complete_pairs:
        return None
    return paired_difference([old for old, _ in complete_pairs], [new for _, new in complete_pairs])


def _describe_change(difference: PairedDifference | None) -> str:
    return (difference.direction if difference is not None else "") or "shows no difference beyond chance"


def _describe_interval(difference: PairedDifference | None) -> str:
    """The evidence for the change, as the end of a parenthesis."""
    if difference is None:
        return ", not for the same prompts"
    low, high = format_number(difference.low), format_number(difference.high)
    return f"; the difference over the same {difference.pairs:,} prompts is {low} to {high} with 95 % confidence"


def equivalent_best_of(report: RewardReport) -> float | None:
    """The N at which best-of-N of the starting model is as good as one text of the trained model.

    None where the reward did not rise beyond chance, or rose more than any measured N.
    """
    if (difference := reward_difference(report)) is None or difference.direction != "rose":
        return None
    single = next((result.trained for result in report.best_of if result.count == 1), None)
    start_rewards = sorted((result.count, result.start) for result in report.best_of if result.start is not None)
    if single is None or not start_rewards or single < start_rewards[0][1] or single > start_rewards[-1][1]:
        return None
    for (lower_count, low), (upper_count, high) in itertools.pairwise(start_rewards):
        if low <= single <= high:  # between measured counts the reward grows about linearly in log N
            share = (single - low) / (high - low) if high > low else 0.0
            return float(lower_count * (upper_count / lower_count) ** share)
    return float(start_rewards[0][0])


def format_p_value(p: float) -> str:
    """A p-value for display."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def format_number(value: OptionalFloat) -> str:
    """A number with three or so significant digits; a dash for None."""
    if value is None or not math.isfinite(value):
        return "–"
    magnitude = abs(value)
    if 0 < magnitude < 0.001:
        return f"{value:.1e}"
    digits = 3 if magnitude < 1 else 2 if magnitude < 10 else 1
    return f"{value:,.{digits}f}" if magnitude < 1e6 else f"{value:.2e}"
