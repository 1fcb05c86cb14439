"""Reader for WikiText: plain text in which `= Title =` begins an article; each article is a document."""

from __future__ import annotations

from meristem.corpus.read.formats.text import read as read
