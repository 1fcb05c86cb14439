"""A scene as pixels: flat shapes on a grey ground, smooth at their edges, drawn with nothing but arithmetic."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from meristem.randomness import generator
from meristem.samples.microworld.scenes import Scene

# S pixels a side, F points a side from which pixels are averaged

Floats = NDArray[np.float64]

FINE = 4  # points a pixel is averaged from, along each side
PIXELS = {
    "red": (220, 40, 40), "green": (40, 160, 60), "blue": (50, 80, 220), "yellow": (240, 220, 50),
    "purple": (140, 50, 170), "orange": (245, 140, 30), "white": (250, 250, 250), "black": (20, 20, 20),
}  # fmt: skip
PLACES = {"left": (-1, 0), "right": (1, 0), "above": (0, -1), "below": (0, 1)}  # of the first, to the right and down
APART = 0.48  # from the middle, where the picture reaches from −1 to 1
RADIUS, OUTER, INNER = (0.30, 0.40), (0.74, 0.88), (0.26, 0.32)


def draw(shown: Scene, size: int) -> NDArray[np.uint8]:
    """The scene as [S, S, 3] pixels; the same at any size but for its fineness."""
    rng = generator(shown.seed, "microworld pictures", 0, shown.number)
    grey = rng.uniform(120, 180)
    picture = np.full((size, size, 3), grey)
    at = (np.arange(size * FINE) + 0.5) / (size * FINE) * 2 - 1
    for (x, y, radius), figure in zip(_places(shown, rng), (shown.second, shown.first), strict=True):
        inside = _inside(figure.shape, (at[None, :] - x) / radius, (at[:, None] - y) / radius)
        cover = inside.reshape(size, FINE, size, FINE).mean((1, 3))[..., None]
        picture = picture * (1 - cover) + np.array(PIXELS[figure.colour]) * cover
    pixels: NDArray[np.uint8] = np.rint(picture).astype(np.uint8)
    return pixels


def _places(shown: Scene, rng: Generator) -> list[tuple[float, float, float]]:
    """Middle and radius of the second figure and of the first, a little moved each time."""
    if shown.relation == "inside":
        outer, inner = rng.uniform(*OUTER), rng.uniform(*INNER)
        x, y = rng.uniform(outer - 0.95, 0.95 - outer, 2)
        low = outer * (0.2 if shown.second.shape == "triangle" else 0.0)  # a triangle has its room below its middle
        return [(x, y, outer), (x, y + low, inner)]
    right, down = PLACES[shown.relation]
    across = rng.uniform(-0.4, 0.4)  # both are moved together across the direction they are apart in
    places = []
    for side in (-1, 1):
        sway = rng.uniform(-0.09, 0.09, 2)
        x = side * right * APART + abs(down) * across + sway[0]
        y = side * down * APART + abs(right) * across + sway[1]
        places.append((x, y, rng.uniform(*RADIUS)))
    return places


def _inside(shape: str, x: Floats, y: Floats) -> Floats:
    """Which points lie in a shape of radius 1 around 0; y grows downwards."""
    far, wide = np.hypot(x, y), np.maximum(np.abs(x), np.abs(y))
    match shape:
        case "circle":
            return (far < 0.95).astype(np.float64)
        case "ring":
            return ((far < 1.0) & (far > 0.6)).astype(np.float64)
        case "square":
            return (wide < 0.82).astype(np.float64)
        case "diamond":
            return (np.abs(x) * 1.3 + np.abs(y) < 1.05).astype(np.float64)
        case "triangle":
            return ((y < 0.75) & (np.abs(x) < (y + 1.0) * 0.57)).astype(np.float64)
        case _:
            return ((wide < 0.95) & (np.minimum(np.abs(x), np.abs(y)) < 0.3)).astype(np.float64)
