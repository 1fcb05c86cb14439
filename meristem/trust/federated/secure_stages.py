"""The stages of secure aggregation as a client does them, for clients in this process and for Flower's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from meristem.config.errors import MeristemError
from meristem.trust.federated.client import FederatedClient
from meristem.trust.federated.messages import ClientFailure, ClientTask
from meristem.trust.federated.participation import drops_out
from meristem.trust.federated.secure_client import SecureClientRound, state_for
from meristem.trust.federated.secure_server import Stage, StageReply


def do_stage(
    client: FederatedClient, state: SecureClientRound | None, stage: Stage, task: ClientTask, data: Mapping[str, Any]
) -> tuple[StageReply, SecureClientRound]:
    """A client's answer in one stage, and its state for the next."""
    own = state_for(client.settings.name, task.round_number, None if stage == "keys" else state)
    if stage == "masked":
        reply = client.train(task)
        masked = own.masked(reply.update, reply.weight, data["received"])
        reply = replace(reply, update=masked)
        client.sent_log.add(reply, masked=True)
        return StageReply(reply=reply), own
    if stage == "keys":
        answer: dict[str, Any] = own.keys()
    elif stage == "shares":
        answer = own.shares(data["keys"], int(data["threshold"]))
    else:
        answer = own.unmask(data["answered"])
    client.sent_log.add_protocol(client.settings.name, task.round_number, stage, answer)
    return StageReply(data=answer), own


@dataclass(kw_only=True)
class LocalStageExchange:
    """Stages with simulated clients of this process; one drops out after it has shared its secrets, the hard case."""

    clients: Mapping[str, FederatedClient]
    seed: int
    dropout: float
    states: dict[str, SecureClientRound] = field(default_factory=dict)
    failures: list[ClientFailure] = field(default_factory=list)

    def __call__(self, stage: Stage, task: ClientTask, data: Mapping[str, dict[str, Any]]) -> dict[str, StageReply]:
        """Answers of the clients that are still there."""
        answers: dict[str, StageReply] = {}
        for name, given in sorted(data.items()):
            is_gone = stage in ("masked", "unmask") and drops_out(
                name, seed=self.seed, round_number=task.round_number, probability=self.dropout
            )
            if is_gone:
                continue
            try:
                answers[name], self.states[name] = do_stage(
                    self.clients[name], self.states.get(name), stage, task, given
                )
            except MeristemError as error:
                self.failures.append(ClientFailure(client=name, reason=str(error)))
        return answers
