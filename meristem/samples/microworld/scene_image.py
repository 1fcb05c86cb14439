"""Rendering of shape scenes as pixels: flat, anti-aliased shapes on a grey background, with NumPy only."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from meristem.samples.microworld.shape_scenes import ShapeScene
from meristem.utils.randomness import generator

# S pixels per side

Floats = NDArray[np.float64]

OVERSAMPLING = 4  # samples per pixel along each side, for anti-aliasing
COLOUR_RGB = {
    "red": (220, 40, 40), "green": (40, 160, 60), "blue": (50, 80, 220), "yellow": (240, 220, 50),
    "purple": (140, 50, 170), "orange": (245, 140, 30), "white": (250, 250, 250), "black": (20, 20, 20),
}  # fmt: skip
DIRECTIONS = {"left": (-1, 0), "right": (1, 0), "above": (0, -1), "below": (0, 1)}
"""Direction from the second figure to the first, as (right, down)."""
CENTER_OFFSET = 0.48  # distance from the center; the image spans −1 to 1
RADIUS, OUTER, INNER = (0.30, 0.40), (0.74, 0.88), (0.26, 0.32)


def draw(scene: ShapeScene, size: int) -> NDArray[np.uint8]:
    """The scene as [S, S, 3] pixels; the same at any size except for resolution."""
    rng = generator(scene.seed, "microworld pictures", 0, scene.number)
    background = rng.uniform(120, 180)
    image = np.full((size, size, 3), background)
    coordinates = (np.arange(size * OVERSAMPLING) + 0.5) / (size * OVERSAMPLING) * 2 - 1
    for (x, y, radius), figure in zip(_figure_positions(scene, rng), (scene.second, scene.first), strict=True):
        mask = _shape_mask(figure.shape, (coordinates[None, :] - x) / radius, (coordinates[:, None] - y) / radius)
        coverage = mask.reshape(size, OVERSAMPLING, size, OVERSAMPLING).mean((1, 3))[..., None]
        image = image * (1 - coverage) + np.array(COLOUR_RGB[figure.colour]) * coverage
    pixels: NDArray[np.uint8] = np.rint(image).astype(np.uint8)
    return pixels


def _figure_positions(scene: ShapeScene, rng: Generator) -> list[tuple[float, float, float]]:
    """Center and radius of the second figure and of the first, with random jitter."""
    if scene.relation == "inside":
        outer, inner = rng.uniform(*OUTER), rng.uniform(*INNER)
        x, y = rng.uniform(outer - 0.95, 0.95 - outer, 2)
        center_shift = outer * (0.2 if scene.second.shape == "triangle" else 0.0)  # it is widest below its center
        return [(x, y, outer), (x, y + center_shift, inner)]
    right, down = DIRECTIONS[scene.relation]
    across = rng.uniform(-0.4, 0.4)  # both are shifted together, perpendicular to their direction
    positions = []
    for side in (-1, 1):
        jitter = rng.uniform(-0.09, 0.09, 2)
        x = side * right * CENTER_OFFSET + abs(down) * across + jitter[0]
        y = side * down * CENTER_OFFSET + abs(right) * across + jitter[1]
        positions.append((x, y, rng.uniform(*RADIUS)))
    return positions


def _shape_mask(shape: str, x: Floats, y: Floats) -> Floats:
    """Mask of the points inside a shape of radius 1 around 0; y points down."""
    distance, max_axis = np.hypot(x, y), np.maximum(np.abs(x), np.abs(y))
    match shape:
        case "circle":
            mask = distance < 0.95
        case "ring":
            mask = (distance < 1.0) & (distance > 0.6)
        case "square":
            mask = max_axis < 0.82
        case "diamond":
            mask = np.abs(x) * 1.3 + np.abs(y) < 1.05
        case "triangle":
            mask = (y < 0.75) & (np.abs(x) < (y + 1.0) * 0.57)
        case _:
            mask = (max_axis < 0.95) & (np.minimum(np.abs(x), np.abs(y)) < 0.3)
    return mask.astype(np.float64)
