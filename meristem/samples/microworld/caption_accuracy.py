"""Caption accuracy on built-in images, as a reward function: the share of each scene that a caption names correctly."""

from __future__ import annotations

from collections.abc import Sequence

from meristem.config.errors import MeristemError
from meristem.samples.microworld.shape_scenes import generate_scene, score_caption


def named_share(prompts: Sequence[str], completions: Sequence[str], **columns: object) -> list[float]:
    """The share of two colors, two shapes and their relation that each caption of a built-in image names correctly."""
    scores = []
    for prompt, caption in zip(prompts, completions, strict=True):
        prefix, *numbers = prompt.split(" ")[0].split(":")
        if prefix != "microworld" or len(numbers) != 2:
            raise MeristemError(f"{prompt!r:.80} is not a built-in image; the scenes of other images are unknown")
        scores.append(score_caption(caption, generate_scene(*map(int, numbers))))
    return scores
