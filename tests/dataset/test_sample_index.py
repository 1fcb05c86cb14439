"""From sample numbers to documents."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from meristem.dataset import sample_index
from meristem.dataset.sample_index import SampleIndex, SampleLocation
from meristem.dataset.token_dataset import TokenDataset


@pytest.mark.parametrize(("block", "blocks"), [(64, 1024), (3, 2), (1, 1)])
def test_every_sample_has_its_document_and_part(
    make: Callable[..., TokenDataset],
    generate_stories: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
    block: int,
    blocks: int,
) -> None:
    monkeypatch.setattr(sample_index, "DOCUMENTS_PER_BLOCK", block)
    monkeypatch.setattr(sample_index, "BLOCKS_PER_PASS", blocks)
    stream = make(generate_stories(20), shard_tokens=800).split("train")
    samples = SampleIndex(stream, lambda lengths: lengths % 4)  # some documents give none
    counts = stream.lengths(0, stream.documents) % 4
    assert 0 in counts
    assert len(samples) == counts.sum()
    expected = [
        SampleLocation(document, part, parts) for document, parts in enumerate(counts.tolist()) for part in range(parts)
    ]
    assert [samples(index) for index in range(len(samples))] == expected


def test_reaching_outside_is_an_error(make: Callable[..., TokenDataset]) -> None:
    samples = SampleIndex(make(["One.", "Two."]).split("train"), np.ones_like)
    for index in (-1, 2):
        with pytest.raises(IndexError):
            samples(index)
