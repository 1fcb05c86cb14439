"""MinHash near-duplicate detection compared with datatrove: recall by Jaccard similarity, false positives, speed.

    python -m benchmarks.near_duplicates ../shared/data [--pairs 2400] [--seed 0]

The pairs: passages of English novels, WikiText-2 and Tang poems, each with a copy in which words are replaced,
inserted or deleted and sentences swapped until the exact Jaccard index of their 5-grams is at most a value drawn from
0.3 to 0.95. datatrove runs its four stages on the English pairs with its own defaults (5-grams, 14 buckets
of 8, its normalisation), except for our word splitting: its English tokenizer needs an extra package.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from benchmarks.side_by_side import table
from meristem.corpus.dedup.lsh_index import LSHIndex
from meristem.corpus.dedup.minhash import MinHashSettings, minhash_signatures

WORD = re.compile(r"[\u4e00-\u9fff]|[^\W_\u4e00-\u9fff]+")
LENGTH = 3_000
BANDS = ((0.3, 0.5), (0.5, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 1.0))


@dataclass(frozen=True)
class Pair:
    """Two texts and their Jaccard similarity."""

    first: str
    second: str
    jaccard: float
    chinese: bool


def shingles(text: str, words: int = 5) -> set[tuple[str, ...]]:
    """The set of word 5-grams of a text; slow and exact."""
    tokens_found = WORD.findall(text.lower())
    return {tuple(tokens_found[index : index + words]) for index in range(max(len(tokens_found) - words + 1, 1))}


def jaccard(first: set[tuple[str, ...]], other: set[tuple[str, ...]]) -> float:
    """Jaccard index of two sets."""
    return len(first & other) / len(first | other)


def passages(data: Path, rng: random.Random) -> Iterator[tuple[str, bool]]:
    """Distinct passages of about 3,000 characters, one in six Chinese."""
    english = "".join(
        (data / name).read_text(encoding="utf-8") for name in ("english_novels/train.txt", "wikitext-2/train.txt")
    )
    chinese = (data / "chinese_poetry/tang.txt").read_text(encoding="utf-8")
    starts = {
        False: rng.sample(range(0, len(english) - LENGTH, LENGTH), len(english) // LENGTH - 1),
        True: rng.sample(range(0, len(chinese) - LENGTH, LENGTH // 4), len(chinese) // (LENGTH // 4) - 5),
    }
    while starts[False] and starts[True]:
        is_chinese = rng.random() < 1 / 6
        start = starts[is_chinese].pop()
        yield (chinese[start : start + LENGTH // 4], True) if is_chinese else (english[start : start + LENGTH], False)


def changed(tokens: list[str], rng: random.Random) -> list[str]:
    """One edit: a word replaced, inserted or deleted, or two sentences swapped."""
    position = rng.randrange(len(tokens))
    match rng.choice(("replace", "insert", "delete", "move")):
        case "replace":
            return [*tokens[:position], rng.choice(tokens), *tokens[position + 1 :]]
        case "insert":
            return [*tokens[:position], rng.choice(tokens), *tokens[position:]]
        case "delete" if len(tokens) > 10:
            return [*tokens[:position], *tokens[position + 1 :]]
        case _:
            cuts = sorted(rng.sample(range(len(tokens)), 3))
            return [*tokens[: cuts[0]], *tokens[cuts[1] : cuts[2]], *tokens[cuts[0] : cuts[1]], *tokens[cuts[2] :]]


def planted(data: Path, count: int, seed: int) -> list[Pair]:
    """Pairs with similarities from 0.3 to 0.95."""
    rng = random.Random(seed)
    pairs: list[Pair] = []
    for text, chinese in passages(data, rng):
        if len(pairs) == count:
            break
        tokens = list(text) if chinese else text.split()
        if len(tokens) < 50:
            continue
        target_similarity, own_shingles = rng.uniform(0.3, 0.95), shingles(text)
        first, copy, alike = ("" if chinese else " ").join(tokens), tokens, 1.0
        while alike > target_similarity:
            for _ in range(1 + int((alike - target_similarity) * len(tokens) / 12)):
                copy = changed(copy, rng)
            second = ("" if chinese else " ").join(copy)
            alike = jaccard(own_shingles, shingles(second))
        pairs.append(Pair(first, second, alike, chinese))
    return pairs


def ours(pairs: list[Pair], folder: Path) -> tuple[list[bool], dict[str, float]]:
    """Which pairs are found; CPU seconds of signatures and index."""
    texts = [pair.first for pair in pairs] + [pair.second for pair in pairs]
    minhash_signatures(texts[:1])  # builds the character table
    start = time.process_time()
    signatures = np.concatenate([minhash_signatures(texts[index : index + 85]) for index in range(0, len(texts), 85)])
    signed = time.process_time()
    lsh_index = LSHIndex(MinHashSettings(), folder)
    matches = np.concatenate(
        [lsh_index.query_and_add(signatures[index : index + 85]) for index in range(0, len(signatures), 85)]
    )
    times = {"signatures": signed - start, "index": time.process_time() - signed}
    return [bool(match_id >= 0) for match_id in matches[len(pairs) :]], times


def theirs(pairs: list[Pair], work: Path) -> tuple[list[bool], dict[str, float]]:
    """The same with datatrove: a pair is found if one of the two is removed."""
    import xxhash
    from datatrove.data import Document
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import (
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.utils.word_tokenizers import WordTokenizer

    class Words(WordTokenizer):  # type: ignore[misc]  # datatrove is not typed
        def word_tokenize(self, text: str) -> list[str]:
            return WORD.findall(text)

        def sent_tokenize(self, text: str) -> list[str]:
            return [text]

        def span_tokenize(self, text: str) -> list[tuple[int, int]]:
            return [(0, len(text))]

    texts = [
        Document(text=getattr(pair, side), id=f"{side}-{number}")
        for side in ("first", "second")
        for number, pair in enumerate(pairs)
    ]
    kept_ids: set[str] = set()

    def collect(data: Iterable[Document], rank: int, world_size: int) -> Iterator[Document]:
        for document in data:
            kept_ids.add(document.id)
            yield document

    sign = MinhashDedupSignature(str(work / "signatures"), language=Words())
    sign._hash_func = lambda data: xxhash.xxh64_intdigest(data.encode())  # its own hash; xxhash ≥ 4 needs bytes
    stages: list[tuple[list[object], int]] = [
        ([texts, sign], 1),
        ([MinhashDedupBuckets(str(work / "signatures"), str(work / "buckets"))], sign.config.num_buckets),
        ([MinhashDedupCluster(str(work / "buckets"), str(work / "remove"))], 1),
        ([texts, MinhashDedupFilter(str(work / "remove")), collect], 1),
    ]
    start = time.process_time()
    for number, (pipeline, tasks) in enumerate(stages):
        LocalPipelineExecutor(
            pipeline=pipeline, tasks=tasks, workers=1, logging_dir=str(work / f"log-{number}"), skip_completed=False
        ).run()
    times = {"all stages": time.process_time() - start}
    return [not {f"first-{n}", f"second-{n}"} <= kept_ids for n in range(len(pairs))], times


def rows(name: str, pairs: list[Pair], detected: list[bool]) -> list[str]:
    """Share of pairs found, by similarity."""
    cells = [name]
    for low, high in BANDS:
        band_hits = [hit for pair, hit in zip(pairs, detected, strict=True) if low <= pair.jaccard < high]
        cells.append(f"{sum(band_hits)} of {len(band_hits)} ({sum(band_hits) / max(len(band_hits), 1):.1%})")
    return cells


def summary(name: str, pairs: list[Pair], detected: list[bool]) -> str:
    """Recall from 0.8 on, and false positives below 0.5."""
    similar = [hit for pair, hit in zip(pairs, detected, strict=True) if pair.jaccard >= 0.8]
    dissimilar = [hit for pair, hit in zip(pairs, detected, strict=True) if pair.jaccard < 0.5]
    return (
        f"{name}: recall at Jaccard ≥ 0.8: {sum(similar) / len(similar):.4f} of {len(similar)}; "
        f"found below 0.5: {sum(dissimilar) / len(dissimilar):.4f} of {len(dissimilar)}"
    )


def main() -> None:
    """Make the pairs, run both, print recall and speed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, default=2400)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pairs = planted(options.data, options.pairs, options.seed)
    english = [pair for pair in pairs if not pair.chinese]
    table_rows, messages = [], []
    sides: list[tuple[str, list[Pair], Callable[[list[Pair], Path], tuple[list[bool], dict[str, float]]]]] = [
        ("ours, all", pairs, ours),
        ("ours, English", english, ours),
    ]
    try:
        sides.append((f"datatrove {version('datatrove')}, English", english, theirs))
    except PackageNotFoundError:
        messages.append("datatrove is not installed (pip install 'meristem-lm[cluster]'): no comparison")
    for name, chosen_pairs, side in sides:
        with tempfile.TemporaryDirectory() as folder:
            detected, times = side(chosen_pairs, Path(folder) / "work")
        size = sum(len(pair.first.encode()) + len(pair.second.encode()) for pair in chosen_pairs) / 1e6
        table_rows.append(rows(name, chosen_pairs, detected))
        messages.append(summary(name, chosen_pairs, detected))
        speeds = (
            f"{stage} {stage_seconds:.2f} s ({size / stage_seconds:.1f} MB/s)" for stage, stage_seconds in times.items()
        )
        messages.append("  " + ", ".join(speeds))
    print(table(["found at Jaccard", *(f"{low}–{high}" for low, high in BANDS)], table_rows))
    print("\n".join(messages))


if __name__ == "__main__":
    main()
