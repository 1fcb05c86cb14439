"""What a reward run reports: plain facts before and after, for the page, the terminal and programs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from meristem import bounded
from meristem.errors import MeristemError
from meristem.metrics.hacking import Warning
from meristem.metrics.paired import PairedDifference, paired_difference
from meristem.metrics.winning import Winning

Value = float | None
"""A number, or nothing where there was none to measure."""
Side = Literal["before", "after", "tie", ""]
"""Which of two texts a judge prefers; empty where none was asked."""
Direction = Literal["higher", "lower", ""]


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What was seen at one step, on average over its texts."""

    step: int
    reward: Value = None
    """All parts together, weighted."""
    parts: Mapping[str, Value] = field(default_factory=dict)
    """By reward, before weighting."""
    kl: Value = None
    """From the start, in nats per text."""
    coefficient: Value = None
    """What a nat costs at this step."""
    entropy: Value = None
    """Nats per token."""
    length: Value = None
    """Tokens per text."""
    distinct2: Value = None

    def values(self) -> dict[str, Value]:
        """Every number by the name that people read, in the order of their questions."""
        named = {"reward": self.reward, **{f"· {name}": value for name, value in self.parts.items()}}
        rest = {"KL": self.kl, "coefficient": self.coefficient, "entropy": self.entropy, "length": self.length}
        return named | rest | {"distinct-2": self.distinct2}


LOGGED = {
    "reward": "reward",
    "kl": "kl",
    "coefficient": "leash",
    "entropy": "entropy",
    "length": "written",
    "distinct2": "distinct2",
}
"""A moment's fields and how a run's metrics.jsonl names them; parts are `reward.NAME`."""


def moment(step: int, numbers: Mapping[str, Any]) -> Moment:
    """What was seen at a step, from what was logged of it."""
    there = {name: float(value) for name, value in numbers.items() if isinstance(value, int | float)}
    parts = {name.removeprefix("reward."): value for name, value in there.items() if name.startswith("reward.")}
    return Moment(step=step, parts=parts, **{name: there[key] for name, key in LOGGED.items() if key in there})


@dataclass(frozen=True, kw_only=True)
class Judge:
    """How often the trained model's text was preferred to the start's."""

    name: str
    won: Winning
    independent: bool = True
    """Whether the training never saw it; the rewards themselves were what was trained for."""


@dataclass(frozen=True, kw_only=True)
class BestOf:
    """The mean reward when the best of N texts is kept."""

    count: int
    start: Value = None
    trained: Value = None


@dataclass(frozen=True, kw_only=True)
class Number:
    """One measure before and after."""

    name: str
    before: Value
    after: Value
    before_interval: tuple[float, float] | None = None
    after_interval: tuple[float, float] | None = None
    better: Direction = ""
    """Which direction is good, where one is."""
    change_interval: tuple[float, float] | None = None
    """95 % of after − before over the same prompts, where there are enough of them."""
    meaning: str = ""


@dataclass(frozen=True, kw_only=True)
class Attempted:
    """A text and what was thought of it."""

    text: str
    reward: Value = None
    parts: Mapping[str, Value] = field(default_factory=dict)
    judge: Value = None
    """The independent judge's score."""
    ended: bool = True


@dataclass(frozen=True, kw_only=True)
class Pair:
    """What both models wrote for one prompt."""

    prompt: str
    before: Attempted
    after: Attempted
    preferred: Side = ""
    """By the independent judge."""
    opinion: str = ""
    """Why, in the judge's words or numbers."""
    references: tuple[str, ...] = ()
    place: str = ""
    picture: str = ""
    """Where the prompt is a picture, a PNG of it as a data URI."""


