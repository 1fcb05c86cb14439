"""An example reward report with every field filled."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from meristem.drawing.reward_report import (
    BeforeAfterMetric,
    BestOfResult,
    JudgeResult,
    RewardReport,
    RewardStepMetrics,
    ScoredText,
    TextComparison,
)
from meristem.metrics.reward_hacking import RewardHackingWarning
from meristem.metrics.win_rate import WinRate

HOSTILE = "</title></style><script>alert(1)</script> \"quoted' & \u202eturned\u202c \x1b[31mred\x1b[0m [bold]x[/y] \x00"
WARNINGS = (
    RewardHackingWarning(
        kind="length", severity="serious", sentence="Texts became 2.3 times longer while the judge sees no gain."
    ),
    RewardHackingWarning(kind="sameness", severity="mild", sentence=HOSTILE),
)


def moments(steps: int, parts: int = 2, every: int = 1) -> tuple[RewardStepMetrics, ...]:
    return tuple(
        RewardStepMetrics(
            step=step,
            reward=0.1 + 0.001 * step,
            parts={f"part {number}": number - 0.01 * step for number in range(parts)},
            kl=0.02 * step,
            coefficient=0.05,
            entropy=3.0 - 0.001 * step,
            length=30.0,
            distinct2=0.7,
        )
        for step in range(every, steps + 1, every)
    )


def pair(number: int, **changes: Any) -> TextComparison:
    fields: dict[str, Any] = {
        "prompt": f"prompt {number}: 春天来了",
        "before": ScoredText(text=f"花开花开 {number}", reward=0.25, parts={"part 0": -1.125}, judge=0.5, ended=False),
        "after": ScoredText(text=f"مرحبا 🙂 {number}", reward=0.75, parts={"part 0": -0.5}, judge=0.625),
        "preferred": ("after", "before", "tie", "")[number % 4],
        "opinion": "4.9 → 3.8 bits a word",
        "references": ("山上的花都开了。",),
        "location": f"prompts.jsonl:{number}",
    }
    return TextComparison(**{**fields, **changes})


def example_report(**changes: Any) -> RewardReport:
    fields: dict[str, Any] = {
        "name": "grammar <run>",
        "model": "gpt2, 1.0 M parameters, from runs/gpt2-mini",
        "split": "validation",
        "prompts": 64,
        "settings": {"policy": "RLOO, 4 texts per prompt", "leash": "KL target 6"},
        "kl": 5.7,
        "kl_target": 6.0,
        "train": moments(40),
        "validation": moments(40, every=10),
        "before": tuple(0.01 * number for number in range(64)),
        "after": tuple(0.3 + 0.01 * number for number in range(64)),
        "judges": (
            JudgeResult(name="other model 另一个", won=WinRate(wins=40, ties=8, losses=16)),
            JudgeResult(name="grammar", won=WinRate(wins=60, ties=0, losses=4), independent=False),
        ),
        "best_of": (
            BestOfResult(count=1, start=0.25, trained=0.5),
            BestOfResult(count=2, start=0.375, trained=0.5625),
            BestOfResult(count=4, start=0.625),
        ),
        "numbers": (
            BeforeAfterMetric(
                name="reward",
                before=0.315,
                after=0.615,
                before_interval=(0.27, 0.36),
                after_interval=(0.57, 0.66),
                better="higher",
                change_interval=(0.25, 0.35),
            ),
            BeforeAfterMetric(
                name="perplexity",
                before=81.2,
                after=90.5,
                before_interval=(76, 84),
                after_interval=(86, 95),
                better="lower",
                change_interval=(4.5, 14),
                meaning="of another model",
            ),
            BeforeAfterMetric(name="length", before=31.0, after=None),
        ),
        "pairs": tuple(pair(number) for number in range(12)),
        "warnings": WARNINGS,
        "sources": ("prompts: valid.txt",),
        "recipe": {"policy": {"name": "policy", "note": "</pre><script>x</script>"}},
        "commands": ("meristem generate runs/x --prompt '春天'",),
    }
    return RewardReport(**{**fields, **changes})


class Tags(HTMLParser):
    """Whether every tag is closed in its turn, and what there is."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(text: str) -> Tags:
    tags = Tags()
    tags.feed(text)
    tags.close()
    assert tags.open == []
    return tags
