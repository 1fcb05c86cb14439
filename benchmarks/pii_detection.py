"""Recall and precision of PII detection on synthetic PII inserted into real text.

    python -m benchmarks.pii_detection ../shared/data [--count 6000] [--seed 0]

Strings are inserted at random positions between words, with as many harmless numbers. A string counts as found if none
of it is left; anything else that is found is a false positive.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from benchmarks.side_by_side import table
from benchmarks.synthetic_pii import HARMLESS, PLANTERS
from meristem.corpus.privacy.pii import PLACEHOLDERS, find_pii

FILES = ("english_novels/valid.txt", "wikitext-2/valid.txt", "multi30k/train.de", "chinese_poetry/tang.txt")


class Planted(NamedTuple):
    """An inserted string: its kind and position."""

    kind: str
    start: int
    stop: int


def planted(text: str, strings: list[tuple[str, str]], rng: random.Random) -> tuple[str, list[Planted]]:
    """The text with strings inserted at random positions between its words."""
    words = text.split(" ")
    for kind, string in strings:
        words.insert(rng.randint(0, len(words)), f"\0{kind}\1{string}\2")
    text_so_far, inserted = "", []
    for word in words:
        if word.startswith("\0"):
            kind, _, string = word.strip("\0\2").partition("\1")
            inserted.append(Planted(kind, len(text_so_far), len(text_so_far) + len(string)))
            text_so_far += string + rng.choice(["", ",", "."]) + " "
        else:
            text_so_far += word + " "
    return text_so_far, inserted


def paragraphs(data: Path, count: int, rng: random.Random) -> list[str]:
    """Lines of real text from several sources."""
    texts = []
    for name in FILES:
        lines = (data / name).read_text(encoding="utf-8").split("\n")
        texts += [line for line in lines if len(line) > 40]
    return rng.choices(texts, k=count)


def secret(text: str, kind: str, start: int, stop: int) -> tuple[int, int]:
    """The span of an inserted string that must be found: without a cue word or the name of a secret."""
    string = text[start:stop]
    if kind == "phone":
        return start + min(index for index, sign in enumerate(string) if sign.isdigit() or sign in "+("), stop
    if kind == "key" and not string.startswith("-----"):
        cut = max(string.rfind(sign) for sign in (' "', ": ", "secret_key=", "Bearer "))
        return (start if cut < 0 else stop - len(string[cut:].split("=")[-1].split(" ")[-1].strip('"'))), stop
    return start, stop


def main() -> None:
    """Insert, detect, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--count", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=0, help="number of misses and false positives to print")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    kinds, harmless = list(PLANTERS), list(HARMLESS)
    strings = [(kinds[n % len(kinds)], PLANTERS[kinds[n % len(kinds)]](rng)) for n in range(args.count)]
    strings += [(harmless[n % len(harmless)], HARMLESS[harmless[n % len(harmless)]](rng)) for n in range(args.count)]
    rng.shuffle(strings)
    documents = [
        planted(text, strings[index * 3 : index * 3 + 3], rng)
        for index, text in enumerate(paragraphs(args.data, -(-len(strings) // 3), rng))
    ]
    count(documents, args.show)


def count(documents: list[tuple[str, list[Planted]]], show: int) -> None:
    """Recall and precision by kind, false positives by kind of look-alike."""
    num_inserted, num_removed, named, num_detected, right, mistaken = (Counter[str]() for _ in range(6))
    mistakes: list[str] = []
    start = time.process_time()
    answers = [find_pii(text) for text, _ in documents]
    duration = time.process_time() - start
    for (text, strings), matches in zip(documents, answers, strict=True):
        covered = {index for match in matches for index in range(match.start, match.stop)}
        for kind, begin, end in strings:
            if kind not in PLACEHOLDERS:
                hit = any(begin <= position < end for position in covered)
                mistaken[kind] += hit
                num_inserted[kind] += 1
                mistakes += [f"mistaken {kind}: {text[begin:end]!r}"] * hit
                continue
            low, high = secret(text, kind, begin, end)
            remaining_positions = [
                index for index in range(low, high) if index not in covered and text[index].isalnum()
            ]
            num_inserted[kind] += 1
            num_removed[kind] += not remaining_positions
            named[kind] += any(m.kind == kind and m.start < high and m.stop > low for m in matches)
            mistakes += [f"missed {kind}: {text[max(0, begin - 12) : end + 12]!r}"] * bool(remaining_positions)
        for match in matches:
            num_detected[match.kind] += 1
            is_right = any(s.kind in PLACEHOLDERS and s.start < match.stop and match.start < s.stop for s in strings)
            right[match.kind] += is_right
            touches = is_right or any(s.start < match.stop and match.start < s.stop for s in strings)
            mistakes += [] if touches else [f"own text as {match.kind}: {text[match.start : match.stop]!r}"]
    for line in mistakes[:show]:
        print(line)
    rows = [
        [
            kind,
            f"{num_inserted[kind]:,}",
            f"{num_removed[kind] / num_inserted[kind]:.4f}",
            f"{named[kind] / num_inserted[kind]:.4f}",
            f"{num_detected[kind]:,}",
            f"{right[kind] / max(num_detected[kind], 1):.4f}",
        ]
        for kind in PLACEHOLDERS
    ]
    total = sum(num_inserted[kind] for kind in PLACEHOLDERS)
    rows.append(
        [
            "all",
            f"{total:,}",
            f"{num_removed.total() / total:.4f}",
            f"{named.total() / total:.4f}",
            f"{num_detected.total():,}",
            f"{right.total() / num_detected.total():.4f}",
        ]
    )
    print(table(["kind", "planted", "recall", "under its name", "found", "precision"], rows))
    rows = [
        [kind, f"{num_inserted[kind]:,}", f"{mistaken[kind]:,}", f"{1 - mistaken[kind] / num_inserted[kind]:.4f}"]
        for kind in HARMLESS
    ]
    print(table(["harmless", "planted", "taken", "left alone"], rows))
    print(f"{sum(len(text.encode()) for text, _ in documents) / 1e6 / duration:.1f} MB/s of text full of numbers")


if __name__ == "__main__":
    main()
