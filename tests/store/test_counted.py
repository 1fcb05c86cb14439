from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from meristem.store import counted
from meristem.store.counted import Counted, Share
from meristem.store.store import Store


@pytest.mark.parametrize(("block", "blocks"), [(64, 1024), (3, 2), (1, 1)])
def test_every_sample_has_its_document_and_part(make: Callable[..., Store], tell: Callable[..., list[str]],
                                                monkeypatch: pytest.MonkeyPatch, block: int, blocks: int) -> None:
    monkeypatch.setattr(counted, "BLOCK", block)
    monkeypatch.setattr(counted, "BLOCKS", blocks)
    stream = make(tell(20), shard_tokens=800).split("train")
    samples = Counted(stream, lambda lengths: lengths % 4)  # some documents give none
    counts = stream.lengths(0, stream.documents) % 4
    assert 0 in counts
    assert len(samples) == counts.sum()
    expected = [Share(document, part, parts) for document, parts in enumerate(counts.tolist()) for part in range(parts)]
    assert [samples(index) for index in range(len(samples))] == expected


def test_reaching_outside_is_an_error(make: Callable[..., Store]) -> None:
    samples = Counted(make(["One.", "Two."]).split("train"), np.ones_like)
    for index in (-1, 2):
        with pytest.raises(IndexError):
            samples(index)
