"""Validation of a run in training; a task whose weights are sharded is evaluated with all of them."""

from __future__ import annotations

import torch

from meristem.checkpoint import weight_transfer
from meristem.distributed.parallel import full_state_dict
from meristem.learning.build import build_learner
from meristem.learning.learner import Learner
from meristem.training.data.training_data import EvaluateFn
from meristem.training.freezing import prepare_trainable
from meristem.training.run_result import RunContext
from meristem.training.settings import NEVER
from meristem.training.step import Stepper


def build_evaluator(context: RunContext, stepper: Stepper, device: torch.device) -> EvaluateFn | None:
    """The validation function; tasks are evaluated with unsharded weights."""
    if context.recipe.train.evaluate_every == NEVER:
        return None
    training_data, log = context.training_data, context.logger.log
    evaluator = training_data.build_evaluator(context.evaluation_recipe, context.learner, "validation", log)
    if (
        evaluator is None
        or context.recipe.tuned_task is None
        or stepper.parallel is None
        or not stepper.parallel.sharded
    ):
        return evaluator

    def evaluate() -> dict[str, float]:
        stepper.reshard()
        unsharded_evaluator = training_data.build_evaluator(
            context.evaluation_recipe, unsharded_learner(context, device), "validation", log
        )
        assert unsharded_evaluator is not None
        return unsharded_evaluator()

    return evaluate


def unsharded_learner(context: RunContext, device: torch.device) -> Learner:
    """A learner with the full, unsharded weights, for evaluation and reports."""
    weights = full_state_dict(context.learner.model.state_dict(keep_vars=True))
    learner = build_learner(context.recipe, context.training_data.tokenizer)
    prepare_trainable(learner.model, context.recipe.start)
    weight_transfer.load_exact(learner.model, weights)
    return learner.to(device)
