"""Terminal output: control characters and bidirectional overrides are escaped.

The author of a label, file name, token or corpus could otherwise clear the reader's screen, change earlier lines, or
type into the terminal. Pipes and files get the text unchanged: there it is data.
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from typing import TextIO

from meristem.utils.system_errors import name_file_in_errors

OUTPUT_NAME = "the output of this command"
"""The file name of an OSError raised by printing."""
# C0 without tab and newline, DEL, C1; embeddings, overrides and isolates of bidirectional text; lone surrogates
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""The text with each control character as JSON would escape it: ESC becomes `\u001b`."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def emit(text: str = "", *, end: str = "\n", err: bool = False, flush: bool = False) -> None:
    """Print to stdout or stderr, escaped for terminals; all commands print through this function."""
    stream = sys.stderr if err else sys.stdout
    with name_file_in_errors("the error stream" if err else OUTPUT_NAME):
        print(escape_for_stream(text, stream), end=end, file=stream, flush=flush)


def escape_for_stream(text: str, stream: TextIO) -> str:
    """The text for a stream: escaped for a terminal, unchanged for a pipe or file."""
    return printable(text) if stream.isatty() else text


class PrintableFormatter(logging.Formatter):
    """A log formatter that escapes control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        return printable(super().format(record))


def escape_library_messages() -> None:
    """Escape control characters in Python warnings and in the output of unconfigured loggers."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(PrintableFormatter())
    warnings.formatwarning = _escaped_warning


_format_warning = warnings.formatwarning


def _escaped_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    return printable(_format_warning(message, category, filename, lineno, line))
