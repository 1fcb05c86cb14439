"""Fair scheduling: work is shared between clients first, and between the requests of one client second.

The order follows start-time fair queueing (Goyal et al. 1996): the least served comes first, and one that returns
after a pause starts at the level of the least served active one. Slots are shared by max-min fairness: nobody has
more than an equal share while another has less and wants more.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Owner:
    """A client and one of its requests, to which work is charged."""

    client: Hashable = None
    request: Hashable = None


NO_OWNER = Owner()


MAX_KEYS = 1024
"""Number of clients whose service is remembered after their work has ended."""


class _ServiceCounter:
    """How much work each key (client or request) has received."""

    def __init__(self) -> None:
        self._served: dict[Hashable, float] = {}
        self._minimum = 0.0

    def served(self, key: Hashable) -> float:
        """Work received, at least the minimum of the keys that were last active."""
        return max(self._served.get(key, 0.0), self._minimum)

    def charge(self, key: Hashable, amount: float) -> None:
        self._served[key] = self.served(key) + amount

    def set_active(self, active: Iterable[Hashable], *, forget: bool) -> None:
        """Set the minimum to the least served of the active keys; `forget` drops all others."""
        levels = {key: self.served(key) for key in active}
        self._minimum = min(levels.values(), default=self._minimum)
        remaining = levels if forget or len(self._served) > MAX_KEYS else self._served
        self._served = {key: amount for key, amount in remaining.items() if amount > self._minimum}


class FairScheduler:
    """Counts the work done for each client and each request."""

    def __init__(self) -> None:
        self._clients = _ServiceCounter()
        self._requests: dict[Hashable, _ServiceCounter] = {}

    def charge(self, owner: Owner, amount: float) -> None:
        """Charge an amount of work to a request."""
        self._clients.charge(owner.client, amount)
        self._requests.setdefault(owner.client, _ServiceCounter()).charge(owner.request, amount)

    def set_active(self, active: Iterable[Owner]) -> None:
        """Update who has work; counts of finished requests are dropped."""
        by_client: dict[Hashable, set[Hashable]] = {}
        for owner in active:
            by_client.setdefault(owner.client, set()).add(owner.request)
        self._clients.set_active(by_client, forget=False)
        self._requests = {client: self._requests.get(client, _ServiceCounter()) for client in by_client}
        for client, requests in by_client.items():
            self._requests[client].set_active(requests, forget=True)

    def rank(self, owner: Owner) -> tuple[float, float]:
        """Sort key: the least served first."""
        requests = self._requests.get(owner.client)
        return self._clients.served(owner.client), 0.0 if requests is None else requests.served(owner.request)

    def least_served(self, owners: Iterable[Owner]) -> Owner:
        """The least served owner; of equals the first."""
        return min(owners, key=self.rank)


def fair_shares(demands: Sequence[int], slots: int) -> list[int]:
    """Slots for each demand by max-min fairness; the remainder goes to the first."""
    shares = [0] * len(demands)
    pending = [number for number, demand in enumerate(demands) if demand > 0]
    while pending and slots > 0:
        equal_share = max(1, slots // len(pending))
        for number in pending:
            granted = min(equal_share, demands[number] - shares[number], slots)
            shares[number] += granted
            slots -= granted
        pending = [number for number in pending if shares[number] < demands[number]]
    return shares


def fair_slots(demands: Mapping[Owner, int], slots: int) -> dict[Owner, int]:
    """Slots of each request: shared between clients, then between the requests of each, in order."""
    clients: dict[Hashable, list[Owner]] = {}
    for owner in demands:
        clients.setdefault(owner.client, []).append(owner)
    totals = [sum(demands[owner] for owner in owners) for owners in clients.values()]
    slots_by_owner: dict[Owner, int] = {}
    for owners, share in zip(clients.values(), fair_shares(totals, slots), strict=True):
        slots_by_owner |= zip(owners, fair_shares([demands[owner] for owner in owners], share), strict=True)
    return slots_by_owner
