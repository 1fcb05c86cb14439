"""Caption accuracy on built-in pictures, as a reward function: the share of each scene that a caption names right."""

from __future__ import annotations

from collections.abc import Sequence

from meristem.errors import MeristemError
from meristem.samples.microworld.scenes import named, scene


def named_share(prompts: Sequence[str], completions: Sequence[str], **columns: object) -> list[float]:
    """Of two colours, two shapes and their relation the share named right, for each caption of a built-in picture."""
    found = []
    for prompt, caption in zip(prompts, completions, strict=True):
        world, *numbers = prompt.split(" ")[0].split(":")
        if world != "microworld" or len(numbers) != 2:
            raise MeristemError(f"{prompt!r:.80} is no built-in picture; captions of others have no known scene")
        found.append(named(caption, scene(*map(int, numbers))))
    return found
