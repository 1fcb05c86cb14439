"""Scoring texts with rewards through the Python API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from meristem.reinforce.reward_base import PromptCompletion
from meristem.reinforce.reward_setup import build_rewards, rewards_cache
from meristem.reinforce.reward_specs import RewardSpec, parse_reward_specs
from meristem.utils.console import TerminalConsole
from meristem.utils.result_tables import ResultList


def reward(
    name: RewardSpec | Sequence[RewardSpec],
    *,
    text: str | Sequence[str],
    prompt: str = "",
    references: Sequence[str] = (),
    columns: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    console: Console | None = None,
    **settings: Any,
) -> Any:
    """Score a text, or each of several, with a reward: its value and the reasons for it.

    Args:
        name: A reward, or several: its name, or a mapping with settings, `{"name": "length", "target": 20}`.
        text: The text, or several.
        prompt: What the texts continue.
        references: Reference texts, for rewards that compare.
        columns: Columns of the prompt's row, for rewards that read them.
        folder: Where models that a reward must fit first are cached.
        console: Where progress is printed; default: standard error, or the notebook's cell.
        settings: Settings of the reward.
    """
    config = {"name": name, **settings} if isinstance(name, str) and settings else name
    rewards = build_rewards(
        parse_reward_specs(config), Path(folder) if folder else rewards_cache(), console or TerminalConsole(stderr=True)
    )
    texts = [text] if isinstance(text, str) else list(text)
    completions = [
        PromptCompletion(prompt=prompt, text=item, references=tuple(references), columns=columns or {})
        for item in texts
    ]
    rewards.check(completions)
    scores = ResultList(rewards.score(completions).reward_scores())
    return scores[0] if isinstance(text, str) else scores
