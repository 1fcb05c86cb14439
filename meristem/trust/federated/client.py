"""A client of federated training: trains and evaluates on one owner's text, and logs everything it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from meristem.config.errors import MeristemError
from meristem.config.recipe import PretrainRecipe
from meristem.corpus.settings import CorpusSettings
from meristem.dataset.feed import Feed
from meristem.learning.learner import Learner
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.data.pretraining_data import PretrainingData
from meristem.training.data.training_data import EvaluateFn
from meristem.trust.federated.aggregation import clip_update
from meristem.trust.federated.local_training import (
    SOURCE,
    build_trainable_learner,
    copy_weights,
    load_client_data,
    train_locally,
)
from meristem.trust.federated.messages import ClientReply, ClientTask
from meristem.trust.federated.participation import client_seed
from meristem.trust.federated.sent_log import SentLog
from meristem.trust.federated.settings import FederatedClientSettings, FederatedSettings
from meristem.trust.federated.update_privacy import add_noise, load_noise_key, stricter

QUIET_CONSOLE = Console(quiet=True)
LearnerFactory = Callable[[PretrainRecipe, Tokenizer], Learner]


class LearnerCache:
    """One learner for all simulated clients of a process: every task begins by copying the global weights into it."""

    def __init__(self) -> None:
        self._learner: Learner | None = None
        self._key: tuple[object, ...] = ()

    def __call__(self, recipe: PretrainRecipe, tokenizer: Tokenizer) -> Learner:
        key = (recipe.model, recipe.objective, recipe.start, tokenizer.digest)
        if self._learner is None or key != self._key:
            self._learner, self._key = build_trainable_learner(recipe, tokenizer), key
        return self._learner


@dataclass(kw_only=True)
class FederatedClient:
    """One owner's side. Text, token ids and noise stay on its machine; `folder` holds its log and its noise key."""

    settings: FederatedClientSettings
    folder: Path
    build_learner: LearnerFactory = field(default_factory=LearnerCache)
    console: Console = QUIET_CONSOLE

    def __post_init__(self) -> None:
        self.sent_log = SentLog(self.folder / "sent" / f"{self.settings.name}.jsonl")
        self._prepared: _PreparedText | None = None

    def answer(self, task: ClientTask) -> ClientReply:
        """Do a task; everything in the reply has been logged before it is returned."""
        reply = self.train(task) if task.kind == "train" else self._evaluate(task)
        self.sent_log.add(reply)
        return reply

    def train(self, task: ClientTask) -> ClientReply:
        """The update of the local steps; it has not been logged, and must not leave before it is."""
        text = self._prepare(task)
        result = train_locally(text.learner, text.feed, text.recipe, task.weights, task.settings, task.round_number)
        reply = ClientReply(client=self.settings.name, kind=task.kind, round_number=task.round_number)
        clip = stricter(task.settings.privacy, self.settings.privacy)
        if clip is None:
            return replace(
                reply,
                update=result.update,
                weight=self._weight(task.settings, text.data),
                tokens=result.tokens,
                samples=result.samples,
                metrics={"loss": result.loss, "steps": result.steps},
            )
        # losses and counts are not covered by the noise: with privacy they do not leave
        update = clip_update(result.update, clip)
        if std := self._noise_std(task.settings):
            key = load_noise_key(self.folder / "keys" / self.settings.name)
            update = add_noise(update, std, key=key, round_number=task.round_number)
        # the server's noise is for equal weights; an owner who alone asks for privacy is weighted as the others are
        weight = 1.0 if task.settings.privacy is not None else self._weight(task.settings, text.data)
        return replace(reply, update=update, weight=weight)

    def _evaluate(self, task: ClientTask) -> ClientReply:
        reply = ClientReply(client=self.settings.name, kind=task.kind, round_number=task.round_number)
        if stricter(task.settings.privacy, self.settings.privacy) is not None:
            return reply
        text = self._prepare(task)
        if text.evaluate is None:
            return reply
        copy_weights(text.learner.model, task.weights)
        loss = text.evaluate()["loss"]
        return replace(reply, metrics={"validation_loss": loss, "validation_tokens": text.validation_tokens})

    def _weight(self, settings: FederatedSettings, data: PretrainingData) -> float:
        """The weight of an update: the owner's, or by `weighting`."""
        if self.settings.weight is not None:
            return self.settings.weight
        # with secure aggregation the server must know the largest weight in advance
        return float(data.num_tokens) if settings.weighting == "tokens" and not settings.secure_aggregation else 1.0

    def _noise_std(self, settings: FederatedSettings) -> float:
        """Standard deviation of the noise this client adds: its share, or all of it where the owner asks for noise."""
        stds = [0.0]
        if (shared := settings.privacy) is not None and shared.noise_at == "clients":
            stds.append(shared.clip * shared.noise_multiplier / settings.min_clients**0.5)
        if (own := self.settings.privacy) is not None:
            stds.append(own.clip * own.noise_multiplier)
        return max(stds)

    def _prepare(self, task: ClientTask) -> _PreparedText:
        """The owner's text as token ids, prepared once."""
        learner = self.build_learner(task.recipe, task.tokenizer)
        if self._prepared is not None and self._prepared.learner is learner and self._prepared.task == task.recipe:
            return self._prepared
        if self.settings.source is None:
            raise MeristemError(f"{self.settings.name}: this client has no source; name the owner's text")
        train = task.recipe.train
        seed = client_seed(train.seed, self.settings.name)
        recipe = replace(task.recipe, train=train.model_copy(update={"seed": seed}))
        corpus = owner_corpus(recipe.corpus, self.settings.source)
        data = load_client_data(recipe, corpus, task.tokenizer, self.console)
        feeds = data.build_feeds(recipe, learner.objectives, split="train", seed=seed)
        evaluate = data.build_evaluator(recipe, learner, "validation", lambda _: None)
        held_out = len(data.datasets[SOURCE].split("validation")) if evaluate is not None else 0
        self._prepared = _PreparedText(
            learner=learner,
            task=task.recipe,
            recipe=recipe,
            data=data,
            feed=feeds[SOURCE],
            evaluate=evaluate,
            validation_tokens=min(held_out, train.evaluate_tokens),
        )
        return self._prepared


def owner_corpus(corpus: CorpusSettings, source: str | tuple[str, ...]) -> CorpusSettings:
    """The federation's processing of text, applied to an owner's; any other path in it is not followed."""
    defaults = CorpusSettings.model_validate({})
    held_out = {
        name: value if isinstance(value := getattr(corpus, name), float) else getattr(defaults, name)
        for name in ("validation", "test")
    }
    return corpus.model_copy(update={"source": source, "target": None, "image": None, **held_out})


@dataclass(frozen=True, kw_only=True)
class _PreparedText:
    """An owner's text as token ids, with what reads it."""

    learner: Learner
    task: PretrainRecipe
    """The recipe that was sent."""
    recipe: PretrainRecipe
    """The same with the client's own text and seed."""
    data: PretrainingData
    feed: Feed
    evaluate: EvaluateFn | None
    validation_tokens: int
