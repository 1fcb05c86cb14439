"""Numerics of a run: threads and precision are chosen at its start, and kept when it resumes on another machine."""

from __future__ import annotations

import torch

from meristem.blocks.bfloat16_speed import bfloat16_features
from meristem.training.precision import Precision, choose_precision
from meristem.training.run_result import RunContext


def pin_threads(context: RunContext) -> None:
    """Resume with the number of threads the run started with: another number sums, and so rounds, in another order.

    A run that started with several processes rounds differently in one anyway, which then uses all cores.
    """
    recorded, current, requested = context.state.threads, torch.get_num_threads(), context.recipe.train.threads
    if not recorded or recorded == current or context.state.processes > 1:
        return
    if requested is None:
        torch.set_num_threads(recorded)
        context.logger.log(f"Resuming with {recorded} threads, as the run started (this machine would use {current})")
    else:
        context.logger.log(
            f"train.threads={requested}, but the run started with {recorded}: metrics will differ in the last digits "
            "from those of a run that was never stopped"
        )


def set_precision(context: RunContext, device: torch.device) -> None:
    """Choose the precision of a new run; a resumed one keeps its own, also on a processor that would choose another."""
    state, settings, distributed = context.state, context.recipe.train, context.training_data.distributed
    prefers_bfloat16 = choose_precision(context.recipe, device, context.learner.model.backbone) == "bfloat16"
    preferred: Precision = "bfloat16" if distributed.broadcast(int(prefers_bfloat16)) else "float32"
    if not state.step:
        context.precision = preferred
        if preferred == "bfloat16" and settings.precision == "auto":
            reason = "CUDA" if device.type == "cuda" else ", ".join(bfloat16_features())
            context.logger.log(f"Training in bfloat16 ({reason}); float32 weights, norms, softmax and losses")
        return
    earlier_default = "float32" if device.type == "cpu" and settings.precision == "auto" else preferred
    context.precision = "bfloat16" if (state.precision or earlier_default) == "bfloat16" else "float32"
    if context.precision != preferred:
        context.logger.log(f"Resuming in {context.precision}, as the run started (this machine would use {preferred})")
