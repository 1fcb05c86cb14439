"""Click reward: the predicted click-through rate of a text, compared with the best texts shown for its query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from math import erf, sqrt, tanh
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from meristem.config.conditions import SettingConditions, when
from meristem.config.errors import MeristemError
from meristem.config.recipe import Recipe
from meristem.reinforce.clicks.click_model import ClickEstimate, ClickModelSettings, estimate_from_log_odds
from meristem.reinforce.clicks.click_model_cache import load_or_fit
from meristem.reinforce.clicks.click_table import ClickColumns, read_click_table
from meristem.reinforce.clicks.generated_history import GeneratedHistory, update_history, validate_history
from meristem.reinforce.clicks.query_features import query_similarity
from meristem.reinforce.reward_base import PromptCompletion, Reward, RewardContext, RewardScore
from meristem.reinforce.settings import RewardSettings

MAX_SHOWN_CHARS = 80
"""Characters of a text shown in the explanation."""


class ClicksRewardSettings(RewardSettings):
    """The click table, and how a text is compared with it."""

    renamed: ClassVar[dict[str, str]] = {
        "against": "compare_with",
        "by": "score_by",
        "cautious": "uncertainty_penalty",
        "fit": "click_model",
        "near": "num_neighbors",
        "top": "top_k",
        "unseen": "unseen_query",
    }

    needs: ClassVar[SettingConditions] = {
        "top_k": (when("score_by", "margin", "rank"),),
        "compare_with": (when("score_by", "margin", "rank"),),
        "num_neighbors": (when("unseen_query", "nearest"),),
    }

    name: Literal["clicks"] = "clicks"
    """The reward's name."""
    table: str
    """A table of query, text, shown and clicked: csv, tsv, jsonl, parquet, or builtin:microworld-clicks."""
    columns: ClickColumns = ClickColumns.model_validate({})
    """The names of its columns."""
    top_k: int = Field(5, ge=1)
    """The number of texts of the query, those with the highest rates, that a text is compared with."""
    compare_with: Literal["table", "generated", "both"] = "table"
    """Which best texts: the table's, those the run itself has generated so far for the query, or both."""
    score_by: Literal["margin", "rank", "rate"] = "margin"
    """Log-odds minus the mean of these texts, the share of them that it beats, or its rate alone."""
    uncertainty_penalty: float = Field(0.0, ge=0.0)
    """Standard deviations subtracted from the prediction, so that texts unlike any in the table earn nothing."""
    unseen_query: Literal["nearest", "overall", "refuse"] = "nearest"
    """For a query that is not in the table, compare with the best texts of similar queries, or overall, or refuse."""
    num_neighbors: int = Field(5, ge=1)
    """Number of most similar queries."""
    click_model: ClickModelSettings = ClickModelSettings.model_validate({})
    """How the click model is fitted."""

    @model_validator(mode="after")
    def _check_comparison(self) -> Self:
        if self.score_by == "rate" and self.compare_with != "table":
            raise ValueError(
                f"compare_with={self.compare_with}: score_by=rate is a text's rate alone; use score_by=margin or "
                "score_by=rank"
            )
        return self


@dataclass(frozen=True)
class ComparisonTexts:
    """The texts that a text is compared with, best first."""

    texts: tuple[tuple[str, ClickEstimate], ...]
    description: str
    """Where they come from."""


