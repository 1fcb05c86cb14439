"""Sentences in both languages: mentions, grammar, templates."""

from __future__ import annotations

import re

import pytest

from meristem.samples.microworld import generate_story, realize_story
from meristem.samples.microworld.chinese import ChineseRealizer
from meristem.samples.microworld.clause_templates import read_clauses, split_template
from meristem.samples.microworld.english import EnglishRealizer
from meristem.samples.microworld.facts import Location, Person, RealizedSentence, Thing, Town
from meristem.samples.microworld.lexicon import WORDS_FOLDER, load_lexicon

PRONOUNS = {"en": {"she": {"she", "her", "herself"}, "he": {"he", "him", "his", "himself"}},
            "zh": {"she": {"她", "自己"}, "he": {"他", "自己"}}}  # fmt: skip
FOR_THINGS, FOR_PLACES = {"it", "它"}, {"there", "那里"}


@pytest.fixture(scope="module")
def sentences_by_language() -> dict[str, list[RealizedSentence]]:
    stories = [generate_story(4, number) for number in range(1000)]
    return {language: [s for story in stories for s in realize_story(story, language)] for language in ("en", "zh")}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_mentions_have_exact_spans(sentences_by_language: dict[str, list[RealizedSentence]], language: str) -> None:
    for sentence in sentences_by_language[language]:
        for mention in sentence.mentions:
            text = sentence.text[mention.start : mention.end]
            entity = mention.entity
            word = entity.name if isinstance(entity, Person | Town) else entity.noun
            name = word.english if language == "en" else word.chinese
            if isinstance(entity, Person):
                assert text in {name, f"{name}'s"} or text.lower() in PRONOUNS[language][entity.pronoun]
            elif isinstance(entity, Thing):
                assert text.endswith(name) or text.lower() in FOR_THINGS
            elif isinstance(entity, Location):
                assert text in {f"the {name}", f"The {name}", name} or text.lower() in FOR_PLACES
            else:
                assert text == name


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_entity_of_a_fact_is_mentioned_or_understood(
    sentences_by_language: dict[str, list[RealizedSentence]], language: str
) -> None:
    for sentence in sentences_by_language[language]:
        mentioned = {mention.entity.id for mention in sentence.mentions}
        for fact in sentence.facts:
            for entity in (fact.what, fact.whom):
                assert entity is None or entity.id in mentioned, sentence.text


def test_english_is_well_formed(sentences_by_language: dict[str, list[RealizedSentence]]) -> None:
    wrong = re.compile(
        r"  | [.,]|\.\.|,,|[{}|]"
        r"|\b[Aa] (?!uni|use|eu|one)[aeiou]|\b[Aa]n (?!hour|honest|heir)[^aeiou\W]"
        r"|\b(to|from|with|for|about|told|gave|met|helped|than) (she|he)\b"
        r"|\b(him|her) (was|were|argued|discussed|paid|had)\b|\band (him|her) \w+ed\b"
        r"|\b(?P<word>\w+) (?P=word)\b|[一-鿿，。]"
    )
    for sentence in sentences_by_language["en"]:
        text = sentence.text
        assert not wrong.search(text), text
        assert text[0].isupper() and text.endswith(".") and not text.endswith(",.")


def test_chinese_is_well_formed(sentences_by_language: dict[str, list[RealizedSentence]]) -> None:
    wrong = re.compile(r"[A-Za-z0-9,.!?;:{}| ]|，，|，。|。。|的的|在在|了了|自己的自己|一一|小小提琴")
    for sentence in sentences_by_language["zh"]:
        assert not wrong.search(sentence.text), sentence.text
        assert sentence.text.endswith("。") and sentence.text[0] not in "，。的了"


def test_nobody_is_a_pronoun_before_being_named() -> None:
    for language in ("en", "zh"):
        for number in range(300):
            named: set[int] = set()
            for sentence in realize_story(generate_story(6, number), language):
                for mention in sentence.mentions:
                    text = sentence.text[mention.start : mention.end]
                    entity = mention.entity
                    if isinstance(entity, Person) and text.startswith((entity.name.english, entity.name.chinese)):
                        named.add(entity.id)
                people = {m.entity.id for m in sentence.mentions if isinstance(m.entity, Person)}
                assert people <= named, sentence.text


def test_a_subject_pronoun_has_one_reading() -> None:
    for number in range(400):
        before: set[tuple[int, str]] = set()
        for sentence in realize_story(generate_story(7, number), "en"):
            people = [m for m in sentence.mentions if isinstance(m.entity, Person)]
            if people and sentence.text[people[0].start : people[0].end].lower() in {"she", "he"}:
                first = people[0].entity
                assert isinstance(first, Person)
                assert {i for i, pronoun in before if pronoun == first.pronoun} == {first.id}, sentence.text
            before = {(m.entity.id, m.entity.pronoun) for m in people if isinstance(m.entity, Person)}


def test_things_are_new_once_and_known_after() -> None:
    for number in range(300):
        known_ids: set[int] = set()
        for sentence in realize_story(generate_story(9, number), "en"):
            for mention in sentence.mentions:
                if isinstance(mention.entity, Thing):
                    text = sentence.text[mention.start : mention.end].lower()
                    assert text.startswith(("a ", "an ")) == (mention.entity.id not in known_ids), sentence.text
                    known_ids.add(mention.entity.id)


def test_a_scene_uses_the_word_whose_sense_it_records(sentences_by_language: dict[str, list[RealizedSentence]]) -> None:
    for sentence in sentences_by_language["en"]:
        for fact in sentence.facts:
            if fact.term is not None and fact.term.sense:
                assert re.search(rf"\b{fact.term.sense.split('/')[0]}\b", sentence.text.lower()), sentence.text


def test_both_languages_have_the_same_kinds_and_all_occur(
    sentences_by_language: dict[str, list[RealizedSentence]],
) -> None:
    assert set(read_clauses("en")) == set(read_clauses("zh"))
    assert {fact.kind for sentence in sentences_by_language["en"] for fact in sentence.facts} == set(read_clauses("en"))


@pytest.mark.parametrize("teller", [EnglishRealizer, ChineseRealizer])
def test_every_slot_of_every_table_can_be_filled(teller: type[EnglishRealizer] | type[ChineseRealizer]) -> None:
    side = "english" if teller is EnglishRealizer else "chinese"
    texts = [text for group in read_clauses(teller.language).values() for text in group]
    words = load_lexicon()
    for group in (words.phrases, words.reasons):
        texts += [getattr(term, side) for terms in group.values() for term in terms]
    texts += [getattr(cause.term, side) for causes in words.causes.values() for cause in causes]
    used = {slot for text in texts for _, slot in split_template(text) if slot}
    assert used <= set(teller.slots)
    assert {"who", "whom", "what", "where", "his"} <= used


def test_tables_are_complete_and_free_of_doubles() -> None:
    for path in sorted(WORDS_FOLDER.glob("*.txt")):
        if path.stem.startswith("clauses"):
            continue
        rows = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
        assert len(rows) == len(set(rows)), path.name
        assert all(cell.strip() for row in rows for cell in row.split("|")), path.name


def test_pieces_put_together_are_the_template() -> None:
    assert split_template("a {who} b {what!}.") == (("a ", "who"), (" b ", "what!"), (".", ""))
    assert split_template("{who}") == (("", "who"),)
