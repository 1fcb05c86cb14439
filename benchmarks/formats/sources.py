"""Files of other programs as sources: what comes back from an import, compared with the run that was exported."""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.formats.comparison import Comparison
from meristem.api import export, import_folder
from meristem.checkpoint.load_run import load_run


def compare_gguf_import(run: Path, folder: Path) -> Comparison:
    """A GGUF file as a run again: the largest difference of any tensor that the file holds."""
    from importlib.metadata import version

    export(run, folder / "gguf", gguf=True)
    again = load_run(import_folder(folder / "gguf" / "model.gguf", folder / "again").run)
    loaded = load_run(run)
    first, second = loaded.learner.model.backbone.state_dict(), again.learner.model.backbone.state_dict()
    same = sum(torch.equal(tensor, second[name]) for name, tensor in first.items())
    return Comparison(
        consumer=f"from GGUF (gguf {version('gguf')})",
        family=loaded.recipe.name,
        compared="tensors",
        difference=max(float((tensor - second[name]).abs().max()) for name, tensor in first.items()),
        scale=max(float(tensor.abs().max()) for tensor in first.values()),
        identical=f"{same} of {len(first)}",
    )
