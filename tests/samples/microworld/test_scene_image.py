"""Rendered images match their scenes: colors and directions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from meristem.samples.microworld.scene_image import COLOUR_RGB, draw
from meristem.samples.microworld.shape_scenes import DRAWABLE_RELATIONS, SHAPES, Figure, ShapeScene, generate_scene


def middle(picture: NDArray[np.uint8], colour: str) -> NDArray[np.float64]:
    """The mean place of a colour: right, down."""
    close = np.abs(picture.astype(int) - COLOUR_RGB[colour]).sum(-1) < 30
    assert close.sum() >= 4, colour
    return np.argwhere(close).mean(0)[::-1]


def test_images_are_the_same_every_time_and_at_every_size() -> None:
    scene = generate_scene(2, 7)
    small, large = draw(scene, 32), draw(scene, 64)
    assert small.shape == (32, 32, 3) and small.dtype == np.uint8
    assert (small == draw(scene, 32)).all()
    halved = large.reshape(32, 2, 32, 2, 3).mean((1, 3))
    assert np.abs(halved - small).mean() < 3
    assert (draw(generate_scene(2, 8), 32) != small).any()


@pytest.mark.parametrize("relation", DRAWABLE_RELATIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_figures_are_placed_as_in_the_scene(relation: str, shape: str) -> None:
    for number in range(20):
        shape_scene = ShapeScene(0, number, Figure("red", shape), Figure("blue", "square"), relation)
        picture = draw(shape_scene, 32)
        first, second = middle(picture, "red"), middle(picture, "blue")
        right, down = first - second
        if relation == "inside":
            rows, columns = np.nonzero(np.abs(picture.astype(int) - COLOUR_RGB["blue"]).sum(-1) < 30)
            assert rows.min() < first[1] < rows.max() and columns.min() < first[0] < columns.max()
            assert np.hypot(right, down) < 5
        else:
            distance = {"left": -right, "right": right, "above": -down, "below": down}[relation]
            assert distance > 1.5 * min(abs(right), abs(down)) and distance > 8


def test_shapes_of_one_color_are_distinguishable() -> None:
    """The mean picture of each shape is nearer to a new picture of it than that of any other shape."""

    def inner(shape: str, numbers: range) -> list[NDArray[np.float64]]:
        out = []
        for number in numbers:
            shape_scene = ShapeScene(0, number, Figure("black", shape), Figure("white", "square"), "inside")
            dark = (draw(shape_scene, 64).astype(float).sum(-1) < 250).astype(float)
            rows, columns = (int(value) for value in np.argwhere(dark).mean(0).round())
            out.append(np.pad(dark, 16)[rows : rows + 33, columns : columns + 33])
        return out

    mean_images = {shape: np.mean(inner(shape, range(20)), 0) for shape in SHAPES}
    for shape in SHAPES:
        for picture in inner(shape, range(20, 30)):
            nearest = min(mean_images, key=lambda other: np.abs(mean_images[other] - picture).sum())
            assert nearest == shape