@dataclass(frozen=True, kw_only=True)
class RewardReport:
    """Everything a report shows."""

    name: str
    """The run's."""
    model: str
    """What writes, in a few words."""
    split: str = "validation"
    """The prompts that were written for before and after; training never saw them."""
    prompts: int = 0
    """How many."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What matters most of the recipe, in people's words."""
    stopped: str = ""
    """Why the run ended before its budget did."""
    kl: Value = None
    """Between the trained model and the start, on those prompts."""
    kl_target: Value = None
    train: tuple[Moment, ...] = ()
    validation: tuple[Moment, ...] = ()
    before: tuple[Value, ...] = ()
    """The reward of every text of the start."""
    after: tuple[Value, ...] = ()
    """And of the trained model."""
    judges: tuple[Judge, ...] = ()
    """Independent ones first."""
    best_of: tuple[BestOf, ...] = ()
    numbers: tuple[Number, ...] = ()
    pairs: tuple[Pair, ...] = ()
    warnings: tuple[Warning, ...] = ()
    sources: tuple[str, ...] = ()
    """Where prompts, rewards and judges come from, a line each."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    date: str = ""
    """When it was written, as year-month-day hour:minute."""


_REPORT = TypeAdapter(RewardReport)


def plain(report: RewardReport) -> dict[str, Any]:
    """The same facts for programs; a number that is none becomes null."""
    told: dict[str, Any] = bounded.without_nan(asdict(report))
    return told


def as_json(report: RewardReport) -> str:
    """`plain` as text; characters that no encoding has are replaced."""
    text = bounded.to_json(plain(report), indent=1)
    return text.encode("utf-8", "replace").decode("utf-8") + "\n"


def of(found: Any, place: str = "report.json") -> RewardReport:
    """A report from what `plain` gave, wherever it was kept since."""
    try:
        return _REPORT.validate_python(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise MeristemError(f"{place}: this is no report of a reward run; {where}: {first['msg']}") from None
    except MeristemError as error:
        raise MeristemError(f"{place}: {error}") from None


# ------------------------------------------------------------ what follows from the facts


def known(values: Iterable[Value]) -> list[float]:
    """Those that are numbers."""
    return [value for value in values if value is not None and math.isfinite(value)]


def mean(values: Iterable[Value]) -> Value:
    """Of those that are numbers."""
    there = known(values)
    return math.fsum(there) / len(there) if there else None


def verdict(report: RewardReport) -> str:
    """The whole run in one sentence."""
    before, after = mean(report.before), mean(report.after)
    judge = next((one for one in report.judges if one.independent), None)
    if before is None or after is None:
        return "No texts were written before and after, so that nothing can be said of this run."
    difference = compared(report)
    told = f"The reward {_moved(difference)} ({number(before)} → {number(after)}{_tested(difference)})"
    if judge is not None:
        low, high = judge.won.interval
        rate = f"{100 * judge.won.rate:.0f} % of the time"
        gained = difference is not None and difference.direction == "rose"
        joined = "and" if (low > 0.5) == gained else "but"
        unsure = "sees no difference beyond chance"
        sure = "prefers the new texts" if low > 0.5 else "prefers the old texts" if high < 0.5 else unsure
        told += f", {joined} an independent judge {sure} (the new one wins {rate})"
    serious = sum(one.severity == "serious" for one in report.warnings)
    if serious:
        told += f"; {serious} serious warning{'s' if serious > 1 else ''} below"
    return f"{told}."


def compared(report: RewardReport) -> PairedDifference | None:
    """The rewards of both models' texts for the same prompts; none where there are none to pair."""
    pairs = [known(pair) for pair in zip(report.before, report.after, strict=False)]
    both = [pair for pair in pairs if len(pair) == 2]
    if len(report.before) != len(report.after) or not both:
        return None
    return paired_difference([old for old, _ in both], [new for _, new in both])


def _moved(difference: PairedDifference | None) -> str:
    return (difference.direction if difference is not None else "") or "shows no difference beyond chance"


def _tested(difference: PairedDifference | None) -> str:
    """By what the claim is made, as the end of a parenthesis."""
    if difference is None:
        return ", not for the same prompts"
    low, high = number(difference.low), number(difference.high)
    return f"; the difference over the same {difference.pairs:,} prompts is {low} to {high} with 95 % confidence"


def as_good_as(report: RewardReport) -> float | None:
    """How many texts the start must write for its best to be as good as one of the trained model's.

    None where the reward did not rise beyond chance, or by more than was measured.
    """
    if (difference := compared(report)) is None or difference.direction != "rose":
        return None
    single = next((one.trained for one in report.best_of if one.count == 1), None)
    there = sorted((one.count, one.start) for one in report.best_of if one.start is not None)
    if single is None or not there or single < there[0][1] or single > there[-1][1]:
        return None
    for (few, low), (many, high) in itertools.pairwise(there):
        if low <= single <= high:  # between measured counts the reward grows about evenly in log N
            share = (single - low) / (high - low) if high > low else 0.0
            return float(few * (many / few) ** share)
    return float(there[0][0])


def chance(p: float) -> str:
    """A p-value as people write it."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def number(value: Value) -> str:
    """As many digits as say something; a dash for nothing."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    if 0 < size < 0.001:
        return f"{value:.1e}"
    digits = 3 if size < 1 else 2 if size < 10 else 1
    return f"{value:,.{digits}f}" if size < 1e6 else f"{value:.2e}"
