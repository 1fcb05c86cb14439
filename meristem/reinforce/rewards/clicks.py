"""Clicks: how often people would click on a text, against the best texts shown for its query (SPEC D3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from math import erf, sqrt, tanh
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from meristem.dependences import Dependences, when
from meristem.errors import MeristemError
from meristem.recipe import Recipe
from meristem.reinforce.clicks.history import History, checked, updated
from meristem.reinforce.clicks.kept import fitted
from meristem.reinforce.clicks.model import Expected, ModelSettings, expectation
from meristem.reinforce.clicks.queries import nearness
from meristem.reinforce.clicks.table import ClickColumns, read
from meristem.reinforce.reward import Attempt, Desk, Judgement, Reward, RewardSettings

TOLD = 80
"""Characters of a text that are shown."""


class ClicksSettings(RewardSettings):
    """Which table, and how a text is held against it."""

    needs: ClassVar[Dependences] = {
        "top": (when("by", "margin", "rank"),),
        "against": (when("by", "margin", "rank"),),
        "near": (when("unseen", "nearest"),),
    }

    name: Literal["clicks"] = "clicks"
    """The reward's name."""
    table: str
    """A table of query, text, shown and clicked: csv, tsv, jsonl, parquet, or builtin:microworld-clicks."""
    columns: ClickColumns = ClickColumns.model_validate({})
    """What its columns are called."""
    top: int = Field(5, ge=1)
    """A text is held against so many texts of its query, those with the highest rates."""
    against: Literal["table", "generated", "both"] = "table"
    """Whose best texts these are: the table's, those the run itself has generated so far for the query, or both."""
    by: Literal["margin", "rank", "rate"] = "margin"
    """Log-odds above the mean of these, the share of these that it beats, or its rate alone."""
    cautious: float = Field(0.0, ge=0.0)
    """Standard deviations taken off what is expected, so that what no text in the table was like earns nothing."""
    unseen: Literal["nearest", "overall", "refuse"] = "nearest"
    """What stands for a query that is not in the table: the queries most like it, all of them, or nothing."""
    near: int = Field(5, ge=1)
    """How many queries most like it."""
    fit: ModelSettings = ModelSettings.model_validate({})
    """How the click model is fitted."""

    @model_validator(mode="after")
    def _compares(self) -> Self:
        if self.by == "rate" and self.against != "table":
            raise ValueError(f"against={self.against}: by=rate is a text's rate alone; use by=margin or by=rank")
        return self


@dataclass(frozen=True)
class Rivals:
    """What a text is held against."""

    best: tuple[tuple[str, Expected], ...]
    told: str
    """Whose they are."""


