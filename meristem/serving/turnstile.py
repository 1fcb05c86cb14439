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


class Turnstile:
    """Looks at the head of a request alone."""

    def __init__(self, admission: Admission, keys: Keys | None, metrics: Metrics) -> None:
        self._admission, self._keys, self._metrics = admission, keys, metrics
        self._answers: dict[int, bytes] = {}
        """By the seconds after which it is worth to come back: nothing else of them changes."""

    def turned(self, scope: Scope) -> bytes | None:
        """The whole answer to a request that finds no place; none where the application should see it."""
        if scope["method"] != "POST" or not self._admission.full or self._admission.stopping:
            return None
        try:
            let_in(scope, self._keys)
        except Refused:
            return None  # whoever may not ask hears that, and nothing of how busy the server is
        after = self._admission.after
        if after not in self._answers:
            self._answers[after] = _written(self._admission.refused(after))
        self._metrics.request(scope["path"], 429, 0.0)
        return self._answers[after]


def _written(error: Refused) -> bytes:
    headers, body = refusal(error)
    return LINE + b"".join(b"%b: %b\r\n" % pair for pair in (*headers, *STRICT.items())) + b"\r\n" + body
