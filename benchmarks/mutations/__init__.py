"""Fuzzing: every operation on mutated run folders and tokenizers: `python -m benchmarks.mutations`.

The mutations and the monitored child process are those of tests/hostile, which runs a few of them in the test suite.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests"))
