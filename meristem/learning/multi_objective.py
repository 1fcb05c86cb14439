"""Multi-objective pretraining: the losses of several objectives on one forward pass, such as BERT's MLM + NSP."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from meristem.config.errors import RecipeError
from meristem.inputs.batch import Batch, RngFactory, Row
from meristem.interfaces.backbone import Hidden, Model, State
from meristem.interfaces.objective import Objective, Outcome, ViewSpec
from meristem.learning.learner import causal_start_ids, collect_heads, decoder_start_ids
from meristem.objectives.settings import ObjectiveSettings


class MultiObjective(Objective):
    """Rows are prepared by every objective in order, the backbone runs once, each loss keeps its own denominator."""

    Settings = ObjectiveSettings

    def __init__(self, objectives: Sequence[Objective], tokenizer: Any = None) -> None:
        self.objectives = tuple(objectives)
        self.name = "+".join(objective.name for objective in objectives)  # type: ignore[misc]  # per instance here
        self.requires = frozenset().union(*(objective.requires for objective in objectives))  # type: ignore[misc]  # per instance here
        self.view = _shared_view(self.objectives)
        memory_views = {objective.memory_view for objective in objectives}
        self.memory_view = memory_views.pop() if len(memory_views) == 1 else None
        self.axis = self._shared_value("axis")
        self.off_axis_inputs = frozenset().union(*(objective.off_axis_inputs for objective in objectives))  # type: ignore[misc]  # per instance here
        self.updates_per_batch = self._shared_value("updates_per_batch")
        self.keeps_history = any(objective.keeps_history for objective in objectives)
        self.max_rows_per_sample = math.prod(objective.max_rows_per_sample for objective in objectives)
        self.heads = collect_heads({objective.name: objective for objective in objectives})
        by_name = {objective.name: objective for objective in objectives}
        self.decoder_start_ids = decoder_start_ids(by_name) or causal_start_ids(by_name)
        self.source_kinds = frozenset().union(*(objective.source_kinds for objective in objectives))
        self.text_pooling = next((objective.text_pooling for objective in objectives if objective.text_pooling), None)
        self.predicts_masked_next = any(objective.predicts_masked_next for objective in objectives)
        self.loss_weights = {
            term: weight for objective in objectives for term, weight in objective.loss_weights.items()
        }

    def _shared_value(self, attribute: str) -> Any:
        values = {getattr(objective, attribute) for objective in self.objectives}
        if len(values) > 1:
            raise RecipeError(f"objective: {self.name} cannot share one forward pass (different {attribute}); use mix")
        return values.pop()

    def prepare(self, row: Row, draw: RngFactory) -> Row | list[Row]:
        """Rows prepared by each objective in order; every row one objective returns goes through the next."""
        rows = [row]
        for objective in self.objectives:
            outputs = [objective.prepare(unprepared, draw) for unprepared in rows]
            rows = [prepared for output in outputs for prepared in (output if isinstance(output, list) else [output])]
        return rows

    def count_targets(self, batch: Batch) -> dict[str, int]:
        """Number of predictions per loss term, of all objectives."""
        return {
            term: num_predictions
            for objective in self.objectives
            for term, num_predictions in objective.count_targets(batch).items()
        }

    def explore(self, model: Model, batch: Batch, history: Any = None) -> Batch:
        """The batch explored by each objective in order, each with its own history."""
        for objective in self.objectives:
            batch = objective.explore(model, batch, (history or {}).get(objective.name))
        return batch

    def observations(self, batch: Batch) -> list[Any]:
        """Pairs of an objective's name and what the batch adds to its history."""
        return [
            [objective.name, observation]
            for objective in self.objectives
            for observation in objective.observations(batch)
        ]

    def update_history(self, history: Any, observations: Sequence[Any]) -> Any:
        """The history of each objective that keeps one, by its name."""
        return {
            objective.name: objective.update_history(
                (history or {}).get(objective.name),
                [observation for name, observation in observations if name == objective.name],
            )
            for objective in self.objectives
            if objective.keeps_history
        }

    def after_step(self, model: Model, metrics: Mapping[str, tuple[Tensor, Tensor]]) -> str | None:
        """Called on every objective; the reasons to stop, if there are any."""
        reasons = [objective.after_step(model, metrics) for objective in self.objectives]
        return "; ".join(reason for reason in reasons if reason is not None) or None

    def output_positions(self, batch: Batch) -> Tensor | None:
        """Sorted union of the positions the objectives use; None if one of them uses all."""
        positions_list = [objective.output_positions(batch) for objective in self.objectives]
        required = [positions for positions in positions_list if positions is not None]
        return torch.cat(required).sort().values if len(required) == len(positions_list) else None

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """Hidden states, by the one objective that overrides `encode`, if any."""
        custom_encoders = [objective for objective in self.objectives if type(objective).encode is not Objective.encode]
        if len(custom_encoders) > 1:
            names = " and ".join(objective.name for objective in custom_encoders)
            raise RecipeError(f"objective: {names} each need a forward pass of their own; use mix")
        return (
            custom_encoders[0].encode(model, batch, state) if custom_encoders else super().encode(model, batch, state)
        )

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Loss sums and metrics of all objectives."""
        combined = Outcome(loss_sums={}, state=hidden.state)
        for objective in self.objectives:
            outcome = objective.loss(model, hidden, batch)
            combined.loss_sums.update(outcome.loss_sums)
            combined.metrics.update(outcome.metrics)
            combined.score_histograms.update(outcome.score_histograms)
            combined.observations += [[objective.name, observation] for observation in outcome.observations]
        return combined


def _shared_view(objectives: Sequence[Objective]) -> ViewSpec:
    """The view that is not plain windows, if an objective needs one; two different ones are an error."""
    views = {objective.view for objective in objectives if objective.view.kind != "windows"} or {
        objective.view for objective in objectives
    }
    if len(views) > 1:
        names = " + ".join(objective.name for objective in objectives)
        raise RecipeError(f"objective: {names} need different views of the text; use mix")
    return views.pop()
