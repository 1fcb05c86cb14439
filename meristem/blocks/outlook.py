"""Who sees whom in a relative stack: memory, causality, padding, documents, segments and orders of factorisation."""

# B rows, T tokens, K query slots, M slots of memory, S = M + T keys

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from meristem.blocks.recurrence import NOTHING, Recurrence
from meristem.blocks.relative import InARow, Look, Scattered


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """The facts of one forward pass; each stream gets its own look."""

    time: int
    causal: bool
    device: torch.device
    dtype: torch.dtype
    memory: Recurrence | None = None
    window: int | None = None
    """Only keys less than this far back are seen."""
    present: Tensor | None = None
    """[B, T] tokens that exist."""
    documents: Tensor | None = None
    """[B, T] when documents must not see each other."""
    segments: Tensor | None = None
    """[B, T]; memory counts as segment 0."""
    order: Tensor | None = None
    """[B, T] each token's place in the order of factorisation."""

    @property
    def slots(self) -> int:
        """Keys that stand before the text."""
        return 0 if self.memory is None else self.memory.documents.shape[1]

    @property
    def distances(self) -> Tensor:
        """[L] from the farthest key back to the farthest ahead; one more than is read, for the shift."""
        last = -2 if self.causal else -1 - self.time
        return torch.arange(self.slots + self.time - 1, last, -1, device=self.device)

    def content(self) -> Look:
        """Tokens in their places; each sees itself, whatever else is hidden."""
        here = torch.arange(self.time, device=self.device)
        hidden = self._hidden(here[None], strictly=False)
        if hidden is not None:
            itself = here[:, None] + self.slots == torch.arange(self.slots + self.time, device=self.device)
            hidden = hidden & ~itself
        return Look(turn=InARow(), hidden=hidden, differ=self._differ(self.segments))

    def query(self, slots_BK: Tensor) -> Look:
        """Slots that know where they stand and not what stands there: they see what comes earlier in the order."""
        hidden = self._hidden(slots_BK, strictly=True)
        assert hidden is not None
        return Look(
            turn=Scattered.at(slots_BK, self.time, self.slots + self.time),
            hidden=hidden,
            blind=hidden.all(-1),
            differ=self._differ(None if self.segments is None else self.segments.gather(1, slots_BK)),
        )

    def _hidden(self, at_BK: Tensor, *, strictly: bool) -> Tensor | None:
        """[B or 1, K, S] what queries at these places must not see."""
        reasons = [self._distant(at_BK), self._remembered(at_BK), self._here(at_BK, strictly)]
        given = [reason for reason in reasons if reason is not None]
        if not given:
            return None
        hidden = given[0]
        for reason in given[1:]:
            hidden = hidden | reason
        return hidden

    def _distant(self, at_BK: Tensor) -> Tensor | None:
        if not self.causal and self.window is None:
            return None
        far = at_BK[:, :, None] + self.slots - torch.arange(self.slots + self.time, device=self.device)
        hidden = far < 0 if self.causal else torch.zeros_like(far, dtype=torch.bool)
        return hidden if self.window is None else hidden | (far.abs() >= self.window)

    def _remembered(self, at_BK: Tensor) -> Tensor | None:
        """Slots that hold nothing, or another document."""
        if self.memory is None:
            return None
        held = self.memory.documents[:, None]
        hidden = held == NOTHING
        if self.documents is not None:
            hidden = hidden | (held != self.documents.gather(1, at_BK.expand(len(held), -1))[:, :, None])
        return _padded(hidden, 0, self.time)

    def _here(self, at_BK: Tensor, strictly: bool) -> Tensor | None:
        """Padding, other documents, and what comes later in the order."""
        hidden = None if self.present is None else ~self.present[:, None]
        if self.documents is not None:
            other = self.documents.gather(1, at_BK.expand(len(self.documents), -1))[:, :, None]
            hidden = _either(hidden, other != self.documents[:, None])
        if self.order is not None:
            mine = self.order.gather(1, at_BK.expand(len(self.order), -1))[:, :, None]
            theirs = self.order[:, None]
            hidden = _either(hidden, theirs >= mine if strictly else theirs > mine)
        return None if hidden is None else _padded(hidden, self.slots, 0)

    def _differ(self, mine_BK: Tensor | None) -> Tensor | None:
        if self.segments is None or mine_BK is None:
            return None
        theirs = torch.nn.functional.pad(self.segments, (self.slots, 0))
        return (mine_BK[:, :, None] != theirs[:, None]).to(self.dtype)


def _either(one: Tensor | None, other: Tensor) -> Tensor:
    return other if one is None else one | other


def _padded(hidden: Tensor, before: int, after: int) -> Tensor:
    """The same with keys beside them that this says nothing about."""
    return torch.nn.functional.pad(hidden, (before, after)) if before or after else hidden
