"""Grammar reward: correct sentences score above shuffled ones and noise, and degenerate texts gain nothing."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pytest
from example_rewards import GRAMMAR, TINY, attempts, build_combined_reward, noise, sentences, shuffled, values
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.config.errors import MeristemError, RecipeError
from meristem.corpus.settings import CorpusSettings
from meristem.reinforce.combined_reward import CombinedReward
from meristem.reinforce.reference_sentences import sample_sentences as correct
from meristem.reinforce.reward_base import RewardContext
from meristem.reinforce.reward_specs import parse_reward_specs
from meristem.reinforce.rewards.grammar import GrammarReward

DESK = RewardContext(folder=Path(), say=lambda text: None)
ODD = [
    "",
    " \n",
    "😀 😀 🙈 🐟 😀 a b",
    "老园丁种下了苹果树。",
    "\ud800 a b c \udfff d",
    "x" * 100_000,
    "a b c " * 20_000,
    " ".join(map(str, range(20_000))),
    "\0\0 b \x1e c d",
]


@pytest.fixture(scope="module")
def rewards() -> CombinedReward:
    return build_combined_reward(GRAMMAR)


@pytest.fixture(scope="module")
def grammar(rewards: CombinedReward) -> GrammarReward:
    (only,) = rewards.rewards.values()
    assert isinstance(only, GrammarReward)
    return only


def test_correct_sentences_beat_shuffled_ones_and_those_beat_noise(rewards: CombinedReward) -> None:
    texts = [text for text in sentences(60) if len(text.split()) > 5]
    right, mixed, wild = (np.array(values(rewards, *map(change, texts))) for change in (str, shuffled, noise))
    assert np.mean(right > mixed) > 0.8 and np.mean(mixed > wild) > 0.95
    assert right.mean() > mixed.mean() + 0.2 > wild.mean() + 2
    assert abs(right.mean()) < 0.7  # as correct as what is correct


def test_rare_words_are_forgiven_and_their_order_is_not(rewards: CombinedReward, grammar: GrammarReward) -> None:
    plain = GrammarReward(grammar.settings.model_copy(update={"rarity_weight": 0.0}), DESK)
    texts = [text for text in sentences(40) if len(text.split()) > 5]
    pairs, mixed = [("", text) for text in texts], [("", shuffled(text)) for text in texts]
    rarity = grammar._rarity.mean_nats(texts)
    assert np.allclose(plain._surprise(pairs) - grammar._surprise(pairs), rarity)
    word_surprise = plain._surprise(mixed) - grammar._surprise(mixed)
    assert np.corrcoef(word_surprise, rarity)[0, 1] > 0.9  # the same words in another order


def test_no_text_is_better_than_the_most(rewards: CombinedReward, grammar: GrammarReward) -> None:
    reward_score = grammar._score_one(attempts("a text")[0], -100.0)
    assert reward_score.value == pytest.approx(grammar.settings.max_score)
    assert grammar._score_one(attempts("a text")[0], 100.0).value == pytest.approx(-grammar.settings.max_penalty)


def test_repetition_emptiness_and_copies_are_below_an_ordinary_sentence(
    rewards: CombinedReward, grammar: GrammarReward
) -> None:
    held_out_sentences = correct(
        grammar._judge.recipe.sources()[0].corpus, held_out=True, count=64, min_words=3, seed=0
    )
    copied = [sentence.text for sentence in held_out_sentences]
    ordinary = [text for text in sentences(30) if text not in copied]
    lowest = min(values(rewards, *ordinary))
    guarded = ["the the the the", "", "the cat the cat the cat the cat", "cat", *copied[:5]]
    assert max(values(rewards, *guarded)) < lowest
    guards = [reward_score.why["guard"] for reward_score in grammar.score(attempts(*guarded))]
    assert "repetitive" in guards[0] and "too short: 0 of" in guards[1] and "repetitive" in guards[2]
    assert all("copied: 100%" in guard for guard in guards[4:])


def test_a_varied_beginning_does_not_hide_what_repeats_behind_it(rewards: CombinedReward) -> None:
    good = " ".join(sentences(12))
    assert values(rewards, good + " and so on" * 40)[0] == -5.0 < values(rewards, good)[0]


def test_a_reference_may_be_followed_and_not_copied(rewards: CombinedReward) -> None:
    text = "Nils walked to the market with a heavy basket and came home before noon."
    free, copied = (values(rewards, text, references=references)[0] for references in ((), ("Yes. " + text,)))
    other = values(rewards, text, references=("Nils walked home and read a book at noon.",))[0]
    assert copied == -5.0 < free == other
    echo = "He met an old friend there. " + text
    assert values(rewards, " " + text, prompt=echo)[0] == -5.0 < values(rewards, " " + text, prompt=echo[:27])[0]


def test_the_prompt_is_context_and_not_scored(grammar: GrammarReward) -> None:
    text = " walked to the market in the morning."
    behind, wild, without_prompt = (
        grammar.score(attempts(text, prompt=prompt))[0] for prompt in ("Nils", "qxv zzk jjw", "")
    )
    assert len({behind.value, wild.value, without_prompt.value}) == 3
    unprompted = GrammarReward(grammar.settings.model_copy(update={"include_prompt": False}), DESK)
    assert unprompted.score(attempts(text, prompt="Nils"))[0].value == without_prompt.value


def test_what_a_text_is_compared_with_follows_from_its_seed(grammar: GrammarReward) -> None:
    first_score, same_seed_score, other = (
        grammar.score(attempts("Nils bought a red boat.", seed=seed))[0] for seed in (3, 3, 4)
    )
    narrow = GrammarReward(grammar.settings.model_copy(update={"sentences_per_prompt": 4}), DESK)
    assert first_score == same_seed_score and first_score.why["surprise"] == other.why["surprise"]
    distinct_values = {narrow.score(attempts("Nils bought a red boat.", seed=seed))[0].value for seed in range(5)}
    assert len(distinct_values) == 5


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_any_text_has_a_finite_value(rewards: CombinedReward, text: str) -> None:
    assert -5 <= values(rewards, text)[0] <= 5 and math.isfinite(values(rewards, text, prompt=text[:500])[0])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(st.characters(), max_size=60), min_size=1, max_size=4), st.text(max_size=20))
def test_every_batch_is_finite(rewards: CombinedReward, texts: list[str], prompt: str) -> None:
    assert np.isfinite(values(rewards, *texts, prompt=prompt)).all()


def test_a_judge_is_trained_once_and_resumed(rewards: CombinedReward, tmp_path: Path) -> None:
    stream = io.StringIO()
    build_combined_reward(GRAMMAR, output=stream)
    assert "Training" not in stream.getvalue()
    changed = {**GRAMMAR, "judge_settings": {**TINY, "train.steps": 2, "model.hidden_size": 16}}
    build_combined_reward(changed, folder=tmp_path)
    (folder,) = (tmp_path / "judges").iterdir()
    (folder / "finished.json").unlink()  # as if it had been killed before its last word
    weights = folder / "checkpoints" / "step-00000002" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    build_combined_reward(changed, folder=tmp_path)
    assert (folder / "finished.json").is_file() and [*(tmp_path / "judges").iterdir()] == [folder]
    assert weights.stat().st_mtime_ns == before


def test_required_runs_name_the_half_of_the_corpus() -> None:
    (settings,) = parse_reward_specs(
        {"name": "grammar", "corpus": "my.txt", "half": 1, "seed": 4, "judge_settings": {"train.steps": 9}}
    )
    assert isinstance(settings, GrammarReward.Settings)
    order = GrammarReward.required_runs(settings)["run"]
    assert order.recipe == "gpt2-mini"
    corpus = {"corpus.source": "my.txt", "corpus.half": 1, "corpus.document": "auto"}
    assert order.overrides == {**corpus, "train.seed": 4, "train.steps": 9}
    assert GrammarReward.required_runs(settings.model_copy(update={"run": "runs/x"})) == {}


def test_a_masked_run_can_be_the_judge(tmp_path: Path) -> None:
    masked = {**TINY, "tokenizer.kind": "wordpiece", "tokenizer.vocab_size": 300, "train.steps": 4}
    rewards = build_combined_reward(
        {**GRAMMAR, "judge_recipe": "roberta-mini", "judge_settings": masked, "reference_sentences": 8}, folder=tmp_path
    )
    assert np.isfinite(values(rewards, *sentences(3), "zz qq kk", prompt="Nils said.")).all()


# ------------------------------------------------------------ what is refused


def test_a_judge_is_needed() -> None:
    with pytest.raises(RecipeError, match=r"grammar needs a judge: run=RUN, or corpus=SOURCE"):
        parse_reward_specs("grammar")


def test_no_such_run(tmp_path: Path) -> None:
    with pytest.raises(MeristemError, match="is not a run folder; corpus=SOURCE trains a judge"):
        build_combined_reward({"name": "grammar", "run": str(tmp_path / "absent")})


def test_too_few_correct_sentences(grammar: GrammarReward, tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text("A boat came in.\n\nNobody saw it.\n", encoding="utf-8")
    settings = {"name": "grammar", "run": str(grammar.settings.run), "reference_corpus": str(tmp_path / "few.txt")}
    with pytest.raises(MeristemError, match=r"few\.txt has 2 sentences, and at least 8 are needed"):
        build_combined_reward(settings)


def test_correct_sentences_of_ones_own(grammar: GrammarReward, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("\n\n".join(sentences(40, seed=5)), encoding="utf-8")
    rewards = build_combined_reward(
        {"name": "grammar", "run": str(grammar.settings.run), "reference_corpus": str(tmp_path / "own.txt")}
    )
    assert values(rewards, sentences(40, seed=5)[3])[0] == -5.0  # copied
    assert math.isfinite(values(rewards, *sentences(2))[0])


def test_held_out_sentences_are_not_in_the_training_text() -> None:
    corpus = CorpusSettings.model_validate({"source": "builtin:microworld-en?size=120", "processes": 1, "test": 0.1})
    every = {sentence.text for sentence in correct(corpus, held_out=False, count=5000, min_words=3, seed=0)}
    held_out_sentences = correct(corpus, held_out=True, count=40, min_words=3, seed=0)
    assert len(held_out_sentences) == 40 and {sentence.text for sentence in held_out_sentences} < every
    assert held_out_sentences != correct(corpus, held_out=True, count=40, min_words=3, seed=1)
