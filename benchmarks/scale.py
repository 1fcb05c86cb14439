"""The corpus pipeline on a synthetic crawl, from files to shards: speed, memory, and resuming after kills.

    python -m benchmarks.scale ../shared/data --mb 200 --work FOLDER [--kills 5] [--seed 0]

The text: random sentences of English novels and WikiText-2 and lines of Tang poems; 4 % of the documents are exact
copies of earlier ones, 8 % near copies (up to 4 % of their words changed), 6 % junk (links, symbols, repeated lines),
and 4 % contain PII. Three quarters are in plain text files, a quarter in jsonl. Every pass (quality filters,
boilerplate, PII; with and without near-duplicate removal) runs in its own process group; its memory is the sum over
the group, shared pages counted once. Then the pass is killed at random moments and resumed: parts and shards must be
the same, byte for byte.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.side_by_side import table
from benchmarks.synthetic_pii import PLANTERS

SHARES = {"exact copy": 0.04, "near copy": 0.08, "junk": 0.06, "private": 0.04}
REMEMBERED = 4_000
"""Number of earlier documents kept for copying: recent ones, and some old ones."""

FILE_MB = 64
BEGUN = "begun"
"""A file in the cache that marks the end of imports and the start of work."""


def sentences(data: Path) -> tuple[list[str], list[str]]:
    """The material of documents: English sentences, Chinese lines."""
    raw = "".join(
        (data / name).read_text(encoding="utf-8") for name in ("english_novels/train.txt", "wikitext-2/train.txt")
    )
    english = [s.strip() + "." for s in raw.replace("\n", " ").split(". ") if 20 < len(s) < 600]
    poems = (data / "chinese_poetry/tang.txt").read_text(encoding="utf-8").split("\n")
    return english, [line.strip() for line in poems if 20 < len(line) < 200]


def junk(rng: random.Random) -> str:
    """A document that the quality filters should drop."""
    match rng.randrange(3):
        case 0:
            return "\n".join(f"http://example.com/{rng.randrange(10**9)}/page?id={n}" for n in range(40))
        case 1:
            return " ".join("".join(rng.choices("#*=~^|<>{}[]", k=rng.randrange(3, 12))) for _ in range(200))
        case _:
            return "\n".join([f"Buy now, offer {rng.randrange(10**6)} ends today, click here to continue."] * 30)


def private(rng: random.Random) -> str:
    """A sentence with PII."""
    return f"Whoever asks for it is given {PLANTERS[rng.choice(list(PLANTERS))](rng)} before noon."


def documents(data: Path, seed: int) -> Iterator[tuple[str, str]]:
    """An endless stream of (kind, document)."""
    rng = random.Random(seed)
    english, chinese = sentences(data)
    kinds, weights = ["plain", *SHARES], [1 - sum(SHARES.values()), *SHARES.values()]
    written_texts: list[str] = []
    while True:
        kind = rng.choices(kinds, weights)[0] if written_texts else "plain"
        if kind == "exact copy":
            yield kind, rng.choice(written_texts)
            continue
        if kind == "near copy":
            yield kind, near_copy(rng.choice(written_texts), rng)
            continue
        if kind == "junk":
            yield kind, junk(rng)
            continue
        sentence_pool, joint, count = (
            (chinese, "\n", 30) if rng.random() < 0.1 else (english, " ", rng.randrange(8, 40))
        )
        picked = rng.choices(sentence_pool, k=count)
        if kind == "private":
            picked.insert(rng.randrange(len(picked)), private(rng))
        text = joint.join(picked)
        if kind == "plain":
            if len(written_texts) < REMEMBERED:
                written_texts.append(text)
            else:
                written_texts[rng.randrange(REMEMBERED)] = text
        yield kind, text


def near_copy(text: str, rng: random.Random) -> str:
    """The text with a few words or characters replaced."""
    pieces = text.split(" ") if " " in text else list(text)
    for _ in range(max(1, int(len(pieces) * rng.uniform(0, 0.02)))):
        pieces[rng.randrange(len(pieces) - 1)] = rng.choice(pieces)
    pieces.insert(len(pieces) // 2, "indeed" if " " in text else "也")
    return (" " if " " in text else "").join(pieces)


def make(data: Path, folder: Path, megabytes: float, seed: int) -> Counter[str]:
    """Write the corpus; returns the number of documents of each kind."""
    folder.mkdir(parents=True)
    counts: Counter[str] = Counter()
    source, bytes_left, number = documents(data, seed), megabytes * 1e6, 0
    while bytes_left > 0:
        plain = number % 4 != 3
        size = min(bytes_left, FILE_MB * 1e6)
        with (folder / f"{number:04d}.{'txt' if plain else 'jsonl'}").open("w", encoding="utf-8") as file:
            while size > 0:
                kind, text = next(source)
                counts[kind] += 1
                row = text + "\n\n" if plain else json.dumps({"text": text}, ensure_ascii=False) + "\n"
                file.write(row)
                size -= len(row.encode())
                bytes_left -= len(row.encode())
        number += 1
    return counts


def through(source: Path, tokenizer: Path, near_duplicates: bool) -> None:
    """Run the pipeline in this process and its workers, and print the document counts."""
    from rich.console import Console

    from meristem.corpus.settings import CorpusSettings
    from meristem.dataset.prepare import cache_dir, prepare_dataset
    from meristem.dataset.settings import DatasetSettings
    from meristem.tokenizers.tokenizer import Tokenizer

    (cache_dir() / BEGUN).touch()
    corpus = CorpusSettings.model_validate(
        {
            "source": str(source),
            "document": "block",
            "quality": True,
            "boilerplate": True,
            "pii": True,
            "near_dedup": near_duplicates,
            "processes": 2,
        }
    )
    prepare_dataset(
        corpus,
        Tokenizer.load(tokenizer),
        DatasetSettings(shard_tokens=4_000_000),
        keep_words=False,
        console=Console(file=sys.stderr),
    )


class Pass:
    """A pipeline pass in its own process group, with its own cache."""

    def __init__(self, source: Path, tokenizer: Path, cache: Path, *, near_duplicates: bool) -> None:
        code = (
            f"from pathlib import Path; from benchmarks.scale import through; "
            f"through(Path({str(source)!r}), Path({str(tokenizer)!r}), {near_duplicates})"
        )
        env = {**os.environ, "MERISTEM_CACHE": str(cache), "TOKENIZERS_PARALLELISM": "false"}
        cache.mkdir(exist_ok=True)
        self.log, self.begun = cache.with_suffix(".log"), cache / BEGUN
        self.begun.unlink(missing_ok=True)
        with self.log.open("a") as log_file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code], stderr=log_file, env=env, start_new_session=True
            )
        self.start = time.perf_counter()
        self.peak = 0

    def wait(self, limit: float = float("inf")) -> bool:
        """Sample memory until the pass ends (True), or kill it after `limit` seconds of work (False)."""
        working = float("inf")
        while self.process.poll() is None:
            start = time.perf_counter()
            working = min(working, start) if self.begun.exists() else working
            if start - working > limit:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
                return False
            self.peak = max(self.peak, memory(self.process.pid))
            time.sleep(0.05)
        self.seconds = time.perf_counter() - self.start
        if self.process.returncode:
            sys.exit(f"the pass failed: {self.log.read_text()[-3000:]}")
        return True


def memory(pid: int) -> int:
    """Memory of a process and its descendants in bytes, shared pages counted once."""
    import psutil

    total = 0
    try:
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return 0
    for process in family:
        try:
            total += process.memory_full_info().pss
        except (psutil.Error, FileNotFoundError, ProcessLookupError):
            continue
    return total


def contents(cache: Path) -> dict[str, str]:
    """File name → digest of every part and shard."""
    patterns = ("corpora/*/parts/*", "stores/*/*/*", "stores/*/*.json")
    paths = [path for pattern in patterns for path in cache.glob(pattern)]
    return {
        str(path.relative_to(cache)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
        if path.is_file() and path.name != "lock"
    }


def killed(source: Path, tokenizer: Path, cache: Path, kills: int, straight: float, seed: int) -> int:
    """Kill the pass at random moments and resume it each time; returns the number of kills."""
    rng = random.Random(seed)
    for num_kills in range(kills):  # the limits sum to less than a full pass, so that there is always work left to kill
        if Pass(source, tokenizer, cache, near_duplicates=True).wait(rng.uniform(0, straight / (kills + 1))):
            return num_kills
    Pass(source, tokenizer, cache, near_duplicates=True).wait()
    return kills


def main() -> None:
    """Make the corpus, run both passes, then kill and resume."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--mb", type=float, default=200)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    from meristem.tokenizers.settings import TokenizerSettings
    from meristem.tokenizers.train import train_tokenizer

    work = options.work.resolve()
    if work.exists() and any(work.iterdir()):
        sys.exit(f"{work} is not empty: give a new folder")
    work.mkdir(parents=True, exist_ok=True)
    source, tokenizer = work / "text", work / "tokenizer.json"
    document_counts = make(options.data, source, options.mb, options.seed)
    print("documents:", ", ".join(f"{count:,} {kind}" for kind, count in document_counts.items()), flush=True)
    english = (options.data / "english_novels/valid.txt").open(encoding="utf-8")
    train_tokenizer(TokenizerSettings(vocab_size=8192), iter(english)).save(tokenizer)
    rows = []
    for near_duplicates in (False, True):
        cache = work / f"cache-near-{near_duplicates}"
        corpus_pass = Pass(source, tokenizer, cache, near_duplicates=near_duplicates)
        corpus_pass.wait()
        speed = f"{options.mb / corpus_pass.seconds:.1f} MB/s"
        peak = f"{corpus_pass.peak / 1e6:.0f} MB"
        rows.append(["with" if near_duplicates else "without", f"{corpus_pass.seconds:.1f} s", speed, peak])
        print(corpus_pass.log.read_text().strip(), flush=True)
    print(table([f"near duplicates, {options.mb:g} MB", "time", "speed", "peak memory"], rows), flush=True)
    if options.kills:
        num_kills = killed(source, tokenizer, work / "cache-killed", options.kills, corpus_pass.seconds, options.seed)
        is_identical = contents(work / "cache-killed") == contents(work / "cache-near-True")
        print(f"killed {num_kills} times and resumed: {len(contents(cache))} files, the same: {is_identical}")
        if not is_identical or num_kills < options.kills:
            sys.exit(1)
    for name in ("text", "cache-near-False", "cache-near-True", "cache-killed"):
        shutil.rmtree(work / name, ignore_errors=True)


if __name__ == "__main__":
    main()
