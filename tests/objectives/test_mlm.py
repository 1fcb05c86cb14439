from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from meristem.config.errors import MeristemError
from meristem.inputs.batch import Row
from meristem.objectives._token_selection import masking_units, select_spans
from meristem.objectives.mlm import MLMObjective, MLMObjectiveSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

Make, Run = Callable[..., Any], Callable[..., Any]


def test_fifteen_of_a_hundred_and_eighty_ten_ten(make: Make, prepared: Run, tokenizer: Tokenizer) -> None:
    objective = make("mlm")
    ordinary = num_masked = masked = num_unchanged = other = 0
    for before, (after,) in prepared(objective, epochs=8):
        positions, values = after.targets["mlm"]["at"], after.targets["mlm"]["values"]
        original, masked_ids = before.inputs["tokens"], after.inputs["tokens"]
        assert np.array_equal(original[positions], values)
        assert np.array_equal(np.delete(original, positions), np.delete(masked_ids, positions))
        assert not before.metadata["special"][positions].any()
        assert not tokenizer.special_mask[values].any()
        ordinary, num_masked = ordinary + int((~before.metadata["special"]).sum()), num_masked + len(positions)
        masked += int((masked_ids[positions] == tokenizer.mask).sum())
        num_unchanged += int((masked_ids[positions] == values).sum())
        other += int(((masked_ids[positions] != tokenizer.mask) & (masked_ids[positions] != values)).sum())
        assert not tokenizer.special_mask[masked_ids[positions][masked_ids[positions] != tokenizer.mask]].any()
    assert num_masked > 5000
    lucky = 0.1 / (~tokenizer.special_mask).sum()  # a random token is now and then the right one
    assert num_masked / ordinary == pytest.approx(0.15, abs=0.005)
    assert masked / num_masked == pytest.approx(0.8, abs=0.017)  # three standard deviations of 5,000 draws
    assert other / num_masked == pytest.approx(0.1 - lucky, abs=0.0125)
    assert num_unchanged / num_masked == pytest.approx(0.1 + lucky, abs=0.0125)


