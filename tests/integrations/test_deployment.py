"""The Dockerfile and the Kubernetes manifest, read by the programs that check them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def program(name: str) -> str:
    path = shutil.which(name, path=str(Path(sys.executable).parent))
    if path is None:
        pytest.skip(f"{name} is not installed: make test-integrations")
    return path


def test_hadolint_has_nothing_to_say_of_the_dockerfile() -> None:
    checked = subprocess.run([program("hadolint"), str(ROOT / "Dockerfile")], capture_output=True, text=True)
    assert (checked.returncode, checked.stdout) == (0, "")


def test_hadolint_finds_a_fault(tmp_path: Path) -> None:
    faulty = (ROOT / "Dockerfile").read_text().replace("USER 1000", "USER root")
    (tmp_path / "Dockerfile").write_text(faulty)
    checked = subprocess.run([program("hadolint"), str(tmp_path / "Dockerfile")], capture_output=True, text=True)
    assert checked.returncode != 0


def kubernetes_check(manifest: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program("kubernetes-validate"), "--strict", str(manifest)], capture_output=True, text=True)


def test_the_kubernetes_manifest_fits_its_schema(tmp_path: Path) -> None:
    checked = kubernetes_check(ROOT / "deploy/kubernetes.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert (checked.stdout + checked.stderr).count("passed") == 3
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text((ROOT / "deploy/kubernetes.yaml").read_text().replace("completions: 2", "completion: 2"))
    assert kubernetes_check(wrong).returncode != 0
