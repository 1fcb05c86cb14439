"""The learner: the nn.Module that DDP or FSDP wraps (a model and its objectives), and capability checks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from meristem.blocks.precision import at_least_float32
from meristem.config.errors import RecipeError
from meristem.inputs.batch import Batch
from meristem.interfaces.backbone import MODEL_FAMILIES, Backbone, Head, Model, State
from meristem.interfaces.objective import OBJECTIVES, Objective, Outcome
from meristem.interfaces.task import Task

CAUSAL_HEAD = "clm"
"""Head of causal language modelling; objectives without it generate a target from a source."""


class Learner(nn.Module):
    """A model and its objectives; `learner(name, batch, totals, state)` returns loss = Σ weight · sum / total."""

    def __init__(self, model: Model, objectives: Mapping[str, Objective]) -> None:
        super().__init__()
        self.model = model
        self.objectives = dict(objectives)
        model.decoder_start_ids, model.causal_start_ids = (
            decoder_start_ids(self.objectives),
            causal_start_ids(self.objectives),
        )
        model.task_template = next(
            (objective.template for objective in self.objectives.values() if isinstance(objective, Task)), None
        )
        model.source_kinds = frozenset().union(*(objective.source_kinds for objective in self.objectives.values()))
        model.text_pooling = next(
            (objective.text_pooling for objective in self.objectives.values() if objective.text_pooling), None
        )
        model.predicts_masked_next = any(objective.predicts_masked_next for objective in self.objectives.values())

    def forward(self, name: str, batch: Batch, totals: Mapping[str, int], state: State | None = None) -> Outcome:
        """Loss of one micro-batch; each term is divided by its total over the whole step, never by its own count."""
        objective = self.objectives[name]
        hidden = objective.encode(self.model, batch, state)
        outcome = objective.loss(self.model, hidden, batch)
        terms = [objective.loss_weights[term] / totals[term] * total for term, total in outcome.loss_sums.items()]
        outcome.loss = torch.stack([at_least_float32(term_loss) for term_loss in terms]).sum()
        return outcome

    def explore(self, name: str, batch: Batch, history: Any = None) -> Batch:
        """The batch extended by what the objective computes with the model without gradient (rollouts)."""
        with torch.no_grad():
            return self.objectives[name].explore(self.model, batch, history)


def collect_heads(objectives: Mapping[str, Objective]) -> dict[str, Head]:
    """All heads the objectives declare; two different declarations under one name are an error."""
    heads: dict[str, Head] = {}
    for objective in objectives.values():
        for name, head in objective.heads.items():
            if heads.setdefault(name, head) != head:
                raise RecipeError(f"head {name!r} is declared in two different ways: {heads[name]} and {head}")
    return heads


def decoder_start_ids(objectives: Mapping[str, Objective]) -> tuple[int, ...] | None:
    """Decoder start tokens of source-to-target objectives; a model has only one such prefix."""
    return _shared_start_ids([objective for objective in objectives.values() if CAUSAL_HEAD not in objective.heads])


def causal_start_ids(objectives: Mapping[str, Objective]) -> tuple[int, ...] | None:
    """Start tokens of causal generation, where an objective sets them."""
    return _shared_start_ids([objective for objective in objectives.values() if CAUSAL_HEAD in objective.heads])


def _shared_start_ids(objectives: Sequence[Objective]) -> tuple[int, ...] | None:
    start_ids = {
        objective.name: objective.decoder_start_ids
        for objective in objectives
        if objective.decoder_start_ids is not None
    }
    if len(set(start_ids.values())) > 1:
        raise RecipeError(
            f"objective.start_tokens: {' and '.join(start_ids)} start their targets with different tokens; "
            "set the same objective.start_tokens for all"
        )
    return next(iter(start_ids.values()), None)


def check_objective(objective: type[Objective], backbone: type[Backbone], family: str) -> None:
    """Raise if the family lacks a capability the objective needs, naming the families that have it."""
    missing = objective.requires - backbone.capabilities
    if not missing:
        return
    suitable_families = [
        name for name, family_class in MODEL_FAMILIES.items() if objective.requires <= family_class.capabilities
    ]
    # objectives that work on the same corpus: those with the same view, or with plain text
    view_kinds = (objective.view.kind, "windows")
    suitable_objectives = [name for name in supported_objectives(backbone) if OBJECTIVES[name].view.kind in view_kinds]
    raise RecipeError(
        f"objective {objective.name} needs a {_format_capabilities(missing)} backbone, and {family} is "
        f"{_format_capabilities(backbone.capabilities)}. "
        f"Families that support it: {', '.join(suitable_families) or 'none yet'} (model.family=…); "
        f"objectives {family} supports: {', '.join(suitable_objectives) or 'none'} (objective=…)"
    )


def supported_objectives(backbone: type[Backbone]) -> list[str]:
    """Names of the objectives whose required capabilities the backbone has."""
    return [name for name, objective in OBJECTIVES.items() if objective.requires <= backbone.capabilities]


def check_task(task: type[Task], backbone: type[Backbone], family: str) -> None:
    """Raise if the family does not support the task, naming the families that do."""
    if _supports_task(task, backbone):
        return
    suitable_families = [name for name, family_class in MODEL_FAMILIES.items() if _supports_task(task, family_class)]
    raise RecipeError(
        f"task {task.name} needs a backbone that is {' or '.join(sorted(task.requires_any))}, and {family} is "
        f"{_format_capabilities(backbone.capabilities)}. Families that support it: {', '.join(suitable_families)}"
    )


def _supports_task(task: type[Task], backbone: type[Backbone]) -> bool:
    """Whether the backbone has one of the capabilities in `requires_any`, all in `requires`, and takes its inputs."""
    accepts_input = backbone.supports_text_tasks or "image" in task.requires
    return bool(task.requires_any & backbone.capabilities) and task.requires <= backbone.capabilities and accepts_input


def task_backbone_mode(task: type[Task], backbone: type[Backbone], pretrained: Collection[frozenset[str]]) -> str:
    """The mode (causal, bidirectional, …) in which a task uses a backbone with several.

    An encoder-decoder uses the encoder alone where the task allows it; other backbones keep the mode they were
    pretrained in, bidirectional after objectives of both: `pretrained` is what each objective of that run required.
    """
    modes = task.requires_any & backbone.capabilities
    if "encoder_decoder" in backbone.capabilities:
        return next(mode for mode in ("bidirectional", "encoder_decoder", "causal") if mode in modes)
    if "causal" in modes and len(modes) > 1 and pretrained:
        is_causal = any("causal" in needs and "bidirectional" not in needs for needs in pretrained)
        modes = frozenset({"causal"}) if is_causal else modes - {"causal"}
    return min(modes)


def _format_capabilities(capabilities: frozenset[str]) -> str:
    """Capabilities as text for messages: both_directions → both-directions."""
    return " and ".join(sorted(capability.replace("_", "-") for capability in capabilities))