def test_static_masking_repeats_its_maskings(make: Make, prepared: Run) -> None:
    def masks(epochs: int, **settings: Any) -> list[list[int]]:
        return [after.inputs["tokens"].tolist() for _, (after,) in prepared(make("mlm", **settings), epochs=epochs)]

    two, dynamic = masks(4, num_maskings=2), masks(4)
    half = len(two) // 2
    assert two[:half] == two[half:] == dynamic[:half]
    assert dynamic[half:] != dynamic[:half] and two[: half // 2] != two[half // 2 : half]


def test_every_position_is_selected_equally_often(make: Make, prepared: Run) -> None:
    hits = np.zeros(48)
    for _, (after,) in prepared(make("mlm"), epochs=8):
        hits[after.targets["mlm"]["at"]] += 1
    assert hits[0] == hits[47] == 0  # the frame
    expected = hits.sum() / 46
    assert ((hits[1:47] - expected) ** 2 / expected).sum() < 90  # chi-square with 45 degrees: the 99.99th percentile


def test_random_tokens_are_any_ordinary_token(make: Make, prepared: Run, tokenizer: Tokenizer) -> None:
    frequencies = np.zeros(tokenizer.vocab_size)
    for _, (after,) in prepared(make("mlm", mask_replace_prob=0, random_replace_prob=1), epochs=8):
        frequencies += np.bincount(after.inputs["tokens"][after.targets["mlm"]["at"]], minlength=tokenizer.vocab_size)
    assert frequencies[tokenizer.special_mask].sum() == 0
    ordinary_frequencies = frequencies[~tokenizer.special_mask]
    expected = ordinary_frequencies.sum() / len(ordinary_frequencies)
    assert ((ordinary_frequencies - expected) ** 2 / expected).sum() < len(ordinary_frequencies) + 5 * (
        2 * len(ordinary_frequencies)
    ) ** 0.5


@pytest.mark.parametrize("rate", [0.05, 0.4, 0.9])
def test_the_rate_is_a_setting(make: Make, prepared: Run, rate: float) -> None:
    for before, (after,) in prepared(make("mlm", mask_rate=rate)):
        assert len(after.targets["mlm"]["at"]) == max(1, round(rate * (~before.metadata["special"]).sum()))


def test_whole_words_are_masked_whole(make: Make, prepared: Run, tokenizer: Tokenizer) -> None:
    ordinary = num_masked = pieces = 0
    for before, (after,) in prepared(make("mlm", unit="word"), epochs=3):
        tokens, masked_positions = before.inputs["tokens"], set(after.targets["mlm"]["at"].tolist())
        special = before.metadata["special"]
        word = np.cumsum(tokenizer.word_start_mask[tokens] | special)
        for position in masked_positions:
            word_positions = [p for p in np.flatnonzero(word == word[position]) if not special[p]]
            assert masked_positions.issuperset(word_positions)
            pieces += len(word_positions) > 1
        ordinary, num_masked = ordinary + int((~special).sum()), num_masked + len(masked_positions)
    assert pieces > 100
    assert num_masked / ordinary == pytest.approx(0.15, abs=0.01)


def test_single_tokens_do_split_words(make: Make, prepared: Run, tokenizer: Tokenizer) -> None:
    """What the test above forbids does happen where words are not kept whole."""
    split = 0
    for before, (after,) in prepared(make("mlm")):
        tokens, masked_positions = before.inputs["tokens"], set(after.targets["mlm"]["at"].tolist())
        split += sum(
            not tokenizer.word_start_mask[tokens[p]] and p - 1 not in masked_positions for p in masked_positions
        )
    assert split > 20


def test_units_end_at_special_tokens() -> None:
    tokens = np.array([9, 0, 0, 9, 0])
    allowed = np.array([True, True, False, True, True])
    starts = np.zeros(10, bool)
    starts[9] = True
    assert [u.tolist() for u in masking_units(tokens, allowed, starts, True)] == [[0, 1], [3, 4]]
    assert [u.tolist() for u in masking_units(tokens, allowed, starts, False)] == [[0], [1], [3], [4]]
    assert [u.tolist() for u in masking_units(np.array([0, 0, 9]), np.array([False, True, True]), starts, True)] == [
        [1],
        [2],
    ]
    assert masking_units(tokens, np.zeros(5, bool), starts, True) == []


def test_spans_are_as_long_as_the_paper_says() -> None:
    """SpanBERT: geometric lengths with p = 0.2, at most 10, a mean of 3.8 words."""
    words = [np.array([index]) for index in range(40_000)]
    lengths = []
    for seed in range(30):
        span_positions = select_spans(words, 400, MLMObjectiveSettings(unit="span"), np.random.default_rng(seed))
        assert len(span_positions) == 400
        lengths += [len(run) for run in np.split(span_positions, np.flatnonzero(np.diff(span_positions) > 1) + 1)]
    assert np.mean(lengths) == pytest.approx(3.8, abs=0.2)
    ones = np.mean([length == 1 for length in lengths])
    assert ones == pytest.approx(0.2 / (1 - 0.8**10), abs=0.03)


def test_spans_mask_whole_words_at_about_the_rate(make: Make, prepared: Run, tokenizer: Tokenizer) -> None:
    ordinary = num_masked = neighbours = 0
    for before, (after,) in prepared(make("mlm", unit="span"), epochs=3):
        positions = after.targets["mlm"]["at"]
        ordinary, num_masked = ordinary + int((~before.metadata["special"]).sum()), num_masked + len(positions)
        neighbours += int((np.diff(positions) == 1).sum())
        following = [p for p in positions + 1 if p < len(before.inputs["tokens"]) and p not in positions]
        assert tokenizer.word_start_mask[before.inputs["tokens"][following]].all()
    assert num_masked / ordinary == pytest.approx(0.16, abs=0.02)  # the last word may overshoot
    assert neighbours / num_masked > 0.5


@pytest.mark.parametrize("settings", [{}, {"mask_rate": 0.4}, {"unit": "word"}])
def test_exhaustive_masking_masks_every_token_exactly_once(
    make: Make, prepared: Run, tokenizer: Tokenizer, settings: dict[str, Any]
) -> None:
    objective = make("mlm", exhaustive_masking=True, **settings)
    assert objective.max_rows_per_sample == int(np.ceil(1 / settings.get("mask_rate", 0.15)))
    for before, rows in prepared(objective):
        assert len(rows) == objective.max_rows_per_sample
        hidden = np.concatenate([row.targets["mlm"]["at"] for row in rows])
        assert sorted(hidden.tolist()) == np.flatnonzero(~before.metadata["special"]).tolist()
        for row in rows:
            positions = row.targets["mlm"]["at"]
            assert (row.inputs["tokens"][positions] == tokenizer.mask).all()
            assert np.array_equal(row.targets["mlm"]["values"], before.inputs["tokens"][positions])


def test_masking_is_new_each_epoch_and_reproducible(make: Make, prepared: Run) -> None:
    objective = make("mlm")

    def masked_positions(**options: Any) -> list[bytes]:
        return [after.inputs["tokens"].tobytes() for _, (after,) in prepared(objective, **options)]

    first, second = np.array_split(np.array(masked_positions(epochs=2), dtype=object), 2)
    assert (first != second).mean() > 0.95
    assert list(first) == masked_positions()
    assert (first != np.array(masked_positions(seed=1), dtype=object)).mean() > 0.95


def test_a_row_without_ordinary_tokens_predicts_nothing(make: Make) -> None:
    from meristem.inputs.batch import Row
    from meristem.utils.randomness import SampleRng

    for settings in ({}, {"unit": "word"}, {"unit": "span"}):
        row = Row(inputs={"tokens": np.array([2, 3])}, metadata={"special": np.array([True, True])})
        assert len(make("mlm", **settings).prepare(row, SampleRng(0, 0, 0)).targets["mlm"]["at"]) == 0


def test_what_cannot_be_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValidationError, match="mask_replace_prob and random_replace_prob: their sum exceeds 1"):
        MLMObjectiveSettings(mask_replace_prob=0.95)

    class Maskless:
        mask = None

    with pytest.raises(MeristemError, match="no mask token"):
        MLMObjective(MLMObjectiveSettings(), Maskless())  # type: ignore[arg-type]  # that is the point


def test_each_unit_may_be_masked_in_a_row_of_its_own(tokenizer: Tokenizer) -> None:
    objective = MLMObjective(MLMObjectiveSettings(exhaustive_masking="each", unit="word"), tokenizer)
    tokens = np.array([tokenizer.start, *range(6, 16), tokenizer.end])
    row = Row(inputs={"tokens": tokens}, metadata={"special": tokenizer.special_mask[tokens]}, sample_id=3)
    rows = objective.prepare(row, SampleRng(0, 0, 0))
    words = masking_units(tokens, ~tokenizer.special_mask[tokens], tokenizer.word_start_mask, True)
    assert isinstance(rows, list) and len(rows) == len(words)
    assert sorted(tuple(row.targets["mlm"]["at"]) for row in rows) == sorted(tuple(word) for word in words)
    assert all((row.inputs["tokens"][row.targets["mlm"]["at"]] == tokenizer.mask).all() for row in rows)
