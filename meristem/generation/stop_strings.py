"""Stop strings: detected across token boundaries in streamed text, and never shown in part."""

from __future__ import annotations

from collections.abc import Sequence


class StopStringFilter:
    """Streams text through, holding back only what may be the beginning of a stop string."""

    def __init__(self, stop_strings: Sequence[str]) -> None:
        self._stop_strings = [stop for stop in stop_strings if stop]
        self._pending = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """Add text and return what is certain not to be part of a stop string."""
        if self.stopped:
            return ""
        self._pending += text
        match_starts = [start for stop in self._stop_strings if (start := self._pending.find(stop)) >= 0]
        if match_starts:
            self.stopped = True
            safe_text, self._pending = self._pending[: min(match_starts)], ""
            return safe_text
        num_pending = max((_overlap(self._pending, stop) for stop in self._stop_strings), default=0)
        safe_text, self._pending = (
            self._pending[: len(self._pending) - num_pending],
            self._pending[len(self._pending) - num_pending :],
        )
        return safe_text

    def finish(self) -> str:
        """The held-back rest, which turned out not to be a stop string."""
        safe_text, self._pending = self._pending, ""
        return safe_text


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of the text are a prefix of the stop string."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
