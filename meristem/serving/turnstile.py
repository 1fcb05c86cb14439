"""Who is turned away at once: when every place is taken, a request is answered before anything is made of it.

Under overload most requests are refused, and whatever that costs is taken from those that were let in.
"""

from __future__ import annotations

from meristem.serving.admission import Admission, Scope
from meristem.serving.errors import Refused
from meristem.serving.keys import Keys, let_in
from meristem.serving.metrics import Metrics
from meristem.serving.shell import STRICT, refusal

LINE = b"HTTP/1.1 429 Too Many Requests\r\n"
KEEP = b"keep-alive"
UNUSUAL = frozenset((b"transfer-encoding", b"expect", b"upgrade"))
"""Headers after which a request does not end where its length says."""


class Turnstile:
    """Looks at the head of a request alone."""

    def __init__(self, admission: Admission, keys: Keys | None, metrics: Metrics) -> None:
        self._admission, self._keys, self._metrics = admission, keys, metrics
        self._answers: dict[int, bytes] = {}
        """By the seconds after which it is worth to come back: nothing else of them changes."""

    def at_once(self, data: bytes, client: tuple[str, int] | None = None) -> bytes | None:
        """The same for bytes that are one request and nothing else; none where it takes a parser to tell."""
        if not self._admission.crowded:
            return None
        scope = _plain(data)
        return None if scope is None else self.turned({**scope, "client": client})

    def turned(self, scope: Scope) -> bytes | None:
        """The whole answer to a request that finds no place; none where the application should see it."""
        if scope["method"] != "POST" or not self._admission.crowded or self._admission.stopping:
            return None
        try:
            client = let_in(scope, self._keys)
        except Refused:
            return None  # whoever may not ask hears that, and nothing of how busy the server is
        if not self._admission.full(client):
            return None
        after = self._admission.after
        if after not in self._answers:
            self._answers[after] = _written(self._admission.refused(after))
        self._metrics.request(scope["path"], 429, 0.0)
        return self._answers[after]


def _plain(data: bytes) -> Scope | None:
    """The head of a request that came in one piece, said as nearly all clients say it."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    pairs = (line.partition(b":") for line in lines)
    headers = [(name.lower(), value.strip()) for name, _, value in pairs]
    told = dict(headers)
    usual = len(told) == len(headers) and told.keys().isdisjoint(UNUSUAL) and first.endswith(b" HTTP/1.1")
    if not usual or told.get(b"content-length") != b"%d" % len(body) or told.get(b"connection", KEEP).lower() != KEEP:
        return None
    method, _, rest = first.decode("latin-1").partition(" ")
    path = rest.removesuffix(" HTTP/1.1").partition("?")[0]
    return {"method": method, "path": path, "headers": headers}


def _written(error: Refused) -> bytes:
    headers, body = refusal(error)
    return LINE + b"".join(b"%b: %b\r\n" % pair for pair in (*headers, *STRICT.items())) + b"\r\n" + body
