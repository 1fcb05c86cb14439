"""Versions of packages that an extra installs."""

from __future__ import annotations

from importlib import metadata

from meristem.config.errors import MeristemError


def require_version(package: str, purpose: str, extra: str) -> str:
    """Name and version of an installed package, for cache keys; without it, the error names the extra."""
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        raise MeristemError(f'{purpose} needs {package}: pip install "meristem-lm[{extra}]"') from None
