"""Time from raw text to token shards with an empty cache: `python -m benchmarks.one_pass PATH`.

The corpus is read and cleaned once: the tokenizer is trained while its documents are kept, and the shards are built
from them.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import tempfile
import time
from pathlib import Path

from rich.console import Console


def digest(folder: Path) -> str:
    """A hash of the tokenizers and shards in a cache, whatever else is in it."""
    content = hashlib.sha256()
    for kind in ("tokenizers", "stores"):
        for path in sorted((folder / kind).rglob("*")):
            if path.is_file() and path.name != "lock":
                content.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return content.hexdigest()[:16]


def cpu_seconds() -> float:
    """Processor time of this process and its finished children."""
    usages = [resource.getrusage(usage_kind) for usage_kind in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", help="a file, folder, glob or builtin:NAME")
    parser.add_argument("--kind", default="wordpiece", help="the kind of tokenizer")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MERISTEM_CACHE"] = folder
        from meristem.corpus.settings import CorpusSettings
        from meristem.dataset.prepare import prepare_dataset, prepare_tokenizer
        from meristem.dataset.settings import DatasetSettings
        from meristem.tokenizers.settings import TokenizerSettings

        corpus, console = CorpusSettings(source=arguments.path), Console(quiet=True)
        clock, cpu = [time.perf_counter()], [cpu_seconds()]
        tokenizer = prepare_tokenizer(TokenizerSettings(kind=arguments.kind), [corpus], console)
        clock.append(time.perf_counter())
        cpu.append(cpu_seconds())
        prepare_dataset(corpus, tokenizer, DatasetSettings(), keep_words=False, console=console)
        clock.append(time.perf_counter())
        cpu.append(cpu_seconds())
        for name, start in (("tokenizer", 0), ("shards", 1)):
            seconds, processor = clock[start + 1] - clock[start], cpu[start + 1] - cpu[start]
            print(f"{name}: {seconds:.1f} s, {processor:.1f} s of processor time")
        print(f"tokenizer and shards: {digest(Path(folder))}")


if __name__ == "__main__":
    main()
