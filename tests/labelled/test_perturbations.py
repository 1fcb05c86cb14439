"""Every perturbation: seeded, as strong as asked, and never parting tags or answers from their words."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from meristem.config.errors import MeristemError, RecipeError
from meristem.interfaces.sample import Sample
from meristem.labelled.perturb_samples import check_sample_type, obstacle, perturb_sample
from meristem.labelled.perturbation import (
    PERTURBATIONS,
    TextUnit,
    build_perturbation,
    check_perturbation_names,
    join_units,
    leading_space,
    split_units,
)
from meristem.labelled.perturbations.code_switching import BUILTIN, read_dictionary
from meristem.labelled.perturbations.homophones import homophones
from meristem.labelled.perturbations.keyboard_typos import NEIGHBOURS, add_typo
from meristem.labelled.perturbations.lookalike_characters import SIMILAR_IDEOGRAPHS
from meristem.labelled.perturbations.ocr_confusions import misreadings
from meristem.utils.randomness import generator

ENGLISH = "The film is not good, but modern actors recommend their story: 'I see the best love, always!' said Ann."
CHINESE = "这家酒店的服务态度非常好，房间也很干净，下次还会推荐给朋友。"
WORDS = ("Yesterday", "Anna", "Maria", "Smith", "recommended", "the", "New", "York", "museums", ".", "Thanks", "!")
TAGS = ("O", "B-PER", "I-PER", "I-PER", "O", "O", "B-LOC", "I-LOC", "O", "O", "O", "O")
NAMES = list(PERTURBATIONS)
NOT_FOR_CHINESE = {"casing", "keyboard_typos", "missing_spaces"}


def perturbed(name: str, text: str, severity: float, number: int = 0) -> str:
    sample = Sample(inputs={"text": text}, gold="1")
    rng = generator(0, name, 0, number)
    return str(perturb_sample(sample, "text", build_perturbation(name), severity, rng).inputs["text"])


def tagged() -> Sample:
    offsets, position = [], 0
    for word in WORDS:
        offsets.append((position, position + len(word)))
        position += len(word) + 1
    return Sample(inputs={"words": WORDS, "text": " ".join(WORDS), "offsets": tuple(offsets)}, gold=TAGS)


@pytest.mark.parametrize("text", [ENGLISH, CHINESE, "  leading\tspace ", "", "\x00", "one"])
def test_units_are_the_text(text: str) -> None:
    units = split_units(text)
    assert leading_space(text) + join_units(units) == text or not units
    assert [unit.source for unit in units] == list(range(len(units)))


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_text_and_another_another(name: str) -> None:
    text = CHINESE if name in ("homophones", "code_switching") else ENGLISH
    texts = [perturbed(name, text, 0.6, number) for number in range(12)]
    assert texts == [perturbed(name, text, 0.6, number) for number in range(12)]
    assert any(changed != text for changed in texts)
    assert len(set(texts)) > 1 or name == "truncation"  # which cuts off the same share each time


@pytest.mark.parametrize("name", NAMES)
def test_every_perturbation_changes_english_or_chinese_and_little_noise_changes_less(name: str) -> None:
    for text in (ENGLISH, *(() if name in NOT_FOR_CHINESE else (CHINESE,))):
        weak, strong = (
            sum(perturbed(name, text, severity, number) != text for number in range(40)) for severity in (0.01, 0.5)
        )
        assert strong > (0 if name == "long_input" else weak), (name, text)  # it is longer, not more often there
    assert build_perturbation(name).summary


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text", ["", " ", "\x00", "a", "。", "a" * 3000, "\ud800 b", "\u202e\u0301", "😀 👩‍🚀!", "not"]
)
def test_no_text_is_too_strange(name: str, text: str) -> None:
    for severity in (0.1, 1.0):
        assert text.strip() == "" or perturbed(name, text, severity).strip()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("severity", [0.2, 0.7, 1.0])
def test_tags_stay_at_their_words_and_entities_whole(name: str, severity: float) -> None:
    sample, perturbation = tagged(), build_perturbation(name)
    for number in range(30):
        noisy = perturb_sample(sample, "words", perturbation, severity, generator(1, name, 0, number))
        words, text, offsets = (noisy.inputs[key] for key in ("words", "text", "offsets"))
        assert len(words) == len(noisy.gold) == len(offsets)
        assert all(text[start:stop] == word for word, (start, stop) in zip(words, offsets, strict=True))
        for before, tag in zip(("O", *noisy.gold), noisy.gold, strict=False):
            if tag.startswith("I-"):
                assert before[2:] == tag[2:], f"{tag} behind {before}"
        if name in ("word_order", "doubled_text", "truncation", "missing_punctuation"):
            gold_of = dict(zip(WORDS, TAGS, strict=True))
            assert all(gold_of[word] == tag for word, tag in zip(words, noisy.gold, strict=True))


@pytest.mark.parametrize("name", [name for name in NAMES if build_perturbation(name).keeps_order])
def test_the_answer_of_a_question_stays_in_the_passage(name: str) -> None:
    passage = "  The old harbour, built in 1820, was sold to Ann Smith — the gardener's friend — for little money."
    golds = tuple((text, passage.index(text)) for text in ("Ann Smith", "1820", "gardener"))
    sample = Sample(inputs={"question": "Who bought the harbour?", "passage": passage}, gold=golds)
    changes = 0
    for number in range(20):
        noisy = perturb_sample(sample, "span", build_perturbation(name), 0.7, generator(0, name, 0, number))
        changes += noisy is not sample
        for (text, start), (old, _) in zip(noisy.gold, golds, strict=True):
            assert noisy.inputs["passage"][start : start + len(text)] == text and text
            assert len(text) <= 3 * len(old) + 24
    assert changes or name == "homophones"


def test_perturbations_that_lose_the_answer_are_refused_by_name() -> None:
    refused = {name for name in NAMES if obstacle(build_perturbation(name), "span")}
    assert refused == {"word_order", "truncation"}
    with pytest.raises(MeristemError, match="task translation: its samples cannot be perturbed; classification, pair"):
        check_sample_type("source_target", "translation")


def test_word_order_never_parts_a_negation_from_the_next_word() -> None:
    for number in range(50):
        words = perturbed("word_order", "this is not good and never dull for anyone", 1.0, number).split()
        assert words[words.index("not") + 1] == "good" and words[words.index("never") + 1] == "dull"


def test_severity_is_the_mean_share_of_changed_words_for_short_texts_too() -> None:
    text = "quite a good plain film"  # four words of several letters
    changed = [
        sum(a != b for a, b in zip(perturbed("keyboard_typos", text, 0.3, n).split(), text.split(), strict=True))
        for n in range(600)
    ]
    assert 0.25 * 4 < sum(changed) / 600 < 0.35 * 4


def test_a_typo_is_a_neighbouring_key_a_missing_letter_or_one_too_many() -> None:
    assert set(NEIGHBOURS["g"]) == set("fhtyvb") and set(NEIGHBOURS["q"]) == set("wa")
    for number in range(100):
        word = add_typo("Window", generator(0, "typo", 0, number))
        assert word != "Window" and abs(len(word) - 6) <= 1


def test_tables() -> None:
    assert "m" in misreadings("rn") and "1ong" in misreadings("long") and misreadings("。") == []
    assert "己" in SIMILAR_IDEOGRAPHS["已"] and all(key not in values for key, values in SIMILAR_IDEOGRAPHS.items())
    assert homophones("their") == ("there",) and homophones("window") == ()
    assert {"是", "时"} <= {*homophones("市"), "市"} and homophones("㐀") == ()  # no common character
    assert read_dictionary(BUILTIN)["服务"] == ("service",) and "service" in read_dictionary(BUILTIN)
    lines = BUILTIN.read_text(encoding="utf-8").splitlines()
    assert all(len(line.split("\t")) == 5 for line in lines) and len(lines) >= 100


def test_hostile_characters_are_not_printed_but_there() -> None:
    noisy = perturbed("hostile_characters", "good film", 1.0)
    hidden = [character for character in noisy if unicodedata.category(character) in ("Cc", "Cf", "Mn", "Me")]
    assert hidden and "".join(c for c in noisy if c.isascii() and c.isprintable()) == "good film"


def test_a_dictionary_of_ones_own_and_its_errors(tmp_path: Path) -> None:
    words = tmp_path / "words.tsv"
    words.write_text("film\tpelicula\n\nstory\tcuento\thistoria\n")
    units = split_units("The film tells a Story.")
    changed = build_perturbation("code_switching", words).perturb(units, 1.0, generator(0, "x", 0, 0))
    assert join_units(changed) in ("The pelicula tells a Cuento.", "The pelicula tells a Historia.")
    for content, message in [("film", ":1: expected a word, a tab"), ("\n", "the dictionary is empty")]:
        broken = tmp_path / f"{len(content)}.tsv"
        broken.write_text(content)
        with pytest.raises(MeristemError, match=message):
            read_dictionary(broken)
    with pytest.raises(MeristemError, match=r"none\.tsv: the dictionary cannot be read"):
        read_dictionary(tmp_path / "none.tsv")


def test_unknown_names_and_the_plugin_contract() -> None:
    with pytest.raises(RecipeError, match=r"--only: no perturbation 'typos'; there are casing, "):
        check_perturbation_names(["typos"], "--only")
    assert check_perturbation_names(["keyboard-typos"], "--only") == ("keyboard_typos",)
    units = [TextUnit(text="a", source=0, tag="O")]
    assert build_perturbation("unseen_words").perturb(units, 1.0, generator(0, "x", 0, 0)) == units
