"""The cache folder of corpora, tokenizers and shards."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """Where corpora, tokenizers and shards live: $MERISTEM_CACHE, or the user's cache folder."""
    configured = os.environ.get("MERISTEM_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(configured) if configured else home / "meristem"
