"""`meristem doctor`: versions, processor features, memory, disk, extras and a short speed test of this machine."""

from __future__ import annotations

import os
import platform
import re
import shutil
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import torch

from meristem.blocks.bfloat16_speed import bfloat16_features, product_speedup
from meristem.config.recipe import read_recipe, resolve_recipe
from meristem.corpus.cache_folder import cache_dir
from meristem.describe.describe_recipe import describe_recipe
from meristem.training.budget import peak_flops
from meristem.training.precision import MIN_SPEEDUP
from meristem.utils.result_tables import Tabular

DISTRIBUTION = "meristem-lm"
SPEED_RECIPE = "bert-mini"
SPEED_HIDDEN_SIZE = 256
"""Hidden size of the speed recipe, for the ratio of bfloat16 and float32 products."""
RELEVANT_FEATURES = (
    "avx2", "avx512_f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "neon", "bf16", "sve_bf16",
)  # fmt: skip
"""Processor features, as torch names them, that decide how fast products are."""
MIN_FREE_DISK = 2 << 30
"""A corpus, its shards and two checkpoints of a small model take about this much."""
MIN_FREE_MEMORY = 2 << 30
BUSY_LOAD = 0.5
"""Load per core above which other programs slow training down."""
NOT_FOR_USERS = frozenset({"all", "dev"})
"""Extras that hold others, or what only developers need."""


@dataclass(frozen=True, kw_only=True)
class Extra:
    """Optional packages of one kind of work."""

    name: str
    missing: tuple[str, ...]

    @property
    def install_command(self) -> str:
        """The command that installs what is missing."""
        return f'pip install "{DISTRIBUTION}[{self.name}]"'


@dataclass(frozen=True, kw_only=True)
class SpeedTest:
    """What a few seconds of measurement gave."""

    product_gflops: float
    """2048³ products in the precision that training would use, 10⁹ FLOP per second."""
    recipe: str
    tokens_per_second: float
    """Training speed of that recipe."""


@dataclass(frozen=True, kw_only=True)
class MachineReport(Tabular):
    """What `meristem doctor` prints; the field names are its JSON keys."""

    versions: dict[str, str]
    system: str
    processor: str
    features: tuple[str, ...]
    cores: int
    """Cores that this process may use."""
    threads: int
    """Threads of torch."""
    load: float | None
    """Processes waiting for a core, averaged over a minute."""
    accelerator: str | None
    memory_bytes: int | None
    free_memory_bytes: int | None
    cache: str
    free_disk_bytes: int
    precision: str
    """What `train.precision=auto` chooses for a small model."""
    precision_reason: str
    extras: tuple[Extra, ...]
    speed: SpeedTest | None
    warnings: tuple[str, ...]

    def records(self) -> list[dict[str, object]]:
        """One row of the plain values, with the measured speed."""
        row: dict[str, object] = dict(super().records()[0])
        row["features"] = " ".join(self.features)
        if self.speed is not None:
            row["tokens_per_second"] = self.speed.tokens_per_second
        return [row]


def examine_machine(*, measure_speed: bool = True) -> MachineReport:
    """The report of this machine; the speed test takes about ten seconds."""
    capabilities, cache = torch.cpu.get_capabilities(), cache_dir()
    speedup = product_speedup(SPEED_HIDDEN_SIZE) if bfloat16_features() else None
    precision, precision_reason = _precision(speedup)
    report = MachineReport(
        versions=package_versions(),
        system=platform.platform(),
        processor=str(capabilities.get("cpu_name") or platform.processor() or platform.machine()),
        features=tuple(name for name in RELEVANT_FEATURES if capabilities.get(name)),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        load=os.getloadavg()[0],
        accelerator=_accelerator(),
        memory_bytes=_memory_bytes("SC_PHYS_PAGES"),
        free_memory_bytes=_memory_bytes("SC_AVPHYS_PAGES"),
        cache=str(cache),
        free_disk_bytes=shutil.disk_usage(_existing_parent(cache)).free,
        precision=precision,
        precision_reason=precision_reason,
        extras=extras(),
        speed=_measure_speed(precision) if measure_speed else None,
        warnings=(),
    )
    return replace(report, warnings=tuple(_warnings(report)))


