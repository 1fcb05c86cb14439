"""Cards: a text and its label on two lines, a blank line between cards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from meristem.data.byte_stream import ByteStream
from meristem.data.encoding import decode_stream
from meristem.data.records import BadRecord, FileFormat, Record


class CardsFormat(FileFormat):
    """Files that end in .cards."""

    suffixes = (".cards",)

    def records(self, columns: Sequence[str] | None = None) -> Iterator[Record | BadRecord]:
        """One record per card."""
        text = "".join(decode_stream(ByteStream(self.file, self.counts), self.counts))
        for number, card in enumerate(text.strip().split("\n\n")):
            location = f"{self.name}:{3 * number + 1}"
            lines = card.split("\n")
            if len(lines) == 2:
                yield Record({"text": lines[0], "label": lines[1]}, location)
            else:
                yield BadRecord("not two lines", location)
