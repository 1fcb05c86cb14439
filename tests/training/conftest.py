"""The same small cases the contract is tested on, and a place where whole runs are trained."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent / "learning")]

from place import place

__all__ = ["place"]