class ClicksReward(Reward[ClicksRewardSettings]):
    """margin: logit(rate) − mean logit(top K); rank: mean P(other ≤ text); rate: the rate."""

    Settings = ClicksRewardSettings
    name = "clicks"

    @classmethod
    def check_settings(cls, settings: ClicksRewardSettings, runs: Mapping[str, Recipe]) -> None:
        """Refuse a table that cannot be read."""
        read_click_table(settings.table, settings.columns)

    def __init__(self, settings: ClicksRewardSettings, context: RewardContext) -> None:
        self.settings = settings
        self.table = read_click_table(settings.table, settings.columns)
        self.model = load_or_fit(self.table, settings.click_model, context.folder, context.say)
        self._known_queries = frozenset(self.table.queries)
        self._similarity = query_similarity(self.table.queries)
        self._comparison_cache: dict[str, ComparisonTexts] = {}
        self._history: GeneratedHistory = {}

    @classmethod
    def keeps_history(cls, settings: ClicksRewardSettings) -> bool:
        """True where texts are compared with those generated before."""
        return settings.compare_with != "table"

    def with_history(self, history: GeneratedHistory | None) -> ClicksReward:
        """A reward that also compares with the best texts of this history; the fitted model is shared."""
        bound = copy(self)
        bound._history = validate_history(history)
        return bound

    def remember(self, history: GeneratedHistory | None, observations: Sequence[Any]) -> GeneratedHistory:
        """The best texts of each query so far."""
        return update_history(history, [(query, text, log_odds, std) for query, text, log_odds, std in observations],
                       self.settings.top_k)  # fmt: skip

    def check(self, completions: Sequence[PromptCompletion]) -> None:
        """Refuse prompts without a query, and unknown queries with unseen=refuse."""
        for completion in completions:
            self._comparison(completion)

    def score(self, completions: Sequence[PromptCompletion]) -> list[RewardScore]:
        """Each text compared with the best of its query; for a text in the table its own clicks count."""
        estimates = self.model.predict(
            [(self._query(completion), completion.text.strip()) for completion in completions]
        )
        return [
            self._score_one(completion, estimate) for completion, estimate in zip(completions, estimates, strict=True)
        ]

    def _score_one(self, completion: PromptCompletion, estimate: ClickEstimate) -> RewardScore:
        query, text = self._query(completion), completion.text.strip()
        comparison = self._add_generated(self._comparison(completion), query)
        table_estimate = dict(self.model.table_texts(query)).get(text)
        used_estimate = table_estimate or (estimate if text else self.model.worst)
        log_odds = used_estimate.log_odds - self.settings.uncertainty_penalty * used_estimate.std
        best_text, best_estimate = comparison.texts[0]
        why: dict[str, float | str] = {
            "expected rate": used_estimate.rate,
            "nine of ten between": f"{used_estimate.low:.4f} and {used_estimate.high:.4f}",
            "text": "in the table" if table_estimate else "new" if text else "empty: as bad as the worst in the table",
            "held against": comparison.description,
            "best of these": best_text if len(best_text) <= MAX_SHOWN_CHARS else f"{best_text[: MAX_SHOWN_CHARS - 1]}…",
            "its rate": best_estimate.rate,
        }
        observation = (
            [query, text, log_odds, used_estimate.std] if text and self.settings.compare_with != "table" else None
        )
        return RewardScore(
            value=self._value(log_odds, [other for _, other in comparison.texts]), why=why, observation=observation
        )

    def _add_generated(self, table_texts: ComparisonTexts, query: str) -> ComparisonTexts:
        """Texts generated for a query before this step, alone or with the table's; the table's until there are any.

        Their log-odds are those they were rewarded with, `cautious` subtracted.
        """
        entries = self._history.get(query, ()) if self.settings.compare_with != "table" else ()
        if not entries:
            return table_texts
        texts = {
            str(text): estimate_from_log_odds(float(log_odds), float(std), False) for text, log_odds, std in entries
        }
        description = f"the {len(texts)} best generated so far"
        if self.settings.compare_with == "both":
            texts = {**texts, **dict(table_texts.texts)}
            description = f"{description}, and {table_texts.description}"
        return ComparisonTexts(tuple(sorted(texts.items(), key=lambda item: (-item[1].log_odds, item[0]))), description)

    def _value(self, log_odds: float, others: Sequence[ClickEstimate]) -> float:
        if self.settings.score_by == "rate":
            return 0.5 + 0.5 * tanh(log_odds / 2)
        if self.settings.score_by == "margin":
            return log_odds - sum(other.log_odds for other in others) / len(others)
        # Only the other texts' uncertainty: otherwise a text about which nothing is known would beat some by it.
        win_probabilities = (0.5 + 0.5 * erf((log_odds - other.log_odds) / (sqrt(2) * other.std)) for other in others)
        return sum(win_probabilities) / len(others)

    def _query(self, completion: PromptCompletion) -> str:
        """The query in the prompt's row where it has such a column, else the prompt's text."""
        query = completion.columns.get(self.settings.columns.query, completion.prompt)
        return str(query).strip()

    def _comparison(self, completion: PromptCompletion) -> ComparisonTexts:
        query = self._query(completion)
        location = completion.location_prefix
        if not query and completion.picture:
            raise MeristemError(
                f"{location}clicks: an image is not a query; give the query of each image in a column "
                f"{self.settings.columns.query!r}, or name the column: columns={{query: COLUMN}}"
            )
        if not query:
            raise MeristemError(f"{location}clicks: the query is empty; each prompt must be a search query")
        if query not in self._known_queries and self.settings.unseen_query == "refuse":
            raise MeristemError(
                f"{location}clicks: the query {query!r:.80} is not in {self.settings.table}; drop the prompt, or "
                "compare with similar queries: unseen=nearest"
            )
        if query not in self._comparison_cache:
            self._comparison_cache[query] = self._find_comparison(query)
        return self._comparison_cache[query]

    def _find_comparison(self, query: str) -> ComparisonTexts:
        """The best texts of the query, of the queries most like it, or of all."""
        if query in self._known_queries:
            return ComparisonTexts(tuple(self.model.table_texts(query)[: self.settings.top_k]), "its query's best")
        similarities = self._similarity(query)
        ranked = sorted((-value, index) for index, value in enumerate(similarities.tolist()) if value > 0)
        if self.settings.unseen_query == "overall" or not ranked:
            return self._best_overall
        similar_queries = [self.table.queries[index] for _, index in ranked[: self.settings.num_neighbors]]
        suffix = f" and {len(similar_queries) - 1} more" if len(similar_queries) > 1 else ""
        return ComparisonTexts(
            self._top_texts(similar_queries), f"an unknown query; the best of {similar_queries[0]!r}{suffix}"
        )

    def _top_texts(self, queries: Sequence[str]) -> tuple[tuple[str, ClickEstimate], ...]:
        """The top K texts of each query, best first."""
        candidates = [
            candidate for query in queries for candidate in self.model.table_texts(query)[: self.settings.top_k]
        ]
        return tuple(sorted(candidates, key=lambda candidate: -candidate[1].log_odds))

    @property
    def _best_overall(self) -> ComparisonTexts:
        if "" not in self._comparison_cache:
            self._comparison_cache[""] = ComparisonTexts(
                self._top_texts(self.table.queries), "an unknown query; the best of all queries"
            )
        return self._comparison_cache[""]
