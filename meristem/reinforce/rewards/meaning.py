"""Semantic similarity reward: how close a text is, by word vectors, to its references or its prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from meristem.config.conditions import SettingConditions, when
from meristem.config.errors import MeristemError
from meristem.config.recipe import Recipe
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.word_vector_files import read_vectors
from meristem.reinforce.reward_base import PromptCompletion, RewardContext, RewardScore, TextReward
from meristem.reinforce.settings import RewardSettings
from meristem.reinforce.word2vec import Word2VecSettings, check_corpus, load_or_train_vectors
from meristem.reinforce.word_vectors import VectorizedText, WordVectors, similarity

MAX_LISTED_UNKNOWN = 5
"""Unknown words that are listed in the explanation."""


class MeaningRewardSettings(RewardSettings):
    """The word vectors, and what a text is compared with."""

    renamed: ClassVar[dict[str, str]] = {
        "against": "compare_with",
        "alignment": "alignment_weight",
        "alike": "prefix_fallback",
        "learn": "word2vec",
        "longest": "max_words",
        "unknown": "unknown_words",
        "weighing": "word_weighting",
        "words": "max_vectors",
    }

    needs: ClassVar[SettingConditions] = {
        "half": (when("vectors", None),),
        "document": (when("vectors", None),),
        "word2vec": (when("vectors", None),),
        "max_vectors": (when("corpus", None),),
    }

    name: Literal["meaning"] = "meaning"
    """The reward's name."""
    vectors: str | None = None
    """A file of word vectors: word2vec, text or binary, or GloVe."""
    corpus: str | tuple[str, ...] | None = None
    """Without a file: text that vectors are trained on first (needs gensim); a file, a folder, builtin:NAME."""
    half: Literal[0, 1] | None = None
    """Use only this half of the corpus, so that a judge's vectors can be trained on the other half."""
    document: Literal["auto", "file", "block", "line"] = "auto"
    """What one document of that text is: halves consist of whole documents."""
    word2vec: Word2VecSettings = Word2VecSettings.model_validate({})
    """How the vectors are trained."""
    compare_with: Literal["references", "prompt"] = "references"
    """What a text is compared with: the closest of the prompt's references, or the prompt itself."""
    alignment_weight: float = Field(0.5, ge=0, le=1)
    """Weight of the soft alignment in the value; the rest is the cosine of the centroids."""
    word_weighting: Literal["sif", "even"] = "sif"
    """Whether frequent words count less (SIF: a / (a + p), Arora et al. 2017) or all words equally."""
    unknown_words: Literal["count", "skip"] = "count"
    """Whether a word without a vector lowers the value, or is ignored."""
    prefix_fallback: bool = True
    """Whether an unknown word is replaced by a known one with the same beginning."""
    max_vectors: int = Field(200_000, ge=1)
    """Number of words read from the start of a file."""
    max_words: int = Field(512, ge=1)
    """Words of a text that are compared, at most."""

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.vectors is None) == (self.corpus is None):
            raise ValueError("meaning needs word vectors: vectors=FILE, or corpus=SOURCE to train them")
        return self


