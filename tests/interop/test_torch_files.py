"""torch's own files, read without unpickling, compared with what torch itself reads."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from meristem.config.errors import MeristemError
from meristem.interop import torch_files

BASE = torch.arange(24.0).view(4, 6)
TENSORS: dict[str, Any] = {
    "turned": BASE.t(), "part": BASE[1:3, 2:5], "whole": BASE, "half": torch.randn(3).half(),
    "empty": torch.zeros(0, 3),
    "brain": torch.randn(5).bfloat16(), "one": torch.tensor(3.5), "flags": torch.tensor([True, False]),
    "long": torch.arange(3), "learnt": nn.Parameter(torch.ones(2)), "double": torch.randn(2).double(),
}  # fmt: skip


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("payload", [TENSORS, nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).state_dict()])
def test_it_reads_what_torch_reads(payload: dict[str, Any], zipped: bool, tmp_path: Path) -> None:
    torch.save(payload, tmp_path / "x.bin", _use_new_zipfile_serialization=zipped)
    tensors = torch_files.read_tensors(tmp_path / "x.bin")
    theirs = torch.load(tmp_path / "x.bin", weights_only=True)
    assert list(tensors) == list(theirs)
    for name, tensor in theirs.items():
        assert torch.equal(tensors[name], tensor) and tensors[name].dtype == tensor.dtype, name


class Storage(tuple[Any, ...]):
    """Stands for a storage while a file is made that torch would not make."""


def write(path: Path, size: Any, stride: Any, offset: Any = 0, numel: int = 4, data: bytes = b"\0" * 16) -> None:
    """A file of one tensor with these numbers in it, whatever they are."""

    class Made:
        def __reduce__(self) -> Any:
            return torch._utils._rebuild_tensor_v2, (STORAGE, offset, size, stride, False, {})

    class Pickler(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            return ("storage", torch.FloatStorage, "0", "cpu", numel) if value is STORAGE else None

    with zipfile.ZipFile(path, "w") as archive:
        with archive.open("archive/data.pkl", "w") as file:
            Pickler(file, protocol=2).dump({"w": Made()})
        archive.writestr("archive/data/0", data)


STORAGE = Storage()


def test_the_files_made_here_are_good(tmp_path: Path) -> None:
    write(tmp_path / "x.bin", (2, 2), (2, 1))
    assert torch_files.read_tensors(tmp_path / "x.bin")["w"].shape == (2, 2)


@pytest.mark.parametrize("numbers", [
    {"size": (5,), "stride": (1,)},
    {"size": (2,), "stride": (1,), "offset": 3},
    {"size": (2,), "stride": (1,), "offset": -1},
    {"size": (10**12,), "stride": (0,)},
    {"size": (10**12, 10**12), "stride": (0, 0)},
    {"size": (-1,), "stride": (1,)},
    {"size": (2,), "stride": (10**18,)},
    {"size": (2, 2), "stride": (1,)},
    {"size": ("2",), "stride": (1,)},
    {"size": (2,), "stride": (1,), "numel": 10**12},
    {"size": (2,), "stride": (1,), "data": b"\0" * 8},
])  # fmt: skip
def test_a_tensor_that_reaches_out_of_its_storage_is_refused(numbers: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "x.bin", **numbers)
    with pytest.raises(MeristemError, match=r"x\.bin: not readable as plain tensors"):
        torch_files.read_tensors(tmp_path / "x.bin")


@pytest.mark.parametrize("content", [
    {"w": complex(1, 2)}, {"w": {1, 2}}, {"w": Path("x")}, {"w": slice(2)}, {"w": nn.Linear(2, 2)},
])  # fmt: skip
def test_whatever_else_a_pickle_asks_for_is_named(content: Any, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "x.bin")
    with pytest.raises(MeristemError, match="nothing else in it is executed: it needs"):
        torch_files.read_tensors(tmp_path / "x.bin")


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}, protocol=2))
    with pytest.raises(MeristemError, match="it is damaged, or not a torch file"):
        torch_files.read_tensors(tmp_path / "x.bin")


def test_every_cut_of_a_file_is_refused(tmp_path: Path) -> None:
    for zipped in (True, False):
        torch.save({"w": torch.ones(3)}, tmp_path / "whole.bin", _use_new_zipfile_serialization=zipped)
        content = (tmp_path / "whole.bin").read_bytes()
        for size in range(0, len(content) - 1, 7):
            (tmp_path / "x.bin").write_bytes(content[:size])
            with pytest.raises(MeristemError, match=r"x\.bin"):
                torch_files.read_tensors(tmp_path / "x.bin")
