"""What stands beside the tests can be imported, and a whole run can be put together small."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