class MeaningReward(TextReward[MeaningRewardSettings]):
    """known share · ((1 − alignment) · cosine + alignment · F) with the closest reference; between −1 and 1."""

    Settings = MeaningRewardSettings
    name = "meaning"
    settings: MeaningRewardSettings

    @classmethod
    def check_settings(cls, settings: MeaningRewardSettings, runs: Mapping[str, Recipe]) -> None:
        """Refuse a file that is not one of vectors, or a text with too few words to train vectors on."""
        if settings.vectors is not None:
            next(read_vectors(Path(settings.vectors).expanduser()), None)
        else:
            check_corpus(cls.corpus(settings), settings.word2vec)

    @staticmethod
    def corpus(settings: MeaningRewardSettings) -> CorpusSettings:
        """The text that vectors are trained on."""
        return CorpusSettings.model_validate(
            {"source": settings.corpus, "half": settings.half, "document": settings.document}
        )

    def __init__(self, settings: MeaningRewardSettings, context: RewardContext) -> None:
        super().__init__(settings, context)
        reward = settings
        self._reference_cache: dict[str, VectorizedText] = {}
        if reward.vectors is not None:
            self.vectors = WordVectors.read(
                Path(reward.vectors).expanduser(), reward.max_vectors, prefix_fallback=reward.prefix_fallback
            )
        else:
            self.vectors = load_or_train_vectors(
                self.corpus(reward), reward.word2vec, context, prefix_fallback=reward.prefix_fallback
            )

    def check(self, completions: Sequence[PromptCompletion]) -> None:
        """Refuse prompts without a known word to compare with."""
        has_vectors = [bool(self._comparison_vectors(completion)) for completion in completions]
        if completions and not any(has_vectors):
            raise MeristemError(
                f"meaning: {self._vectors_label} contain none of the words that texts are compared with, as in "
                f"{self._comparison_texts(completions[0])[0]!r:.80}; are they for another language?"
            )
        for completion, is_known in zip(completions, has_vectors, strict=True):
            if not is_known:
                raise MeristemError(f"{self._unknown_message(completion)}; drop the prompt, or give other vectors")

    def score_one(self, completion: PromptCompletion) -> RewardScore:
        """The text compared with its references or its prompt."""
        reward, comparisons = self.settings, self._comparison_vectors(completion)
        if not comparisons:
            raise MeristemError(self._unknown_message(completion))
        text = self.vectors.vectorize(completion.text, reward.max_words)
        if not len(text.rows):
            return RewardScore(value=-1.0, why={"unknown words": _format_unknown(text) or "no word at all"})
        similarities = [
            similarity(self.vectors, text.rows, other.rows, uniform=reward.word_weighting == "even")
            for other in comparisons
        ]
        values = [
            self._penalize_unknown(
                text, other, (1 - reward.alignment_weight) * cosine + reward.alignment_weight * aligned
            )
            for other, (cosine, aligned) in zip(comparisons, similarities, strict=True)
        ]
        best = max(range(len(values)), key=values.__getitem__)
        why: dict[str, float | str] = {"cosine": similarities[best][0], "alignment": similarities[best][1]}
        if len(comparisons) > 1:
            why["nearest reference"] = f"{best + 1} of {len(comparisons)}"
        return RewardScore(value=values[best], why={**why, "unknown words": _format_unknown(text) or "none"})

    def _penalize_unknown(self, text: VectorizedText, other: VectorizedText, value: float) -> float:
        """A value times the share of the text's weight that could be compared.

        A word without a vector weighs as much as the rarest; one that the other text has too costs nothing.
        """
        unmatched = sum(word not in other.unknown for word in text.unknown)
        if self.settings.unknown_words == "skip" or not unmatched or value <= 0:
            return value
        if self.settings.word_weighting == "even":
            return value * len(text.rows) / (len(text.rows) + unmatched)
        known, rarest = float(self.vectors.weights[text.rows].sum()), float(self.vectors.weights.max())
        return value * known / (known + rarest * unmatched)

    def _comparison_texts(self, completion: PromptCompletion) -> tuple[str, ...]:
        """The texts that a completion of this prompt is compared with."""
        texts = (completion.prompt,) if self.settings.compare_with == "prompt" else completion.references
        if not any(text.strip() for text in texts):
            location = completion.location_prefix
            if completion.picture:
                raise MeristemError(
                    f"{location}meaning: no reference caption for the image {completion.picture:.80}; give a column of "
                    "captions (data.target=COLUMN): an image itself has no words to compare with"
                )
            if self.settings.compare_with == "prompt":
                raise MeristemError(f"{location}meaning: the prompt is empty, and texts are compared with it")
            raise MeristemError(
                f"{location}meaning: no reference for the prompt {completion.prompt!r:.80}; give one, "
                "or compare with the prompt itself: against=prompt"
            )
        return tuple(text for text in texts if text.strip())

    def _comparison_vectors(self, completion: PromptCompletion) -> list[VectorizedText]:
        """The same as rows of the table; texts without any known word are left out."""
        texts = self._comparison_texts(completion)
        for text in texts:
            if text not in self._reference_cache:
                self._reference_cache[text] = self.vectors.vectorize(text, self.settings.max_words)
        return [vectorized for vectorized in (self._reference_cache[text] for text in texts) if len(vectorized.rows)]

    def _unknown_message(self, completion: PromptCompletion) -> str:
        first_text, vectors = self._comparison_texts(completion)[0], self._vectors_label
        return f"{completion.location_prefix}meaning: {vectors} contain none of the words of {first_text!r:.80}"

    @property
    def _vectors_label(self) -> str:
        file, corpus = self.settings.vectors, self.settings.corpus
        return f"the vectors in {file}" if file is not None else f"the vectors trained on {corpus}"


def _format_unknown(text: VectorizedText) -> str:
    """How many words have no vector, and the first of them."""
    total = len(text.rows) + len(text.unknown)
    if not text.unknown:
        return f"{text.replaced} of {total} replaced by similar ones" if text.replaced else ""
    return f"{len(text.unknown)} of {total}: {', '.join(text.unknown[:MAX_LISTED_UNKNOWN])}"
