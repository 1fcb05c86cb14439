"""Text for terminals: control characters and bidirectional overrides are printed as escapes, never sent raw.

Whoever writes a label, a file name, a token or a corpus could otherwise clear the screen of the person who reads it,
change what earlier lines say, or type into the terminal. Pipes and files get the text unchanged: it is data there.
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from typing import TextIO

from meristem.system_errors import naming_file

OUTPUT = "the output of this command"
"""Where an OSError says that printing failed."""
# C0 without tab and newline, DEL, C1; embeddings, overrides and isolates of bidirectional text; lone surrogates
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""The text with each control character as JSON would escape it: ESC becomes `\u001b`."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def emit(text: str = "", *, end: str = "\n", err: bool = False, flush: bool = False) -> None:
    """Print on the output or the error stream; every `print` of the command line goes through here."""
    stream = sys.stderr if err else sys.stdout
    with naming_file("the error stream" if err else OUTPUT):
        print(for_stream(text, stream), end=end, file=stream, flush=flush)


def for_stream(text: str, stream: TextIO) -> str:
    """The text as a stream may have it: escaped for a terminal, unchanged for a pipe or a file."""
    return printable(text) if stream.isatty() else text


class PrintableFormatter(logging.Formatter):
    """Log records as lines without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        return printable(super().format(record))


def escape_library_messages() -> None:
    """Escape what Python's own warnings and unconfigured loggers print, whoever wrote the names in it."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(PrintableFormatter())
    warnings.formatwarning = _formatted_warning


_format_warning = warnings.formatwarning


def _formatted_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    return printable(_format_warning(message, category, filename, lineno, line))
