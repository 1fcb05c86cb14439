"""Semantic similarity reward: a paraphrase is closer than another story, in any script and with any vectors."""

from __future__ import annotations

import inspect
import io
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from example_rewards import attempts, build_combined_reward, values
from hypothesis import given, settings
from hypothesis import strategies as st

from meristem.config.errors import MeristemError, RecipeError
from meristem.reinforce.combined_reward import CombinedReward
from meristem.reinforce.reward_specs import parse_reward_specs
from meristem.reinforce.word_vectors import WordVectors

THEMES = {
    "sea": "boat ship sailor harbour sea wave captain 船 水手 港口 海",
    "farm": "garden tree gardener apple field cow farmer 园丁 苹果树 苹果 花园",
    "talk": "said told asked spoke answered word letter 说 问",
}
COMMON = "the a an in to of and saw for 了 的 在"
LINES = "\n\n".join(
    f"The {a} saw the {b} near the {c}. A {b} and a {c} were with the {a}."
    for theme in THEMES.values()
    for a in theme.split()[:7]
    for b in theme.split()[:7]
    for c in theme.split()[:3]
    if a != b
)
ENGLISH = ("The sailor saw a boat.", "A captain told of a ship.", "The farmer asked for an apple.")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GloVe file in which words of one theme point the same way, frequent words first."""
    rng = np.random.default_rng(0)
    lines = [(word, rng.normal(0, 1, 24)) for word in COMMON.split()]
    for number, theme in enumerate(THEMES.values()):
        axis = 4 * np.eye(24)[number]
        lines += [(word, axis + rng.normal(0, 0.4, 24)) for word in theme.split()]
    path = tmp_path_factory.mktemp("vectors") / "glove.txt"
    path.write_text("".join(f"{word} {' '.join(f'{x:.5f}' for x in v)}\n" for word, v in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def rewards(file: Path) -> CombinedReward:
    return build_combined_reward({"name": "meaning", "vectors": str(file)})


def test_a_paraphrase_is_nearer_than_another_story(rewards: CombinedReward) -> None:
    same_text, paraphrase, other_story = values(rewards, *ENGLISH, references=(ENGLISH[0],))
    assert same_text == pytest.approx(1.0) and same_text > paraphrase > other_story + 0.3


def test_chinese_is_cut_into_the_words_that_are_known(rewards: CombinedReward) -> None:
    similar, dissimilar = values(rewards, "船在港口。", "园丁种了苹果树。", references=("水手的船。",))
    assert similar > dissimilar + 0.3


def test_the_longest_known_word_is_taken_where_there_are_no_spaces(file: Path) -> None:
    table = WordVectors.read(file, 1000, prefix_fallback=True)
    assert table.vectorize("苹果树，苹果船", 9).rows.tolist() == [
        table.index[word] for word in ("苹果树", "苹果", "船")
    ]


def test_the_nearest_of_several_references_counts(rewards: CombinedReward) -> None:
    one_reference, two_references = (
        values(rewards, "A boat at sea.", references=references)[0]
        for references in (("The farmer asked.",), ("The farmer asked.", "The ship."))
    )
    assert two_references > one_reference
    details = rewards.score(attempts("A boat at sea.", references=("The farmer asked.", "The ship."))).why[0]["meaning"]
    assert details["nearest reference"] == "2 of 2"


def test_the_prompt_can_be_what_counts(file: Path) -> None:
    rewards = build_combined_reward({"name": "meaning", "vectors": str(file), "compare_with": "prompt"})
    similar, dissimilar = values(rewards, "A ship.", "A cow.", prompt="The sailor and the harbour")
    assert similar > dissimilar


def test_the_share_of_alignment_moves_the_value_between_its_parts(file: Path) -> None:
    text, references = "A boat and a sailor.", ("The ship of the captain.",)
    reward_variants = [
        build_combined_reward({"name": "meaning", "vectors": str(file), "alignment_weight": share})
        for share in (0.0, 0.5, 1.0)
    ]
    cosine, middle, aligned = (
        values(reward_variant, text, references=references)[0] for reward_variant in reward_variants
    )
    details = reward_variants[1].score(attempts(text, references=references)).why[0]["meaning"]
    assert (cosine, aligned) == (pytest.approx(details["cosine"]), pytest.approx(details["alignment"]))
    assert middle == pytest.approx((cosine + aligned) / 2) and cosine != pytest.approx(aligned)


def test_frequent_words_count_little_unless_all_count_the_same(file: Path) -> None:
    references = ("A boat.",)
    sif, even = (
        build_combined_reward({"name": "meaning", "vectors": str(file), "word_weighting": weighting})
        for weighting in ("sif", "even")
    )
    loss = [
        values(reward_variant, "boat", references=references)[0]
        - values(reward_variant, "the boat in the", references=references)[0]
        for reward_variant in (sif, even)
    ]
    assert loss[1] > loss[0]


def test_unknown_words_are_counted_listed_and_may_be_skipped(file: Path, rewards: CombinedReward) -> None:
    plain, padded = values(rewards, "A boat.", "A boat qqzx wwv.", references=("A boat.",))
    skipping = build_combined_reward({"name": "meaning", "vectors": str(file), "unknown_words": "skip"})
    assert padded < plain == pytest.approx(values(skipping, "A boat qqzx wwv.", references=("A boat.",))[0])
    details = rewards.score(attempts("A boat qqzx wwv.", references=("A boat.",))).why[0]["meaning"]
    assert details["unknown words"] == "2 of 4: qqzx, wwv"


def test_a_word_with_the_same_prefix_replaces_an_unknown_one(file: Path) -> None:
    alike, strict = (WordVectors.read(file, 1000, prefix_fallback=match_prefix) for match_prefix in (True, False))
    assert alike.vectorize("Gardeners GARDEN gar", 9).rows.tolist() == [alike.index["gardener"], alike.index["garden"]]
    vectorized = strict.vectorize("Gardeners GARDEN", 9)
    assert vectorized.unknown == ["Gardeners"] and len(vectorized.rows) == 1


def test_an_unknown_word_that_both_have_is_no_loss_and_a_compound_is_its_parts(
    file: Path, rewards: CombinedReward
) -> None:
    shared_unknown, other, repeated_unknown = values(
        rewards, "Zork's boat", "Bork's boat", "Bork's Bork's boat", references=("Zork's ship",)
    )
    assert shared_unknown > other > repeated_unknown
    table = WordVectors.read(file, 1000, prefix_fallback=False)
    vectorized = table.vectorize("sea-boat/zzq", 9)
    assert vectorized.rows.tolist() == [table.index["sea"], table.index["boat"]] and not vectorized.unknown


def test_only_the_first_words_of_a_file_are_read(file: Path) -> None:
    assert len(WordVectors.read(file, 10, prefix_fallback=True).index) == 10


@pytest.mark.parametrize("text", ["", "😀🙈", "qq " * 30_000, "boat " * 20_000, "\ud800", "海" * 50_000, "…"])
def test_any_text_has_a_finite_value(rewards: CombinedReward, text: str) -> None:
    assert -1 <= values(rewards, text, references=("A boat.",))[0] <= 1


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_finite_for_whatever_is_compared(rewards: CombinedReward, text: str, other: str) -> None:
    assert math.isfinite(values(rewards, text, references=("boat " + other,))[0])


# ------------------------------------------------------------ learned here


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lines") / "lines.txt"
    path.write_text(LINES, encoding="utf-8")
    return path


def _told(lines: Path) -> dict[str, object]:
    return {"name": "meaning", "corpus": str(lines), "word2vec": {"vector_size": 16, "epochs": 5, "window": 8}}


def test_vectors_are_learned_once_and_know_what_belongs_together(lines: Path, tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    stream = io.StringIO()
    rewards = build_combined_reward(_told(lines), folder=tmp_path, output=stream)
    similar, dissimilar = values(
        rewards, "A ship and a wave.", "A cow and a field.", references=("The sailor saw the boat.",)
    )
    assert similar > dissimilar + 0.2 and "training vectors of 16 dimensions" in stream.getvalue()
    buffer = io.StringIO()
    cached_rewards = build_combined_reward(_told(lines), folder=tmp_path, output=buffer)
    assert buffer.getvalue() == "" and values(cached_rewards, "A ship.", references=("A boat.",)) == values(
        rewards, "A ship.", references=("A boat.",)
    )
    (vectors_file,) = (tmp_path / "vectors").iterdir()
    vectors_file.write_bytes(vectors_file.read_bytes()[:100])
    values(build_combined_reward(_told(lines), folder=tmp_path, output=buffer), "A ship.", references=("A boat.",))
    assert "training vectors" in buffer.getvalue()


def table(lines: str, folder: str, half: int | None = None) -> str:
    """What is learned from a file, in short."""
    from meristem.corpus.settings import CorpusSettings
    from meristem.reinforce.reward_base import RewardContext
    from meristem.reinforce.word2vec import Word2VecSettings, load_or_train_vectors

    corpus = CorpusSettings.model_validate({"source": lines, "document": "block", "processes": 1, "half": half})
    settings = Word2VecSettings.model_validate({"vector_size": 8, "epochs": 1})
    context = RewardContext(folder=Path(folder), say=print)
    vectors = load_or_train_vectors(corpus, settings, context, prefix_fallback=False)
    return repr((float(vectors.table.sum()), list(vectors.index)[:9]))


def test_every_process_learns_the_same_and_every_half_something_else(lines: Path, tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    code = f"import sys\nfrom pathlib import Path\n{inspect.getsource(table)}\nprint(table(*sys.argv[1:]))"
    command = [sys.executable, "-c", code, str(lines), str(tmp_path / "there")]
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    other_process = subprocess.run(command, check=True, capture_output=True, env=env, text=True).stdout.splitlines()[-1]
    full_digest, *halves = (table(str(lines), str(tmp_path / "here"), half) for half in (None, 0, 1))
    assert full_digest == other_process and len({full_digest, *halves}) == 3


def test_gensim_missing_is_named_with_what_to_do(lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(MeristemError, match=r'needs gensim: pip install "meristem-lm\[vectors\]"'):
        build_combined_reward(_told(lines), folder=tmp_path)


def test_too_little_text_to_learn_from(tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    (tmp_path / "short.txt").write_text("one two\n\nthree four\n", encoding="utf-8")
    with pytest.raises(MeristemError, match=r"short\.txt has 0 words that occur at least 2 times"):
        build_combined_reward(_told(tmp_path / "short.txt"), folder=tmp_path)


# ------------------------------------------------------------ what is refused


def test_vectors_must_come_from_somewhere() -> None:
    for sources in ({}, {"vectors": "a", "corpus": "b"}):
        with pytest.raises(RecipeError, match="meaning needs word vectors: vectors=FILE, or corpus=SOURCE"):
            parse_reward_specs({"name": "meaning", **sources})


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MeristemError, match="no file of word vectors"):
        build_combined_reward({"name": "meaning", "vectors": str(tmp_path / "absent.txt")})


def test_a_prompt_without_a_reference_is_refused_before_generation(rewards: CombinedReward) -> None:
    prompts = [
        *attempts("", prompt="A boat", references=("A boat.",)),
        *attempts("", prompt="A cow", location="data.tsv:3"),
    ]
    with pytest.raises(MeristemError, match=r"data\.tsv:3: meaning: no reference for the prompt 'A cow'"):
        rewards.check(prompts)
    with pytest.raises(MeristemError, match="no reference for the prompt"):
        values(rewards, "A boat.")


def test_vectors_that_know_none_of_the_words_are_refused(rewards: CombinedReward) -> None:
    with pytest.raises(MeristemError, match=r"glove\.txt contain none of the words.*'Ein Haus\.'.*another language"):
        rewards.check(attempts("", references=("Ein Haus.",)))
    prompts = [*attempts("", references=("A boat.",)), *attempts("", references=("Ein Haus.",), location="data.tsv:9")]
    with pytest.raises(MeristemError, match=r"data\.tsv:9: .*contain none of the words of 'Ein Haus\.'"):
        rewards.check(prompts)
