"""What published causal models share: they write, and a text of theirs begins after one token or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from meristem.checkpoint.revive import Revived
from meristem.generation.given import opening
from meristem.interop.lines import Line
from meristem.interop.published import Carried, Published

SUMMARY = "multiple_choice_head.summary"
CHOICE = Carried("scores", (Line("heads.choice", SUMMARY),), classes=1)
"""A score of each choice, read at its last token, as in the two-headed classes of GPT and GPT-2."""


class Causal(Published):
    """Each token is predicted from those before it."""

    objectives = {"clm": ("clm",)}
    writes = True
    frame, pair = "A", "A B"
    marks = {"bos_token": "start", "eos_token": "end"}
    zeros = (r"multiple_choice_head\.summary\.bias",)
    edges: ClassVar[tuple[int | None, int | None]]
    """What their library takes for the tokens that begin and end a text where config.json is silent."""

    @classmethod
    def objective(cls, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """A text begins after their start token, after none, or after the end of the one before it."""
        start, end = (config.get(f"{key}_token_id", own) for key, own in zip(("bos", "eos"), cls.edges, strict=True))
        if start in (end if isinstance(end, list) else [end]) and start is not None:
            return {"name": name}
        return {"name": name, "begin": [] if start is None else ["start"]}

    @classmethod
    def finish(cls, config: dict[str, Any], found: dict[str, Tensor], revived: Revived) -> list[str]:
        """Their start token is whatever a text of this run begins after; their score of a choice has a bias."""
        if (score := found.get(f"{SUMMARY}.weight")) is not None:
            found[f"{SUMMARY}.bias"] = score.new_zeros(len(score))
        first = opening(revived.learner.model, revived.tokenizer)
        config["bos_token_id"] = first[0] if first else None
        return []
