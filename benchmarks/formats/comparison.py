"""One comparison with a consumer: what was compared, and the largest difference."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A row of the table."""

    consumer: str
    """Consumer or source, with its version."""
    family: str
    compared: str
    difference: float
    """The largest absolute difference of outputs whose own size is `scale`."""
    scale: float
    identical: str
    """Greedy tokens or ids that are identical, of how many."""

    @property
    def is_identical(self) -> bool:
        """Whether all discrete outputs are identical."""
        same, _, total = self.identical.partition(" of ")
        return same == total

    def to_json(self) -> dict[str, Any]:
        """Its values by name."""
        return asdict(self)


HEADER = (
    "| consumer or source | family | compared | largest difference | largest value | identical |",
    "| --- | --- | --- | --- | --- | --- |",
)


def table(rows: list[Comparison]) -> str:
    """The rows in Markdown."""
    lines = [
        f"| {row.consumer} | {row.family} | {row.compared} | {row.difference:.1e} | {row.scale:.1f} | {row.identical} |"
        for row in rows
    ]
    return "\n".join([*HEADER, *lines])
