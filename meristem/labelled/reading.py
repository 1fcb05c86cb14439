"""Labelled data read, split and looked at: what was understood, what was strange about it."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from meristem.labelled.settings import DataSettings
from meristem.randomness import Order
from meristem.settings import MeristemError
from meristem.task import Sample


@dataclass(kw_only=True)
class Splits:
    """Samples by split, and sentences about what was met while reading."""

    samples: dict[str, list[Sample]]
    notices: list[str] = field(default_factory=list)


def splits(data: DataSettings, shape: str) -> Splits:
    """train, validation where there is any, test where there is any."""
    if data.train is None:
        raise MeristemError("data.train: missing; give a file of labelled samples, or builtin:microworld-sentiment")
    train = read(data.train, data, shape)
    found = {"train": train}
    for name in ("validation", "test"):
        source = getattr(data, name)
        if source is not None:
            found[name] = read(source, data, shape)
    if "validation" not in found and data.held_out:
        order = Order(len(train), data.seed, 0)(np.arange(len(train)))
        held = round(len(train) * data.held_out)
        found["validation"] = [train[int(i)] for i in sorted(order[:held])]
        found["train"] = [train[int(i)] for i in sorted(order[held:])]
    if data.limit is not None and len(found["train"]) > data.limit:
        order = Order(len(found["train"]), data.seed, 1)(np.arange(len(found["train"])))
        found["train"] = [found["train"][int(i)] for i in sorted(order[: data.limit])]
    return Splits(samples=found)


def read(source: str | tuple[str, ...], data: DataSettings, shape: str, *, gold: bool = True) -> list[Sample]:
    """The samples of one source or of several."""
    out: list[Sample] = []
    for one in (source,) if isinstance(source, str) else source:
        for values, place in _rows(Path(one)):
            out.append(Sample(given={"text": values["sentence"]}, gold=values["label"], place=place))
    return out


def _rows(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            for number, line in enumerate(file, 1):
                yield json.loads(line), f"{path}:{number}"
        else:
            for number, row in enumerate(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE), 2):
                yield row, f"{path}:{number}"
