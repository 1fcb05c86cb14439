"""The federate command: pretraining over several owners' texts, which stay with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from meristem.cli import options
from meristem.cli.output import print_json, print_message, stderr_console

if TYPE_CHECKING:
    from meristem.trust.federated.run_federation import FederatedResult

FederatedRecipe = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A built-in pretraining recipe, or a YAML file.")
]
Clients = Annotated[Path, typer.Argument(metavar="CLIENTS", help="clients.yaml: the clients, each with its own text.")]
FederatedOverrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[key=value …]", help="Settings of the recipe, federated.NAME=…, or tokenizer.source=FILE."),
]
Rounds = Annotated[int | None, typer.Option("--rounds", min=1, help="Number of rounds; 20 unless set.")]
Strategy = Annotated[
    Literal["fedavg", "fedprox", "fedadam"] | None,
    typer.Option("--strategy", help="How updates are combined; fedavg unless set."),
]


def federate(
    recipe: FederatedRecipe,
    clients: Clients,
    overrides: FederatedOverrides = None,
    out: options.Out = None,
    rounds: Rounds = None,
    strategy: Strategy = None,
    fresh: options.Fresh = False,
    json_: options.Json = False,
) -> None:
    """Pretrain over several owners' texts, none of which leaves its owner; the same command resumes.

    clients.yaml lists the owners:   - {name: anna, source: anna/*.txt}
                                     - {name: ben, source: ben/}

    meristem federate gpt2-mini clients.yaml                                   simulated clients in this process
    meristem federate bert-mini clients.yaml tokenizer.source=public.txt       a tokenizer of a public sample
    meristem federate gpt2-mini clients.yaml --strategy fedadam federated.local_steps=20 federated.dropout=0.3
    meristem federate gpt2-mini clients.yaml federated.privacy.noise_multiplier=1 federated.secure_aggregation=true

    The result is a run like any other. Everything that left a client is logged and shown at the end. docs/trust.md
    explains real clients with certificates (Flower), privacy and secure aggregation.
    """
    from meristem.trust.federated.federate import FederatedRequest
    from meristem.trust.federated.run_federation import run_federation

    request = FederatedRequest(
        recipe=recipe,
        clients=clients,
        overrides=overrides or [],
        out=out,
        fresh=fresh,
        rounds=rounds,
        strategy=strategy,
    )
    result = run_federation(request, stderr_console())
    if json_:
        print_json(result.to_dict())
        return
    _print_result(result)


def _print_result(result: FederatedResult) -> None:
    from meristem.utils.console import TerminalConsole

    TerminalConsole().print(result.to_table())
    for path in (result.run / "report.html", *result.sent_logs[:1]):
        print_message(f"see {path}")
