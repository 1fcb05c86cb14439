"""Language identification accuracy compared with py3langid: single sentences written for the tests, and real text.

    python -m benchmarks.language_id ../shared/data

Neither knows all languages of the other: py3langid, which knows 97, is also measured restricted to ours, and "not
sure" of ours counts as wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from pathlib import Path

from benchmarks.side_by_side import table
from meristem.corpus.clean.language_id import KNOWN_LANGUAGES, identify_language

GOLDEN = Path(__file__).parent.parent / "tests" / "golden" / "languages.tsv"
COUNT = 1000

Sample = tuple[str, str]


def lines(path: Path, language: str, shortest: int = 20) -> list[Sample]:
    """A fixed sample of a thousand lines of a file."""
    texts = [line.strip() for line in path.read_text(encoding="utf-8").split("\n")]
    texts = [text for text in texts if len(text) >= shortest]
    return [(language, text) for text in random.Random(0).sample(texts, min(COUNT, len(texts)))]


def sets(data: Path) -> dict[str, list[Sample]]:
    """The samples by source."""
    words = (data / "ud_ewt/test.tsv").read_text(encoding="utf-8").split("\n\n")
    spoken = [" ".join(line.split("\t")[0] for line in block.split("\n") if line) for block in words]
    posts = (data / "weibo_ner/weiboNER_2nd_conll.test").read_text(encoding="utf-8").split("\n\n")
    weibo = ["".join(line.split("\t")[0][:1] for line in block.split("\n") if line) for block in posts]
    abstracts = [" ".join(json.loads(line)["source"]) for line in (data / "scitldr/test.jsonl").open(encoding="utf-8")]
    return {
        "sentences of tests/golden": [
            (language, text) for language, text in (line.split("\t") for line in GOLDEN.read_text("utf-8").splitlines())
        ],
        "multi30k, captions": lines(data / "multi30k/train.en", "en"),
        "multi30k, captions (de)": lines(data / "multi30k/train.de", "de"),
        "UD EWT, web sentences": [("en", text) for text in spoken if len(text) >= 20][:COUNT],
        "novels, paragraphs": lines(data / "english_novels/valid.txt", "en"),
        "SciTLDR, abstracts": [("en", text) for text in abstracts],
        "Tang poems": lines(data / "chinese_poetry/tang.txt", "zh"),
        "Weibo posts": [("zh", text) for text in weibo if len(text) >= 10],
    }


def free(text: str) -> str:
    """py3langid with all its languages."""
    import py3langid

    return str(py3langid.classify(text)[0])


def restricted() -> None:
    """Restrict py3langid to our languages."""
    import py3langid

    py3langid.classify("made ready")
    known = {language for language, _ in py3langid.rank("every language there is")}
    py3langid.set_languages(sorted(KNOWN_LANGUAGES & known))


def main() -> None:
    """Accuracy by set, then by language, then speed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    found = sets(parser.parse_args().data)
    flat = [sample for samples in found.values() for sample in samples]
    said: dict[str, list[str]] = {}
    took: dict[str, float] = {}
    for side in ("meristem", "py3langid", "py3langid among ours"):
        if side == "py3langid among ours":
            restricted()
        answer = (lambda text: identify_language(text).language) if side == "meristem" else free
        answer("made ready")
        start = time.process_time()
        said[side] = [answer(text) for _, text in flat]
        took[side] = time.process_time() - start
    at, rows = 0, []
    for name, samples in found.items():
        part = slice(at, at + len(samples))
        at += len(samples)
        shares = [sum(a == b for a, (b, _) in zip(answers[part], samples, strict=True)) for answers in said.values()]
        unsure = said["meristem"][part].count("")
        rows.append([name, f"{len(samples):,}", *(f"{n / len(samples):.4f}" for n in (*shares, unsure))])
    print(table(["set", "texts", *said, "meristem not sure"], rows))
    by_language(found["sentences of tests/golden"], said)
    size = sum(len(text.encode()) for _, text in flat) / 1e6
    print(", ".join(f"{side} {size / seconds:.1f} MB/s" for side, seconds in took.items()))


def by_language(samples: list[Sample], said: dict[str, list[str]]) -> None:
    """Number of each language's ten sentences that are identified correctly."""
    total = Counter(language for language, _ in samples)
    right = {
        side: Counter(language for (language, _), answer in zip(samples, answers, strict=False) if answer == language)
        for side, answers in said.items()
    }
    rows = [[name, *(f"{right[side][name]} / {count}" for side in said)] for name, count in sorted(total.items())]
    print(table(["language", *said], rows))


if __name__ == "__main__":
    main()
