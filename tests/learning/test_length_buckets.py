"""Batches of like lengths: every piece once an epoch, little padding, and the same whatever was asked for before."""

from __future__ import annotations

import numpy as np
import pytest

from meristem.config.settings import Settings
from meristem.dataset.length_buckets import WINDOW_STEPS, LengthBucketedFeed, PieceView
from meristem.inputs.batch import RngFactory, Row
from meristem.interfaces.backbone import Head, Hidden, Model
from meristem.interfaces.objective import Objective, Outcome
from meristem.interfaces.sample import SamplePiece


class Reads(Objective):
    """Rows as long as their piece says, holding its number."""

    Settings = Settings
    name, requires = "reads", frozenset()
    heads: dict[str, Head] = {}
    loss_weights: dict[str, float] = {}

    def __init__(self) -> None:
        pass

    def prepare(self, row: Row, draw: RngFactory) -> Row:
        piece = row.metadata["piece"]
        return Row(
            inputs={"tokens": np.full(piece.num_tokens, piece.sample_index)},
            metadata=row.metadata,
            sample_id=row.sample_id,
        )

    def loss(self, model: Model, hidden: Hidden, batch: object) -> Outcome:
        raise NotImplementedError


def feed(pieces: int, rows: int, micro: int | None = None, seed: int = 0) -> LengthBucketedFeed:
    sizes = np.random.default_rng(0).integers(4, 60, pieces)
    view = PieceView([SamplePiece(sample_index=n, num_tokens=int(size), features={}) for n, size in enumerate(sizes)])
    return LengthBucketedFeed(
        view=view, objective=Reads(), seed=seed, batch_size=rows, micro_batch_size=micro or rows, pad_values={}
    )


def numbers(feed: LengthBucketedFeed, first: int, number: int) -> list[int]:
    return feed.batch_at(first, number).inputs["tokens"][:, 0].tolist()


@pytest.mark.parametrize(("pieces", "rows"), [(7, 3), (100, 32), (1000, 8), (33, 33), (5, 32)])
def test_every_piece_comes_once_in_each_epoch(pieces: int, rows: int) -> None:
    bucketed_feed = feed(pieces, rows)
    for epoch in range(3):
        assert sorted(numbers(bucketed_feed, epoch * pieces, pieces)) == list(range(pieces))


def test_a_step_holds_pieces_of_similar_lengths() -> None:
    bucketed_feed = feed(64 * WINDOW_STEPS, 32)
    batches = [bucketed_feed.batch(use, 0) for use in range(64)]
    num_positions = sum(batch.inputs["tokens"].numel() for batch in batches)
    assert sum(batch.num_tokens for batch in batches) / num_positions > 0.97
    assert 0.4 < sum(bucketed_feed.view.lengths[:2048]) / (2048 * 59) < 0.6  # type: ignore[attr-defined]  # in any order half would be padding


def test_lengths_come_in_no_order() -> None:
    bucketed_feed = feed(64 * WINDOW_STEPS, 32)
    longest = [bucketed_feed.batch(use, 0).inputs["tokens"].shape[1] for use in range(WINDOW_STEPS)]
    assert abs(np.corrcoef(longest, np.arange(WINDOW_STEPS))[0, 1]) < 0.4
    assert len(set(longest)) > 20


def test_a_batch_is_the_same_whatever_was_asked_for_before() -> None:
    fresh, used = feed(1000, 32, seed=3), feed(1000, 32, seed=3)
    for use in range(40):
        used.batch(use, 0)
    for use in (0, 33, 31, 70):
        assert fresh.batch(use, 0).inputs["tokens"].equal(used.batch(use, 0).inputs["tokens"])


def test_passes_of_a_step_make_up_the_step() -> None:
    full_feed, parts = feed(500, 32), feed(500, 32, micro=5)
    for use in (0, 20):
        passes = [parts.batch(use, micro).inputs["tokens"][:, 0].tolist() for micro in range(parts.micro_steps)]
        pass_numbers = [number for pass_batch in passes for number in pass_batch]
        assert pass_numbers == full_feed.batch(use, 0).inputs["tokens"][:, 0].tolist()


def test_epochs_and_seeds_differ() -> None:
    bucketed_feed, other = feed(500, 32), feed(500, 32, seed=1)
    assert numbers(bucketed_feed, 0, 32) != numbers(bucketed_feed, 500, 32) != numbers(other, 0, 32)
