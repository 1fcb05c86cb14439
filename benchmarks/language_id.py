"""Accuracy and speed of language identification on sentences written for the tests, real text, short and mixed text.

    python -m benchmarks.language_id ../shared/data [--name py3langid]

The identifier of this tree is measured and stored under the name in docs/results/language_id.json; the page
docs/results/language_id.md is generated from everything stored, so that identifiers can be compared across commits.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.side_by_side import RESULTS, table
from meristem.corpus.clean.language_id import identify_language

GOLDEN = Path(__file__).parent.parent / "tests" / "golden" / "languages.tsv"
STORED, PAGE = RESULTS / "language_id.json", RESULTS / "language_id.md"
COUNT = 1000
UNSPACED = ("zh", "ja", "th")
"""Languages whose short texts are counted in characters, two for a word."""
REPEATS = 5

Sample = tuple[str, str]
"""A language, "" for none, and a text."""


def golden() -> list[Sample]:
    """Ten sentences of each language."""
    pairs = (line.split("\t") for line in GOLDEN.read_text("utf-8").splitlines())
    return [(language, text) for language, text in pairs]


def file_lines(path: Path, language: str, min_chars: int = 20) -> list[Sample]:
    """A fixed sample of a thousand lines of a file."""
    texts = [line.strip() for line in path.read_text(encoding="utf-8").split("\n")]
    texts = [text for text in texts if len(text) >= min_chars]
    return [(language, text) for text in random.Random(0).sample(texts, min(COUNT, len(texts)))]


def first_words(sample: Sample, count: int) -> Sample:
    """The beginning of a text."""
    language, text = sample
    return language, text[: 2 * count] if language in UNSPACED else " ".join(text.split()[:count])


def with_foreign_words(sample: Sample, foreign: str) -> Sample:
    """A text with a few words of another language in its middle."""
    language, text = sample
    if language in UNSPACED:
        return language, f"{text[: len(text) // 2]} {foreign} {text[len(text) // 2 :]}"
    words = text.split()
    return language, " ".join([*words[: len(words) // 2], foreign, *words[len(words) // 2 :]])


def no_language(rng: random.Random) -> str:
    """Numbers, hashes, random consonants, an address, assignments or a row of a table."""

    def hexadecimal(count: int) -> str:
        return "".join(rng.choice("0123456789abcdef") for _ in range(count))

    return rng.choice(
        [
            lambda: " ".join(str(rng.randrange(10**6)) for _ in range(rng.randrange(2, 12))),
            lambda: hexadecimal(rng.choice([16, 32, 64])),
            lambda: "".join(rng.choice("bcdfghjklmnpqrstvwxz") for _ in range(rng.randrange(4, 20))),
            lambda: f"https://www.{hexadecimal(8)}.com/{rng.randrange(9999)}?id={hexadecimal(12)}",
            lambda: " ".join(f"{rng.choice('ABCDEFG')}{rng.randrange(100)} = {rng.random():.3f};" for _ in range(4)),
            lambda: "|".join(f"{rng.random():.2f}" for _ in range(8)),
        ]
    )()


def sample_sets(data: Path) -> dict[str, list[Sample]]:
    """The samples by source."""
    sentences = golden()
    english = [text.rstrip(".?!").split() for language, text in sentences if language == "en"]
    foreign = [" ".join(words[2:5]) for words in english]
    blocks = (data / "ud_ewt/test.tsv").read_text(encoding="utf-8").split("\n\n")
    web = [" ".join(line.split("\t")[0] for line in block.split("\n") if line) for block in blocks]
    posts = (data / "weibo_ner/weiboNER_2nd_conll.test").read_text(encoding="utf-8").split("\n\n")
    weibo = ["".join(line.split("\t")[0][:1] for line in block.split("\n") if line) for block in posts]
    abstracts = [" ".join(json.loads(line)["source"]) for line in (data / "scitldr/test.jsonl").open(encoding="utf-8")]
    east_asian = [(language, text) for language, text in sentences if language in ("zh", "ja", "ko")]
    rng = random.Random(0)
    return {
        "sentences of tests/golden, 51 languages": sentences,
        **{
            f"the same, first {count} words": [first_words(sample, count) for sample in sentences]
            for count in (8, 5, 3, 2)
        },
        "Chinese, Japanese, Korean: 4 characters": [
            (language, text[start : start + 4]) for language, text in east_asian for start in range(0, len(text) - 4, 4)
        ],
        "3 English words inside": [
            with_foreign_words(sample, foreign[number % len(foreign)])
            for number, sample in enumerate(sentences)
            if sample[0] != "en"
        ],
        "Chinese words inside English": [
            with_foreign_words(("en", " ".join(words)), word) for words in english for word in ("上海大学", "東京 学校")
        ],
        "multi30k, captions (en)": file_lines(data / "multi30k/train.en", "en"),
        "multi30k, captions (de)": file_lines(data / "multi30k/train.de", "de"),
        "UD EWT, web sentences": [("en", text) for text in web if len(text) >= 20][:COUNT],
        "novels, paragraphs": file_lines(data / "english_novels/valid.txt", "en"),
        "SciTLDR, abstracts": [("en", text) for text in abstracts],
        "Tang poems": file_lines(data / "chinese_poetry/tang.txt", "zh"),
        "Weibo posts": [("zh", text) for text in weibo if len(text) >= 10],
        "numbers, hashes, addresses: no language": [("", no_language(rng)) for _ in range(600)],
    }


def speed_sets(sets: dict[str, list[Sample]]) -> dict[str, list[str]]:
    """Texts by length, for the speed."""

    def joined(name: str, count: int) -> list[str]:
        texts = [text for _, text in sets[name]]
        return ["\n".join(texts[start : start + count]) for start in range(0, len(texts), count)]

    return {
        "English documents": joined("novels, paragraphs", 20),
        "Chinese documents": joined("Tang poems", 100),
        "English paragraphs": joined("novels, paragraphs", 1),
        "German captions": joined("multi30k, captions (de)", 1),
        "Weibo posts": joined("Weibo posts", 1),
    }


def microseconds(texts: Sequence[str]) -> float:
    """CPU time for one text, the best of several passes."""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.process_time()
        for text in texts:
            identify_language(text)
        best = min(best, time.process_time() - start)
    return 1e6 * best / len(texts)


def measure(sets: dict[str, list[Sample]]) -> dict[str, Any]:
    """Everything about the identifier of this tree."""
    memory, start = _peak_mb(), time.process_time()
    identify_language("made ready")
    load = {"seconds": time.process_time() - start, "MB": _peak_mb() - memory}
    shares = {}
    for name, samples in sets.items():
        answers = [identify_language(text).language for _, text in samples]
        right = sum(answer == language for answer, (language, _) in zip(answers, samples, strict=True))
        wrong = sum(answer not in ("", language) for answer, (language, _) in zip(answers, samples, strict=True))
        shares[name] = [right / len(samples), wrong / len(samples)]
    golden_right = Counter(language for language, text in golden() if identify_language(text).language == language)
    speeds = {}
    for name, texts in speed_sets(sets).items():
        cost = microseconds(texts)
        speeds[name] = [sum(len(text.encode()) for text in texts) / len(texts) / cost, cost]
    return {"load": load, "sets": shares, "languages": golden_right, "speed": speeds}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def page(stored: dict[str, Any], sets: dict[str, list[Sample]]) -> str:
    """The text of docs/results/language_id.md."""
    rows = [
        [name, f"{len(samples):,}", *("{:.4f} / {:.4f}".format(*side["sets"][name]) for side in stored.values())]
        for name, samples in sets.items()
    ]
    languages = sorted({language for language, _ in golden()})
    different = [name for name in languages if len({side["languages"].get(name, 0) for side in stored.values()}) > 1]
    by_language = [[name, *(f"{side['languages'].get(name, 0)}" for side in stored.values())] for name in different]
    speed = [
        [name, *("{:.1f} MB/s, {:.0f} µs".format(*side["speed"][name]) for side in stored.values())]
        for name in speed_sets(sets)
    ]
    loads = [f"{side['load']['seconds']:.2f} s, {side['load']['MB']:.0f} MB" for side in stored.values()]
    return "\n\n".join(
        [
            "# Language identification",
            "`python -m benchmarks.language_id ../shared/data`, one core. Right and wrong answers; the rest is “not "
            "clear”, which is the right answer where a text has no language. Why: "
            "[decision 0013](../decisions/0013-libraries.md).",
            table(["texts", "count", *(f"{name}: right / wrong" for name in stored)], rows),
            "Languages whose ten sentences are not answered equally:",
            table(["language", *stored], by_language),
            "Speed (a text is cut to its beginning and middle), and what loading costs:",
            table(["texts", *stored], [*speed, ["first text", *loads]]),
        ]
    ) + "\n"  # fmt: skip


def main() -> None:
    """Measure this tree's identifier and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--name", default="py3langid", help="the name of this tree's identifier on the page")
    options = parser.parse_args()
    sets = sample_sets(options.data)
    stored = json.loads(STORED.read_text("utf-8")) if STORED.exists() else {}
    stored[options.name] = measure(sets)
    STORED.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(stored, sets), encoding="utf-8")
    print(PAGE.read_text("utf-8"))


if __name__ == "__main__":
    main()
