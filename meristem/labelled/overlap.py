"""Train/test leakage and contradictory duplicates in labelled data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from meristem.interfaces.sample import Sample
from meristem.labelled.rows import MAX_LISTED_LOCATIONS


def find_leaks(
    samples: Mapping[str, Sequence[Sample]], dedup_key: Callable[[Sample], str], *, single_gold: bool
) -> list[str]:
    """Notices about validation and test samples that are also in training, with the first locations."""
    train_samples: dict[str, list[Sample]] = {}
    for sample in samples["train"]:
        train_samples.setdefault(dedup_key(sample), []).append(sample)
    messages = []
    for split in ("validation", "test"):
        split_samples = samples.get(split, ())
        matches = [(sample, train_samples.get(dedup_key(sample), [])) for sample in split_samples]
        overlaps = [(sample, same) for sample, same in matches if same]
        if not overlaps:
            continue
        locations = _list_first([f"{sample.location} is {same[0].location}" for sample, same in overlaps])
        num_conflicts = sum(all(str(sample.gold) != str(other.gold) for other in same) for sample, same in overlaps)
        conflict_text = f", {num_conflicts:,} of them with another label" if single_gold and num_conflicts else ""
        summary = f"leak: {len(overlaps):,} of {len(split_samples):,} {split} samples are also in training"
        messages.append(f"{summary}{conflict_text}: {locations}")
    return messages


def find_contradictions(samples: Sequence[Sample], dedup_key: Callable[[Sample], str]) -> list[str]:
    """Notices about duplicate training samples whose golds differ."""
    first_samples: dict[str, Sample] = {}
    conflicts: dict[str, Sample] = {}
    for sample in samples:
        key = dedup_key(sample)
        earlier = first_samples.setdefault(key, sample)
        if str(earlier.gold) != str(sample.gold):
            conflicts.setdefault(key, sample)
    if not conflicts:
        return []
    pairs = [f"{first_samples[key].location} and {sample.location}" for key, sample in conflicts.items()]
    return [f"training samples repeated with another label: {len(conflicts):,} ({_list_first(pairs)})"]


def _list_first(descriptions: Sequence[str]) -> str:
    """The first descriptions, and how many more there are."""
    hidden = len(descriptions) - MAX_LISTED_LOCATIONS
    return "; ".join(descriptions[:MAX_LISTED_LOCATIONS]) + (f" and {hidden:,} more" if hidden > 0 else "")
