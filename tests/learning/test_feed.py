from __future__ import annotations

import pytest
import torch
from cases import LENGTH, Case, real

from meristem.dataset.feed import Feed, iter_batches
from meristem.dataset.token_dataset import TokenDataset
from meristem.inputs.batch import Batch
from meristem.tokenizers.tokenizer import Tokenizer

BERT = Case(["mlm", "nsp"], "bert")
PLM = Case("plm", "xlnet")


def alike(batch: Batch, other: Batch) -> bool:
    tensors = [(batch.inputs, other.inputs), *((batch.targets[t], other.targets[t]) for t in batch.targets)]
    return (batch.target_counts, batch.sample_ids, batch.num_tokens, batch.targets.keys()) == (
        other.target_counts,
        other.sample_ids,
        other.num_tokens,
        other.targets.keys(),
    ) and all(a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a) for a, b in tensors)


def feed_of(tokenizer: Tokenizer, store: TokenDataset, rows: int = 8, micro: int = 8, case: Case = BERT) -> Feed:
    _, feed, _ = real(case, tokenizer, store)
    return Feed(
        view=feed.view,
        objective=feed.objective,
        seed=feed.seed,
        batch_size=rows,
        micro_batch_size=micro,
        pad_values=feed.pad_values,
    )


@pytest.mark.parametrize("workers", [1, 4])
def test_workers_change_nothing(tokenizer: Tokenizer, store: TokenDataset, workers: int) -> None:
    feeds = {"one": feed_of(tokenizer, store, micro=3), "two": feed_of(tokenizer, store, case=PLM)}
    epoch = len(feeds["one"].view) // 8
    keys = [
        (name, use, micro)
        for use in (0, 1, epoch, epoch + 1)
        for name in feeds
        for micro in range(feeds[name].micro_steps)
    ]
    single_process, multi_process = (list(iter_batches(feeds, keys, number)) for number in (0, workers))
    assert len(single_process) == len(multi_process) == len(keys)
    assert all(alike(a, b) for a, b in zip(single_process, multi_process, strict=True))


@pytest.mark.parametrize("rows", [8, 7, 50])
def test_an_epoch_reads_each_sample_exactly_once(tokenizer: Tokenizer, store: TokenDataset, rows: int) -> None:
    """Also where batches do not divide it, and one batch holds the end of an epoch and the beginning of the next."""
    feed = feed_of(tokenizer, store, rows=rows, micro=rows, case=Case("clm", "gpt2"))
    size = len(feed.view)
    assert size % rows
    expected = sorted(bytes(feed.view.row(index, None).inputs["tokens"][:-1]) for index in range(size))  # type: ignore[arg-type]
    rows_read: list[bytes] = []
    numbers: list[int] = []
    use = 0
    while len(rows_read) < 3 * size:
        batch = feed.batch(use, 0)
        numbers += batch.sample_ids
        present = batch.inputs.get("present", torch.ones_like(batch.inputs["tokens"], dtype=torch.bool))
        rows_read += [
            bytes(row[row_present].numpy()) for row, row_present in zip(batch.inputs["tokens"], present, strict=True)
        ]
        use += 1
    assert numbers == list(range(len(numbers)))
    epochs = [rows_read[start : start + size] for start in (0, size, 2 * size)]
    assert all(sorted(epoch) == expected for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_micro_steps_cut_a_step_and_nothing_more(tokenizer: Tokenizer, store: TokenDataset) -> None:
    full_feed, cut = feed_of(tokenizer, store), feed_of(tokenizer, store, micro=3)
    assert cut.micro_steps == 3
    parts = [cut.batch(4, micro) for micro in range(3)]
    assert [len(part.sample_ids) for part in parts] == [2, 3, 3]
    assert [i for part in parts for i in part.sample_ids] == full_feed.batch(4, 0).sample_ids
    assert {t: sum(part.target_counts[t] for part in parts) for t in ("mlm", "nsp")} == full_feed.batch(
        4, 0
    ).target_counts


def test_any_sample_can_be_asked_for_alone(tokenizer: Tokenizer, store: TokenDataset) -> None:
    feed = feed_of(tokenizer, store)
    batch = feed.batch(2, 0)
    for index, number in enumerate(batch.sample_ids):
        single = feed.batch_at(number, 1)
        length = single.inputs["tokens"].shape[1]
        assert torch.equal(single.inputs["tokens"][0], batch.inputs["tokens"][index, :length])


def test_lanes_are_read_in_order_and_begin_fresh_at_each_epoch(tokenizer: Tokenizer, store: TokenDataset) -> None:
    feed = feed_of(tokenizer, store, case=PLM)
    segments = len(feed.view) // 8
    fresh = [bool(feed.batch(use, 0).inputs["fresh"].all()) for use in range(2 * segments + 1)]
    assert [use for use, is_fresh in enumerate(fresh) if is_fresh] == [0, segments, 2 * segments]
    stream = store.split("train")
    size = len(stream) // 8
    first = torch.cat([feed.batch(use, 0).inputs["tokens"][2] for use in range(segments)])
    assert first.tolist() == stream.tokens(2 * size, 3 * size).tolist()


def test_a_corpus_smaller_than_a_batch_is_repeated(tokenizer: Tokenizer, store: TokenDataset) -> None:
    feed = feed_of(tokenizer, store, case=Case("mlm", "bert"))
    size = len(feed.view)
    large = Feed(
        view=feed.view,
        objective=feed.objective,
        seed=0,
        batch_size=3 * size + 1,
        micro_batch_size=3 * size + 1,
        pad_values=feed.pad_values,
    )
    batch = large.batch(0, 0)
    assert batch.inputs["tokens"].shape == (3 * size + 1, LENGTH)
    assert batch.sample_ids == list(range(3 * size + 1))
