"""A CUDA device without a GPU: fake tensors on `cuda:0`, and a log of host synchronizations and copies to the device.

Only for a process of its own, since torch believes from then on that there is a CUDA device.
"""

from __future__ import annotations

import ctypes
import subprocess
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

CUDA = torch.device("cuda", 0)


def compile_device(folder: Path) -> Path:
    """The shared library of `device.cpp`, compiled in a second or two."""
    torch_folder, library = Path(torch.__file__).parent, folder / "fake_cuda.so"
    options = ["-std=c++20", "-O0", "-shared", "-fPIC", f"-I{torch_folder / 'include'}", f"-L{torch_folder / 'lib'}"]
    source = Path(__file__).with_name("device.cpp")
    subprocess.run(["c++", *options, source, "-o", library, "-ltorch_cpu", "-lc10"], check=True, capture_output=True)
    return library


def load_device(library: Path) -> None:
    """Make torch believe in a CUDA device that autocasts to bfloat16."""
    ctypes.CDLL(str(library))
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    torch.cuda.is_bf16_supported = lambda including_emulation=True: True  # type: ignore[assignment]  # as autocast calls it


def move_to_fake_cuda(module: nn.Module, mode: FakeTensorMode) -> None:
    """Replace parameters and buffers, and nothing else, by fake ones on the device; tied ones stay tied."""
    parameters: dict[nn.Parameter, nn.Parameter] = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is None:
                continue
            if parameter not in parameters:
                fake_parameter = nn.Parameter(_fake(parameter, mode), requires_grad=parameter.requires_grad)
                parameters[parameter] = fake_parameter
            part._parameters[name] = parameters[parameter]
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = _fake(buffer, mode)


def _fake(tensor: Tensor, mode: FakeTensorMode) -> Tensor:
    return FakeTensor(mode, torch.empty_like(tensor, device="meta"), CUDA)


class TransferLog(TorchDispatchMode):
    """Counts, by operator and line, what makes the host wait for the device (`syncs`), and copies to the device
    (`uploads`). Numbers that the host asks for are invented: true, 1, or three indices."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs: Counter[str] = Counter()
        self.uploads: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Log the operator, and run it or invent its result."""
        kwargs, name, first = kwargs or {}, func.overloadpacket.__name__, args[0] if args else None
        is_on_device = isinstance(first, Tensor) and first.device.type == "cuda"
        if name == "_local_scalar_dense":
            self._count(self.syncs if is_on_device else None, "item")
            return True if first.dtype == torch.bool else 1.0 if first.dtype.is_floating_point else 1
        if name == "nonzero":
            self._count(self.syncs if is_on_device else None, name)
            return first.new_empty((3, first.ndim), dtype=torch.int64)
        if name == "unique_dim":
            self._count(self.syncs if is_on_device else None, name)
            index = first.new_empty(first.shape[args[1]], dtype=torch.int64)
            return torch.empty_like(first), index, index
        if name == "index" and any(index is not None and index.dtype == torch.bool for index in args[1]):
            self._count(self.syncs, "index with a mask")
        result = func(*args, **kwargs)
        if name == "copy_":
            self._count_copy(args[1], first)
        elif name == "_to_copy":
            self._count_copy(first, result)
        return result

    def _count_copy(self, source: Tensor, target: Tensor) -> None:
        if source.device.type != target.device.type:
            self._count(self.uploads if target.device.type == "cuda" else self.syncs, "copy")

    def _count(self, counter: Counter[str] | None, operator: str) -> None:
        if counter is not None:
            package_frames = [frame for frame in traceback.extract_stack() if "/meristem/" in frame.filename]
            place = (
                f"{Path(package_frames[-1].filename).name}:{package_frames[-1].lineno}" if package_frames else "test"
            )
            counter[f"{operator} in {place}"] += 1
