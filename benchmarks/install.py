"""Time and megabytes from a clone to the first filled mask, with pip and with uv, in fresh environments.

    python -m benchmarks.install                  pip and uv, empty caches
    python -m benchmarks.install --tools uv       one of them

Every tool installs this repository with `constraints.txt` into a new environment, with an empty cache; then a small
BERT is trained for 20 steps and fills a mask. torch comes from where the machine's configuration says.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRAIN = (
    "pretrain", "bert-mini", "builtin:microworld-en?size=200", "train.steps=20", "model.layers=2",
    "model.hidden_size=64", "model.heads=2", "tokenizer.vocab_size=1000", "train.batch_tokens=2048",
    "model.max_length=64", "--out", "run",
)  # fmt: skip
FILL = ("fill", "run", "The sailor went [MASK].")
LISTED = 8
MAX_CORE_MB = 100
"""What an installation without extras may take besides torch and what torch itself needs."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """One fresh environment."""

    tool: str
    version: str
    install_seconds: float
    seconds_to_first_fill: float
    """From the clone: environment, installation, training and the filled mask."""
    environment_mb: float
    torch_mb: float
    """torch and the packages that it needs."""
    core_mb: float
    """Everything else in the environment that the tool installed, Meristem and numpy included."""
    largest_mb: dict[str, float]
    """The largest packages of that rest, and who needs them: "hf-xet (huggingface-hub)"."""
    load_average: float
    """Of the last minute at the end, on this many cores:"""
    cores: int


def measure(tool: str, python: str) -> Installation:
    """Install into a new environment with an empty cache, train, and fill a mask."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        environment = {
            **os.environ, "UV_CACHE_DIR": str(folder / "cache"), "PIP_CACHE_DIR": str(folder / "cache"),
            "MERISTEM_CACHE": str(folder / "data"), "PYTHONPATH": "",
        }  # fmt: skip
        clone = folder / "clone"
        run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(clone)], folder, environment)
        start = time.monotonic()
        bin_folder = folder / "environment" / "bin"
        if tool == "uv":
            uv = uv_program()
            run([uv, "venv", "--quiet", "--python", python, str(folder / "environment")], folder, environment)
            run([uv, "pip", "install", "--quiet", "--python", str(bin_folder / "python"),
                 "-c", "constraints.txt", "."], clone, environment)  # fmt: skip
        else:
            run([python, "-m", "venv", str(folder / "environment")], folder, environment)
            run([str(bin_folder / "pip"), "install", "--quiet", "-c", "constraints.txt", "."], clone, environment)
        installed = time.monotonic()
        run([str(bin_folder / "meristem"), *TRAIN], folder, environment)
        filled = run([str(bin_folder / "meristem"), *FILL, "--json"], folder, environment)
        end = time.monotonic()
        if not json.loads(filled.splitlines()[0]):
            raise SystemExit(f"{tool}: nothing was filled in")
        sizes = environment_bytes(bin_folder / "python", folder, environment)
        version = run([uv_program() if tool == "uv" else str(bin_folder / "pip"), "--version"], folder, environment)
        return Installation(
            tool=tool,
            version=version.split()[1],
            install_seconds=round(installed - start, 1),
            seconds_to_first_fill=round(end - start, 1),
            environment_mb=round((sizes.torch + sum(sizes.rest.values())) / 1e6, 1),
            torch_mb=round(sizes.torch / 1e6, 1),
            core_mb=round(sum(sizes.rest.values()) / 1e6, 1),
            largest_mb={
                name: round(size / 1e6, 1)
                for name, size in sorted(sizes.rest.items(), key=lambda entry: -entry[1])[:LISTED]
            },
            load_average=round(os.getloadavg()[0], 1),
            cores=os.cpu_count() or 1,
        )


DISTRIBUTION_SIZES = r"""
import json, re
from importlib import metadata

def size(distribution):
    files = [file.locate() for file in distribution.files or () if file.suffix != ".pyc"]
    return sum(file.stat().st_size for file in files if file.is_file())

def needs(name):
    lines = (line for line in by_name[name].requires or () if "extra ==" not in line)
    return {normal(re.match(r"[\w.-]+", line)[0]) for line in lines} & set(by_name)

def closure(name, seen):
    if name not in seen:
        seen.add(name)
        for other in needs(name):
            closure(other, seen)
    return seen

normal = lambda name: re.sub(r"[-_.]+", "-", name).lower()
by_name = {normal(found.metadata["Name"]): found for found in metadata.distributions()}
of_torch = closure("torch", set()) | {"pip", "setuptools"}
sizes = {name: size(found) for name, found in by_name.items()}
needed_by = {name: [other for other in by_name if name in needs(other)] for name in by_name}
print(json.dumps({
    "torch": sum(value for name, value in sizes.items() if name in of_torch),
    "rest": {f"{name} ({', '.join(sorted(needed_by[name])) or 'what is installed'})": value
             for name, value in sizes.items() if name not in of_torch},
}))
"""


@dataclass(frozen=True)
class Sizes:
    """Bytes of the files of the installed distributions."""

    torch: int
    """torch with what it needs, and pip."""
    rest: dict[str, int]
    """Every other distribution, with who needs it."""


def environment_bytes(python: Path, folder: Path, environment: dict[str, str]) -> Sizes:
    """How much each distribution of an environment takes."""
    return Sizes(**json.loads(run([str(python), "-c", DISTRIBUTION_SIZES], folder, environment)))


def uv_program() -> str:
    """The uv beside this Python, or on the path."""
    program = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        raise SystemExit("uv is not installed: pip install uv, or --tools pip")
    return program


def run(command: Sequence[str], folder: Path, environment: dict[str, str]) -> str:
    """What the command printed; stops with its error if it fails."""
    completed = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if completed.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{completed.stdout}{completed.stderr}")
    return completed.stdout


def main() -> None:
    """Measure, print a table, and say whether the core installation keeps the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", nargs="+", choices=("pip", "uv"), default=["uv", "pip"])
    parser.add_argument("--python", default=sys.executable, help="The interpreter of the new environments.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    arguments = parser.parse_args()
    results = [measure(tool, arguments.python) for tool in arguments.tools]
    if arguments.json:
        print(json.dumps([asdict(result) for result in results]))
    else:
        print(
            "| tool | install (s) | first filled mask (s) | environment (MB) | torch and its needs (MB) | rest (MB) "
            "| load average |"
        )
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for result in results:
            load = f"{result.load_average} on {result.cores} cores"
            sizes = (result.environment_mb, result.torch_mb, result.core_mb, load)
            values = (result.install_seconds, result.seconds_to_first_fill, *sizes)
            print(f"| {result.tool} {result.version} | {' | '.join(map(str, values))} |")
        print("\n| package (needed by) | MB |\n| --- | --- |")
        for name, size in results[0].largest_mb.items():
            print(f"| {name} | {size} |")
    largest = max(result.core_mb for result in results)
    kept = "kept" if largest <= MAX_CORE_MB else "missed"
    print(f"At most {MAX_CORE_MB} MB over torch: {kept}, {largest} MB.", file=sys.stderr)


if __name__ == "__main__":
    main()
