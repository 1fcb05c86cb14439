"""Building modules on the meta device: shapes without memory, and without random initialization."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

RANDOM_INITS = frozenset({
    Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.trunc_normal_, nn.init.kaiming_uniform_,
})  # fmt: skip


class _SkipRandomInit(TorchFunctionMode):
    """Skips random initialization: on the meta device torch imports its compiler for it, which takes seconds."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        keyword_args = kwargs or {}
        return (args or (keyword_args["tensor"],))[0] if func in RANDOM_INITS else func(*args, **keyword_args)


@contextmanager
def on_meta_device() -> Iterator[None]:
    """Modules built within this context have shapes and dtypes but no values."""
    with torch.device("meta"), _SkipRandomInit():
        yield
