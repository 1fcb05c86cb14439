"""Scheduling of a decoding batch: which sequences have a row, which wait and which are paused.

First come, first served for one caller; fair shares for the clients of a server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from meristem.generation.fair_scheduling import FairScheduler, Owner, fair_slots
from meristem.generation.generation_inputs import GenerationInputs

FREE_ROWS_DIVISOR = 4
"""Rows are refilled, and finished ones removed, once they are at least 1/this of the rows: both copy the KV cache."""
PREFILL_TOKENS = 256
"""Prompt tokens prefilled between two decoding steps of a server, padding included; one prompt always fits."""
CROWDED_DIVISOR = 4
"""While several clients have sequences, the batch is smaller by this factor: the cost of a step grows with its rows."""
TURN_TOKENS = 16
"""Tokens after which a paused request gets its turn, where there are more requests than slots."""


class Schedulable(Protocol):
    """A sequence of a decoding batch."""

    owner: Owner
    inputs: GenerationInputs


S = TypeVar("S", bound=Schedulable)


@dataclass(kw_only=True)
class SlotChanges(Generic[S]):
    """Which sequences lose and get a row before the next decoding step."""

    pause: list[S] = field(default_factory=list)
    resume: list[S] = field(default_factory=list)
    admit: list[S] = field(default_factory=list)


class SlotScheduler(Protocol):
    """Decides which sequences are decoded."""

    def assign_slots(self, active: Sequence[S], paused: Sequence[S], waiting: Sequence[S]) -> SlotChanges[S]:
        """The changes before the next decoding step; the lists are in the order of arrival."""

    def charge(self, owners: Iterable[Owner]) -> None:
        """Count one decoded token for each of these owners."""


class FirstComeScheduler:
    """First come, first served, for the sequences of one caller."""

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows

    def assign_slots(self, active: Sequence[S], paused: Sequence[S], waiting: Sequence[S]) -> SlotChanges[S]:
        """Fill the free rows once there are enough of them."""
        free = self._max_rows - len(active)
        is_worthwhile = not active or free * FREE_ROWS_DIVISOR >= self._max_rows
        return SlotChanges(admit=list(waiting[:free])) if waiting and is_worthwhile else SlotChanges()

    def charge(self, owners: Iterable[Owner]) -> None:
        """One caller has no shares to count."""


class FairSlotScheduler:
    """Rows shared fairly between clients, then between the requests of a client; sequences are paused for others."""

    def __init__(self, max_rows: int, *, turn: int = TURN_TOKENS, max_length: int | None = None) -> None:
        """`max_length` is the model's: no more tokens of a prompt are prefilled."""
        self._max_rows, self._turn, self._max_length = max_rows, turn, max_length or PREFILL_TOKENS
        self._service = FairScheduler()
        self.is_crowded = False
        """Set from outside while several clients wait for tokens, possibly of other models."""

    def charge(self, owners: Iterable[Owner]) -> None:
        """Count one decoded token for each of these owners."""
        for owner, tokens in Counter(owners).items():
            self._service.charge(owner, tokens)

    def assign_slots(self, active: Sequence[S], paused: Sequence[S], waiting: Sequence[S]) -> SlotChanges[S]:
        """Pause the newest sequences of requests that have more than their share, then resume and admit others."""
        demands = Counter(sequence.owner for sequence in (*active, *paused, *waiting))
        is_crowded = self.is_crowded or len({owner.client for owner in demands}) > 1
        slots = max(1, self._max_rows // CROWDED_DIVISOR) if is_crowded else self._max_rows
        if not (waiting or paused) and len(active) <= slots:
            return SlotChanges()
        self._service.set_active(demands)
        turns = sorted(demands, key=lambda owner: [int(served) // self._turn for served in self._service.rank(owner)])
        free = Counter(fair_slots({owner: demands[owner] for owner in turns}, slots))
        for sequence in active:
            free[sequence.owner] -= 1
        changes = SlotChanges[S]()
        for sequence in reversed(active):
            if free[sequence.owner] < 0:
                free[sequence.owner] += 1
                changes.pause.append(sequence)
        for sequence in paused:
            if free[sequence.owner] > 0:
                free[sequence.owner] -= 1
                changes.resume.append(sequence)
        changes.admit = self._select_for_prefill(waiting, free)
        return changes

    def _select_for_prefill(self, waiting: Sequence[S], free: Counter[Owner]) -> list[S]:
        """Waiting sequences that get a row, the least served request first, up to `PREFILL_TOKENS` tokens."""
        admitted: list[S] = []
        prompts = set[int]()  # copies of one prompt are prefilled once
        longest = 0
        ranks = {owner: self._service.rank(owner) for owner in {sequence.owner for sequence in waiting}}
        for sequence in sorted(waiting, key=lambda sequence: ranks[sequence.owner]):
            if free[sequence.owner] <= 0:
                continue
            prompts.add(id(sequence.inputs))
            longest = max(longest, min(sequence.inputs.num_tokens, self._max_length))
            if len(prompts) > 1 and len(prompts) * longest > PREFILL_TOKENS:
                break
            free[sequence.owner] -= 1
            admitted.append(sequence)
        return admitted