class Clicks(Reward):
    """margin: logit(rate) − mean logit(top K); rank: mean P(rival ≤ text); rate: the rate."""

    Settings = ClicksSettings
    name = "clicks"

    @classmethod
    def check_settings(cls, settings: ClicksSettings, runs: Mapping[str, Recipe]) -> None:
        """The table is one."""
        read(settings.table, settings.columns)

    def __init__(self, settings: ClicksSettings, desk: Desk) -> None:
        self.settings = settings
        self.table = read(settings.table, settings.columns)
        self.model = fitted(self.table, settings.fit, desk.folder, desk.say)
        self._known = frozenset(self.table.queries)
        self._near = nearness(self.table.queries)
        self._rivals: dict[str, Rivals] = {}
        self._history: History = {}

    @classmethod
    def keeps_history(cls, settings: ClicksSettings) -> bool:
        """Where texts are held against those generated before."""
        return settings.against != "table"

    def with_history(self, history: History | None) -> Clicks:
        """A reward that holds texts against the best of this history too; what was fitted is shared."""
        bound = copy(self)
        bound._history = checked(history)
        return bound

    def remember(self, history: History | None, observations: Sequence[Any]) -> History:
        """The best texts of each query so far."""
        return updated(history, [(query, text, odds, spread) for query, text, odds, spread in observations],
                       self.settings.top)  # fmt: skip

    def check(self, attempts: Sequence[Attempt]) -> None:
        """Refuse prompts without a query, and unknown queries where they are to be refused."""
        for one in attempts:
            self._against(one)

    def judge(self, attempts: Sequence[Attempt]) -> list[Judgement]:
        """Each text against the best of its query; a text that was shown keeps what was seen of it."""
        expected = self.model.expect([(self._query(one), one.text.strip()) for one in attempts])
        return [self._judged(one, what) for one, what in zip(attempts, expected, strict=True)]

    def _judged(self, attempt: Attempt, expected: Expected) -> Judgement:
        query, text = self._query(attempt), attempt.text.strip()
        rivals = self._with_generated(self._against(attempt), query)
        shown = dict(self.model.known(query)).get(text)
        what = shown or (expected if text else self.model.least)
        odds = what.odds - self.settings.cautious * what.spread
        best, best_expected = rivals.best[0]
        why: dict[str, float | str] = {
            "expected rate": what.rate,
            "nine of ten between": f"{what.low:.4f} and {what.high:.4f}",
            "text": "in the table" if shown else "new" if text else "empty: as bad as the worst in the table",
            "held against": rivals.told,
            "best of these": best if len(best) <= TOLD else f"{best[: TOLD - 1]}…",
            "its rate": best_expected.rate,
        }
        seen = [query, text, odds, what.spread] if text and self.settings.against != "table" else None
        return Judgement(value=self._value(odds, [one for _, one in rivals.best]), why=why, observation=seen)

    def _with_generated(self, table: Rivals, query: str) -> Rivals:
        """The texts generated for a query before this step, alone or beside the table's; the table's until there are.

        Their log-odds are those they were rewarded by, `cautious` taken off.
        """
        entries = self._history.get(query, ()) if self.settings.against != "table" else ()
        if not entries:
            return table
        own = {str(text): expectation(float(odds), float(spread), False) for text, odds, spread in entries}
        told = f"the {len(own)} best generated so far"
        if self.settings.against == "both":
            own = {**own, **dict(table.best)}
            told = f"{told}, and {table.told}"
        return Rivals(tuple(sorted(own.items(), key=lambda one: (-one[1].odds, one[0]))), told)

    def _value(self, odds: float, rivals: Sequence[Expected]) -> float:
        if self.settings.by == "rate":
            return 0.5 + 0.5 * tanh(odds / 2)
        if self.settings.by == "margin":
            return odds - sum(one.odds for one in rivals) / len(rivals)
        # Only the rivals' spread: a text of which nothing is known would else beat some of them by that alone.
        beaten = (0.5 + 0.5 * erf((odds - one.odds) / (sqrt(2) * one.spread)) for one in rivals)
        return sum(beaten) / len(rivals)

    def _query(self, attempt: Attempt) -> str:
        """The query in the prompt's row where it has such a column, else the prompt's text."""
        given = attempt.columns.get(self.settings.columns.query, attempt.prompt)
        return str(given).strip()

    def _against(self, attempt: Attempt) -> Rivals:
        query = self._query(attempt)
        where = f"{attempt.place}: " if attempt.place else ""
        if not query and attempt.picture:
            raise MeristemError(f"{where}clicks: a picture is no query; give the query of each picture in a column "
                                f"{self.settings.columns.query!r}, or name it: columns={{query: COLUMN}}")  # fmt: skip
        if not query:
            raise MeristemError(f"{where}clicks: the query is empty; a prompt must be what people search for")
        if query not in self._known and self.settings.unseen == "refuse":
            raise MeristemError(f"{where}clicks: {self.settings.table} does not have the query {query!r:.80}; drop the "
                                "prompt, or let queries like it stand for it: unseen=nearest")  # fmt: skip
        if query not in self._rivals:
            self._rivals[query] = self._found(query)
        return self._rivals[query]

    def _found(self, query: str) -> Rivals:
        """The best texts of the query, of the queries most like it, or of all."""
        if query in self._known:
            return Rivals(tuple(self.model.known(query)[: self.settings.top]), "its query's best")
        near = self._near(query)
        like = sorted((-value, number) for number, value in enumerate(near.tolist()) if value > 0)
        if self.settings.unseen == "overall" or not like:
            return self._all
        names = [self.table.queries[number] for _, number in like[: self.settings.near]]
        several = f" and {len(names) - 1} more" if len(names) > 1 else ""
        return Rivals(self._best(names), f"an unknown query; the best of {names[0]!r}{several}")

    def _best(self, queries: Sequence[str]) -> tuple[tuple[str, Expected], ...]:
        """The top K of each, the best first."""
        found = [one for query in queries for one in self.model.known(query)[: self.settings.top]]
        return tuple(sorted(found, key=lambda one: -one[1].odds))

    @property
    def _all(self) -> Rivals:
        if "" not in self._rivals:
            self._rivals[""] = Rivals(self._best(self.table.queries), "an unknown query; the best of all queries")
        return self._rivals[""]
