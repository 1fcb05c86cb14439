"""Sample data: samples split into pieces that fit the model, in length-bucketed batches; for tasks and rewards."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from meristem.config.recipe import Recipe
from meristem.dataset.feed import Feed, sample_tokens
from meristem.dataset.length_buckets import LengthBucketedFeed, PieceView
from meristem.dataset.poisson_feed import PoissonFeed, poisson_feed
from meristem.dataset.unit_rows import GroupedRows
from meristem.distributed.process_group import SINGLE_PROCESS, DistributedContext
from meristem.interfaces.objective import Objective
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.learning.build import pad_values
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.data.training_data import TrainingData
from meristem.training.settings import TrainSettings


@dataclass(frozen=True, kw_only=True)
class SampleData(TrainingData):
    """The tokenizer, and the samples of each split."""

    tokenizer: Tokenizer
    samples: Mapping[str, Sequence[Sample]]
    notices: Sequence[str] = ()
    distributed: DistributedContext = SINGLE_PROCESS
    _piece_cache: dict[str, list[SamplePiece]] = field(default_factory=dict)

    @abstractmethod
    def make_pieces(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """Pieces of the samples that fit the model: one, or several windows, per sample."""

    @property
    def extra_tokens(self) -> int:
        """Tokens that may be added to a row, such as those generated in a rollout."""
        return 0

    def pieces(self, split: str) -> list[SamplePiece]:
        """Pieces of a split; made once and cached."""
        if split not in self._piece_cache:
            self._piece_cache[split] = self.make_pieces(self.samples[split])
        return self._piece_cache[split]

    def build_view(self, split: str) -> PieceView:
        """The pieces of a split as rows, shuffled for training."""
        return PieceView(self.pieces(split), shuffled=split == "train")

    @property
    def num_tokens(self) -> int:
        """Tokens of the training samples, special tokens included."""
        return sum(piece.num_tokens for piece in self.pieces("train"))

    def build_feeds(
        self, recipe: Recipe, objectives: Mapping[str, Objective], *, split: str, seed: int
    ) -> dict[str, Feed]:
        """Batches of samples of similar length."""
        if not self.samples.get(split):
            return {}
        (name, objective), train = next(iter(objectives.items())), recipe.train
        batch_size, pieces = train.batch_samples, self.pieces(split)
        max_tokens = (max(piece.num_tokens for piece in pieces) + self.extra_tokens) * objective.max_rows_per_sample
        micro_batch_size = batch_size
        if train.micro_batch_tokens is not None:
            micro_batch_size = max(1, min(batch_size, train.micro_batch_tokens // max_tokens))
        view = self.build_view(split)
        if train.privacy is not None and split == "train":
            return {name: self._private_feed(train, view, objective, seed)}
        feed = LengthBucketedFeed(
            view=view,
            objective=objective,
            seed=seed,
            batch_size=batch_size,
            micro_batch_size=micro_batch_size,
            pad_values=pad_values(self.tokenizer),
            tokens_per_sample=sample_tokens(view, objective).mean,
            distributed=self.distributed,
        )
        return {name: feed}

    def _private_feed(self, train: TrainSettings, view: PieceView, objective: Objective, seed: int) -> PoissonFeed:
        """Poisson-sampled samples, each with all or some of its pieces."""
        assert train.privacy is not None
        sample_of_piece = [piece.sample_index for piece in view.pieces]
        return poisson_feed(
            GroupedRows(view, np.bincount(sample_of_piece, minlength=len(self.samples["train"]))),
            objective,
            seed=seed,
            units_per_step=train.batch_samples,
            max_rows=train.privacy.max_rows_per_document,
            micro_batch_tokens=train.micro_batch_tokens,
            vocab_size=self.tokenizer.vocab_size,
            pad_values=pad_values(self.tokenizer),
            distributed=self.distributed,
            unit="sample",
        )
