"""Journal of a dataset build, saved after every finished shard, so that an interrupted build can resume."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from meristem.config.errors import MeristemError
from meristem.corpus.corpus_parts import folder_lock
from meristem.dataset.encode_documents import fingerprint
from meristem.dataset.manifest import (
    JOURNAL_FILE,
    MANIFEST_FILE,
    SPLITS,
    DatasetManifest,
    ShardRecord,
    manifest_name,
)
from meristem.dataset.shard import Shard
from meristem.utils.durable_files import PARTIAL_SUFFIX, fsync_folder


class FinishedDocuments:
    """Documents of one split that finished shards already contain, recognised by their digests."""

    def __init__(self, split: str, records: Sequence[ShardRecord], folder: Path) -> None:
        self._split, self._folder = split, folder
        self._records = list(reversed(records))
        self._digest, self._count = hashlib.sha256(), 0

    def contains_next(self, text: str) -> bool:
        """Whether the next document of the corpus is in a finished shard."""
        if not self._records:
            return False
        self._digest.update(fingerprint(text.encode("utf-8", "surrogatepass")))
        self._count += 1
        if self._count == self._records[-1].consumed:
            if self._digest.hexdigest() != self._records.pop().source:
                raise self._source_changed_error()
            self._digest, self._count = hashlib.sha256(), 0
        return True

    def check_exhausted(self) -> None:
        """At the end of the corpus: raise if it ended before all documents of the finished shards came by."""
        if self._records:
            raise self._source_changed_error()

    def _source_changed_error(self) -> MeristemError:
        return MeristemError(
            f"{self._folder}: the {self._split} text has changed since this dataset was started; "
            f"delete the folder and run again to rebuild it"
        )


class BuildJournal:
    """Journal of one build: the manifest of the shards finished so far."""

    def __init__(self, folder: Path, new_manifest: DatasetManifest) -> None:
        self.folder = folder
        self.manifest = self._load_or_start(new_manifest)

    def _load_or_start(self, new_manifest: DatasetManifest) -> DatasetManifest:
        """The manifest an interrupted build of the same dataset left, or a new one."""
        paths = (self.folder / name for name in (JOURNAL_FILE, MANIFEST_FILE))
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            return new_manifest
        saved = DatasetManifest.load(path)
        for name in ("tokenizer", "separator", "dtype", "words", "shard_tokens"):
            if getattr(saved, name) != getattr(new_manifest, name):
                raise MeristemError(
                    f"{self.folder}: contains a dataset with another {name} ({getattr(saved, name)}, now "
                    f"{getattr(new_manifest, name)}); delete the folder or choose another one"
                )
        for split, records in saved.splits.items():
            for number, record in enumerate(records):
                Shard(self.folder / split, number, saved.dtype, record).check(contents=True)
        return saved

    def finished_documents(self) -> dict[str, FinishedDocuments]:
        """Per split, the documents that need not be tokenized again."""
        return {split: FinishedDocuments(split, self.manifest.splits[split], self.folder) for split in SPLITS}

    def add_shard(self, split: str, record: ShardRecord) -> None:
        """Record a finished shard, so that it survives a crash."""
        splits = {**self.manifest.splits, split: [*self.manifest.splits[split], record]}
        self.manifest = self.manifest.model_copy(update={"splits": splits})
        self.manifest.save(self.folder / JOURNAL_FILE)

    def finish(self, state: str = "") -> None:
        """Write the manifest, which marks the dataset as complete; each state of a growing dataset has its own."""
        if state:
            self.manifest.save(self.folder / manifest_name(state))
        self.manifest.save(self.folder / MANIFEST_FILE)
        (self.folder / JOURNAL_FILE).unlink(missing_ok=True)
        fsync_folder(self.folder)


@contextmanager
def exclusive_build(folder: Path) -> Iterator[bool]:
    """Lock the folder and delete partial files of a killed build; yields whether it waited for another build."""
    with folder_lock(folder, "building these shards") as waited:
        for path in folder.rglob(f"*{PARTIAL_SUFFIX}"):
            path.unlink()
        yield waited
