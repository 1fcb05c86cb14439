"""Wheel and sdist, and installations with pip, uv and uvx, in clean environments that fill a mask."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRAIN = (
    "pretrain", "bert-mini", "builtin:microworld-en?size=40", "train.steps=2", "model.layers=1", "model.hidden_size=32",
    "model.heads=2", "model.max_length=32", "tokenizer.vocab_size=300", "train.batch_tokens=256", "--out", "run",
)  # fmt: skip
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def uv() -> str:
    program = shutil.which("uv", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("uv is not installed: make test-integrations")
    return program


@pytest.fixture(scope="module")
def distributions(uv: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist; the wheel is built from the sdist, as a package index would have it."""
    folder = tmp_path_factory.mktemp("dist")
    run([uv, "build", "--quiet", "--out-dir", str(folder), str(ROOT)], folder)
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def run(words: list[str], folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= {"MERISTEM_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    completed = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert completed.returncode == 0, f"{words}\n{completed.stdout}{completed.stderr}"
    return completed.stdout


def first_mask(command: Path, folder: Path) -> None:
    """Train and fill a mask with an installed command, in a folder that has nothing of the repository."""
    assert "meristem 0." in run([str(command), "--version"], folder)
    assert len(run([str(command), "recipes"], folder).splitlines()) > 40
    run([str(command), *TRAIN], folder)
    assert "%" in run([str(command), "fill", "run", "The sailor went [MASK]."], folder)


def test_wheel_and_sdist_have_every_file_of_the_package(distributions: tuple[Path, Path]) -> None:
    wheel, sdist = distributions
    listed = subprocess.run(["git", "ls-files", "meristem"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = set(listed.stdout.splitlines())
    assert {"meristem/recipes/bert-mini.yaml", "meristem/serving/studio/page/index.html"} <= files
    assert files <= set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert files | {"pyproject.toml", "constraints.txt", "LICENSE", "README.md", "benchmarks/formats/cases.py"} <= names


def test_the_wheel_in_a_clean_environment_of_uv(uv: str, distributions: tuple[Path, Path], tmp_path: Path) -> None:
    run([uv, "venv", "--quiet", "--python", sys.executable, "environment"], tmp_path)
    bin_folder = tmp_path / "environment" / "bin"
    words = [uv, "pip", "install", "--quiet", "--python", str(bin_folder / "python")]
    run([*words, "-c", str(ROOT / "constraints.txt"), str(distributions[0])], tmp_path)
    first_mask(bin_folder / "meristem", tmp_path)


def test_the_sdist_in_a_clean_environment_of_pip(distributions: tuple[Path, Path], tmp_path: Path) -> None:
    run([sys.executable, "-m", "venv", "environment"], tmp_path)
    bin_folder = tmp_path / "environment" / "bin"
    install = [str(bin_folder / "pip"), "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    run([*install, str(distributions[1])], tmp_path)
    first_mask(bin_folder / "meristem", tmp_path)


def test_uv_installs_the_clone_and_uvx_runs_it(uv: str, tmp_path: Path) -> None:
    run([uv, "venv", "--quiet", "--python", sys.executable, "environment"], tmp_path)
    python = str(tmp_path / "environment" / "bin" / "python")
    run([uv, "pip", "install", "--quiet", "--python", python, "-c", str(ROOT / "constraints.txt"), str(ROOT)], tmp_path)
    assert "pretrain" in run([str(Path(python).with_name("meristem")), "--help"], tmp_path)
    uvx = [uv, "tool", "run", "--python", sys.executable, "--constraints", str(ROOT / "constraints.txt")]
    assert "pretrain" in run([*uvx, "--from", str(ROOT), "meristem", "--help"], tmp_path)
