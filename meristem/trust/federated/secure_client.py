"""Client side of secure aggregation (Bonawitz et al. 2017, against an honest-but-curious server), in four stages.

keys: two fresh public keys. shares: the secrets of this round, split and encrypted for each other client. masked: the
update plus a mask of its own and one per other client. unmask: of each client that answered a share of its own mask's
seed, of each that dropped out a share of its mask key; never both, and once per round.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.trust.federated.aggregation import Update
from meristem.trust.federated.masking import (
    SHARE_BYTES,
    add_masks,
    encode_fixed_point,
    mask_like,
    pair_sign,
    split_secret,
)
from meristem.utils import untrusted_files

NONCE = bytes(12)
"""Every key encrypts one message: it is derived for one round, sender and receiver."""


def shared_secret(own_private: str, other_public: str, label: str) -> bytes:
    """32 bytes that two clients share for one purpose (X25519 and HKDF)."""
    private = X25519PrivateKey.from_private_bytes(bytes.fromhex(own_private))
    exchanged = private.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(other_public)))
    return bytes(HKDF(algorithm=SHA256(), length=32, salt=None, info=label.encode()).derive(exchanged))


def mask_label(round_number: int, first: str, second: str) -> str:
    """Purpose of the mask that two clients share in a round, the same at both."""
    return "\x1f".join(["mask", str(round_number), *sorted((first, second))])


@dataclass(kw_only=True)
class SecureClientRound:
    """What a client keeps from stage to stage of one round; JSON data."""

    name: str
    round_number: int
    mask_key: str = ""
    cipher_key: str = ""
    own_seed: str = ""
    threshold: int = 0
    public_keys: dict[str, dict[str, str]] = field(default_factory=dict)
    """Client → its public keys, of all that take part."""
    received: dict[str, str] = field(default_factory=dict)
    """Client → its encrypted shares for this client."""
    unmasked: bool = False

    def to_json(self) -> str:
        """The state as text, for a process that handles one message."""
        return untrusted_files.to_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> SecureClientRound:
        """The state from its text."""
        return cls(**untrusted_files.parse_json(text, "the state of secure aggregation"))

    def keys(self) -> dict[str, str]:
        """Stage 1: draw two key pairs; returns the public keys."""
        pairs = {purpose: X25519PrivateKey.generate() for purpose in ("mask", "cipher")}
        self.mask_key, self.cipher_key = (pair.private_bytes_raw().hex() for pair in pairs.values())
        return {purpose: pair.public_key().public_bytes_raw().hex() for purpose, pair in pairs.items()}

    def shares(self, public_keys: Mapping[str, dict[str, str]], threshold: int) -> dict[str, str]:
        """Stage 2: returns the encrypted shares for each other client."""
        if threshold <= len(public_keys) // 2 or len(public_keys) < 2:
            raise MeristemError(
                f"secure aggregation: {threshold} of {len(public_keys)} clients are no majority, so the server could "
                "ask one half for one secret and the other half for the other"
            )
        self.public_keys, self.threshold = dict(public_keys), threshold
        self.own_seed = secrets.token_bytes(32).hex()
        names = sorted(public_keys)
        parts = [split_secret(bytes.fromhex(text), threshold, len(names)) for text in (self.own_seed, self.mask_key)]
        return {
            other: self._cipher(self.name, other).encrypt(NONCE, seed_share + key_share, None).hex()
            for other, seed_share, key_share in zip(names, *parts, strict=True)
        }

    def masked(self, update: Mapping[str, Tensor], weight: float, received: Mapping[str, str]) -> Update:
        """Stage 3: the masked update; `received` are the shares of the clients that are still there."""
        if len(received) < self.threshold:
            raise MeristemError(
                f"secure aggregation: {len(received)} clients are left, and {self.threshold} are needed"
            )
        self.received = dict(received)
        encoded = encode_fixed_point(update, weight)
        masks = [(mask_like(encoded, bytes.fromhex(self.own_seed)), 1)]
        for other in sorted(set(received) - {self.name}):
            label = mask_label(self.round_number, self.name, other)
            seed = shared_secret(self.mask_key, self.public_keys[other]["mask"], label)
            masks.append((mask_like(encoded, seed), pair_sign(self.name, other)))
        return add_masks(encoded, masks)

    def unmask(self, answered: Sequence[str]) -> dict[str, dict[str, str]]:
        """Stage 4: per client a share of its seed (it answered) or of its mask key (it dropped out)."""
        if self.unmasked:
            raise MeristemError("secure aggregation: the shares of this round were given already")
        if len(answered) < self.threshold or not set(answered) <= set(self.received):
            raise MeristemError(f"secure aggregation: {len(answered)} answers; {self.threshold} are needed to unmask")
        self.unmasked = True
        given: dict[str, dict[str, str]] = {}
        for other, sealed in self.received.items():
            try:
                opened = self._cipher(other, self.name).decrypt(NONCE, bytes.fromhex(sealed), None)
            except InvalidTag:
                raise MeristemError(f"secure aggregation: the shares of {other} were changed on the way") from None
            seed_share, key_share = opened[:SHARE_BYTES], opened[SHARE_BYTES:]
            given[other] = {"seed": seed_share.hex()} if other in answered else {"key": key_share.hex()}
        return given

    def _cipher(self, sender: str, receiver: str) -> ChaCha20Poly1305:
        """The cipher of the shares from one client to another (this one is one of them)."""
        other = receiver if sender == self.name else sender
        label = "\x1f".join(["shares", str(self.round_number), sender, receiver])
        return ChaCha20Poly1305(shared_secret(self.cipher_key, self.public_keys[other]["cipher"], label))


def state_for(client: str, round_number: int, previous: Any) -> SecureClientRound:
    """The state of this round; a new one if the previous is of another round."""
    if isinstance(previous, SecureClientRound) and previous.round_number == round_number:
        return previous
    return SecureClientRound(name=client, round_number=round_number)
