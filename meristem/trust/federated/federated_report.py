"""Report of a federated run: loss and participation by round, spread between clients, and what left them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from meristem.checkpoint import disk
from meristem.checkpoint.run_folder import RunFolder
from meristem.drawing.html_page import current_timestamp, render_page
from meristem.drawing.svg_charts import ChartLine, line_chart
from meristem.trust.federated.clients_file import Federation
from meristem.trust.federated.sent_log import SentSummary, read_sent, summarize_sent
from meristem.utils import untrusted_files

MAX_FAILURES = 40
"""Rows of the table of clients that did not answer."""


@dataclass(frozen=True, kw_only=True)
class FederatedHistory:
    """The lines of metrics.jsonl by kind, and the clients' logs."""

    train: list[dict[str, Any]]
    rounds: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    sent: list[SentSummary]

    @property
    def participation(self) -> Counter[str]:
        """Client → rounds it answered."""
        return Counter(name for line in self.rounds for name in line["answered"])

    @property
    def num_bytes(self) -> dict[str, int]:
        """Bytes of tensors sent to and from all clients."""
        return {
            direction: sum(line[f"bytes_{direction}_clients"] for line in self.rounds) for direction in ("to", "from")
        }


def read_history(run: RunFolder) -> FederatedHistory:
    """What a run has recorded."""
    lines: dict[str, list[dict[str, Any]]] = {"train": [], "round": [], "evaluation": []}
    with run.metrics_path.open(encoding="utf-8") as file:
        for text in file:
            line = untrusted_files.parse_json_line(text)
            if line.get("kind") in lines:
                lines[line["kind"]].append(line)
    logs = sorted((run.path / "federated" / "sent").glob("*.jsonl"))
    return FederatedHistory(
        train=lines["train"],
        rounds=lines["round"],
        evaluations=lines["evaluation"],
        sent=summarize_sent(read_sent(logs)),
    )


def write_federated_report(run: RunFolder, federation: Federation, tokenizer_description: str) -> list[str]:
    """Write report.html and report.json; returns lines for the model card."""
    history = read_history(run)
    values = {
        "rounds": history.rounds,
        "evaluations": history.evaluations,
        "participation": dict(history.participation),
        "bytes": history.num_bytes,
        "sent": [vars(summary) for summary in history.sent],
    }
    disk.atomic_write(run.path / "report.json", [untrusted_files.to_json(values, indent=1).encode()])
    page = render_report(run.path.name, federation, history, tokenizer_description, date=current_timestamp())
    disk.atomic_write(run.path / "report.html", [page.encode()])
    return ["## Federated training", "", *(f"- {line}" for line in describe_history(federation, history)), ""]


def render_report(
    name: str, federation: Federation, history: FederatedHistory, tokenizer_description: str, *, date: str = ""
) -> str:
    """The HTML page."""
    notes = [*describe_history(federation, history), tokenizer_description]
    failures = [(line["round"], *pair) for line in history.rounds for pair in line["failed"].items()]
    return render_page(
        "federated_report.html",
        stylesheets=("charts.css",),
        title=f"{name}: federated training",
        date=date,
        run=name,
        summary=_summary(federation, history),
        notes=notes,
        charts=_charts(history),
        client_headings=["client", "rounds answered", "first loss", "last loss", "validation loss"],
        clients=_client_rows(federation, history),
        client_note=_spread_note(history),
        sent_headings=["client", "answers", "bytes of tensors", "samples", "tokens", "numbers"],
        sent=[
            [
                item.client,
                *(f"{count:,}" for count in (item.answers, item.num_bytes, item.samples, item.tokens)),
                ", ".join(item.metrics) or "none",
            ]
            for item in history.sent
        ],
        tensors=history.sent[0].tensors if history.sent else (),
        failures=failures[:MAX_FAILURES],
        more_failures=max(0, len(failures) - MAX_FAILURES),
    )


