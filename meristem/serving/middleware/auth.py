"""Authentication by API key (Bearer or Basic); without keys only localhost is served."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
from functools import lru_cache
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from meristem.config.errors import MeristemError
from meristem.serving.errors import RequestError
from meristem.serving.middleware.admission import SCOPE_CLIENT
from meristem.serving.settings import ServingSettings
from meristem.utils import untrusted_files

MIN_KEY_CHARS = 16
"""Minimum characters of a key."""
PUBLIC_PATHS = ("/health/live", "/health/ready")
"""Paths without authentication, for health checks."""


class APIKeys:
    """Digests of the API keys, compared in constant time."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    @classmethod
    def from_file(cls, path: Path) -> APIKeys:
        """The keys of a file, one per line."""
        keys = tuple(line.strip() for line in untrusted_files.read_text(path, 1 << 16).splitlines() if line.strip())
        if not keys:
            raise MeristemError(f"{path}: contains no key; create one with: openssl rand -hex 24 > {path}")
        for line_number, key in enumerate(keys, 1):
            if len(key) < MIN_KEY_CHARS or not key.isascii():
                raise MeristemError(f"{path}:{line_number}: a key needs at least {MIN_KEY_CHARS} ASCII characters")
        return cls(keys)

    def is_valid(self, key: bytes) -> bool:
        """Whether it is one of the keys; always compares with all of them."""
        digest = _digest(key)
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def load_keys(settings: ServingSettings) -> APIKeys | None:
    """The API keys, or None; an address that others can reach is refused without a key file."""
    if settings.key_file is not None:
        return APIKeys.from_file(settings.key_file)
    if not _is_loopback(settings.host):
        raise MeristemError(
            f"--host {settings.host}: others can reach this address, so requests need a key: "
            "openssl rand -hex 24 > key.txt, then --key-file key.txt"
        )
    return None


@lru_cache(maxsize=64)  # called for every request
def _is_loopback(host: str) -> bool:
    """Whether an address is a loopback address or localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class AuthMiddleware:
    """ASGI middleware that requires a valid key or, without keys, a localhost Host header."""

    def __init__(self, app: ASGIApp, keys: APIKeys | None) -> None:
        self._app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Authenticate all requests but health checks."""
        if scope["type"] == "http" and scope["path"] not in PUBLIC_PATHS:
            scope[SCOPE_CLIENT] = authenticate(scope, self._keys)
        await self._app(scope, receive, send)


def authenticate(scope: Scope, keys: APIKeys | None) -> str:
    """The client's name (digest of its key, or its address); raises 401 or 403 if it is not allowed."""
    headers = dict(scope["headers"])
    if keys is not None:
        key = _parse_key(headers.get(b"authorization", b""))
        if not keys.is_valid(key):
            raise RequestError(401, "this server requires an API key: send the header authorization: Bearer KEY")
        return _digest(key).hex()[:16]
    if not _is_loopback(_parse_host(headers.get(b"host", b"localhost").decode("latin-1"))):
        # protects against DNS rebinding: a foreign page whose host name resolves to this machine
        raise RequestError(403, "without --key-file only requests to localhost are served: use 127.0.0.1")
    return str((scope.get("client") or ("",))[0])


def _parse_key(header: bytes) -> bytes:
    """The key in an Authorization header: a Bearer token, or the password of Basic authentication (browsers)."""
    scheme, _, credentials = header.partition(b" ")
    if scheme.lower() == b"bearer":
        return credentials.strip()
    if scheme.lower() != b"basic":
        return b""
    try:
        return base64.b64decode(credentials.strip(), validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def _parse_host(header: str) -> str:
    """The name or address in a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]
