"""Samples that stand in two places: leaks between splits, and repetitions that contradict each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from meristem.labelled.found import NAMED
from meristem.task import Sample


def leaks(samples: Mapping[str, Sequence[Sample]], identity: Callable[[Sample], str], *, one_gold: bool) -> list[str]:
    """For validation and test: how many of their samples also stand in training, three of them by name."""
    known: dict[str, list[Sample]] = {}
    for sample in samples["train"]:
        known.setdefault(identity(sample), []).append(sample)
    said = []
    for split in ("validation", "test"):
        some = samples.get(split, ())
        met = [(one, known[key]) for one in some if (key := identity(one)) in known]
        if not met:
            continue
        places = "; ".join(f"{one.place} is {before[0].place}" for one, before in met[:NAMED])
        more = f" and {len(met) - NAMED:,} more" if len(met) > NAMED else ""
        other = sum(all(str(one.gold) != str(same.gold) for same in before) for one, before in met)
        unlike = f", {other:,} of them with another label" if one_gold and other else ""
        counted = f"leak: {len(met):,} of {len(some):,} {split} samples also stand in training"
        said.append(f"{counted}{unlike}: {places}{more}")
    return said


def contradictions(samples: Sequence[Sample], identity: Callable[[Sample], str]) -> list[str]:
    """Training samples that are given more than once, with golds that differ."""
    first: dict[str, Sample] = {}
    unlike: dict[str, Sample] = {}
    for sample in samples:
        key = identity(sample)
        before = first.setdefault(key, sample)
        if str(before.gold) != str(sample.gold):
            unlike.setdefault(key, sample)
    if not unlike:
        return []
    places = "; ".join(f"{first[key].place} and {sample.place}" for key, sample in list(unlike.items())[:NAMED])
    more = f" and {len(unlike) - NAMED:,} more" if len(unlike) > NAMED else ""
    return [f"training samples that come again with another label: {len(unlike):,} ({places}{more})"]
