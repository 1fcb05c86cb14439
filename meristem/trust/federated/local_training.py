"""Local training of one client: its text as token ids, its optimizer steps from the global weights, its losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from meristem.checkpoint.tensors import find_aliases
from meristem.config.errors import MeristemError
from meristem.config.recipe import PretrainRecipe
from meristem.corpus.settings import CorpusSettings
from meristem.dataset.feed import Feed
from meristem.dataset.prepare import prepare_dataset
from meristem.interfaces.backbone import Model
from meristem.learning.build import build_learner
from meristem.learning.learner import Learner
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.data.pretraining_data import PretrainingData
from meristem.training.freezing import prepare_trainable
from meristem.training.optim.param_groups import build_optimizers
from meristem.training.precision import choose_precision
from meristem.training.step import Stepper, resolve_device
from meristem.trust.federated.aggregation import Update
from meristem.trust.federated.settings import FederatedSettings

SOURCE = "main"
"""The only source of a federated recipe."""


def shared_tensors(model: Model) -> dict[str, Tensor]:
    """The tensors that federated training shares: trained weights and floating-point buffers, tied ones once."""
    state = model.state_dict(keep_vars=True)
    aliases = find_aliases({name: tensor.detach() for name, tensor in state.items()})
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    return {
        name: tensor.detach()
        for name, tensor in state.items()
        if tensor.is_floating_point() and name not in aliases and name not in frozen
    }


def copy_weights(model: Model, weights: Mapping[str, Tensor]) -> None:
    """Copy global weights into a model, which must have the same tensors."""
    own = shared_tensors(model)
    if own.keys() != weights.keys():
        different = sorted(own.keys() ^ weights.keys())[:3]
        raise MeristemError(f"the global weights are of another model: {', '.join(different)} differ")
    with torch.no_grad():
        for name, tensor in own.items():
            if tensor.shape != weights[name].shape:
                raise MeristemError(
                    f"the global weights are of another model: {name} is {tuple(weights[name].shape)} there and "
                    f"{tuple(tensor.shape)} here"
                )
            tensor.copy_(weights[name])


def load_client_data(
    recipe: PretrainRecipe, corpus: CorpusSettings, tokenizer: Tokenizer, console: Console
) -> PretrainingData:
    """A client's text as token ids, in the cache of its own machine."""
    prepared = prepare_dataset(
        corpus, tokenizer, recipe.dataset, keep_words=recipe.tokenizer.kind == "words", console=console
    )
    return PretrainingData(
        recipe=replace(recipe, corpus=corpus),
        tokenizer=tokenizer,
        datasets={SOURCE: prepared.dataset},
        cache_keys={SOURCE: prepared.cache_key},
        max_length=recipe.model.max_length,
    )


@dataclass(frozen=True, kw_only=True)
class LocalResult:
    """Result of the local steps of one round."""

    update: Update
    loss: float
    """Mean loss over the steps."""
    tokens: int
    samples: int
    steps: int


def build_trainable_learner(recipe: PretrainRecipe, tokenizer: Tokenizer) -> Learner:
    """The model of a federated recipe and its objective, with frozen parameters as `from` says."""
    learner = build_learner(recipe, tokenizer)
    prepare_trainable(learner.model, recipe.start)
    return learner.to(resolve_device(recipe.train))


def train_locally(
    learner: Learner,
    feed: Feed,
    recipe: PretrainRecipe,
    weights: Mapping[str, Tensor],
    settings: FederatedSettings,
    round_number: int,
) -> LocalResult:
    """Take the local steps of a round from the global weights; a pure function of its arguments.

    Steps and learning rate continue from round to round; the optimizer starts anew, so that a client that was away
    needs nothing from the rounds it missed.
    """
    device = resolve_device(recipe.train)
    copy_weights(learner.model, weights)
    optimizers = build_optimizers(learner.model, recipe.train)
    if settings.mu:
        _add_proximal_term(learner.model, optimizers, weights, settings.mu)
    stepper = Stepper(
        learner=learner,
        optimizers=optimizers,
        settings=recipe.train,
        device=device,
        precision=choose_precision(recipe, device, learner.model.backbone),
    )
    total, first = settings.rounds * settings.local_steps, round_number * settings.local_steps
    losses, tokens, samples = [], 0, 0
    learner.train()
    for step in range(first, first + settings.local_steps):
        batches = [feed.batch(step, micro_step) for micro_step in range(feed.micro_steps_of(step))]
        result = stepper.train_step(step, total, SOURCE, batches)
        if not result.is_finite:
            raise MeristemError(f"step {step}: the loss or the gradient is not finite; lower train.learning_rate")
        losses.append(float(result.loss))
        tokens, samples = tokens + result.tokens, samples + result.samples
    update = {name: tensor.cpu() - weights[name] for name, tensor in shared_tensors(learner.model).items()}
    return LocalResult(
        update=update, loss=math.fsum(losses) / len(losses), tokens=tokens, samples=samples, steps=len(losses)
    )


def _add_proximal_term(
    model: Model, optimizers: list[torch.optim.Optimizer], weights: Mapping[str, Tensor], mu: float
) -> None:
    """FedProx (Li et al. 2020): add μ(w − w_global), the gradient of μ/2·‖w − w_global‖², before each step.

    It is added after gradient clipping, which would otherwise weaken the term where the loss is steep.
    """
    state = model.state_dict(keep_vars=True)
    anchors = {id(state[name]): (state[name], anchor.to(state[name].device)) for name, anchor in weights.items()}
    for optimizer in optimizers:
        members = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        optimizer.register_step_pre_hook(_proximal_hook([anchors[id(p)] for p in members if id(p) in anchors], mu))


def _proximal_hook(anchored: list[tuple[Tensor, Tensor]], mu: float) -> Callable[..., None]:
    def add_gradient(*_: Any) -> None:
        for parameter, anchor in anchored:
            if parameter.grad is not None:
                parameter.grad.add_(parameter.detach() - anchor, alpha=mu)

    return add_gradient
