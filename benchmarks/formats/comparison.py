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


SUMMARY_HEADER = (
    "| consumer or source, version | families | compared | largest difference | identical |",
    "| --- | --- | --- | --- | --- |",
)


def summary(rows: list[Comparison]) -> str:
    """One row for each consumer and kind of comparison: its families, and the largest difference among them."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for row in rows:
        rounded = ", int8" if row.family.split(" (")[0].endswith(" int8") else ""
        groups.setdefault((row.consumer + rounded, row.compared), []).append(row)
    lines = []
    for (consumer, compared), group in groups.items():
        worst = max(group, key=lambda row: row.difference)
        counts = [tuple(map(int, row.identical.split(" of "))) for row in group if " of " in row.identical]
        same = f"{sum(count for count, _ in counts)} of {sum(total for _, total in counts)}" if counts else "–"
        families = "; ".join(dict.fromkeys(row.family.replace(" int8", "") for row in group))
        largest = f"{worst.difference:.1e}" + (f" (largest value {worst.scale:.1f})" if worst.difference else "")
        lines.append(f"| {consumer} | {families} | {compared} | {largest} | {same} |")
    return "\n".join([*SUMMARY_HEADER, *lines])


def table(rows: list[Comparison]) -> str:
    """The rows in Markdown."""
    lines = [
        f"| {row.consumer} | {row.family} | {row.compared} | {row.difference:.1e} | {row.scale:.1f} | {row.identical} |"
        for row in rows
    ]
    return "\n".join([*HEADER, *lines])
