"""One `meristem federate` command: choose the engine, train, and sum up what left the clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from meristem.config.errors import MeristemError
from meristem.drawing.terminal_tables import report_table
from meristem.training.run_result import RunResult
from meristem.trust.federated.client_pool import LocalClientPool, simulated_clients
from meristem.trust.federated.clients_file import Federation
from meristem.trust.federated.federate import FederatedPlan, FederatedRequest, make_plan, train_federated
from meristem.trust.federated.sent_log import SentSummary, read_sent, summarize_sent

FLOWER_ADVICE = (
    "Flower 1.41 needs an environment of its own, since it asks for an older FastAPI: `make federated-test` in "
    "the source folder creates .venv-federated; run meristem from there"
)


@dataclass(frozen=True, kw_only=True)
class FederatedResult:
    """Result of a federated run, and what left each client."""

    run: Path
    step: int
    metrics: dict[str, float]
    sent: list[SentSummary]
    sent_logs: list[Path]

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON data."""
        sent = [
            {
                "client": summary.client,
                "answers": summary.answers,
                "tensors": len(summary.tensors),
                "bytes": summary.num_bytes,
                "samples": summary.samples,
                "tokens": summary.tokens,
                "metrics": list(summary.metrics),
            }
            for summary in self.sent
        ]
        return {
            "run": str(self.run),
            "step": self.step,
            "metrics": self.metrics,
            "sent": sent,
            "sent_logs": [str(path) for path in self.sent_logs],
        }

    def to_table(self) -> Table:
        """What left each client, for a terminal."""
        table = report_table(["client", "numbers that left it"], ["answers", "tensors", "bytes", "samples", "tokens"])
        for summary in self.sent:
            counts = (summary.answers, len(summary.tensors), summary.num_bytes, summary.samples, summary.tokens)
            table.add_row(summary.client, ", ".join(summary.metrics) or "none", *(f"{count:,}" for count in counts))
        return table


def has_flower() -> bool:
    """Whether Flower is installed in this environment."""
    return util.find_spec("flwr") is not None


def run_federation(request: FederatedRequest, console: Console) -> FederatedResult:
    """Train over the clients of a command, simulated ones or nodes of a SuperLink."""
    plan = make_plan(request, console)
    with_flower = uses_flower(plan.federation)
    if plan.federation.superlink is not None:
        from meristem.trust.federated.flower_deployment import run_on_superlink

        return _summarized(run_on_superlink(plan, request, console), plan)
    if with_flower:
        from meristem.trust.federated.flower_simulation import simulate_with_flower

        result = simulate_with_flower(plan, console, fresh=request.fresh)
    else:
        result = train_federated(plan, lambda plan: local_pool(plan, console), console, fresh=request.fresh)
    return _summarized(result, plan)


def uses_flower(federation: Federation) -> bool:
    """Whether Flower runs the federation; raises if it must and is not installed."""
    settings = federation.settings
    needs = {
        "superlink": federation.superlink is not None,
        "federated.engine=flower": settings.engine == "flower",
    }
    for what, is_needed in needs.items():
        if is_needed and not has_flower():
            raise MeristemError(f"{what} needs Flower, which is not installed here. {FLOWER_ADVICE}")
    if settings.secure_aggregation and util.find_spec("cryptography") is None:
        raise MeristemError(
            "federated.secure_aggregation needs the library cryptography: pip install cryptography (Flower's "
            "environment has it)"
        )
    return settings.engine == "flower" or (settings.engine == "auto" and has_flower())


def local_pool(plan: FederatedPlan, console: Console) -> LocalClientPool:
    """Simulated clients in a plain loop."""
    return LocalClientPool(
        clients=simulated_clients(plan.federation, plan.folder, console),
        seed=plan.recipe.train.seed,
        dropout=plan.federation.settings.dropout,
    )


def sent_logs(plan: FederatedPlan) -> list[Path]:
    """The logs of the simulated clients; nodes keep their own."""
    return sorted((plan.folder / "sent").glob("*.jsonl"))


def _summarized(result: RunResult, plan: FederatedPlan) -> FederatedResult:
    logs: Sequence[Path] = sent_logs(plan)
    return FederatedResult(
        run=result.run,
        step=result.step,
        metrics=result.metrics,
        sent=summarize_sent(read_sent(logs)),
        sent_logs=list(logs),
    )
