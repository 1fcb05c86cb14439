"""The file format of shards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from meristem.corpus.document import Document
from meristem.dataset.build import build_dataset
from meristem.dataset.settings import DatasetSettings
from meristem.dataset.shard import dtype_for
from meristem.dataset.token_dataset import TokenDataset
from meristem.tokenizers.tokenizer import Tokenizer


def test_golden_bytes(make: Callable[..., TokenDataset]) -> None:
    folder = make(["ab. Ca!", "你好。我"]).folder / "train"
    tokens = np.frombuffer((folder / "00000.tokens").read_bytes(), "<u2").tolist()
    documents = np.frombuffer((folder / "00000.documents").read_bytes(), "<i8").tolist()
    sentences = np.frombuffer((folder / "00000.sentences").read_bytes(), "<u4").tolist()
    assert tokens == [5, 68, 129, 33, 67, 131, 3, 148, 151, 135, 149, 3]  # a ##b . C ##a ! [SEP] 你 好 。 我 [SEP]
    assert documents == [0, 7, 12]
    assert sentences == [0, 3, 7, 10]
    assert sorted(path.name for path in folder.iterdir()) == ["00000.documents", "00000.sentences", "00000.tokens"]


def test_the_type_of_ids_changes_at_65536() -> None:
    assert [dtype_for(size) for size in (5, 65_535, 65_536, 65_537)] == ["uint16", "uint16", "uint16", "uint32"]


@pytest.mark.parametrize(("size", "width"), [(65_536, 2), (65_537, 4)])
def test_the_last_id_of_a_large_vocabulary_survives(tmp_path: Path, size: int, width: int) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(size - 5))]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    tokenizer = Tokenizer.load(tmp_path / "vocab.txt")
    store = build_dataset(
        [Document(f"{words[-1]} w0", "a:1")], tokenizer, tmp_path / "store", DatasetSettings(), processes=1
    )
    assert store.split("train").tokens(0, 3).tolist() == [size - 1, 5, 3]
    assert (tmp_path / "store" / "train" / "00000.tokens").stat().st_size == 3 * width
