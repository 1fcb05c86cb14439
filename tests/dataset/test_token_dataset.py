"""Opening, verifying and reading a tokenized dataset."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meristem.config.errors import MeristemError
from meristem.dataset.encode_documents import EncodedBatch
from meristem.dataset.manifest import DatasetManifest, ShardRecord
from meristem.dataset.shard_writer import SplitWriter
from meristem.dataset.token_dataset import TokenDataset

Make = Callable[..., TokenDataset]


@pytest.fixture
def store(make: Make, generate_stories: Callable[..., list[str]]) -> TokenDataset:
    return make(generate_stories(60), shard_tokens=3_000)


def files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock"]


def test_any_flipped_bit_is_detected_and_named(store: TokenDataset) -> None:
    chance = np.random.default_rng(0)
    for path in files(store.folder):
        data = path.read_bytes()
        for position in {0, len(data) - 1, *chance.integers(len(data), size=3).tolist()}:
            changed = bytearray(data)
            changed[position] ^= 1 << int(chance.integers(8))
            path.write_bytes(changed)
            with pytest.raises(MeristemError, match=f"{path.name}.*") as error:
                TokenDataset.open(store.folder)
            assert str(path) in str(error.value)
            assert "delete the folder" in str(error.value)
        path.write_bytes(data)
    TokenDataset.open(store.folder)


def test_truncated_and_missing_files_are_named_even_without_verifying(store: TokenDataset) -> None:
    for path in files(store.folder):
        data = path.read_bytes()
        for num_bytes in (0, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:num_bytes])
            with pytest.raises(MeristemError, match=path.name):
                TokenDataset.open(store.folder, verify=False)
        path.unlink()
        with pytest.raises(MeristemError, match=path.name):
            TokenDataset.open(store.folder, verify=False)
        path.write_bytes(data)


def test_an_unverified_open_reads_no_contents(store: TokenDataset) -> None:
    path = store.folder / "train" / "00000.tokens"
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    TokenDataset.open(store.folder, verify=False)


def test_a_dataset_of_another_format_is_refused(store: TokenDataset) -> None:
    path = store.folder / "dataset.json"
    path.write_text(store.manifest.model_copy(update={"format": 99}).to_json())
    with pytest.raises(MeristemError, match="format 99"):
        TokenDataset.open(store.folder)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"store": 3}', '{"store": {"format": 1}}', "\0", "[" * 9999])
def test_an_invalid_manifest_is_refused(store: TokenDataset, text: str) -> None:
    (store.folder / "dataset.json").write_text(text)
    with pytest.raises(MeristemError, match=r"dataset\.json.*damaged"):
        TokenDataset.open(store.folder)


def test_a_split_without_documents_is_named(store: TokenDataset) -> None:
    with pytest.raises(MeristemError, match=r"the test split has no documents; there are only train.*corpus\.test"):
        store.split("test")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_stretches_agree_with_the_whole(store: TokenDataset, data: st.DataObject) -> None:
    stream = store.split("train")
    all_tokens, sentences = stream.tokens(0, len(stream)), stream.sentences(0, len(stream))
    start = data.draw(st.integers(0, len(stream)))
    stop = data.draw(st.integers(start, len(stream)))
    assert stream.tokens(start, stop).tolist() == all_tokens[start:stop].tolist()
    assert stream.sentences(start, stop).tolist() == [s for s in sentences.tolist() if start <= s < stop]
    numbers = [stream.document_at(position) for position in range(start, stop)]
    assert stream.documents_at(start, stop).tolist() == [number - numbers[0] for number in numbers]
    if start < len(stream):
        assert stream.sentence_start_at(start) == sentences[sentences <= start].max()


def test_documents_follow_each_other_and_end_with_the_separator(store: TokenDataset) -> None:
    stream = store.split("train")
    spans = [stream.document(number) for number in range(stream.documents)]
    assert spans[0].start == 0
    assert spans[-1].stop == len(stream)
    assert all(a.stop == b.start for a, b in pairwise(spans))
    all_tokens = stream.tokens(0, len(stream))
    assert [span.text_stop for span in spans] == np.flatnonzero(all_tokens == store.manifest.separator).tolist()
    assert stream.lengths(0, stream.documents).tolist() == [span.text_stop - span.start for span in spans]
    assert stream.lengths(5, 9).tolist() == [span.text_stop - span.start for span in spans[5:9]]
    assert set(stream.sentences(0, len(stream)).tolist()) >= {span.start for span in spans}


def test_reaching_outside_is_an_error(store: TokenDataset) -> None:
    stream = store.split("train")
    for reach in (
        lambda: stream.tokens(0, len(stream) + 1),
        lambda: stream.tokens(-1, 3),
        lambda: stream.document(-1),
        lambda: stream.document(stream.documents),
        lambda: stream.document_at(len(stream)),
    ):
        with pytest.raises(IndexError):
            reach()


def test_a_stream_travels_to_another_process_as_names_not_as_contents(store: TokenDataset) -> None:
    stream = store.split("train")
    all_tokens = stream.tokens(0, len(stream))
    assert len(sent := ForkingPickler.dumps(stream)) < 2_000 * len(stream._shards)
    assert (ForkingPickler.loads(sent).tokens(0, len(stream)) == all_tokens).all()


def test_memory_stays_flat(tmp_path: Path) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("measured through /proc")
    records: list[ShardRecord] = []
    block = 100_000
    pack = EncodedBatch(
        tokens=np.arange(block, dtype="uint16"),
        lengths=np.full(100, block // 100),
        byte_sizes=np.full(100, 4_000),
        sentence_starts=np.arange(0, block, 20),
        fingerprints=bytes(800),
        unknown_counts=np.zeros((100, 2), np.int64),
    )
    before = _own_memory()
    writer = SplitWriter(
        tmp_path / "train", number=0, shard_tokens=5_000_000, keep_words=False, on_finished=records.append
    )
    for _ in range(600):  # 60 million tokens, 120 MB
        writer.add(pack)
    writer.close()
    manifest = DatasetManifest(
        tokenizer="", separator=0, dtype="uint16", words=False, shard_tokens=5_000_000, splits={"train": records}
    )
    manifest.save(tmp_path / "dataset.json")
    stream = TokenDataset.open(tmp_path).split("train")
    total = sum(int(stream.tokens(start, start + block).sum()) for start in range(0, len(stream), block))
    assert total == 600 * int(np.arange(block, dtype="uint16").sum(dtype=np.int64))
    assert _own_memory() - before < 24_000_000


def _own_memory() -> int:
    """Bytes of this process that are not a file's."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024
