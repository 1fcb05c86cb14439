"""Freezing and gradual unfreezing: which parameters are trainable at which step, a function of the step alone."""

from __future__ import annotations

from torch import Tensor, nn

from meristem.blocks import lora
from meristem.config.errors import MeristemError
from meristem.interfaces.backbone import Model
from meristem.training.optim.layer_depth import layer_depths
from meristem.training.settings import StartSettings, interval_steps


def prepare_trainable(model: Model, start: StartSettings) -> None:
    """Add LoRA matrices if requested, and freeze every parameter that is never trained."""
    if start.lora is not None:
        lora.add_lora(model.backbone, start.lora.rank, start.lora.alpha, start.lora.target_modules)
    trainable = _trainable_parameters(model, start)
    if not trainable:
        raise MeristemError(f"from.train={start.train}: no weight would be trained, since this model has no head")
    for parameter in model.parameters():
        parameter.requires_grad_(parameter in trainable)


def _trainable_parameters(model: Model, start: StartSettings) -> set[nn.Parameter]:
    """The heads, the LoRA matrices, and what `from.train` selects of the rest."""
    depth_by_parameter, lora_parameters = layer_depths(model), lora.lora_parameters(model.backbone)
    bottom = max(depth_by_parameter.values())

    def is_trainable(parameter: nn.Parameter, depth: int) -> bool:
        if depth == 0 or parameter in lora_parameters:
            return True
        return start.lora is None if start.train == "all" else start.train == "embeddings" and depth == bottom

    return {parameter for parameter, depth in depth_by_parameter.items() if is_trainable(parameter, depth)}


class UnfreezeSchedule:
    """Gradual unfreezing (Howard & Ruder 2018): heads first, one more layer from the top per interval, embeddings last.

    Or, for continued pretraining with a new tokenizer (`from.embeddings_only_steps`): the embeddings first, then all.
    """

    def __init__(self, model: Model, start: StartSettings, steps_per_epoch: float) -> None:
        self.model, self.embeddings_only_steps = model, start.embeddings_only_steps
        self.interval = None if start.unfreeze_every is None else interval_steps(start.unfreeze_every, steps_per_epoch)
        self.trainable = [p for p in model.parameters() if p.requires_grad]
        self.depths = layer_depths(model)
        self._stage: int | None = None

    def stage(self, step: int) -> int:
        """Depth down to which layers are unfrozen; without an interval, 0 while only embeddings are trained, then 1."""
        if self.interval is not None:
            return min(step // self.interval, max(self.depths.values()))
        return int(step >= self.embeddings_only_steps)

    def trainable_at(self, step: int) -> set[Tensor]:
        """The parameters that are trained at a step."""
        stage = self.stage(step)
        if self.interval is not None:
            return {p for p in self.trainable if self.depths[p] <= stage}
        return set(self.trainable) if stage else {self.model.backbone.embedding().weight}

    def __call__(self, step: int) -> None:
        """Freeze and unfreeze parameters for a step; frozen layers are in evaluation mode, without dropout."""
        if (stage := self.stage(step)) == self._stage:
            return
        self._stage, trainable = stage, self.trainable_at(step)
        for parameter in self.model.parameters():
            parameter.requires_grad_(parameter in trainable)
        if not self.embeddings_only_steps:
            _set_training_mode(self.model.backbone, parent_training=True)


def _set_training_mode(module: nn.Module, *, parent_training: bool) -> None:
    """Training mode for modules with trainable parameters, else evaluation; modules without any follow their parent."""
    parameters = list(module.parameters())
    module.training = any(p.requires_grad for p in parameters) if parameters else parent_training
    for child in module.children():
        _set_training_mode(child, parent_training=module.training)
