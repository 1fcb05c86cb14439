"""The notebooks of the documentation, executed with few steps; what is committed names no machine and no person."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient", reason="no nbclient here: make test-docs installs it")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
SMALL = {
    "train-and-look": "STEPS = 4",
    "finetune-and-report": "EPOCHS = 1\nSIZE = 40",
    "compare-objectives": "FLOPS = 1e10\nSEEDS = 1",
}
"""The parameters of each notebook for a test."""
SHOWN = {
    "train-and-look": ("Done:", "<th>validation</th>", "LoadedModel(", "<th>token</th>", "rgba(31,122,82,"),
    "finetune-and-report": ("Done:", "<th>accuracy</th>", "correct label", "keyboard_typos", "confidence"),
    "compare-objectives": ("Job ", "<th>verdict</th>", "electra-mini", "tokens_per_second"),
}
"""What the outputs of each notebook must contain."""


def outputs(notebook: Any) -> str:
    """Everything that its cells printed or displayed."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    parts = [output for cell in cells for output in cell.outputs]
    texts = [output.get("text", "") for output in parts]
    texts += [text for output in parts for text in output.get("data", {}).values()]
    return "\n".join(text if isinstance(text, str) else str(text) for text in texts)


def test_every_notebook_is_executed() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(SMALL) == set(SHOWN)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "cache"))
    notebook = nbformat.read(path, 4)
    (parameters,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    parameters.source = SMALL[path.stem]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.source = [], cell.source.replace("size=300", "size=30")
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=500, kernel_name="python3", resources=resources).execute()
    shown = outputs(notebook)
    logged = [output for cell in notebook.cells for output in cell.get("outputs", ()) if output.output_type == "stream"]
    assert {output.name for output in logged} == {"stdout"}, "training logs plain text, not an HTML output each line"
    assert [part for part in SHOWN[path.stem] if part not in shown] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_committed_is_whole_and_small(path: Path) -> None:
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1)) and len(counts) > 4, "run it from top to bottom, then save it"
    assert [part for part in SHOWN[path.stem] if part not in outputs(notebook)] == []
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|Users|tmp|work)/", text) and len(text) < 300_000
