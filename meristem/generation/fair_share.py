"""Fair scheduling: work is shared between clients first, and between the requests of one client second.

Order of service follows start-time fair queueing (Goyal et al. 1996): whoever has had least comes first, and whoever
comes back after a pause begins where the least served of the others stands. Places are shared by max-min fairness:
nobody has more than an equal share while another has less and wants more.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Owner:
    """Whose work it is: a client, and one of its requests."""

    client: Hashable = None
    request: Hashable = None


NOBODY = Owner()


MOST_KEYS = 1024
"""Clients whose service is remembered after their work has ended."""


class _Level:
    """How much each of several keys has had."""

    def __init__(self) -> None:
        self._served: dict[Hashable, float] = {}
        self._floor = 0.0

    def of(self, key: Hashable) -> float:
        """At least as much as the least served of those that were active last."""
        return max(self._served.get(key, 0.0), self._floor)

    def charge(self, key: Hashable, amount: float) -> None:
        self._served[key] = self.of(key) + amount

    def settle(self, active: Iterable[Hashable], *, forget: bool) -> None:
        """Raise the floor to the least served of those that are active; with `forget` drop all others."""
        levels = {key: self.of(key) for key in active}
        self._floor = min(levels.values(), default=self._floor)
        kept = levels if forget or len(self._served) > MOST_KEYS else self._served
        self._served = {key: amount for key, amount in kept.items() if amount > self._floor}


class FairShare:
    """The work that was done for each client and each request."""

    def __init__(self) -> None:
        self._clients = _Level()
        self._requests: dict[Hashable, _Level] = {}

    def charge(self, owner: Owner, amount: float) -> None:
        """So much was done for a request."""
        self._clients.charge(owner.client, amount)
        self._requests.setdefault(owner.client, _Level()).charge(owner.request, amount)

    def settle(self, active: Iterable[Owner]) -> None:
        """Note who has work: what was done for requests that have ended is forgotten."""
        by_client: dict[Hashable, set[Hashable]] = {}
        for owner in active:
            by_client.setdefault(owner.client, set()).add(owner.request)
        self._clients.settle(by_client, forget=False)
        self._requests = {client: self._requests.get(client, _Level()) for client in by_client}
        for client, requests in by_client.items():
            self._requests[client].settle(requests, forget=True)

    def rank(self, owner: Owner) -> tuple[float, float]:
        """Sorts the least served first."""
        requests = self._requests.get(owner.client)
        return self._clients.of(owner.client), 0.0 if requests is None else requests.of(owner.request)

    def next_of(self, owners: Iterable[Owner]) -> Owner:
        """The least served; of equals the first."""
        return min(owners, key=self.rank)


def fair_shares(wanted: Sequence[int], places: int) -> list[int]:
    """How many places each of several gets that want so many; what cannot be divided goes to the first."""
    shares = [0] * len(wanted)
    pending = [number for number, many in enumerate(wanted) if many > 0]
    while pending and places > 0:
        each = max(1, places // len(pending))
        for number in pending:
            more = min(each, wanted[number] - shares[number], places)
            shares[number] += more
            places -= more
        pending = [number for number in pending if shares[number] < wanted[number]]
    return shares


def fair_places(wanted: Mapping[Owner, int], places: int) -> dict[Owner, int]:
    """Places of each request: shared between clients, then between the requests of each, in the order given."""
    clients: dict[Hashable, list[Owner]] = {}
    for owner in wanted:
        clients.setdefault(owner.client, []).append(owner)
    totals = [sum(wanted[owner] for owner in owners) for owners in clients.values()]
    out: dict[Owner, int] = {}
    for owners, share in zip(clients.values(), fair_shares(totals, places), strict=True):
        out |= zip(owners, fair_shares([wanted[owner] for owner in owners], share), strict=True)
    return out
