"""The server of federated training: rounds of asking clients, combining updates, evaluating and saving."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.config.recipe import PretrainRecipe
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.run_logger import RunLogger
from meristem.training.stop_signals import StopSignals, TrainingStopped
from meristem.trust.federated.aggregation import ServerOptimizer, Update, update_norm, weighted_mean
from meristem.trust.federated.client_pool import ClientPool, RoundAnswers
from meristem.trust.federated.messages import ClientFailure, ClientReply, ClientTask, TaskKind
from meristem.trust.federated.participation import choose_clients
from meristem.trust.federated.server_state import ServerState
from meristem.trust.federated.settings import FederatedSettings
from meristem.trust.federated.update_privacy import gaussian_noise, spent_epsilon

MAX_SHOWN_FAILURES = 3


@dataclass(kw_only=True)
class FederatedServer:
    """Runs rounds from the state it is given; all it knows of the text are the clients' answers."""

    recipe: PretrainRecipe
    tokenizer: Tokenizer
    settings: FederatedSettings
    pool: ClientPool
    state: ServerState
    optimizer: ServerOptimizer
    logger: RunLogger
    save: Callable[[], None]
    noise_key: bytes | None = None
    """The secret of the server's noise, with privacy at the server."""

    def run(self) -> None:
        """Run the rounds that are left, and evaluate the final weights on the clients."""
        started, before = time.monotonic(), self.state.seconds
        with StopSignals() as signals:
            while self.state.round_number < self.settings.rounds:
                self._run_round()
                self.state.seconds = before + time.monotonic() - started
                done = self.state.round_number
                if done % self.settings.save_every == 0 or done == self.settings.rounds or signals.received:
                    self.save()
                if signals.received is not None and done < self.settings.rounds:
                    raise TrainingStopped(
                        signals.received,
                        f"stopped after round {done} of {self.settings.rounds}; run the same command again to resume",
                    )

    # ------------------------------------------------------------ one round

    def _run_round(self) -> None:
        number = self.state.round_number
        is_due = number % self.settings.evaluate_every == 0
        if is_due and not self.logger.has_metrics("evaluation", self._step(number)):  # not again after a resume
            self.evaluate()
        asked = self._choose(number)
        answers = self.pool.ask(self._task("train", number), asked)
        failures = [*answers.failures, *self._refuse_broken(answers)]
        if len(answers.replies) < self.settings.min_clients:
            self._fail_round(asked, answers.replies, failures)
        else:
            is_private = self.settings.privacy is not None  # then the weights are equal, whatever a client says
            pairs = [(reply.update, 1.0 if is_private else reply.weight) for reply in answers.replies]
            mean = answers.secure_mean or weighted_mean(pairs)
            mean = self._with_noise(mean, answers.replies)
            self.state.weights = self.optimizer.step(self.state.weights, mean)
            self.state.failed_in_row = 0
            self._record(answers, update_norm(mean))
        self._write_round(asked, answers.replies, failures)
        self.state.round_number += 1

    def _choose(self, number: int) -> list[str]:
        settings = self.settings
        return choose_clients(
            self.pool.reachable(),
            seed=self.recipe.train.seed,
            round_number=number,
            fraction=settings.fraction,
            at_least=settings.min_clients,
        )

    def _task(self, kind: TaskKind, number: int) -> ClientTask:
        return ClientTask(
            kind=kind,
            round_number=number,
            weights=self.state.weights,
            recipe=self.recipe,
            tokenizer=self.tokenizer,
            settings=self.settings,
        )

    def _refuse_broken(self, answers: RoundAnswers) -> list[ClientFailure]:
        """Take out answers that would spoil the global weights: of another round or shape, or not finite."""
        broken: list[ClientFailure] = []
        for reply in list(answers.replies):
            reason = _problem(reply, self.state.weights, self.state.round_number, masked=bool(answers.secure_mean))
            if reason is not None:
                answers.replies.remove(reply)
                broken.append(ClientFailure(client=reply.client, reason=reason))
        return broken

    def _with_noise(self, mean: Update, replies: Sequence[ClientReply]) -> Update:
        """The mean with the server's noise: z·clip on the sum of the updates, which have equal weights."""
        privacy = self.settings.privacy
        if privacy is None:
            return mean
        self.state.participation.update(reply.client for reply in replies)
        if privacy.noise_at == "server":
            assert self.noise_key is not None
            std = privacy.noise_multiplier * privacy.clip / len(replies)
            noise = gaussian_noise(mean, std, key=self.noise_key, round_number=self.state.round_number)
            mean = {name: tensor + noise[name] for name, tensor in mean.items()}
        self.state.epsilon = spent_epsilon(max(self.state.participation.values()), privacy)
        return mean

    def _record(self, answers: RoundAnswers, norm: float) -> None:
        """Add the counts of the answers, and write a line of metrics."""
        replies, state = answers.replies, self.state
        if self.settings.privacy is None:
            state.participation.update(reply.client for reply in replies)
        state.tokens += sum(reply.tokens for reply in replies)
        state.samples += sum(reply.samples for reply in replies)
        losses = {reply.client: reply.metrics["loss"] for reply in replies if "loss" in reply.metrics}
        values: dict[str, Any] = {"clients": len(replies), "update_norm": norm, "tokens": state.tokens}
        if losses:
            values |= {"loss": math.fsum(losses.values()) / len(losses)}
            values |= {"loss_min": min(losses.values()), "loss_max": max(losses.values())}
        if state.epsilon is not None:
            values["epsilon"] = state.epsilon
        self.logger.write_metrics("train", self._step(state.round_number + 1), values)

    def _fail_round(
        self, asked: Sequence[str], replies: Sequence[ClientReply], failures: Sequence[ClientFailure]
    ) -> None:
        """Too few answers: the weights stay; several such rounds in a row end the run."""
        state, settings = self.state, self.settings
        state.failed_in_row += 1
        reasons = "; ".join(f"{failure.client}: {failure.reason}" for failure in failures[:MAX_SHOWN_FAILURES])
        message = (
            f"round {state.round_number + 1}: {len(replies)} of {len(asked)} clients answered, and "
            f"federated.min_clients is {settings.min_clients}" + (f" ({reasons})" if reasons else "")
        )
        if state.failed_in_row >= settings.max_failed_rounds:
            raise MeristemError(
                f"{message}. {state.failed_in_row} rounds in a row had too few answers: start the clients, correct "
                "what they say, or lower federated.min_clients; the same command resumes"
            )
        self.logger.log(f"{message}; the weights stay as they are")

    def _write_round(
        self, asked: Sequence[str], replies: Sequence[ClientReply], failures: Sequence[ClientFailure]
    ) -> None:
        """A line about who took part, for the report."""
        model_bytes = sum(tensor.nbytes for tensor in self.state.weights.values())
        number = self.state.round_number + 1
        values = {
            "round": number,
            "asked": list(asked),
            "answered": {reply.client: reply.metrics.get("loss") for reply in replies},
            "failed": {failure.client: failure.reason for failure in failures},
            "bytes_to_clients": model_bytes * len(asked),
            "bytes_from_clients": sum(reply.num_bytes for reply in replies),
        }
        self.logger.write_metrics("round", self._step(number), values)
        losses = [reply.metrics["loss"] for reply in replies if "loss" in reply.metrics]
        loss = f"  loss {math.fsum(losses) / len(losses):.4g}" if losses else ""
        spent = f"  ε {self.state.epsilon:.3g}" if self.state.epsilon is not None else ""
        self.logger.log(f"round {number}/{self.settings.rounds}  {len(replies)} of {len(asked)} clients{loss}{spent}")

    def _step(self, rounds: int) -> int:
        return rounds * self.settings.local_steps

    # ------------------------------------------------------------ evaluation

    def evaluate(self) -> dict[str, float]:
        """Loss of the global weights on the clients' own validation text, weighted by its tokens, and its spread."""
        number = self.state.round_number
        replies = self.pool.ask(self._task("evaluate", number), self.pool.reachable()).replies
        results = {
            reply.client: (reply.metrics["validation_loss"], reply.metrics["validation_tokens"])
            for reply in replies
            if math.isfinite(reply.metrics.get("validation_loss", math.nan))
        }
        tokens = sum(count for _, count in results.values())
        if not tokens:
            return {}
        losses = {client: loss for client, (loss, _) in results.items()}
        metrics = {
            "loss": math.fsum(loss * count for loss, count in results.values()) / tokens,
            "loss_min": min(losses.values()),
            "loss_max": max(losses.values()),
        }
        step = self._step(number)
        self.logger.write_metrics("evaluation", step, {**metrics, "round": number, "client_losses": losses})
        self.logger.log(
            f"after round {number}: loss {metrics['loss']:.4g} on the validation text of {len(losses)} clients "
            f"({metrics['loss_min']:.4g} to {metrics['loss_max']:.4g})"
        )
        return metrics


def _problem(reply: ClientReply, weights: Mapping[str, Tensor], number: int, *, masked: bool) -> str | None:
    """Why an answer cannot be used; None if it can."""
    if reply.round_number != number:
        return f"it answered round {reply.round_number + 1}"
    if not math.isfinite(reply.weight) or reply.weight <= 0:
        return f"its weight is {reply.weight}"
    if masked:
        return None
    if reply.update.keys() != weights.keys():
        return "its update has other tensors than the model"
    for name, tensor in reply.update.items():
        if tensor.shape != weights[name].shape or tensor.dtype != weights[name].dtype:
            return f"its update of {name} has another shape or type"
        if not tensor.isfinite().all():
            return f"its update of {name} is not finite"
    return None
