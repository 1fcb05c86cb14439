"""Simulated clients on Flower: its ClientApp and ServerApp in one process, joined by a grid that loses messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from rich.console import Console

from meristem.config.errors import MeristemError
from meristem.training.run_result import RunResult
from meristem.trust.federated.client import FederatedClient
from meristem.trust.federated.client_pool import DROPPED_OUT, simulated_clients
from meristem.trust.federated.federate import FederatedPlan, train_federated
from meristem.trust.federated.flower_clients import CLIENT_ERROR, SECURE, TRAIN, FlowerClientPool, make_client_app
from meristem.trust.federated.participation import drops_out

RUN_ID, SERVER_NODE = 1, 1
FIRST_CLIENT_NODE = 2
STAGES_OF_SILENCE = ("masked", "unmask")
"""A simulated client drops out of secure aggregation after it has shared its secrets, the hard case."""


@dataclass(kw_only=True)
class InProcessGrid(Grid):  # type: ignore[misc]  # Flower is not in the environment that checks types
    """A Flower grid whose nodes are in this process and answer one after the other, always in the same order."""

    app: ClientApp
    contexts: Mapping[int, Context]
    """Node → its context, which keeps its state from message to message."""
    names: Mapping[int, str]
    seed: int
    dropout: float
    inbox: dict[str, Message] = field(default_factory=dict)
    """Message → its answer, until it is pulled."""

    def set_run(self, run: Run) -> None:
        """Nothing to set: there is one run."""

    @property
    def run(self) -> Run:
        """The run."""
        return Run.create_empty(RUN_ID)

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """A message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """All nodes."""
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Deliver messages: their nodes answer now, or drop out."""
        ids = []
        for message in messages:
            message_id = str(uuid4())
            message.metadata.__dict__["_message_id"] = message_id  # as Flower's own grids do
            ids.append(message_id)
            if self._is_lost(message):
                self.inbox[message_id] = Message(Error(code=CLIENT_ERROR, reason=DROPPED_OUT), reply_to=message)
                continue
            self.inbox[message_id] = self.app(message, self.contexts[message.metadata.dst_node_id])
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """The answers to these messages."""
        return [self.inbox.pop(message_id) for message_id in message_ids if message_id in self.inbox]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Deliver messages and return the answers."""
        return self.pull_messages(self.push_messages(messages))

    def _is_lost(self, message: Message) -> bool:
        if message.metadata.message_type == SECURE:
            stage = message.content.config_records["stage"]["stage"]
            can_drop = stage in STAGES_OF_SILENCE
        else:
            can_drop = message.metadata.message_type == TRAIN
        return can_drop and drops_out(
            self.names[message.metadata.dst_node_id],
            seed=self.seed,
            round_number=int(message.metadata.group_id),
            probability=self.dropout,
        )


def simulate_with_flower(plan: FederatedPlan, console: Console, *, fresh: bool) -> RunResult:
    """Train with simulated clients: the same result, bit for bit, as in a plain loop."""
    clients = simulated_clients(plan.federation, plan.folder, console)
    names = dict(enumerate(sorted(clients), FIRST_CLIENT_NODE))
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN_ID, SERVER_NODE, 1
    grid = InProcessGrid(
        app=make_client_app(lambda context: clients[names[context.node_id]], _reason),
        contexts={node: _context(node) for node in names},
        names=names,
        seed=plan.recipe.train.seed,
        dropout=plan.federation.settings.dropout,
    )
    results: list[RunResult] = []
    server_app = ServerApp()

    @server_app.main()  # type: ignore[untyped-decorator]
    def main(grid: Grid, context: Context) -> None:
        known = frozenset(clients)
        timeout = plan.federation.settings.timeout
        results.append(
            train_federated(
                plan,
                lambda _: FlowerClientPool(grid=grid, known=known, timeout=timeout),
                console,
                fresh=fresh,
            )
        )

    server_app(grid, _context(SERVER_NODE))
    return results[0]


def _context(node: int) -> Context:
    return Context(run_id=RUN_ID, node_id=node, node_config={}, state=RecordDict(), run_config={})


def _reason(_: FederatedClient, error: MeristemError) -> str:
    """The whole reason: server and clients are one process of one person."""
    return str(error)
