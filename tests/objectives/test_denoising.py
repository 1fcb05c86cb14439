"""Denoising: each noise does what it says and no more, and what was hidden can always be put back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.typing import NDArray

from meristem import samples
from meristem.config.errors import MeristemError, RecipeError
from meristem.config.recipe import resolve_recipe
from meristem.corpus.document import Document
from meristem.dataset.build import build_dataset
from meristem.dataset.settings import DatasetSettings
from meristem.dataset.views.windows import WindowsView
from meristem.inputs.batch import Row
from meristem.objectives.denoising import (
    DenoisingObjective,
    DenoisingObjectiveSettings,
    corrupt_spans,
    infill_spans,
    permute_sentences,
    poisson_lengths,
    random_partition,
    rotate_document,
    sample_positions,
)
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer
from meristem.utils.randomness import SampleRng

MASK, END, LENGTH = 4, 3, 96
OFF = {"permute_rate": 0.0, "infill_rate": 0.0}
SENTINELS = np.arange(900, 1000)
texts = st.lists(st.integers(5, 60), min_size=1, max_size=40)


def gaps(source: NDArray[Any], text: NDArray[Any]) -> list[int] | None:
    """How many tokens each mask of a source stands for, where its other tokens are the text in order; all different."""
    position, out = 0, []
    pending = 0
    for token in source:
        if token == MASK:
            pending += 1
            continue
        indices = np.flatnonzero(text[position:] == token)
        if not len(indices) or (indices[0] and not pending):
            return None
        out.append(int(indices[0]))
        position, pending = position + int(indices[0]) + 1, 0
    return out if position == len(text) or pending else None


# ---------------------------------------------------------------- one noise at a time


@pytest.mark.parametrize("rate", [0.05, 0.31, 0.8])
def test_the_chosen_share_is_exact_in_the_mean(rate: float) -> None:
    rng, allowed = default_rng(0), np.arange(23) % 4 > 0
    picked = np.array([sample_positions(allowed, rate, rng) for _ in range(4000)])
    assert not picked[:, ~allowed].any()
    assert picked[:, allowed].mean() == pytest.approx(rate, abs=4 * (rate * (1 - rate) / 17 / 4000) ** 0.5)
    share_by_token = picked[:, allowed].mean(0)
    assert np.abs(share_by_token - rate).max() < 5 * (rate * (1 - rate) / 4000) ** 0.5
    assert set(picked.sum(1)) <= {int(17 * rate), int(17 * rate) + 1}


def test_span_lengths_are_poisson() -> None:
    """A chi-square test against Poisson 3, zeros included; the last of each text is cut and left out."""
    rng, span_lengths = default_rng(1), []
    for _ in range(300):
        lengths = poisson_lengths(120, 3.0, rng)
        assert lengths.sum() == 120 and (lengths >= 0).all()
        span_lengths += lengths[:-1].tolist()
    # the last span is where the sum is reached, so that long ones are slightly rarer among the others
    frequencies = np.bincount(np.minimum(span_lengths, 9), minlength=10) / len(span_lengths)
    expected = np.array([np.exp(-3) * 3.0**k / np.prod(np.arange(1, k + 1)) for k in range(9)])
    expected = np.append(expected, 1 - expected.sum())
    assert len(span_lengths) > 11_000
    assert np.abs(frequencies - expected).max() < 0.015
    assert (
        len(span_lengths) * (frequencies - expected) ** 2 / expected
    ).sum() < 60  # nine degrees of freedom, a little bias
    assert np.mean(span_lengths) == pytest.approx(3.0, abs=0.15)
    assert len(poisson_lengths(0, 3.0, rng)) == 0


def test_infilling_removes_its_share_and_inserts_masks() -> None:
    rng, text = default_rng(2), np.arange(100, 200)
    hidden, masks, empty, first = [], [], 0, Counter[int]()
    for _ in range(3000):
        source = infill_spans(text, np.ones(100, bool), MASK, 0.3, 3.0, rng)
        visible_ids = source[source != MASK]
        assert (np.diff(visible_ids) > 0).all()  # in order, none twice
        hidden.append(100 - len(visible_ids))
        masks.append(int((source == MASK).sum()))
        around = np.concatenate([[99], source, [200]])
        single_masks = np.flatnonzero((around[1:-1] == MASK) & (around[:-2] != MASK) & (around[2:] != MASK)) + 1
        empty += sum(around[i + 1] - around[i - 1] == 1 for i in single_masks)
        first[int(source[0] == MASK)] += 1
    assert np.mean(hidden) == 30.0 and set(hidden) == {30}
    assert np.mean(masks) == pytest.approx(10.7, abs=0.3)  # 30 tokens in spans of mean 3, and the last one cut
    assert empty / sum(masks) == pytest.approx(np.exp(-3), abs=0.015)  # spans of no token
    assert first[1] / 3000 == pytest.approx(10.7 / 71, abs=0.03)  # a span is as likely before any kept token


def test_infilling_leaves_special_tokens_where_they_are() -> None:
    rng, text = default_rng(3), np.arange(100, 150)
    allowed = np.arange(50) % 7 != 3
    for _ in range(200):
        source = infill_spans(text, allowed, MASK, 0.6, 3.0, rng)
        assert np.isin(text[~allowed], source).all()
        assert allowed.sum() - np.isin(text[allowed], source).sum() in (25, 26)  # 0.6 of 43, rounded either way


@settings(max_examples=150, deadline=None)
@given(size=st.integers(1, 60), rate=st.floats(0.01, 0.99), mean=st.floats(0.2, 9), seed=st.integers(0, 2**32))
def test_an_infilled_text_never_grows_and_fits_its_original(size: int, rate: float, mean: float, seed: int) -> None:
    text = np.arange(100, 100 + size)
    source = infill_spans(text, np.ones(size, bool), MASK, rate, mean, default_rng(seed))
    assert len(source) <= size
    gap_lengths = gaps(source, text)
    assert gap_lengths is not None
    assert size - (source != MASK).sum() in (int(rate * size), int(rate * size) + 1)


def test_sentences_are_shuffled_evenly_over_all_orders() -> None:
    rng, sentence_starts = default_rng(4), np.array([0, 2, 7, 8])
    parts = [[0, 1], [2, 3, 4, 5, 6], [7], [8, 9]]
    orders = {tuple(i for part in order for i in part): 0 for order in permutations(parts)}
    for _ in range(24 * 200):
        orders[tuple(permute_sentences(10, sentence_starts, rng).tolist())] += 1
    chi = sum((count - 200) ** 2 / 200 for count in orders.values())
    assert chi < 49.7  # 23 degrees of freedom: one correct shuffle in a thousand is above


def test_a_rotation_is_a_rotation_and_begins_anywhere() -> None:
    rng = default_rng(5)
    starts: Counter[int] = Counter()
    for _ in range(3000):
        rotated = rotate_document(10, rng)
        assert (np.diff(rotated) % 10 == 1).all()
        starts[int(rotated[0])] += 1
    assert sum((starts[i] - 300) ** 2 / 300 for i in range(10)) < 27.9  # nine degrees of freedom


# ---------------------------------------------------------------- T5's spans


def rebuilt(source: NDArray[Any], target: NDArray[Any]) -> list[int]:
    """The text, each sentinel of the source replaced by what follows it in the target."""
    spans_by_sentinel: dict[int, list[int]] = {}
    for token in target.tolist():
        if token in SENTINELS:
            spans_by_sentinel[token] = []
            span_ids = spans_by_sentinel[token]
        else:
            span_ids.append(token)
    return [span_id for token in source.tolist() for span_id in spans_by_sentinel.get(token, [token])]


@settings(max_examples=200, deadline=None)
@given(text=texts, rate=st.floats(0.02, 0.95), mean=st.floats(1, 8), seed=st.integers(0, 2**32))
def test_source_and_target_give_the_text_back(text: list[int], rate: float, mean: float, seed: int) -> None:
    source, target = corrupt_spans(np.array(text), SENTINELS, rate, mean, default_rng(seed))
    assert rebuilt(source, target) == text
    marks = [token for token in source.tolist() if token in SENTINELS]
    assert marks == [token for token in target.tolist() if token in SENTINELS] == SENTINELS[: len(marks)].tolist()
    assert len(source) <= len(text) + 1 and len(target) <= len(text) + 1  # one more only where all is one token


def test_spans_have_their_share_and_mean() -> None:
    rng, text = default_rng(6), np.arange(100, 300)
    for _ in range(50):
        source, target = corrupt_spans(text, SENTINELS, 0.15, 3.0, rng)
        assert (target < 900).sum() == 30 and (target >= 900).sum() == 10
        assert (source < 900).sum() == 170
        assert source[0] < 900 and source[-1] >= 900  # as T5's begin with text and end with a span
        assert not ((source[1:] >= 900) & (source[:-1] >= 900)).any()


def test_random_partitions_are_uniform() -> None:
    rng = default_rng(7)
    counts = Counter(tuple(random_partition(5, 3, rng).tolist()) for _ in range(3000))
    assert len(counts) == 6 and all(sum(runs) == 5 and min(runs) >= 1 for runs in counts)
    assert max(abs(count - 500) for count in counts.values()) < 110


# ---------------------------------------------------------------- the objective


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """One that knows capital letters: a sentence begins with one."""
    return train_tokenizer(TokenizerSettings(vocab_size=500), samples.documents("microworld-en?size=40"))


@pytest.fixture(scope="module")
def rows(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[tuple[Row, Row]]]:
    """Windows of stories, before and after they were damaged."""
    documents = [Document(text, "test:1") for text in samples.documents("microworld-en?size=40")]
    stream = build_dataset(documents, tokenizer, tmp_path_factory.mktemp("s"), DatasetSettings(), processes=1).split(
        "train"
    )

    def prepare_rows(**noises: float) -> list[tuple[Row, Row]]:
        objective = DenoisingObjective(DenoisingObjectiveSettings(**noises), tokenizer)
        view = WindowsView(stream, tokenizer, LENGTH, **dict(objective.view.options))
        row_pairs = []
        for number in range(len(view)):
            draw = SampleRng(0, 0, number)
            row = view.row(number, draw)
            row_pairs.append((row, objective.prepare(row, draw)))
        return row_pairs

    return prepare_rows


def test_the_target_is_the_text_and_its_end(rows: Callable[..., Any], tokenizer: Tokenizer) -> None:
    for before, after in rows():
        text, targets = before.inputs["tokens"], after.targets["denoising"]
        assert targets["values"].tolist() == [*text.tolist(), tokenizer.end]
        assert after.inputs["tokens"].tolist() == [tokenizer.start, *text.tolist()]
        assert targets["at"].tolist() == list(range(len(text) + 1))
        assert set(after.inputs) == {"source", "tokens"}
        assert after.inputs["source"][-1] == tokenizer.end
        assert len(after.inputs["source"]) <= LENGTH == len(after.inputs["tokens"])


@pytest.mark.parametrize("noise", ["permute", "rotate", "delete", "mask", "infill"])
def test_each_noise_alone_keeps_what_it_promises(noise: str, rows: Callable[..., Any], tokenizer: Tokenizer) -> None:
    rate = 1.0 if noise in {"permute", "rotate"} else 0.3
    changed, total, removed_shares = 0, 0, []
    for before, after in rows(**{**OFF, f"{noise}_rate": rate}):
        text, source = before.inputs["tokens"], after.inputs["source"][:-1]
        free = int((~before.metadata["special"]).sum())
        changed, total = changed + (len(text) != len(source) or (text != source).any()), total + 1
        ends = int((text == tokenizer.end).sum())
        assert (source == tokenizer.end).sum() == ends
        if noise in {"permute", "rotate"}:
            assert sorted(source.tolist()) == sorted(text.tolist())
            assert np.flatnonzero(source == tokenizer.end).tolist() == np.flatnonzero(text == tokenizer.end).tolist()
        elif noise == "delete":
            remaining_ids = iter(text.tolist())
            assert all(token in remaining_ids for token in source.tolist())  # a subsequence: order is kept
            removed_shares.append((len(text) - len(source)) / free)
        elif noise == "mask":
            assert len(source) == len(text)
            hidden = source == MASK
            assert (source[~hidden] == text[~hidden]).all() and not before.metadata["special"][hidden].any()
            removed_shares.append(hidden.sum() / free)
        else:
            removed_shares.append((len(text) - (source != MASK).sum()) / free)
            assert (source == MASK).any()
    assert changed > 0.95 * total
    if removed_shares:
        assert np.mean(removed_shares) == pytest.approx(0.3, abs=0.01)


def test_sentence_boundaries_are_those_of_the_dataset(rows: Callable[..., Any], tokenizer: Tokenizer) -> None:
    """What moves together is a sentence: every one of the text is found whole in the source, and they do move."""
    moved = 0
    for before, after in rows(infill_rate=0.0):
        text, source = before.inputs["tokens"].tolist(), after.inputs["source"].tolist()
        assert len(before.metadata["sentences"]) > 1
        moved += text != source[:-1]
        cuts = sorted(
            {0, *before.metadata["sentences"].tolist(), *(i for i, t in enumerate(text) if t == tokenizer.end)}
        )
        for start, stop in zip(cuts, [*cuts[1:], len(text)], strict=True):
            part = [token for token in text[start:stop] if token != tokenizer.end]
            assert any(source[i : i + len(part)] == part for i in range(len(source)))
    assert moved > 50


def test_documents_are_shuffled_by_themselves(tokenizer: Tokenizer) -> None:
    objective = DenoisingObjective(DenoisingObjectiveSettings(infill_rate=0.0), tokenizer)
    text = np.array([10, 11, 12, 13, END, 20, 21, 22, 23, END, 30, 31])
    metadata = {"special": text == END, "sentences": np.array([0, 2, 5, 7, 10])}
    row = Row(inputs={"tokens": text}, metadata=metadata)
    shuffled_documents = set()
    for sample in range(60):
        source = objective.prepare(row, SampleRng(0, 0, sample)).inputs["source"].tolist()
        assert (source[4], source[9], source[12]) == (END, END, END)
        shuffled_documents.add((tuple(source[:4]), tuple(source[5:9]), tuple(source[10:12])))
    assert {first for first, _, _ in shuffled_documents} == {(10, 11, 12, 13), (12, 13, 10, 11)}
    assert {second for _, second, _ in shuffled_documents} == {(20, 21, 22, 23), (22, 23, 20, 21)}
    assert {third for _, _, third in shuffled_documents} == {(30, 31)}


@settings(max_examples=80, deadline=None)
@given(text=texts, rates=st.tuples(*[st.sampled_from([0.0, 0.2, 0.9])] * 5), seed=st.integers(0, 10**6))
def test_every_mixture_of_noises_keeps_the_target(
    tokenizer: Tokenizer, text: list[int], rates: tuple[float, ...], seed: int
) -> None:
    names = ("permute_rate", "rotate_rate", "delete_rate", "mask_rate", "infill_rate")
    if not any(rates):
        return
    objective = DenoisingObjective(DenoisingObjectiveSettings(**dict(zip(names, rates, strict=True))), tokenizer)
    tokens = np.array([END if token == 5 else token % 30 + 5 for token in text])
    metadata = {"special": tokens == END, "sentences": np.flatnonzero(tokens % 3 == 0)}
    row = objective.prepare(Row(inputs={"tokens": tokens}, metadata=metadata), SampleRng(0, 0, seed))
    assert row.targets["denoising"]["values"].tolist() == [*tokens.tolist(), END]
    source = row.inputs["source"]
    assert 1 <= len(source) <= len(tokens) + 1
    visible_counts, had = (Counter(array[array != MASK].tolist()) for array in (source[:-1], tokens))
    assert all(count <= had[token] for token, count in visible_counts.items())
    prepared = objective.prepare(Row(inputs={"tokens": tokens}, metadata=metadata), SampleRng(0, 0, seed))
    assert (prepared.inputs["source"] == source).all()


def test_spans_need_sentinels(tokenizer: Tokenizer) -> None:
    spans = DenoisingObjectiveSettings(kind="spans")
    with pytest.raises(MeristemError, match=r"kind=spans needs sentinel tokens .*set tokenizer\.sentinels=100"):
        DenoisingObjective(spans, tokenizer)
    sentinel_tokenizer = train_tokenizer(
        TokenizerSettings(vocab_size=200, sentinels=2), samples.documents("microworld-en?size=10")
    )
    objective = DenoisingObjective(spans, sentinel_tokenizer)
    assert objective.sentinels.tolist() == [
        sentinel_tokenizer.token_to_id("<extra_id_0>"),
        sentinel_tokenizer.token_to_id("<extra_id_1>"),
    ]
    text = np.arange(5, 45) % 30 + 5
    row = Row(inputs={"tokens": text}, metadata={"special": text < 5})
    prepared = objective.prepare(row, SampleRng(0, 0, 0))
    assert prepared.targets["denoising"]["values"][0] == objective.sentinels[0]
    assert prepared.targets["denoising"]["values"][-1] == sentinel_tokenizer.end == prepared.inputs["source"][-1]
    long = np.tile(text, 4)
    with pytest.raises(
        MeristemError, match=r"160 tokens needs 8 sentinels, and the tokenizer has 2; set tokenizer.sentinels=8"
    ):
        objective.prepare(Row(inputs={"tokens": long}, metadata={"special": long < 5}), SampleRng(0, 0, 0))


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ({"permute_rate": 0, "infill_rate": 0}, "every noise is off"),
        ({"kind": "spans", "mean_span_length": 0.5}, "must be at least 1"),
        ({"infil_rate": 0.5}, "did you mean infill_rate"),
    ],
)
def test_recipes_that_make_no_sense(objective: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        resolve_recipe("t", {"model": {"family": "transformer"}, "objective": [{"name": "denoising", **objective}]})


def test_isolated_documents_are_refused(tokenizer: Tokenizer) -> None:
    row = Row(inputs={"tokens": np.array([5, 6]), "documents": np.array([0, 0])}, metadata={})
    with pytest.raises(
        MeristemError, match=r"dataset\.intra_document_mask: denoising cannot isolate the documents of a window"
    ):
        DenoisingObjective(DenoisingObjectiveSettings(), tokenizer).prepare(row, SampleRng(0, 0, 0))
