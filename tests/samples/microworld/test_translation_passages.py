"""Parallel passages: the same facts in two languages."""

from __future__ import annotations

from meristem.samples.microworld import generate_story, realize_story, translated_passage
from meristem.samples.microworld.facts import Person
from meristem.samples.microworld.translation_passages import MAX_SENTENCES, select_passage


def test_a_passage_is_a_part_of_its_story() -> None:
    lengths = set()
    for number in range(200):
        story = generate_story(1, number)
        part = select_passage(story)
        start = story.beats.index(part.beats[0])
        assert part.beats == story.beats[start : start + len(part.beats)]
        assert part.time_draws == story.time_draws[start : start + len(part.beats)]
        lengths.add(len(part.beats))
    assert lengths == set(range(1, MAX_SENTENCES + 1))


def test_both_languages_express_the_same_facts_without_context() -> None:
    for number in range(100):
        part = select_passage(generate_story(2, number))
        english, chinese = realize_story(part, "en"), realize_story(part, "zh")
        assert (
            [english_sentence.facts for english_sentence in english]
            == [chinese_sentence.facts for chinese_sentence in chinese]
            == list(part.beats)
        )
        assert translated_passage(2, number, "en", "zh") == (
            " ".join(english_sentence.text for english_sentence in english),
            "".join(chinese_sentence.text for chinese_sentence in chinese),
        )
        assert translated_passage(2, number, "zh", "en") == translated_passage(2, number, "en", "zh")[::-1]
        for sentence, language in ((english[0], "english"), (chinese[0], "chinese")):
            people = [mention for mention in sentence.mentions if isinstance(mention.entity, Person)]
            for mention in people[:1]:  # by name, since nothing was told before
                assert getattr(mention.entity.name, language) in sentence.text[mention.start : mention.end]
