"""The Flower app of a federated run: `client_app` runs at each owner's node, `server_app` at the SuperLink.

A node is started by its owner, who says where the text is and where logs and keys are kept:

    flower-supernode --superlink HOST:PORT --root-certificates ca.crt --node-config 'name="anna" source="/data/anna"'
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from meristem.config.errors import MeristemError
from meristem.config.validation import build_settings
from meristem.dataset.prepare import cache_dir
from meristem.trust.federated.client import FederatedClient
from meristem.trust.federated.federate import FederatedRequest, make_plan, train_federated
from meristem.trust.federated.flower_clients import HIDDEN_REASON, FlowerClientPool, make_client_app
from meristem.trust.federated.settings import FederatedClientSettings
from meristem.utils.console import TerminalConsole

REQUEST = "request"
"""Entry of the app's configuration with the `meristem federate` command, as JSON."""
NODE_SETTINGS = ("name", "source", "weight")
NODE_PRIVACY = ("clip", "noise_multiplier")
"""Bounds that an owner sets for a node, whatever the server asks for."""
_clients: dict[str, FederatedClient] = {}


def node_client(context: Context) -> FederatedClient:
    """The client of this node, from the configuration that its owner gave it."""
    given = dict(context.node_config)
    if missing := [key for key in ("name", "source") if key not in given]:
        raise MeristemError(
            f'this node has no {missing[0]}: start it with flower-supernode --node-config \'name="…" source="…"\''
        )
    values: dict[str, Any] = {key: given[key] for key in NODE_SETTINGS if key in given}
    if own := {key: given[key] for key in NODE_PRIVACY if key in given}:
        values["privacy"] = own
    settings = build_settings(FederatedClientSettings, values, "node-config")
    if settings.name not in _clients:
        default = cache_dir() / "federated" / settings.name
        folder = Path(str(given.get("folder", default)))
        _clients[settings.name] = FederatedClient(
            settings=settings, folder=folder, console=TerminalConsole(stderr=True)
        )
    return _clients[settings.name]


def log_error(client: FederatedClient, error: MeristemError) -> str:
    """Write an error to the owner's log; the server learns only that there was one."""
    client.folder.mkdir(parents=True, exist_ok=True)
    with (client.folder / "errors.log").open("a", encoding="utf-8") as file:
        file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {error}\n")
    return HIDDEN_REASON


client_app = make_client_app(node_client, log_error)
server_app = ServerApp()


@server_app.main()  # type: ignore[untyped-decorator]
def main(grid: Grid, context: Context) -> None:
    """Run the rounds with the nodes that are connected to the SuperLink."""
    request = request_from_json(str(context.run_config[REQUEST]))
    console = TerminalConsole(stderr=True)
    plan = make_plan(request, console)
    settings = plan.federation.settings
    pool = FlowerClientPool(
        grid=grid, known=frozenset(plan.federation.names), timeout=settings.timeout, at_least=settings.min_clients
    )
    train_federated(plan, lambda _: pool, console, fresh=request.fresh)


def request_to_json(request: FederatedRequest) -> str:
    """A command as text, with absolute paths."""
    assert request.out is not None
    values: dict[str, Any] = {**vars(request), "overrides": list(request.overrides)}
    return json.dumps(
        values | {"clients": str(request.clients.resolve()), "out": str(request.out.resolve())},
        sort_keys=True,
        allow_nan=False,
    )


def request_from_json(text: str) -> FederatedRequest:
    """The command in a text."""
    values = json.loads(text)
    return FederatedRequest(**{**values, "clients": Path(values["clients"]), "out": Path(values["out"])})
