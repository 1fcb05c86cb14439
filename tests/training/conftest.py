"""The same small cases the contract is tested on, and a place where whole runs are trained."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent.parent / "learning"))

from place import place

__all__ = ["place"]
