"""Import of published weights (110 M parameters) compared with transformers' `from_pretrained`.

    python -m benchmarks.importing [--repeats 7] [--layers 12]

Complete commands, alternated, and the same in a process with its libraries already imported. An import reads every
weight, writes a run to disk with fsync, and reads it back; `from_pretrained` memory-maps the file and touches no
weight; `save_pretrained` after it writes them once, unverified. Memory is the peak above an idle process with the same
libraries, as a share of the weights; pages of mapped files count.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.side_by_side import alternate, ratio, table

OURS, LOADED, SAVED = "meristem import", "from_pretrained", "from_pretrained, save_pretrained"


def make_folder(folder: Path, layers: int) -> int:
    """BERT-base with random weights and a vocabulary of its size, saved by transformers; the bytes of its weights."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    config = BertConfig(num_hidden_layers=layers)
    BertForMaskedLM(config).save_pretrained(folder)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *(f"w{number}" for number in range(config.vocab_size - len(special)))]
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    return (folder / "model.safetensors").stat().st_size


def inside(side: str, folder: Path, out: Path) -> dict[str, float]:
    """One side in this process, after importing its libraries: seconds, and peak memory in bytes."""
    if side == OURS:
        import meristem.interop.elmo_files
        import meristem.interop.families.bert
        import meristem.models.bert
        import meristem.objectives.mlm  # noqa: F401  # all found by name otherwise
        from meristem.interop.import_weights import import_folder

        idle, start = _peak(), time.perf_counter()
        import_folder(folder, out)
    else:
        from transformers import AutoModelForMaskedLM, BertForMaskedLM  # noqa: F401  # found by name otherwise

        idle, start = _peak(), time.perf_counter()
        model = AutoModelForMaskedLM.from_pretrained(folder)
        if side == SAVED:
            model.save_pretrained(out)
    return {"seconds": time.perf_counter() - start, "bytes": _peak() - idle}


def _peak() -> int:
    """Peak memory of this process in bytes; getrusage on Linux starts with the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(re.findall(r"VmHWM:\s+(\d+)", status.read_text())[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measured(side: str, folder: Path, out: Path) -> dict[str, float]:
    """`inside`, in a new process."""
    stdout = _run([sys.executable, "-m", "benchmarks.importing", "--inside", side, str(folder), str(out)], out)
    payload: dict[str, float] = json.loads(stdout.splitlines()[-1])
    return payload


def _run(command: list[str], out: Path) -> str:
    """The output of a command; its files are removed afterwards, untimed."""
    completed = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    shutil.rmtree(out, ignore_errors=True)
    return completed.stdout


def compare(folder: Path, out: Path, size: int, repeats: int) -> str:
    """Both tables."""
    code = f"from transformers import AutoModelForMaskedLM as A; A.from_pretrained({str(folder)!r})"
    sides = {
        OURS: lambda: _run([sys.executable, "-m", "meristem", "import", str(folder), "--out", str(out)], out),
        LOADED: lambda: _run([sys.executable, "-c", code], out),
    }
    timings = alternate(sides, repeats=repeats)
    middle, low, high = ratio(timings, LOADED, OURS)
    timed = [[name, f"{timing.median:.2f} s"] for name, timing in timings.items()]
    timed.append(["ours / theirs (quartiles)", f"{middle:.2f} ({low:.2f} to {high:.2f})"])
    measurements = {name: [measured(name, folder, out) for _ in range(repeats)] for name in (OURS, LOADED, SAVED)}
    rows = []
    for name, measurements_of_side in measurements.items():
        seconds, peak = (
            statistics.median(measurement[key] for measurement in measurements_of_side) for key in ("seconds", "bytes")
        )
        rows.append([name, f"{seconds:.2f} s", f"{peak / size:.2f}"])
    totals = table(["whole command", "median"], timed)
    inside = table(["inside", "median", "peak memory / weights"], rows)
    return f"{totals}\n\n{inside}"


def main() -> None:
    """Make the folder, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--inside", nargs=3, metavar=("SIDE", "FOLDER", "OUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        side, folder, out = options.inside
        print(json.dumps(inside(side, Path(folder), Path(out))))
        return
    with tempfile.TemporaryDirectory() as directory:
        size = make_folder(Path(directory) / "bert", options.layers)
        print(f"{size / 1e6:.0f} MB of weights, medians of {options.repeats}\n")
        print(compare(Path(directory) / "bert", Path(directory) / "out", size, options.repeats))


if __name__ == "__main__":
    main()
