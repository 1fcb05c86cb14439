"""Shape scenes: captions in both languages, and scoring of captions."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from meristem.samples.microworld.shape_scenes import (
    COLOURS,
    DRAWABLE_RELATIONS,
    SHAPES,
    Figure,
    ShapeScene,
    describe_scene,
    generate_scene,
    score_caption,
)

SHOWN = ShapeScene(0, 0, Figure("red", "circle"), Figure("blue", "square"), "above")


def test_scenes_follow_from_seed_and_number_and_cover_everything_evenly() -> None:
    scenes = [generate_scene(3, number) for number in range(3000)]
    assert scenes == [generate_scene(3, number) for number in range(3000)]
    assert scenes[:50] != [generate_scene(4, number) for number in range(50)]
    for expected_values, counts in (
        (DRAWABLE_RELATIONS, Counter(scene.relation for scene in scenes)),
        (COLOURS, Counter(scene.first.colour for scene in scenes)),
        (SHAPES, Counter(scene.second.shape for scene in scenes)),
    ):
        assert set(counts) == set(expected_values)
        expected = 3000 / len(expected_values)
        assert max(abs(count - expected) for count in counts.values()) < 6 * expected**0.5
    assert all(scene.first != scene.second for scene in scenes)
    assert all(scene.first.colour != scene.second.colour for scene in scenes if scene.relation == "inside")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_caption_names_its_whole_scene(language: str) -> None:
    forms = set()
    for number in range(600):
        scene = generate_scene(1, number)
        text = describe_scene(scene, language)
        assert score_caption(text, scene) == 1.0, text
        assert score_caption(text.lower().rstrip(".。"), scene) == 1.0  # as a model may write it
        assert text.isascii() == (language == "en")
        forms.add((text.startswith("There") or "有" in text, "around" in text or "围着" in text))
    assert len(forms) >= 3


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("A red circle is above a blue square.", 1.0),
        ("a blue square is below a red circle", 1.0),
        ("There is a red circle above a blue square.", 1.0),
        ("红色的圆形在蓝色的方形上面。", 1.0),
        ("蓝色的方形上面有一个红色的圆形。", 1.0),
        ("蓝色的方形在红色的圆形下面。", 1.0),
        ("A red circle is below a blue square.", 0.8),
        ("A blue square is above a red circle.", 0.8),
        ("A green circle is above a blue square.", 0.8),
        ("A red ring is above a blue square.", 0.8),
        ("a circle above a square", 0.6),
        ("A red circle.", 0.4),
        ("红色的圆形。", 0.4),
        ("蓝色的方形在红色的圆形上面。", 0.8),
        ("a white ring inside a black cross", 0.0),
        ("", 0.0),
        ("squared circles, redder bluebells, aboveboard", 0.0),
    ],
)
def test_the_share_that_is_named_correctly(text: str, share: float) -> None:
    assert score_caption(text, SHOWN) == pytest.approx(share)


def test_another_scenes_caption_names_little() -> None:
    shares = [
        score_caption(describe_scene(generate_scene(5, number), "en"), generate_scene(6, number))
        for number in range(2000)
    ]
    assert 0.15 < np.mean(shares) < 0.35  # the better of two readings of one in eight, six and five
