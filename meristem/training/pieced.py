"""Samples cut to pieces as material: what tasks and rewards are both fed with."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from meristem.batch import Objective
from meristem.learning.assemble import fill_of
from meristem.learning.feed import Feed, sample_tokens
from meristem.learning.ragged import Pieces, Ragged
from meristem.learning.team import ALONE, Team
from meristem.recipe import Recipe
from meristem.task import Piece, Sample
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.material import Material


@dataclass(frozen=True, kw_only=True)
class Pieced(Material):
    """The tokenizer, and samples by split."""

    tokenizer: Tokenizer
    samples: Mapping[str, Sequence[Sample]]
    notices: Sequence[str] = ()
    team: Team = ALONE
    _pieces: dict[str, list[Piece]] = field(default_factory=dict)

    @abstractmethod
    def cut(self, samples: Sequence[Sample]) -> list[Piece]:
        """Samples cut to what fits the model."""

    @property
    def grows(self) -> int:
        """Tokens that a row may gain before it is learned from."""
        return 0

    def pieces(self, split: str) -> list[Piece]:
        """A split cut to what fits the model, once."""
        if split not in self._pieces:
            self._pieces[split] = self.cut(self.samples[split])
        return self._pieces[split]

    @property
    def tokens(self) -> int:
        """Tokens of the training samples, special ones included."""
        return sum(piece.size for piece in self.pieces("train"))

    def feeds(self, recipe: Recipe, objectives: Mapping[str, Objective], *, split: str, seed: int) -> dict[str, Feed]:
        """Batches of like lengths."""
        if not self.samples.get(split):
            return {}
        (name, objective), train = next(iter(objectives.items())), recipe.train
        rows, pieces = train.batch_samples, self.pieces(split)
        longest = (max(piece.size for piece in pieces) + self.grows) * objective.rows_per_sample
        micro = rows if train.micro_tokens is None else max(1, min(rows, train.micro_tokens // longest))
        view, fill = Pieces(pieces, shuffled=split == "train"), fill_of(self.tokenizer)
        tokens = sample_tokens(view, objective).mean
        ragged = Ragged(
            view=view,
            objective=objective,
            seed=seed,
            rows=rows,
            micro=micro,
            fill=fill,
            tokens_per_sample=tokens,
            team=self.team,
        )
        return {name: ragged}
