"""Parallel passages: the same facts in two languages."""

from __future__ import annotations

from meristem.samples.microworld import Person, generate_story, realize_story, translated_passage
from meristem.samples.microworld.translation_passages import MAX_SENTENCES, select_passage


def test_a_passage_is_a_part_of_its_story() -> None:
    lengths = set()
    for number in range(200):
        whole = generate_story(1, number)
        part = select_passage(whole)
        start = whole.beats.index(part.beats[0])
        assert part.beats == whole.beats[start : start + len(part.beats)]
        assert part.time_draws == whole.time_draws[start : start + len(part.beats)]
        lengths.add(len(part.beats))
    assert lengths == set(range(1, MAX_SENTENCES + 1))


def test_both_languages_express_the_same_facts_without_context() -> None:
    for number in range(100):
        part = select_passage(generate_story(2, number))
        english, chinese = realize_story(part, "en"), realize_story(part, "zh")
        assert [told.facts for told in english] == [told.facts for told in chinese] == list(part.beats)
        assert translated_passage(2, number, "en", "zh") == (
            " ".join(told.text for told in english),
            "".join(told.text for told in chinese),
        )
        assert translated_passage(2, number, "zh", "en") == translated_passage(2, number, "en", "zh")[::-1]
        for told, language in ((english[0], "english"), (chinese[0], "chinese")):
            people = [mention for mention in told.mentions if isinstance(mention.entity, Person)]
            for mention in people[:1]:  # by name, since nothing was told before
                assert getattr(mention.entity.name, language) in told.text[mention.start : mention.end]
