"""Generation with masked models by iterative unmasking: lengths, seeds, schedule and errors."""

from __future__ import annotations

import itertools

import pytest

from meristem.config.errors import MeristemError
from meristem.generation.generate import generate
from meristem.generation.iterative_unmasking import generate_by_unmasking, masks_left
from meristem.generation.settings import SamplingSettings
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

PROMPTS = ["The old gardener", "", "老园丁"]


def test_writes_as_many_tokens_as_asked_and_no_special_ones(masked: Model, tokenizer: Tokenizer) -> None:
    for texts in generate(masked, tokenizer, PROMPTS, SamplingSettings(max_tokens=9, temperature=3.0), count=2):
        for text in texts:
            assert len(text.tokens) == 9
            assert not tokenizer.special_mask[list(text.tokens)].any()
            assert text.finished == "length"
            assert text.score < 0


def test_is_determined_by_its_seed_and_not_by_its_neighbours(masked: Model, tokenizer: Tokenizer) -> None:
    settings = SamplingSettings(max_tokens=8, seed=2)
    first_run = generate_by_unmasking(masked, tokenizer, PROMPTS, settings, count=2)
    assert first_run == generate_by_unmasking(masked, tokenizer, PROMPTS, settings, count=2)
    others = ["A small", "My sister sold", PROMPTS[2]]
    assert first_run[2] == generate_by_unmasking(masked, tokenizer, others, settings, count=2)[2]
    (first, second), single = (
        generate_by_unmasking(masked, tokenizer, prompts, settings) for prompts in (["The"] * 2, ["The"])
    )
    assert [first] == single and second != first, "prompts of one call do not share random numbers"
    assert first_run != generate_by_unmasking(
        masked, tokenizer, PROMPTS, settings.model_copy(update={"seed": 3}), count=2
    )
    assert first_run[0][0] != first_run[0][1]


def test_greedy_is_top_1(masked: Model, tokenizer: Tokenizer) -> None:
    greedy = generate_by_unmasking(masked, tokenizer, PROMPTS, SamplingSettings(max_tokens=8, greedy=True))
    top = generate_by_unmasking(masked, tokenizer, PROMPTS, SamplingSettings(max_tokens=8, top_k=1, seed=9))
    assert [[text.tokens for text in texts] for texts in greedy] == [[text.tokens for text in texts] for texts in top]


@pytest.mark.parametrize(("rounds", "masks"), [(1, 1), (5, 5), (24, 200), (24, 25)])
def test_every_round_uncovers_something_and_the_last_one_all(rounds: int, masks: int) -> None:
    num_masked = [masks_left(number, rounds, masks) for number in range(rounds + 1)]
    assert num_masked[0] == masks
    assert num_masked[-1] == 0
    assert all(after < before for before, after in itertools.pairwise(num_masked))
    if masks == 200:
        assert num_masked[12] > 130  # the cosine: most tokens are settled late


def test_stop_strings_cut(masked: Model, tokenizer: Tokenizer) -> None:
    settings = SamplingSettings(max_tokens=10, seed=1)
    ((full,),) = generate_by_unmasking(masked, tokenizer, ["The"], settings)
    stop, streamed = full.text[3:6], []
    ((cut,),) = generate_by_unmasking(
        masked,
        tokenizer,
        ["The"],
        settings.model_copy(update={"stop": (stop,)}),
        on_text=lambda _, text: streamed.append(text),
    )
    assert cut.text == full.text[: full.text.index(stop)]
    assert cut.finished == "stop"
    assert streamed == [cut.text]


def test_a_long_prompt_is_read_from_its_end(masked: Model, tokenizer: Tokenizer) -> None:
    settings = SamplingSettings(max_tokens=10)
    long = "My sister sold seventeen boats " * 10
    assert len(generate_by_unmasking(masked, tokenizer, [long + "The old"], settings)[0][0].tokens) == 10


def test_what_cannot_be_done_is_said(masked: Model, tokenizer: Tokenizer) -> None:
    with pytest.raises(MeristemError, match="at most 22 tokens"):
        generate_by_unmasking(masked, tokenizer, [""], SamplingSettings(max_tokens=23))
    with pytest.raises(MeristemError, match="causal"):
        generate_by_unmasking(masked, tokenizer, [""], SamplingSettings(max_tokens=5, beams=2))
