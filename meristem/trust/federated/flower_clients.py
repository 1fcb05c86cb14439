"""Flower's ClientApp for a federated client, and Flower nodes as a pool of clients."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from meristem.config.errors import MeristemError
from meristem.trust.federated.client import FederatedClient
from meristem.trust.federated.client_pool import RoundAnswers
from meristem.trust.federated.flower_messages import (
    CONFIG,
    reply_from_records,
    reply_to_records,
    task_from_records,
    task_to_records,
)
from meristem.trust.federated.messages import ClientFailure, ClientTask
from meristem.trust.federated.secure_client import SecureClientRound
from meristem.trust.federated.secure_server import Stage, StageReply, ask_securely
from meristem.trust.federated.secure_stages import do_stage

STAGE, STAGE_DATA, STATE = "stage", "data", "secure_state"
TRAIN, EVALUATE, SECURE, NAME = "train.plain", "evaluate", "train.secure", "query.name"
"""Message types."""
CLIENT_ERROR = 1
HIDDEN_REASON = "it could not do the task; its own log says why"
"""All that a node's owner lets the server know of an error, whose message may quote their files."""
NAME_TIMEOUT = 60.0
POLL_SECONDS = 0.5
ClientOf = Callable[[Context], FederatedClient]
Handler = Callable[[Message, Context], RecordDict]


def make_client_app(client_of: ClientOf, report_error: Callable[[FederatedClient, MeristemError], str]) -> ClientApp:
    """The ClientApp of federated training; `report_error` logs an error and returns what the server may know of it."""
    app = ClientApp()

    def answered(handler: Handler) -> Callable[[Message, Context], Message]:
        def handle(message: Message, context: Context) -> Message:
            try:
                return Message(handler(message, context), reply_to=message)
            except MeristemError as error:
                reason = report_error(client_of(context), error)
                return Message(Error(code=CLIENT_ERROR, reason=reason), reply_to=message)

        return handle

    def answer(message: Message, context: Context) -> RecordDict:
        return reply_to_records(client_of(context).answer(task_from_records(message.content)))

    def name(_: Message, context: Context) -> RecordDict:
        return RecordDict({CONFIG: ConfigRecord({"client": client_of(context).settings.name})})

    app.train("plain")(answered(answer))
    app.evaluate()(answered(answer))
    app.query("name")(answered(name))
    app.train("secure")(answered(lambda message, context: _secure_stage(client_of(context), message, context)))
    return app


def _secure_stage(client: FederatedClient, message: Message, context: Context) -> RecordDict:
    """One stage of secure aggregation; its secrets are kept in the node's own context, which never leaves it."""
    given = message.content[STAGE]
    assert isinstance(given, ConfigRecord)
    saved = context.state.get(STATE)
    state = SecureClientRound.from_json(str(saved["json"])) if isinstance(saved, ConfigRecord) else None
    task = task_from_records(message.content)
    stage: Any = str(given[STAGE])
    reply, state = do_stage(client, state, stage, task, json.loads(str(given[STAGE_DATA])))
    context.state[STATE] = ConfigRecord({"json": state.to_json()})
    records = reply_to_records(reply.reply) if reply.reply is not None else RecordDict()
    records[STAGE] = ConfigRecord({STAGE_DATA: json.dumps(reply.data, allow_nan=False)})
    return records


