"""Translations: the same facts twice."""

from __future__ import annotations

from meristem.samples.microworld import Person, story, tell, translation
from meristem.samples.microworld.translation import MOST, passage


def test_a_passage_is_a_stretch_of_its_story() -> None:
    lengths = set()
    for number in range(200):
        whole = story(1, number)
        part = passage(whole)
        start = whole.beats.index(part.beats[0])
        assert part.beats == whole.beats[start : start + len(part.beats)]
        assert part.pace == whole.pace[start : start + len(part.beats)]
        lengths.add(len(part.beats))
    assert lengths == set(range(1, MOST + 1))


def test_both_sides_tell_the_same_facts_and_begin_from_nothing() -> None:
    for number in range(100):
        part = passage(story(2, number))
        english, chinese = tell(part, "en"), tell(part, "zh")
        assert [told.facts for told in english] == [told.facts for told in chinese] == list(part.beats)
        assert translation(2, number, "en", "zh") == (
            " ".join(told.text for told in english),
            "".join(told.text for told in chinese),
        )
        assert translation(2, number, "zh", "en") == translation(2, number, "en", "zh")[::-1]
        for told, language in ((english[0], "english"), (chinese[0], "chinese")):
            people = [mention for mention in told.mentions if isinstance(mention.entity, Person)]
            for mention in people[:1]:  # by name, since nothing was told before
                assert getattr(mention.entity.name, language) in told.text[mention.start : mention.end]
