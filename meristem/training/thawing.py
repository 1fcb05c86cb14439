"""Which parameters learn at which step: a function of the step alone, so that a run goes on as if it never stopped."""

from __future__ import annotations

from torch import Tensor, nn

from meristem.batch import Model
from meristem.blocks import low_rank
from meristem.errors import MeristemError
from meristem.training.depth import depths
from meristem.training.settings import StartSettings, steps


def prepare(model: Model, start: StartSettings) -> None:
    """Low-rank parts where they are asked for, and everything that will never learn frozen."""
    if start.lora is not None:
        low_rank.add(model.backbone, start.lora.rank, start.lora.alpha, start.lora.layers)
    learning = _ever(model, start)
    if not learning:
        raise MeristemError(f"from.learns={start.learns}: nothing would learn, since this model has no head of its own")
    for parameter in model.parameters():
        parameter.requires_grad_(parameter in learning)


def _ever(model: Model, start: StartSettings) -> set[nn.Parameter]:
    """The heads, the low-rank parts, and of the rest what the recipe says."""
    deep, small = depths(model), low_rank.parts(model.backbone)
    bottom = max(deep.values())

    def learns(parameter: nn.Parameter, depth: int) -> bool:
        if depth == 0 or parameter in small:
            return True
        return start.lora is None if start.learns == "all" else start.learns == "embeddings" and depth == bottom

    return {parameter for parameter, depth in deep.items() if learns(parameter, depth)}


class Thawing:
    """Heads first, then one layer more from the top at every interval, the embeddings last (Howard & Ruder 2018).

    Or, for pretraining that goes on with other words: the embeddings first, then everything.
    """

    def __init__(self, model: Model, start: StartSettings, steps_per_epoch: float) -> None:
        self.model, self.frozen = model, start.frozen
        self.interval = None if start.thaw is None else steps(start.thaw, steps_per_epoch)
        self.ever = [p for p in model.parameters() if p.requires_grad]
        self.depths = depths(model)
        self._stage: int | None = None

    def stage(self, step: int) -> int:
        """How much has thawed: the depth down to which parameters learn, or whether the first steps are over."""
        if self.interval is not None:
            return min(step // self.interval, max(self.depths.values()))
        return int(step >= self.frozen)

    def learning(self, step: int) -> set[Tensor]:
        """The parameters that learn at a step."""
        stage = self.stage(step)
        if self.interval is not None:
            return {p for p in self.ever if self.depths[p] <= stage}
        return set(self.ever) if stage else {self.model.backbone.embedding().weight}

    def __call__(self, step: int) -> None:
        """Freeze and thaw as the step wants it; what is frozen drops nothing out."""
        if (stage := self.stage(step)) == self._stage:
            return
        self._stage, learning = stage, self.learning(step)
        for parameter in self.model.parameters():
            parameter.requires_grad_(parameter in learning)
        if not self.frozen:
            _settle(self.model.backbone, outer=True)


def _settle(module: nn.Module, *, outer: bool) -> None:
    """Training mode where something inside learns, else evaluation; a part without parameters is as what holds it."""
    own = list(module.parameters())
    module.training = any(p.requires_grad for p in own) if own else outer
    for child in module.children():
        _settle(child, outer=module.training)
