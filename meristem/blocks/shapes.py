"""Models of shapes alone: no memory, and no numbers drawn for weights that nobody will read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

DRAWS = frozenset({
    Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.trunc_normal_, nn.init.kaiming_uniform_,
})  # fmt: skip


class _Undrawn(TorchFunctionMode):
    """Nothing is filled by chance: on the meta device torch imports its compiler for that, which takes seconds."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        told = kwargs or {}
        return (args or (told["tensor"],))[0] if func in DRAWS else func(*args, **told)


@contextmanager
def shapes_alone() -> Iterator[None]:
    """Modules that are made in here have shapes and no values."""
    with torch.device("meta"), _Undrawn():
        yield
