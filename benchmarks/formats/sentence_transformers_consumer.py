"""sentence-transformers as the consumer of exported encoders."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import meristem
from benchmarks.formats.comparison import Comparison
from benchmarks.formats.runs import SENTENCES
from meristem.checkpoint.load_run import load_run
from meristem.interop.sentence_embedding_export import export_sentence_transformers


def compare_sentence_transformers(run: Path, folder: Path) -> Comparison:
    """Export a run, open it with sentence-transformers, and compare the vectors with those of `meristem embed`."""
    import sentence_transformers

    export_sentence_transformers(run, folder)
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    theirs = np.asarray(model.encode(list(SENTENCES), show_progress_bar=False), np.float64)
    ours = np.asarray(meristem.load(run).embed(list(SENTENCES)).tolist(), np.float64)
    return Comparison(
        consumer=f"sentence-transformers {sentence_transformers.__version__}",
        family=load_run(run).recipe.name,
        compared="text vectors",
        difference=float(np.abs(theirs - ours).max()),
        scale=float(np.abs(ours).max()),
        identical="–",
    )
