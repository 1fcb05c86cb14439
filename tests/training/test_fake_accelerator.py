"""Training steps on a CUDA device without a GPU: device mismatches, dtype errors, needless copies and host syncs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

STEPS = Path(__file__).parent / "fake_cuda" / "steps.py"
REPOSITORY = Path(__file__).parents[2]


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this build of torch has CUDA")
@pytest.mark.skipif(shutil.which("c++") is None, reason="the fake device is compiled by a C++ compiler")
@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_steps_stay_on_the_device(which: str) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-q", "--tb=short", "-m", which, str(STEPS)]
    completed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout[-8000:]
