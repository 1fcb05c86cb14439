"""Clients as the server sees them: an interface, and simulated clients in a plain loop of this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rich.console import Console

from meristem.config.errors import MeristemError
from meristem.trust.federated.aggregation import Update
from meristem.trust.federated.client import FederatedClient, LearnerCache
from meristem.trust.federated.clients_file import Federation
from meristem.trust.federated.messages import ClientFailure, ClientReply, ClientTask
from meristem.trust.federated.participation import drops_out

DROPPED_OUT = "dropped out (simulated)"


@dataclass(kw_only=True)
class RoundAnswers:
    """The answers to one task, by name of the client; the mean of masked updates if the server sees only that."""

    replies: list[ClientReply]
    failures: list[ClientFailure]
    secure_mean: Update | None = None
    """Weighted mean of the updates by secure aggregation, whose replies have no updates."""


class ClientPool(Protocol):
    """Clients that can be asked; one that does not answer in time is a failure, never an exception."""

    def reachable(self) -> Sequence[str]:
        """The names of the clients that are connected now."""

    def ask(self, task: ClientTask, names: Sequence[str]) -> RoundAnswers:
        """Send a task to these clients and wait for their answers, at most `timeout` seconds."""


@dataclass(kw_only=True)
class LocalClientPool:
    """Simulated clients, one after the other in this process, without Flower."""

    clients: Mapping[str, FederatedClient]
    seed: int
    dropout: float = 0.0

    def reachable(self) -> list[str]:
        """All clients: a simulated one drops out after it was asked."""
        return sorted(self.clients)

    def ask(self, task: ClientTask, names: Sequence[str]) -> RoundAnswers:
        """The answers of the clients that do not drop out; one that fails says why and the others go on."""
        if task.kind == "train" and task.settings.secure_aggregation:
            return self._ask_securely(task, names)
        replies, failures = [], []
        for name in sorted(names):
            if task.kind == "train" and drops_out(
                name, seed=self.seed, round_number=task.round_number, probability=self.dropout
            ):
                failures.append(ClientFailure(client=name, reason=DROPPED_OUT))
                continue
            try:
                replies.append(self.clients[name].answer(task))
            except MeristemError as error:
                failures.append(ClientFailure(client=name, reason=str(error)))
        return RoundAnswers(replies=replies, failures=failures)

    def _ask_securely(self, task: ClientTask, names: Sequence[str]) -> RoundAnswers:
        from meristem.trust.federated.secure_server import ask_securely
        from meristem.trust.federated.secure_stages import LocalStageExchange

        exchange = LocalStageExchange(clients=self.clients, seed=self.seed, dropout=self.dropout)
        answers = ask_securely(exchange, task, names)
        reasons = {failure.client: failure for failure in exchange.failures}
        answers.failures = [reasons.get(failure.client, failure) for failure in answers.failures]
        return answers


def simulated_clients(federation: Federation, folder: Path, console: Console) -> dict[str, FederatedClient]:
    """One client per entry of clients.yaml, all of them in this process; they share one model in memory."""
    learners = LearnerCache()
    return {
        client.name: FederatedClient(settings=client, folder=folder, build_learner=learners, console=console)
        for client in federation.clients
    }
