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
        overlaps = [
            (split_sample, train_samples[key])
            for split_sample in split_samples
            if (key := dedup_key(split_sample)) in train_samples
        ]
        if not overlaps:
            continue
        locations = "; ".join(
            f"{split_sample.location} is {matches[0].location}"
            for split_sample, matches in overlaps[:MAX_LISTED_LOCATIONS]
        )
        more_text = (
            f" and {len(overlaps) - MAX_LISTED_LOCATIONS:,} more" if len(overlaps) > MAX_LISTED_LOCATIONS else ""
        )
        num_conflicts = sum(
            all(str(split_sample.gold) != str(match.gold) for match in matches) for split_sample, matches in overlaps
        )
        conflict_text = f", {num_conflicts:,} of them with another label" if single_gold and num_conflicts else ""
        summary = f"leak: {len(overlaps):,} of {len(split_samples):,} {split} samples are also in training"
        messages.append(f"{summary}{conflict_text}: {locations}{more_text}")
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
    locations = "; ".join(
        f"{first_samples[key].location} and {sample.location}"
        for key, sample in list(conflicts.items())[:MAX_LISTED_LOCATIONS]
    )
    more_text = f" and {len(conflicts) - MAX_LISTED_LOCATIONS:,} more" if len(conflicts) > MAX_LISTED_LOCATIONS else ""
    return [f"training samples repeated with another label: {len(conflicts):,} ({locations}{more_text})"]
