"""Packages that an extra installs: their modules and versions, or an error that names the extra."""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Any

from meristem.config.errors import MeristemError


class PackageMissingError(MeristemError):
    """A package of an extra is not installed."""


def require_module(module: str, purpose: str, extra: str, *, package: str = "") -> Any:
    """An optional module; `package` is the name of its package, where that is another one."""
    try:
        return import_module(module)
    except ImportError:
        raise _missing_error(package or module, purpose, extra) from None


def require_version(package: str, purpose: str, extra: str) -> str:
    """Name and version of an installed package, for cache keys."""
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        raise _missing_error(package, purpose, extra) from None


def _missing_error(package: str, purpose: str, extra: str) -> PackageMissingError:
    return PackageMissingError(f'{purpose} needs {package}: pip install "meristem-lm[{extra}]"')
