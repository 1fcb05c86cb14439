"""Log of everything that leaves a client: one JSON line per answer, written before it is sent, never shortened."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meristem.trust.federated.messages import ClientReply
from meristem.utils import untrusted_files
from meristem.utils.system_errors import name_file_in_errors


@dataclass(frozen=True)
class SentLog:
    """The log of one client. A round that is repeated after a resume is sent again and stands in it again."""

    path: Path

    def add(self, reply: ClientReply, *, masked: bool = False) -> None:
        """Append what is about to leave; a masked update says something only as part of a sum."""
        self._append(
            {
                "client": reply.client,
                "round": reply.round_number,
                "kind": reply.kind,
                "tensors": list(reply.update),
                "bytes": reply.num_bytes,
                "weight": reply.weight,
                "tokens": reply.tokens,
                "samples": reply.samples,
                "metrics": dict(reply.metrics),
                "masked": masked,
            }
        )

    def add_protocol(self, client: str, round_number: int, stage: str, data: dict[str, Any]) -> None:
        """Append a message of secure aggregation: public keys, or encrypted shares of keys."""
        size = len(untrusted_files.to_json(data))
        entry = {"client": client, "round": round_number, "kind": f"secure aggregation: {stage}", "bytes": size}
        self._append({**entry, "tensors": [], "weight": 0.0, "tokens": 0, "samples": 0, "metrics": {}})

    def _append(self, entry: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with name_file_in_errors(str(self.path)), self.path.open("a", encoding="utf-8") as file:
            file.write(untrusted_files.to_json(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())


def read_sent(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """All complete entries of these logs."""
    entries: list[dict[str, Any]] = []
    for path in paths:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    entry = untrusted_files.parse_json_line(line)
                except ValueError:
                    continue  # the process was killed while it wrote
                if isinstance(entry, dict):
                    entries.append(entry)
    return entries


@dataclass(frozen=True, kw_only=True)
class SentSummary:
    """What has left one client, summed over its answers."""

    client: str
    answers: int
    tensors: tuple[str, ...]
    """Names of all tensors that left."""
    num_bytes: int
    samples: int
    tokens: int
    metrics: tuple[str, ...]
    """Names of all numbers that left."""


def summarize_sent(entries: Sequence[dict[str, Any]]) -> list[SentSummary]:
    """One summary per client, by name."""
    summaries = []
    for client in sorted({str(entry["client"]) for entry in entries}):
        own = [entry for entry in entries if entry["client"] == client]
        summaries.append(
            SentSummary(
                client=client,
                answers=len(own),
                tensors=tuple(dict.fromkeys(name for entry in own for name in entry["tensors"])),
                num_bytes=sum(entry["bytes"] for entry in own),
                samples=sum(entry["samples"] for entry in own),
                tokens=sum(entry["tokens"] for entry in own),
                metrics=tuple(sorted({name for entry in own for name in entry["metrics"]})),
            )
        )
    return summaries
