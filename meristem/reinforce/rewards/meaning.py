"""Meaning: how near a text is, by word vectors, to references or to its prompt (SPEC D2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from meristem.corpus.settings import CorpusSettings
from meristem.corpus.vectors import read_vectors
from meristem.dependences import Dependences, when
from meristem.errors import MeristemError
from meristem.recipe import Recipe
from meristem.reinforce.learned import LearningSettings, check_corpus, learned
from meristem.reinforce.reward import Attempt, Desk, Judgement, Reward, RewardSettings
from meristem.reinforce.vectors import Laid, Vectors, similarity

NAMED = 5
"""Unknown words that are told."""


class MeaningSettings(RewardSettings):
    """Whose vectors, and what a text should be near to."""

    needs: ClassVar[Dependences] = {
        "half": (when("vectors", None),),
        "document": (when("vectors", None),),
        "learn": (when("vectors", None),),
        "words": (when("corpus", None),),
    }

    name: Literal["meaning"] = "meaning"
    """The reward's name."""
    vectors: str | None = None
    """A file of word vectors: word2vec, text or binary, or GloVe."""
    corpus: str | tuple[str, ...] | None = None
    """Without a file: text that vectors are learned from first (needs gensim); a file, a folder, builtin:NAME."""
    half: Literal[0, 1] | None = None
    """Only this half of the corpus, so that a judge's vectors can be learned from the other."""
    document: Literal["auto", "file", "block", "line"] = "auto"
    """What one document of that text is: halves are made of whole ones."""
    learn: LearningSettings = LearningSettings.model_validate({})
    """How they are learned."""
    against: Literal["references", "prompt"] = "references"
    """What a text should be near to: the nearest of the prompt's references, or the prompt itself."""
    alignment: float = Field(0.5, ge=0, le=1)
    """The share of soft alignment in the value; the rest is the cosine of the centroids."""
    weighing: Literal["sif", "even"] = "sif"
    """Whether frequent words count less (a / (a + p), Arora et al. 2017) or all the same."""
    unknown: Literal["count", "skip"] = "count"
    """Whether a word of the text without a vector is like nothing, or passed over."""
    alike: bool = True
    """Whether a known word with the same beginning stands for an unknown one."""
    words: int = Field(200_000, ge=1)
    """Words of a file that are read, from its beginning."""
    longest: int = Field(512, ge=1)
    """Words of a text that are compared."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.vectors is None) == (self.corpus is None):
            raise ValueError("meaning needs word vectors: vectors=FILE, or corpus=SOURCE to learn them")
        return self


class Meaning(Reward):
    """known share · ((1 − alignment) · cosine + alignment · F), of the nearest reference; between −1 and 1."""

    Settings = MeaningSettings
    name = "meaning"

    @classmethod
    def check_settings(cls, settings: MeaningSettings, runs: Mapping[str, Recipe]) -> None:
        """The file of vectors is one, or the text has enough words to learn vectors from."""
        if settings.vectors is not None:
            next(read_vectors(Path(settings.vectors).expanduser()), None)
        else:
            check_corpus(cls.corpus(settings), settings.learn)

    @staticmethod
    def corpus(settings: MeaningSettings) -> CorpusSettings:
        """The text that vectors are learned from."""
        return CorpusSettings.model_validate(
            {"source": settings.corpus, "half": settings.half, "document": settings.document}
        )

    def __init__(self, settings: MeaningSettings, desk: Desk) -> None:
        self.settings = s = settings
        self._laid: dict[str, Laid] = {}
        if s.vectors is not None:
            self.vectors = Vectors.read(Path(s.vectors).expanduser(), s.words, alike=s.alike)
            return
        self.vectors = learned(self.corpus(s), s.learn, desk.folder, desk.say, alike=s.alike)

    def check(self, attempts: Sequence[Attempt]) -> None:
        """Refuse prompts that there is nothing to compare with for."""
        known = [bool(self._wanted(one)) for one in attempts]
        if attempts and not any(known):
            raise MeristemError(
                f"meaning: {self._place} know none of the words that texts are compared with, as in "
                f"{self._others(attempts[0])[0]!r:.80}; are they of another language?"
            )
        for one, has in zip(attempts, known, strict=True):
            if not has:
                raise MeristemError(f"{self._unknown(one)}; drop the prompt, or give other vectors")

    def judge(self, attempts: Sequence[Attempt]) -> list[Judgement]:
        """Each text with all it may be near to."""
        return [self._judged(one) for one in attempts]

    def _judged(self, attempt: Attempt) -> Judgement:
        s, wanted = self.settings, self._wanted(attempt)
        if not wanted:
            raise MeristemError(self._unknown(attempt))
        text = self.vectors.lay(attempt.text, s.longest)
        if not len(text.rows):
            return Judgement(value=-1.0, why={"unknown words": _told(text) or "no word at all"})
        each = [similarity(self.vectors, text.rows, other.rows, even=s.weighing == "even") for other in wanted]
        values = [
            self._less(text, other, (1 - s.alignment) * cosine + s.alignment * aligned)
            for other, (cosine, aligned) in zip(wanted, each, strict=True)
        ]
        best = max(range(len(values)), key=values.__getitem__)
        why: dict[str, float | str] = {"cosine": each[best][0], "alignment": each[best][1]}
        if len(wanted) > 1:
            why["nearest reference"] = f"{best + 1} of {len(wanted)}"
        return Judgement(value=values[best], why={**why, "unknown words": _told(text) or "none"})

    def _less(self, text: Laid, other: Laid, value: float) -> float:
        """A value times the share of the text's weight that could be compared.

        A word without a vector weighs as much as the rarest; one that the other text has too is no loss.
        """
        strange = sum(word not in other.unknown for word in text.unknown)
        if self.settings.unknown == "skip" or not strange or value <= 0:
            return value
        if self.settings.weighing == "even":
            return value * len(text.rows) / (len(text.rows) + strange)
        known, rarest = float(self.vectors.weights[text.rows].sum()), float(self.vectors.weights.max())
        return value * known / (known + rarest * strange)

    def _others(self, attempt: Attempt) -> tuple[str, ...]:
        """What a text of this prompt is compared with."""
        found = (attempt.prompt,) if self.settings.against == "prompt" else attempt.references
        if not any(text.strip() for text in found):
            where = f"{attempt.place}: " if attempt.place else ""
            if attempt.picture:
                raise MeristemError(
                    f"{where}meaning: no reference caption for the picture {attempt.picture:.80}; give a column of "
                    "captions (data.target=COLUMN): a picture itself has no words to compare with"
                )
            if self.settings.against == "prompt":
                raise MeristemError(f"{where}meaning: the prompt is empty, and texts are compared with it")
            raise MeristemError(
                f"{where}meaning: no reference for the prompt {attempt.prompt!r:.80}; give one, "
                "or compare with the prompt itself: against=prompt"
            )
        return tuple(text for text in found if text.strip())

    def _wanted(self, attempt: Attempt) -> list[Laid]:
        """The same as rows of the table, as far as any of their words is known."""
        others = self._others(attempt)
        for text in others:
            if text not in self._laid:
                self._laid[text] = self.vectors.lay(text, self.settings.longest)
        return [laid for laid in (self._laid[text] for text in others) if len(laid.rows)]

    def _unknown(self, attempt: Attempt) -> str:
        where = f"{attempt.place}: " if attempt.place else ""
        return f"{where}meaning: {self._place} know none of the words of {self._others(attempt)[0]!r:.80}"

    @property
    def _place(self) -> str:
        s = self.settings
        return f"the vectors in {s.vectors}" if s.vectors is not None else f"the vectors learned from {s.corpus}"


def _told(text: Laid) -> str:
    """How many words have no vector, and the first of them."""
    every = len(text.rows) + len(text.unknown)
    if not text.unknown:
        return f"{text.replaced} of {every} taken for others" if text.replaced else ""
    return f"{len(text.unknown)} of {every}: {', '.join(text.unknown[:NAMED])}"
