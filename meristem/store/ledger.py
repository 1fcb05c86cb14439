"""What a build has finished so far, kept on disk after every shard, so that a stopped pass goes on."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from meristem.corpus.parts import flush_folder
from meristem.errors import MeristemError
from meristem.store.encode import fingerprint
from meristem.store.manifest import (
    FINISHED,
    JOURNAL,
    PARTIAL,
    SPLITS,
    Manifest,
    ShardRecord,
    finished_name,
)
from meristem.store.shards import Shard


class Past:
    """The documents finished shards already hold, recognised by their digests."""

    def __init__(self, split: str, records: Sequence[ShardRecord], folder: Path) -> None:
        self._split, self._folder = split, folder
        self._records = list(reversed(records))
        self._digest, self._count = hashlib.sha256(), 0

    def holds(self, text: str) -> bool:
        """Whether the next document of the corpus lies in a finished shard."""
        if not self._records:
            return False
        self._digest.update(fingerprint(text.encode("utf-8", "surrogatepass")))
        self._count += 1
        if self._count == self._records[-1].consumed:
            if self._digest.hexdigest() != self._records.pop().source:
                raise self._changed()
            self._digest, self._count = hashlib.sha256(), 0
        return True

    def check(self) -> None:
        """At the corpus's end: every finished shard must have been met again."""
        if self._records:
            raise self._changed()

    def _changed(self) -> MeristemError:
        return MeristemError(f"{self._folder}: the {self._split} text is not the one this store was begun with; "
                             f"delete the folder and run again to build it anew")


class Ledger:
    """The journal of one build."""

    def __init__(self, folder: Path, fresh: Manifest) -> None:
        self.folder = folder
        self.manifest = self._begun(fresh)

    def _begun(self, fresh: Manifest) -> Manifest:
        """What an earlier pass left, if it was making the same thing."""
        path = next((self.folder / name for name in (JOURNAL, FINISHED) if (self.folder / name).is_file()), None)
        if path is None:
            return fresh
        old = Manifest.load(path)
        for name in ("tokenizer", "separator", "dtype", "words", "shard_tokens"):
            if getattr(old, name) != getattr(fresh, name):
                raise MeristemError(f"{self.folder}: holds a store with another {name} ({getattr(old, name)}, now "
                                    f"{getattr(fresh, name)}); delete the folder or choose another one")
        for split, records in old.splits.items():
            for number, record in enumerate(records):
                Shard(self.folder / split, number, old.dtype, record).check(contents=True)
        return old

    def past(self) -> dict[str, Past]:
        """Per split what need not be done again."""
        return {split: Past(split, self.manifest.splits[split], self.folder) for split in SPLITS}

    def add(self, split: str, record: ShardRecord) -> None:
        """A shard is complete: from here on it survives a kill."""
        splits = {**self.manifest.splits, split: [*self.manifest.splits[split], record]}
        self.manifest = self.manifest.model_copy(update={"splits": splits})
        self.manifest.save(self.folder / JOURNAL)

    def finish(self, state: str = "") -> None:
        """The store is complete: its description is the last file to appear; each state it grows to keeps its own."""
        if state:
            self.manifest.save(self.folder / finished_name(state))
        self.manifest.save(self.folder / FINISHED)
        (self.folder / JOURNAL).unlink(missing_ok=True)
        flush_folder(self.folder)


@contextmanager
def sole_builder(folder: Path) -> Iterator[None]:
    """Keep a second build out of the folder, and clear away what a killed one left half-written."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # by process: worker processes do not inherit it
        except (BlockingIOError, PermissionError):  # a disk without locks says something else
            raise MeristemError(f"{folder}: another process is building this store; wait for it, or stop it") from None
        for path in folder.rglob(f"*{PARTIAL}"):
            path.unlink()
        yield
