"""Stories as a corpus: deterministic, diverse, fast."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from meristem.samples import microworld

SENTENCES = {
    language: [
        sentence.text
        for number in range(1500)
        for sentence in microworld.realize_story(microworld.generate_story(1, number), language)
    ]
    for language in microworld.LANGUAGES
}


def test_a_document_depends_on_seed_and_number_alone() -> None:
    numbers = list(range(40))
    forwards = {number: microworld.story_text(5, number, "en") for number in numbers}
    random.Random(0).shuffle(numbers)
    assert {number: microworld.story_text(5, number, "en") for number in numbers} == forwards
    assert len(set(forwards.values())) == 40
    assert microworld.generate_story(5, 7) == microworld.generate_story(5, 7)
    assert microworld.generate_story(5, 7) != microworld.generate_story(6, 7)


def test_another_process_generates_the_same() -> None:
    code = "from meristem.samples.microworld import story_text as d; print(d(2, 9, 'zh'), d(2, 9, 'en'), sep='|')"
    root = Path(microworld.__file__).parents[3]
    run = subprocess.run([sys.executable, "-X", "utf8", "-c", code], cwd=root, capture_output=True, check=True)
    expected = f"{microworld.story_text(2, 9, 'zh')}|{microworld.story_text(2, 9, 'en')}"
    assert run.stdout.decode().strip() == expected


def test_a_variant_tells_the_same_facts_in_other_words() -> None:
    story = microworld.generate_story(0, 4)
    first, second = (microworld.realize_story(story, "en", variant) for variant in (0, 1))
    assert [sentence.facts for sentence in first] == [sentence.facts for sentence in second]
    assert [sentence.text for sentence in first] != [sentence.text for sentence in second]


def test_both_languages_tell_the_same_facts_sentence_by_sentence() -> None:
    for number in range(200):
        story = microworld.generate_story(3, number)
        english, chinese = (microworld.realize_story(story, language) for language in microworld.LANGUAGES)
        assert [sentence.facts for sentence in english] == [sentence.facts for sentence in chinese] == list(story.beats)


def test_stories_are_neither_short_nor_endless() -> None:
    lengths = [len(microworld.generate_story(0, number).beats) for number in range(500)]
    assert min(lengths) >= 5
    assert max(lengths) <= 25


def test_vocabulary_is_worth_learning() -> None:
    english = Counter(word for text in SENTENCES["en"] for word in re.findall(r"[a-zé'-]+", text.lower()))
    chinese = Counter(sign for text in SENTENCES["zh"] for sign in text if "一" <= sign <= "鿿")
    assert len(english) >= 1_500
    assert len(chinese) >= 800
    assert sum(count >= 5 for count in english.values()) >= 1_200


@pytest.mark.parametrize("language", microworld.LANGUAGES)
def test_sentences_rarely_repeat(language: str) -> None:
    counts = Counter(SENTENCES[language])
    repeated = sum(count for count in counts.values() if count > 1)
    assert repeated / len(SENTENCES[language]) < 0.05


@pytest.mark.parametrize("language", microworld.LANGUAGES)
def test_realization_is_fast(language: str) -> None:
    start = time.process_time()
    for number in range(500):
        microworld.story_text(8, number, language)
    assert time.process_time() - start < 2.5  # a fifth of a quiet core's speed
