"""Every malformed artifact, and every entry point that must refuse it."""

from __future__ import annotations

from hostile import entry_points
from hostile.artifact_files import Artifact
from hostile.data import data
from hostile.entry_points import EntryPoint, labelled
from hostile.folders import folders
from hostile.texts import texts
from hostile.tokenizer_artifacts import tokenizers
from hostile.weights import weights

ARTIFACTS: tuple[Artifact, ...] = (*weights(), *texts(), *tokenizers(), *folders(), *data())
ENTRY_POINTS: dict[str, EntryPoint] = {
    **{entry_point.__name__: entry_point for entry_point in entry_points.ALL_ENTRY_POINTS},
    **{f"read_labelled_{shape}": labelled(shape) for shape in ("text", "span", "words", "image")},
}
TRIALS = [(artifact, entry_point) for artifact in ARTIFACTS for entry_point in artifact.entry_points]