def package_versions() -> dict[str, str]:
    """Versions of Python, meristem and the packages it always needs."""
    names = (DISTRIBUTION, *sorted(package for package, extra in _requirements() if extra is None))
    return {"python": platform.python_version(), **{name: _version(name) or "not installed" for name in names}}


def extras() -> tuple[Extra, ...]:
    """Every extra for users, with its packages that are not installed."""
    packages: dict[str, list[str]] = {}
    for package, extra in _requirements():
        if extra is not None and extra not in NOT_FOR_USERS:
            packages.setdefault(extra, []).append(package)
    return tuple(
        Extra(name=name, missing=tuple(package for package in needed if _version(package) is None))
        for name, needed in sorted(packages.items())
    )


def _requirements() -> list[tuple[str, str | None]]:
    """Package and extra (None: always needed) of each requirement in the metadata of the distribution."""
    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:  # run from a folder that was not installed
        lines = []
    matches = (re.match(r"([\w.-]+)[^;]*(?:;.*extra == .(\w+).)?", line) for line in lines)
    return [(match[1], match[2]) for match in matches if match is not None]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _accelerator() -> str | None:
    """Name of the accelerator that `train.device=auto` uses."""
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        return None
    return torch.cuda.get_device_name() if device.type == "cuda" else device.type


def _memory_bytes(name: str) -> int | None:
    """A number of memory pages in bytes; None where the system does not tell (macOS: free pages)."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf(name) if name in os.sysconf_names else None


def _existing_parent(path: Path) -> Path:
    """The path itself, or the nearest folder above it that exists."""
    return next(folder for folder in (path, *path.absolute().parents) if folder.exists())


def _precision(bfloat16_speedup: float | None) -> tuple[str, str]:
    """What `train.precision=auto` chooses for a small model on the CPU, and why."""
    if bfloat16_speedup is None:
        return "float32", "no bfloat16 units, so that bfloat16 is emulated and slower"
    reason = f"bfloat16 products ({', '.join(bfloat16_features())}) are {bfloat16_speedup:.1f}× as fast as float32"
    return ("bfloat16" if bfloat16_speedup >= MIN_SPEEDUP else "float32"), reason


def _measure_speed(precision: str) -> SpeedTest:
    """Measure matrix products and training steps on this machine's CPU or accelerator."""
    description = describe_recipe(resolve_recipe(*read_recipe(SPEED_RECIPE)))
    return SpeedTest(
        product_gflops=peak_flops(torch.device("cpu"), dtype=getattr(torch, precision)) / 1e9,
        recipe=SPEED_RECIPE,
        tokens_per_second=description.tokens_per_step / description.seconds_per_step,
    )


def _warnings(report: MachineReport) -> list[str]:
    """What is wrong on this machine, each with what to do about it."""
    warnings = []
    if report.threads > report.cores:
        warnings.append(
            f"torch uses {report.threads} threads on {report.cores} cores: set OMP_NUM_THREADS={report.cores}"
        )
    if report.load is not None and report.load > BUSY_LOAD * report.cores:
        warnings.append(
            f"other programs are running (load {report.load:.1f} on {report.cores} cores): training is slower"
        )
    if report.free_memory_bytes is not None and report.free_memory_bytes < MIN_FREE_MEMORY:
        warnings.append(f"only {report.free_memory_bytes / 1e9:.1f} GB of memory are free: close other programs")
    if report.free_disk_bytes < MIN_FREE_DISK:
        warnings.append(
            f"only {report.free_disk_bytes / 1e9:.1f} GB of disk are free at {report.cache}: set MERISTEM_CACHE to "
            "a folder on another disk"
        )
    for folder, advice in (
        (Path.cwd(), "start in another folder or use --out"),
        (Path(report.cache), "set MERISTEM_CACHE"),
    ):
        if not os.access(_existing_parent(folder), os.W_OK):
            warnings.append(f"{folder} is not writable: {advice}")
    return warnings
