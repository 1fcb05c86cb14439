"""Who may ask: anybody on this machine, or whoever brings a key."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
from functools import lru_cache
from pathlib import Path

from meristem import bounded
from meristem.errors import MeristemError
from meristem.serving.admission import CLIENT, App, Receive, Scope, Send
from meristem.serving.errors import Refused
from meristem.serving.settings import ServingSettings

SHORTEST = 16
"""Characters of a key."""
OPEN = ("/health/live", "/health/ready")
"""Answered without a key: whoever keeps the server running asks them."""


class Keys:
    """Digests of the keys, compared in a time that tells nothing."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    @classmethod
    def read(cls, path: Path) -> Keys:
        """The keys of a file, one a line."""
        keys = tuple(line.strip() for line in bounded.text(path, 1 << 16).splitlines() if line.strip())
        if not keys:
            raise MeristemError(f"{path}: holds no key; write one, as with: openssl rand -hex 24 > {path}")
        for number, key in enumerate(keys, 1):
            if len(key) < SHORTEST or not key.isascii():
                raise MeristemError(f"{path}:{number}: a key has at least {SHORTEST} plain characters")
        return cls(keys)

    def holds(self, key: bytes) -> bool:
        """Whether it is one of them; every one is compared, whichever fits."""
        digest = _digest(key)
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def keys_for(settings: ServingSettings) -> Keys | None:
    """The keys that requests need; an address that others can reach is refused without any."""
    if settings.key_file is not None:
        return Keys.read(settings.key_file)
    if not _own(settings.host):
        raise MeristemError(
            f"--host {settings.host}: others can reach this address, so requests need a key: "
            "openssl rand -hex 24 > key.txt, then --key-file key.txt"
        )
    return None


@lru_cache(maxsize=64)  # of every request its host is looked at
def _own(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Door:
    """The part of the application that asks for the key, or that the client is on this machine."""

    def __init__(self, app: App, keys: Keys | None) -> None:
        self._app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Only the health of the server is told to everybody."""
        if scope["type"] == "http" and scope["path"] not in OPEN:
            scope[CLIENT] = let_in(scope, self._keys)
        await self._app(scope, receive, send)


def let_in(scope: Scope, keys: Keys | None) -> str:
    """Refuse whoever may not ask → a name of the client: the digest of its key, else its address."""
    headers = dict(scope["headers"])
    if keys is not None:
        key = _key(headers.get(b"authorization", b""))
        if not keys.holds(key):
            raise Refused(401, "this server wants a key: send the header authorization: Bearer KEY")
        return _digest(key).hex()[:16]
    if not _own(_host(headers.get(b"host", b"localhost").decode("latin-1"))):
        # a page from elsewhere whose name was turned to this machine would be one
        raise Refused(403, "without a key only localhost is answered: ask for 127.0.0.1, or set --key-file")
    return str((scope.get("client") or ("",))[0])


def _key(header: bytes) -> bytes:
    """What stands in an authorization header: a key, or the password that a browser has asked its person for."""
    kind, _, told = header.partition(b" ")
    if kind.lower() == b"bearer":
        return told.strip()
    if kind.lower() != b"basic":
        return b""
    try:
        return base64.b64decode(told.strip(), validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def _host(header: str) -> str:
    """The name or address in a host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]
