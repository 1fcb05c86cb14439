"""Mutated run folders and tokenizers through every operation that reads them: `python -m benchmarks.mutations`.

The mutations and the watched child are those of tests/hostile, which holds a few of them in every run of the tests.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests"))
