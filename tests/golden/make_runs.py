"""Writes runs/ and expected.json: a tiny interrupted run of every family, and the results of its uninterrupted run.

    python tests/golden/make_runs.py [NAME …]

The runs are a snapshot: code that is renamed or moved must still resume them. They are regenerated only if results
are meant to change; docs/decisions/0010-golden-runs.md says how.
"""

# ruff: noqa: E402  # the environment is set before torch is imported
from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
os.environ["TOKENIZERS_PARALLELISM"] = "false"
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

import yaml
from golden import internals, measures
from golden.specs import SPECS, STEPS, STOP, Spec
from rich.console import Console

import meristem
from meristem.config.errors import MeristemError

RUNS, EXPECTED = HERE / "runs", HERE / "expected.json"
UNNEEDED = ("tensorboard", "log.txt", ".lock", "checkpoints/.lock")
CONSOLE = Console(quiet=True)


def main(names: list[str]) -> None:
    """Make the runs of these names, or all of them."""
    expected = json.loads(EXPECTED.read_text(encoding="utf-8")) if names else {"runs": {}}
    with tempfile.TemporaryDirectory() as folder, internals.quick_runs():
        os.environ["MERISTEM_CACHE"], os.environ["XDG_CONFIG_HOME"] = f"{folder}/cache", f"{folder}/config"
        _write_foreign_key(Path(folder))
        os.chdir(folder)
        for name in names or SPECS:
            expected["runs"][name] = make(name, SPECS[name], Path(folder))
            print(f"{name}: {sum(f.stat().st_size for f in (RUNS / name).rglob('*') if f.is_file()):,} bytes")
    expected["numerics"] = measures.numerics()
    EXPECTED.write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _write_foreign_key(work_folder: Path) -> None:
    """A throw-away signing key, so that the runs are untrusted (from elsewhere) on every machine."""
    key = work_folder / "config" / "meristem" / "origin.key"
    key.parent.mkdir(parents=True)
    key.write_text("5a" * 32, encoding="ascii")


def make(name: str, spec: Spec, work_folder: Path) -> dict[str, Any]:
    """Write one interrupted run to runs/; returns its expected results."""
    if spec.start is not None and not (work_folder / spec.start).exists():
        shutil.copytree(RUNS / spec.start, work_folder / spec.start)  # paths in recipes are relative to the runs
    with internals.watched_steps() as draws:
        run_result = start(spec, Path("whole") / name)
    with internals.watched_steps(stop_after=STOP):
        try:
            start(spec, Path(name))
        except MeristemError as error:
            assert f"stopped at step {STOP} of {STEPS}" in str(error), error
        else:
            raise AssertionError(f"{name} was not interrupted")
    for unneeded in UNNEEDED:
        path = Path(name) / unneeded
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    shutil.rmtree(RUNS / name, ignore_errors=True)
    shutil.copytree(name, RUNS / name)
    return {
        "command": spec.command,
        "start": spec.start,
        "answers": measures.answers(meristem.load(name), spec.questions),
        "saved": measures.files_digest(measures.checkpoint(Path(name))),
        "loaded": measures.tensors_digest(meristem.load(name).model.state_dict()),
        "final": measures.files_digest(measures.checkpoint(run_result.run)),
        "norms": measures.files_norms(measures.checkpoint(run_result.run)),
        "draws": draws,
        "metrics": measures.metrics_lines(run_result.run),
        "validation": run_result.metrics,
        "test": run_result.test,
    }


def start(spec: Spec, out: Path) -> Any:
    """Train a run from its recipe."""
    recipe: Any = spec.recipe
    if isinstance(recipe, dict):
        recipe = Path("recipes") / f"{out.name}.yaml"
        recipe.parent.mkdir(exist_ok=True)
        recipe.write_text(yaml.safe_dump(spec.recipe), encoding="utf-8")
    options: dict[str, Any] = {"out": out, "console": CONSOLE}
    settings = dict(spec.settings)
    if spec.command == "pretrain":
        options["source"] = spec.source
    elif spec.command == "finetune":
        settings["from"] = spec.start
    return getattr(meristem, spec.command)(recipe, settings, **options)


if __name__ == "__main__":
    main(sys.argv[1:])
