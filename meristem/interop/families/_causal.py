"""Base class of causal model types: generation, and the token before the beginning of a text, if any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from meristem.checkpoint.load_run import LoadedRun
from meristem.generation.generation_inputs import input_template
from meristem.interop.model_type import HeadMapping, ModelType
from meristem.interop.weight_map import WeightRule

SUMMARY_WEIGHT = "multiple_choice_head.summary"
CHOICE_HEAD = HeadMapping("scores", (WeightRule("heads.choice", SUMMARY_WEIGHT),), classes=1)
"""A score per choice, read at its last token, as in the double-heads classes of GPT and GPT-2."""


class CausalModelType(ModelType):
    """Each token is predicted from those before it."""

    objective_heads = {"clm": ("clm",)}
    generates_text = True
    single_template, pair_template = "A", "A B"
    special_token_roles = {"bos_token": "start", "eos_token": "end"}
    zero_patterns = (r"multiple_choice_head\.summary\.bias",)
    default_special_ids: ClassVar[tuple[int | None, int | None]]
    """Default start and end tokens of transformers if config.json has none."""

    @classmethod
    def objective_recipe(cls, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """A text begins after the start token, after none, or after the end of the previous one."""
        start = config.get("bos_token_id", cls.default_special_ids[0])
        end = config.get("eos_token_id", cls.default_special_ids[1])
        if start in (end if isinstance(end, list) else [end]) and start is not None:
            return {"name": name}
        return {"name": name, "start_tokens": [] if start is None else ["start"]}

    @classmethod
    def finalize_export(cls, config: dict[str, Any], tensors: dict[str, Tensor], loaded: LoadedRun) -> list[str]:
        """Sets the start token to whatever a text of this run begins after; adds the bias of choice scores."""
        if (score := tensors.get(f"{SUMMARY_WEIGHT}.weight")) is not None:
            tensors[f"{SUMMARY_WEIGHT}.bias"] = score.new_zeros(len(score))
        start_ids = input_template(loaded.learner.model, loaded.tokenizer, "causal").prompt_start_ids
        config["bos_token_id"] = start_ids[0] if start_ids else None
        return []
