"""Near-duplicate samples across labelled files: MinHash over short shingles, as for the documents of a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from meristem.corpus.dedup.lsh_index import LSHIndex
from meristem.corpus.dedup.minhash import MinHashSettings, minhash_signatures

SHINGLE_WORDS, JACCARD = 2, 0.8
"""Pairs of words, since samples are short: with five words a sentence of eight differs in nearly all shingles."""
MIN_WORDS = 4
"""Shorter texts are the same by chance."""
BATCH = 4096


@dataclass(frozen=True, kw_only=True)
class DuplicateSamples:
    """A sample that is nearly another one, in another file or with another label."""

    location: str
    other_location: str
    text: str
    other_text: str
    label: str
    other_label: str
    across_files: bool

    @property
    def contradicts(self) -> bool:
        """Whether the two have different labels."""
        return self.label != self.other_label


def find_duplicates(
    texts: Sequence[str], labels: Sequence[str], locations: Sequence[str], files: Sequence[str]
) -> list[DuplicateSamples]:
    """Samples that are near duplicates of an earlier one which is in another file or has another label."""
    settings = MinHashSettings(jaccard=JACCARD, words=SHINGLE_WORDS)
    long_enough = [index for index, text in enumerate(texts) if len(text.split()) >= MIN_WORDS or len(text) > 12]
    originals: list[int] = []
    duplicates: list[DuplicateSamples] = []
    with TemporaryDirectory(prefix="meristem-") as folder:
        index = LSHIndex(settings, Path(folder))
        for start in range(0, len(long_enough), BATCH):
            batch = long_enough[start : start + BATCH]
            first = index.query_and_add(minhash_signatures([texts[item] for item in batch], SHINGLE_WORDS)).tolist()
            for item, match in zip(batch, first, strict=True):
                if match < 0:
                    originals.append(item)
            for item, match in zip(batch, first, strict=True):
                if match < 0:
                    continue
                other = originals[match]
                if files[item] != files[other] or labels[item] != labels[other]:
                    duplicates.append(
                        DuplicateSamples(
                            location=locations[item],
                            other_location=locations[other],
                            text=texts[item],
                            other_text=texts[other],
                            label=labels[item],
                            other_label=labels[other],
                            across_files=files[item] != files[other],
                        )
                    )
        index.close()
    return duplicates