@dataclass(kw_only=True)
class FlowerClientPool:
    """Clients behind a Flower grid. Nodes come and go, and say their name once; unknown names are not asked."""

    grid: Grid
    known: frozenset[str]
    """Names in clients.yaml."""
    timeout: float
    at_least: int = 1
    """Clients that a round waits for; the first one waits for all."""
    names: dict[int, str] = field(default_factory=dict)
    """Node → name of its client."""
    failures: list[ClientFailure] = field(default_factory=list)

    def reachable(self) -> list[str]:
        """Names of the clients whose nodes are connected; waits for enough of them, but not longer than `timeout`."""
        wanted, end = (self.at_least if self.names else len(self.known)), time.monotonic() + self.timeout
        while len(nodes := self._nodes()) < wanted and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        return sorted(nodes)

    def ask(self, task: ClientTask, names: Sequence[str]) -> RoundAnswers:
        """Send a task to nodes and wait; answers after the timeout are not used."""
        self.failures = []
        if task.kind == "train" and task.settings.secure_aggregation:
            answers = ask_securely(self._exchange, task, names)
            reasons = {failure.client: failure for failure in self.failures}
            answers.failures = [reasons.get(failure.client, failure) for failure in answers.failures]
            return answers
        message_type = TRAIN if task.kind == "train" else EVALUATE
        nodes, content = self._nodes(), task_to_records(task)
        messages = [self._message(content, nodes[name], message_type, task) for name in names if name in nodes]
        replies = []
        for name, answer in self._send(messages).items():
            try:
                reply = reply_from_records(answer)
                if reply.client != name:
                    raise MeristemError(f"it answered as {reply.client}")
                replies.append(reply)
            except (MeristemError, KeyError, ValueError, TypeError) as error:
                self.failures.append(ClientFailure(client=name, reason=f"an invalid answer: {error}"))
        there = {reply.client for reply in replies} | {failure.client for failure in self.failures}
        silent = [ClientFailure(client=name, reason=self._silence(name)) for name in names if name not in there]
        replies.sort(key=lambda reply: reply.client)
        return RoundAnswers(replies=replies, failures=[*self.failures, *silent])

    def _silence(self, name: str) -> str:
        return f"no answer within {self.timeout:g} s" if name in self._nodes() else "not connected"

    def _nodes(self) -> dict[str, int]:
        """Name → node, of the clients that are connected now."""
        nodes = list(self.grid.get_node_ids())
        if new := [node for node in nodes if node not in self.names]:
            messages = [
                Message(content=RecordDict(), dst_node_id=node, message_type=NAME, ttl=NAME_TIMEOUT) for node in new
            ]
            for message in self.grid.send_and_receive(messages, timeout=min(self.timeout, NAME_TIMEOUT)):
                if not message.has_error() and message.metadata.src_node_id in new:
                    config = message.content[CONFIG]
                    assert isinstance(config, ConfigRecord)
                    self.names[message.metadata.src_node_id] = str(config["client"])
        return {self.names[node]: node for node in nodes if self.names.get(node) in self.known}

    def _message(self, content: RecordDict, node: int, message_type: str, task: ClientTask) -> Message:
        return Message(
            content=content,
            dst_node_id=node,
            message_type=message_type,
            ttl=self.timeout,
            group_id=str(task.round_number),
        )

    def _send(self, messages: Iterable[Message]) -> dict[str, RecordDict]:
        """Contents of the answers by client; errors become failures."""
        answers: dict[str, RecordDict] = {}
        for message in self.grid.send_and_receive(messages, timeout=self.timeout):
            name = self.names.get(message.metadata.src_node_id)
            if name is None:
                continue  # the SuperLink answers for a node that has gone: it did not answer in time
            if message.has_error():
                self.failures.append(ClientFailure(client=name, reason=message.error.reason or HIDDEN_REASON))
            else:
                answers[name] = message.content
        return answers

    def _exchange(self, stage: Stage, task: ClientTask, data: Mapping[str, dict[str, Any]]) -> dict[str, StageReply]:
        """One stage of secure aggregation; only the stage with the update needs the weights."""
        nodes, messages = self._nodes(), []
        for name, given in data.items():
            if name in nodes:
                content = task_to_records(task, with_weights=stage == "masked")
                content[STAGE] = ConfigRecord({STAGE: stage, STAGE_DATA: json.dumps(given, allow_nan=False)})
                messages.append(self._message(content, nodes[name], SECURE, task))
        replies: dict[str, StageReply] = {}
        for name, answer in self._send(messages).items():
            config = answer[STAGE]
            assert isinstance(config, ConfigRecord)
            reply = reply_from_records(answer) if stage == "masked" else None
            replies[name] = StageReply(data=json.loads(str(config[STAGE_DATA])), reply=reply)
        return replies
