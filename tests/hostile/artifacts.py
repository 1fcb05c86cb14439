"""Every bad artifact there is, and every door one is held to."""

from __future__ import annotations

from hostile import doors
from hostile.data import data
from hostile.doors import Door, labelled
from hostile.folders import folders
from hostile.making import Artifact
from hostile.texts import texts
from hostile.weights import weights
from hostile.words import tokenizers

ARTIFACTS: tuple[Artifact, ...] = (*weights(), *texts(), *tokenizers(), *folders(), *data())
DOORS: dict[str, Door] = {
    **{door.__name__: door for door in doors.OPEN},
    **{f"read_labelled_{shape}": labelled(shape) for shape in ("text", "span", "words", "picture")},
}
HELD = [(artifact, door) for artifact in ARTIFACTS for door in artifact.doors]
