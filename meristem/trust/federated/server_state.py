"""State of the server between two rounds: global weights, server optimizer, counts; saved as an ordinary checkpoint."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from meristem.checkpoint.load import LoadedCheckpoint
from meristem.checkpoint.run_folder import RunFolder
from meristem.checkpoint.save import save_checkpoint
from meristem.checkpoint.snapshot import Snapshot
from meristem.config.errors import MeristemError
from meristem.config.recipe import PretrainRecipe, recipe_yaml
from meristem.interfaces.backbone import Model
from meristem.training.train_state import TrainState
from meristem.trust.federated.aggregation import ServerOptimizer
from meristem.trust.federated.local_training import copy_weights, shared_tensors
from meristem.trust.federated.settings import FederatedSettings

STATE_KEY = "federated"
"""Entry of state.json with the server's own counts."""


@dataclass(kw_only=True)
class ServerState:
    """What the server carries from round to round."""

    weights: dict[str, Tensor]
    """The global weights."""
    round_number: int = 0
    """Rounds that are done."""
    tokens: int = 0
    samples: int = 0
    seconds: float = 0.0
    failed_in_row: int = 0
    participation: Counter[str] = field(default_factory=Counter)
    """Client → rounds in which its update was used."""
    epsilon: float | None = None
    """The ε spent by the client that took part most often, with privacy."""


def train_state(state: ServerState, recipe: PretrainRecipe, settings: FederatedSettings, parameters: int) -> TrainState:
    """The state as that of a run of as many steps as one client took."""
    steps = settings.rounds * settings.local_steps
    return TrainState(
        step=state.round_number * settings.local_steps,
        total=steps,
        planned_total=steps,
        budget=f"{steps} steps",
        samples=state.samples,
        tokens=state.tokens,
        flops=6.0 * parameters * state.tokens,  # two for the forward pass and four for the backward pass
        seconds=state.seconds,
        threads=recipe.train.threads or 0,
        processes=1,
    )


def save_server(
    run: RunFolder,
    recipe: PretrainRecipe,
    settings: FederatedSettings,
    model: Model,
    state: ServerState,
    optimizer: ServerOptimizer,
) -> None:
    """Save the state as a checkpoint of the run; `model` gets the global weights."""
    copy_weights(model, state.weights)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    progress = train_state(state, recipe, settings, parameters)
    own: dict[str, Any] = {
        "settings": settings.model_dump(mode="json"),
        "round": state.round_number,
        "failed_in_row": state.failed_in_row,
        "participation": dict(state.participation),
        "epsilon": state.epsilon,
    }
    save_checkpoint(
        run.checkpoints,
        Snapshot(
            step=progress.step,
            model=model.state_dict(),
            optimizer=dict(optimizer.moments),
            memory={},
            state={**progress.to_dict(), STATE_KEY: own},
            recipe=recipe_yaml(recipe),
            tokenizer=run.tokenizer_path,
        ),
        keep_checkpoints=recipe.train.keep_checkpoints,
        is_best=False,
    )


def restore_server(checkpoint: LoadedCheckpoint, model: Model, optimizer: ServerOptimizer) -> ServerState:
    """The state in a checkpoint; the moments of the server optimizer are set."""
    snapshot = checkpoint.snapshot
    progress = TrainState.from_dict(snapshot.state, step=snapshot.step)
    own = snapshot.state.get(STATE_KEY)
    if not isinstance(own, dict) or not isinstance(own.get("round"), int):
        raise MeristemError(f"{checkpoint.path} is of a run that was not federated: choose another --out")
    names = shared_tensors(model)
    if missing := sorted(set(names) - set(snapshot.model)):
        raise MeristemError(f"{checkpoint.path} lacks {missing[0]}: it is of another model; choose another --out")
    optimizer.moments = dict(snapshot.optimizer)
    epsilon = own.get("epsilon")
    return ServerState(
        weights={name: snapshot.model[name].clone() for name in names},
        round_number=own["round"],
        tokens=progress.tokens,
        samples=progress.samples,
        seconds=progress.seconds,
        failed_in_row=int(own.get("failed_in_row", 0)),
        participation=Counter({str(name): int(count) for name, count in own.get("participation", {}).items()}),
        epsilon=float(epsilon) if epsilon is not None else None,
    )