def describe_history(federation: Federation, history: FederatedHistory) -> list[str]:
    """What was shared and how it was protected, one sentence each."""
    settings, moved = federation.settings, history.num_bytes
    lines = [
        f"{settings.rounds} rounds of {settings.local_steps} local steps, {settings.strategy}; "
        f"{moved['to'] / 1e6:,.1f} MB to the clients and {moved['from'] / 1e6:,.1f} MB from them"
    ]
    if settings.secure_aggregation:
        lines.append("secure aggregation: the server saw sums of updates only (it is assumed to follow the protocol)")
    if (privacy := settings.privacy) is not None:
        spent = max((line.get("epsilon", 0.0) for line in history.train), default=0.0)
        lines.append(
            f"user-level differential privacy: ε = {spent:.3g} at δ = {privacy.delta:g} for all that one owner "
            f"contributed (clip {privacy.clip:g}, noise multiplier {privacy.noise_multiplier:g}, noise at the "
            f"{'server' if privacy.noise_at == 'server' else 'clients'})"
        )
    return lines


def _summary(federation: Federation, history: FederatedHistory) -> str:
    answered = [len(line["answered"]) for line in history.rounds]
    failed = sum(count < federation.settings.min_clients for count in answered)
    mean = statistics.fmean(answered) if answered else 0.0
    skipped = f"; {failed} had too few answers and changed nothing" if failed else ""
    return (
        f"{len(federation.clients)} clients trained on text that did not leave them; on average {mean:.1f} answered a "
        f"round (from {min(answered, default=0)} to {max(answered, default=0)}){skipped}."
    )


def _charts(history: FederatedHistory) -> list[tuple[str, Markup]]:
    """Loss, participation, and the spread of the validation loss, by round."""
    answered = [(float(line["round"]), float(len(line["answered"]))) for line in history.rounds]
    asked = [(float(line["round"]), float(len(line["asked"]))) for line in history.rounds]
    losses = [
        (float(line["round"]), statistics.fmean(values))
        for line in history.rounds
        if (values := [value for value in line["answered"].values() if value is not None])
    ]
    held_out, low, high = (
        [(float(line["round"]), float(line[key])) for line in history.evaluations]
        for key in ("loss", "loss_min", "loss_max")
    )
    pictures = {
        "loss in training (grey, mean of the clients) and on their validation text (green)": (
            [
                ChartLine(name="training", css_class="train", points=losses),
                ChartLine(name="validation", css_class="held", points=held_out, markers=True),
            ],
            "loss",
        ),
        "clients asked (dashed) and answered (green)": (
            [
                ChartLine(name="asked", css_class="target", points=asked),
                ChartLine(name="answered", css_class="held", points=answered),
            ],
            "clients",
        ),
        "validation loss of the best (green) and the worst client (grey)": (
            [
                ChartLine(name="best client", css_class="held", points=low, markers=True),
                ChartLine(name="worst client", css_class="train", points=high, markers=True),
            ],
            "loss by client",
        ),
    }
    return [
        (title, Markup(line_chart(lines, label=label, x_label="round")))  # escaped by the template
        for title, (lines, label) in pictures.items()
    ]


def _client_rows(federation: Federation, history: FederatedHistory) -> list[list[str]]:
    final = history.evaluations[-1]["client_losses"] if history.evaluations else {}
    rows = []
    for name in federation.names:
        losses = [line["answered"][name] for line in history.rounds if name in line["answered"]]
        known = [loss for loss in losses if loss is not None]
        rows.append(
            [
                name,
                f"{len(losses)} of {len(history.rounds)}",
                *(_format(value) for value in (known[:1] + known[-1:] if known else [None, None])),
                _format(final.get(name)),
            ]
        )
    return rows


def _format(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "–"


def _spread_note(history: FederatedHistory) -> str:
    """Spread of the last evaluation over the clients."""
    losses: Sequence[float] = list(history.evaluations[-1]["client_losses"].values()) if history.evaluations else ()
    if len(losses) < 2:
        return "A loss that is not shown did not leave its client."
    return (
        f"Validation loss of the final weights by client: mean {statistics.fmean(losses):.4g}, standard deviation "
        f"{statistics.stdev(losses):.3g}, from {min(losses):.4g} to {max(losses):.4g}."
    )
