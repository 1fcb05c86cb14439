"""The command doctor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from meristem.cli.output import print_json, stderr_console
from meristem.utils.terminal import emit

if TYPE_CHECKING:
    from meristem.describe.doctor import MachineReport


def doctor(
    speed: Annotated[bool, typer.Option(help="Measure products and training steps, about ten seconds.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check this machine: versions, processor, memory, disk, optional packages, and a short speed test.

    meristem doctor                 what to paste into a bug report
    meristem doctor --no-speed      without the speed test
    """
    from dataclasses import asdict

    from meristem.describe.doctor import examine_machine

    with stderr_console().status("Measuring the speed of this machine, about ten seconds …" if speed else "Looking …"):
        report = examine_machine(measure_speed=speed)
    if as_json:
        print_json(asdict(report))
        return
    for name, value in _lines(report):
        emit(f"{name:<14} {value}")
    for warning in report.warnings:
        emit(f"{'warning':<14} {warning}")


def _lines(report: MachineReport) -> list[tuple[str, str]]:
    """Name and value of each line."""
    total, free = report.memory_bytes, report.free_memory_bytes
    memory = (
        "unknown" if total is None else f"{total / 1e9:.1f} GB" + ("" if free is None else f", {free / 1e9:.1f} free")
    )
    lines = [
        ("versions", ", ".join(f"{name} {version}" for name, version in report.versions.items())),
        ("system", report.system),
        (
            "processor",
            f"{report.processor}, {report.cores} cores, {report.threads} threads ({' '.join(report.features)})",
        ),
        ("accelerator", report.accelerator or "none"),
        ("memory", memory),
        ("disk", f"{report.free_disk_bytes / 1e9:.1f} GB free at {report.cache}"),
        ("precision", f"{report.precision}: {report.precision_reason}"),
    ]
    for extra in report.extras:
        state = "installed" if not extra.missing else f"missing {', '.join(extra.missing)}: {extra.install_command}"
        lines.append((f"extra {extra.name}", state))
    if report.speed is not None:
        speed = report.speed
        lines.append(("products", f"{speed.product_gflops:,.0f} GFLOP/s ({report.precision})"))
        lines.append(("training", f"{speed.tokens_per_second:,.0f} tokens/s ({speed.recipe})"))
    return lines
