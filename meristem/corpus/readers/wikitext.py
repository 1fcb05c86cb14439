"""WikiText as it is published: plain text in which `= Title =` begins an article, each of them a document."""

from __future__ import annotations

from meristem.corpus.readers.text import read as read
