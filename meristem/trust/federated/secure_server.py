"""Server side of secure aggregation: forwards keys and shares, adds masked updates, and unmasks their sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from torch import Tensor

from meristem.trust.federated.aggregation import Update
from meristem.trust.federated.client_pool import RoundAnswers
from meristem.trust.federated.masking import (
    add_masks,
    decode_fixed_point,
    join_shares,
    mask_like,
    pair_sign,
)
from meristem.trust.federated.messages import ClientFailure, ClientReply, ClientTask
from meristem.trust.federated.secure_client import mask_label, shared_secret

Stage = Literal["keys", "shares", "masked", "unmask"]


@dataclass(frozen=True, kw_only=True)
class StageReply:
    """A client's answer in one stage: JSON data, and in stage `masked` its masked update."""

    data: dict[str, Any] = field(default_factory=dict)
    reply: ClientReply | None = None


class StageExchange(Protocol):
    """Sends a stage to clients; those that do not answer are left out."""

    def __call__(self, stage: Stage, task: ClientTask, data: Mapping[str, dict[str, Any]]) -> dict[str, StageReply]:
        """Answers by client."""


def majority(count: int) -> int:
    """Clients whose shares open a secret: more than half, so that no two disjoint groups can open both secrets."""
    return count // 2 + 1


def ask_securely(exchange: StageExchange, task: ClientTask, names: Sequence[str]) -> RoundAnswers:
    """The weighted mean of the updates of a round, of which the server sees none alone."""
    settings = task.settings
    threshold = max(majority(len(names)), settings.min_clients)
    keys = {name: reply.data for name, reply in exchange("keys", task, {name: {} for name in names}).items()}
    if (few := _too_few(keys, names, threshold, "sent keys")) is not None:
        return few
    threshold = max(majority(len(keys)), settings.min_clients)
    sealed = exchange("shares", task, {name: {"keys": keys, "threshold": threshold} for name in keys})
    if (few := _too_few(sealed, names, threshold, "sent shares")) is not None:
        return few
    forwarded = {name: {sender: reply.data[name] for sender, reply in sealed.items()} for name in sealed}
    masked = exchange("masked", task, {name: {"received": received} for name, received in forwarded.items()})
    if (few := _too_few(masked, names, threshold, "sent a masked update")) is not None:
        return few
    shares = exchange("unmask", task, {name: {"answered": sorted(masked)} for name in masked})
    if (few := _too_few(shares, names, threshold, "helped to unmask the sum")) is not None:
        return few
    replies = [reply.reply for _, reply in sorted(masked.items()) if reply.reply is not None]
    opened = {name: reply.data for name, reply in shares.items()}
    total = _unmasked_sum(task.round_number, keys, sorted(sealed), replies, opened)
    mean = decode_fixed_point(total, sum(reply.weight for reply in replies))
    return RoundAnswers(replies=replies, failures=_failures(names, masked), secure_mean=mean)


def _unmasked_sum(
    round_number: int,
    keys: Mapping[str, dict[str, str]],
    sharers: Sequence[str],
    replies: Sequence[ClientReply],
    opened: Mapping[str, dict[str, dict[str, str]]],
) -> Update:
    """The sum of the masked updates without the masks of those that answered, and of those that dropped out."""
    answered = [reply.client for reply in replies]
    position = {name: number for number, name in enumerate(sorted(keys), 1)}

    def secret(owner: str, kind: str) -> bytes:
        return join_shares({position[name]: bytes.fromhex(given[owner][kind]) for name, given in opened.items()})

    first: Mapping[str, Tensor] = replies[0].update
    total = add_masks(first, [(reply.update, 1) for reply in replies[1:]])
    for owner in answered:
        total = add_masks(total, [(mask_like(total, secret(owner, "seed")), -1)])
    for gone in sorted(set(sharers) - set(answered)):
        key = secret(gone, "key").hex()
        for other in answered:
            seed = shared_secret(key, keys[other]["mask"], mask_label(round_number, gone, other))
            total = add_masks(total, [(mask_like(total, seed), -pair_sign(other, gone))])
    return total


def _too_few(there: Mapping[str, Any], names: Sequence[str], needed: int, what: str) -> RoundAnswers | None:
    """A failed round, if too few clients came through a stage."""
    if len(there) >= needed:
        return None
    reason = f"secure aggregation: {len(there)} of {len(names)} clients {what}, {needed} are needed"
    return RoundAnswers(replies=[], failures=[ClientFailure(client=name, reason=reason) for name in names])


def _failures(names: Sequence[str], answered: Mapping[str, Any]) -> list[ClientFailure]:
    return [ClientFailure(client=name, reason="dropped out") for name in names if name not in answered]
