"""Tokenization to shards compared with `datasets.map` with the same tokenizer, and memory for larger text.

    python -m benchmarks.tokenising ../shared/data [--megabytes 200] [--grown 1000]

The text: shuffled sentences of English novels and WikiText-2; deduplication off on both sides.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.side_by_side import table

LINES = 40  # sentences in a document


def make_text(data: Path, out: Path, megabytes: float, seed: int = 0) -> None:
    """Write documents of shuffled sentences, separated by blank lines."""
    rng = np.random.default_rng(seed)
    raw = "".join(
        (data / name).read_text(encoding="utf-8") for name in ("english_novels/train.txt", "wikitext-2/train.txt")
    )
    sentences = np.array([s.strip() for s in raw.replace("\n", " ").split(". ") if 20 < len(s) < 600], dtype=object)
    num_written, num_wanted = 0, int(megabytes * 1e6)
    with out.open("w", encoding="utf-8") as file:
        while num_written < num_wanted:
            picked = sentences[rng.integers(len(sentences), size=LINES)]
            num_written += file.write(". ".join(picked) + ".\n\n")


def ours(text: Path, tokenizer: Path, out: Path) -> None:
    """Read, clean, tokenize and write shards with two processes."""
    from meristem.corpus.pipeline import CorpusReader
    from meristem.corpus.settings import CorpusSettings
    from meristem.dataset.build import build_dataset
    from meristem.dataset.settings import DatasetSettings
    from meristem.tokenizers.tokenizer import Tokenizer

    corpus = CorpusSettings(source=str(text), document="block", deduplicate=False, validation=0, test=0, processes=2)
    build_dataset(CorpusReader(corpus), Tokenizer.load(tokenizer), out, DatasetSettings(), processes=2)


def theirs(text: Path, tokenizer: Path, out: Path) -> None:
    """datasets.map in batches with two processes, ids only."""
    import datasets
    from transformers import PreTrainedTokenizerFast

    fast = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer))
    loaded = datasets.load_dataset(
        "text", data_files=str(text), sample_by="paragraph", split="train", cache_dir=str(out / "cache")
    )
    mapped = loaded.map(
        lambda rows: {"ids": fast(rows["text"], add_special_tokens=False)["input_ids"]},
        batched=True,
        num_proc=2,
        remove_columns=["text"],
    )
    mapped.save_to_disk(str(out / "mapped"))


def in_own_process(side: str, text: Path, tokenizer: Path, out: Path) -> dict[str, float]:
    """Seconds of the work, and peak memory above the imports, over the process and its children."""
    code = (
        f"import benchmarks.tokenising as t; from pathlib import Path; "
        f"t.measured({side!r}, Path({str(text)!r}), Path({str(tokenizer)!r}), Path({str(out)!r}))"
    )
    env = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    if completed.returncode:
        sys.exit(completed.stderr)
    payload: dict[str, float] = json.loads(completed.stdout.strip().splitlines()[-1])
    return payload


def measured(side: str, text: Path, tokenizer: Path, out: Path) -> None:
    """Run one side and print time and memory, sampled over the process and its children."""
    import threading

    import psutil
    import torch  # noqa: F401  # memory is measured above an interpreter with torch

    me = psutil.Process()
    idle, peak, over = me.memory_info().rss, 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.1):
            total = 0
            for process in (me, *me.children(recursive=True)):
                try:
                    total += process.memory_full_info().uss
                except psutil.Error:
                    continue
            peak = max(peak, total)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    start = time.perf_counter()
    (ours if side == "ours" else theirs)(text, tokenizer, out)
    seconds = time.perf_counter() - start
    over.set()
    thread.join()
    print(json.dumps({"seconds": seconds, "above": peak - idle, "idle": idle}))


def same_ids(ours_folder: Path, theirs_folder: Path) -> bool:
    """Whether the ids are equal, separators aside."""
    import datasets

    from meristem.dataset.token_dataset import TokenDataset

    stream = TokenDataset.open(ours_folder, verify=False).split("train")
    rows = datasets.load_from_disk(str(theirs_folder / "mapped")).with_format("numpy")
    if len(rows) != stream.documents:
        return False
    for number in range(0, stream.documents, 7):
        span = stream.document(number)
        if not np.array_equal(stream.tokens(span.start, span.text_stop), rows[number]["ids"]):
            return False
    return True


def main() -> None:
    """Measure both sides, then ours on a larger text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--grown", type=float, default=1000)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    from meristem.tokenizers.settings import TokenizerSettings
    from meristem.tokenizers.train import train_tokenizer

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        text, tokenizer = work / "text.txt", work / "tokenizer.json"
        make_text(options.data, text, options.megabytes)
        train_tokenizer(
            TokenizerSettings(vocab_size=8192), iter((options.data / "english_novels/train.txt").open(encoding="utf-8"))
        ).save(tokenizer)
        durations: dict[str, list[dict[str, float]]] = {"ours": [], "theirs": []}
        for repeat in range(options.repeats):
            for side, runs in durations.items():
                out = work / f"{side}-{repeat}"
                out.mkdir()
                runs.append(in_own_process(side, text, tokenizer, out))
                print(side, runs[-1], flush=True)
        is_identical = same_ids(work / "ours-0", work / "theirs-0")
        rows = [
            [
                side,
                f"{options.megabytes:g} MB",
                f"{options.megabytes / min(r['seconds'] for r in runs):.1f} MB/s",
                f"{max(r['above'] for r in runs) / 1e6:.0f} MB",
            ]
            for side, runs in durations.items()
        ]
        if options.grown:
            make_text(options.data, text, options.grown)
            (work / "grown").mkdir()
            larger_text = in_own_process("ours", text, tokenizer, work / "grown")
            rows.append(
                [
                    "ours",
                    f"{options.grown:g} MB",
                    f"{options.grown / larger_text['seconds']:.1f} MB/s",
                    f"{larger_text['above'] / 1e6:.0f} MB",
                ]
            )
    print(table(["side", "text", "speed", "memory above the interpreter with torch"], rows))
    print(f"ids identical: {is_identical}")


if __name__ == "__main__":
    main()
