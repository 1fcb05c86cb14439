"""Best-of-N sampling: generate several texts per prompt, score them with rewards and keep the best; no training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from meristem.config.errors import MeristemError
from meristem.generation.generated_text import GeneratedText
from meristem.reinforce.combined_reward import CombinedReward, CombinedScores
from meristem.reinforce.reward_base import PromptCompletion
from meristem.utils.result_tables import Record, Tabular

GenerateFn = Callable[[int], Sequence[Sequence[GeneratedText]]]
"""The given number of generated texts for each prompt."""


@dataclass(frozen=True, kw_only=True)
class RankedText(Tabular):
    """A generated text with its reward."""

    output: GeneratedText
    value: float
    """Σ weight · value over the rewards."""
    parts: Mapping[str, float]
    """The value of each reward."""
    why: Mapping[str, Mapping[str, float | str]]

    @property
    def text(self) -> str:
        """The generated text."""
        return self.output.text

    def records(self) -> list[Record]:
        """One row: the text, its total value and the value of each reward."""
        return [{"text": self.text, "value": self.value, **self.parts}]


def build_prompts(
    prompts: Sequence[str | Path], references: Sequence[Sequence[str]], *, seed: int
) -> list[PromptCompletion]:
    """Prompts with empty completions, each with its references; no references at all means none for every prompt."""
    reference_lists = references or [()] * len(prompts)
    if len(reference_lists) != len(prompts) or any(
        isinstance(prompt_references, str) for prompt_references in reference_lists
    ):
        raise MeristemError(
            f"references: expected a list of texts for each of the {len(prompts)} prompts, got {len(reference_lists)} "
            f"of type "
            f"{', '.join(sorted({type(prompt_references).__name__ for prompt_references in reference_lists}))}"
        )
    return [
        PromptCompletion(
            prompt="" if isinstance(prompt, Path) else prompt,
            text="",
            references=tuple(prompt_references),
            seed=seed,
            location=f"prompt {index}",
            picture=str(prompt) if isinstance(prompt, Path) else "",
        )
        for index, (prompt, prompt_references) in enumerate(zip(prompts, reference_lists, strict=True), 1)
    ]


def best_of_n(
    generate: GenerateFn, prompts: Sequence[PromptCompletion], rewards: CombinedReward, *, count: int, keep: int = 1
) -> list[list[RankedText]]:
    """The `keep` best of `count` texts for each prompt, best first; ties stay in generation order."""
    if not 1 <= keep <= count:
        raise MeristemError(f"best of {count}: between 1 and {count} texts can be kept, not {keep}")
    rewards.check(prompts)
    groups = generate(count)
    completions = [
        replace(prompt, text=text.text, ended=text.finished != "length")
        for prompt, texts in zip(prompts, groups, strict=True)
        for text in texts
    ]
    scores = rewards.score(completions)
    generated = [text for texts in groups for text in texts]
    rankings = [
        np.argsort(-scores.total[start : start + count], kind="stable")[:keep] + start
        for start in range(0, len(generated), count)
    ]
    return [[_rank_entry(generated[start], scores, start) for start in ranking.tolist()] for ranking in rankings]


def _rank_entry(output: GeneratedText, scores: CombinedScores, index: int) -> RankedText:
    parts = {name: float(values[index]) for name, values in scores.parts.items()}
    return RankedText(output=output, value=float(scores.total[index]), parts=parts, why=scores.why[index])
