"""Studio page speed in a real browser: first view of a new server, and many long curves at once.

    python -m benchmarks.studio --out docs/results/studio.md
    python -m benchmarks.studio --pictures docs/pictures

Needs playwright and a chromium (`make browser-test` installs both). Everything is on loopback.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.serving import process
from benchmarks.side_by_side import table
from benchmarks.studio_screenshots import documented_pictures, train_missing_runs, write_pictures
from meristem.checkpoint.run_folder import RunFolder

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PLACE = Path(tempfile.gettempdir()) / "meristem-studio"
FRAMES = """async () => {
  const chart = document.querySelector(".chart"), box = chart.getBoundingClientRect(), took = [];
  for (let x = 0; x < 60; x += 1) {
    const begun = performance.now();
    const at = { clientX: box.x + (box.width * x) / 60, clientY: box.y + box.height / 2, bubbles: true };
    chart.dispatchEvent(new PointerEvent("pointermove", at));
    await new Promise(requestAnimationFrame);
    took.push(performance.now() - begun);
  }
  return took.sort((a, b) => a - b);
}"""
BYTES = "() => performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))" \
        ".reduce((sum, one) => sum + one.transferSize, 0)"  # fmt: skip


def long_runs(folder: Path, runs: int, points: int) -> None:
    """Runs with synthetic training curves and nothing else."""
    for number in range(runs):
        if (folder / f"run-{number}").exists():
            continue
        run = RunFolder.create(folder / f"run-{number}", f"name: run-{number}\nmodel: {{family: bert}}\n", None)
        with run.metrics_path.open("w", encoding="utf-8") as file:
            for step in range(1, points + 1):
                loss = 3 + 5 / math.log(step + 2 + number) + 0.2 * math.sin(step * (number + 1))
                row = {"step": step, "kind": "train", "loss": loss, "rate": 1e-3, "gradient_norm": loss / 9,
                       "tokens": step * 4096, "seconds": step / 2}  # fmt: skip
                file.write(json.dumps(row) + "\n")


@contextmanager
def browser() -> Iterator[Any]:
    """The installed Chromium."""
    from playwright.sync_api import sync_playwright

    path = next((browser_path for name in BROWSERS if (browser_path := shutil.which(name))), None)
    if path is None:
        sys.exit("no Chromium found: `make browser-test` installs one")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=[*sandbox, "--disable-dev-shm-usage"])
        yield chromium
        chromium.close()


def measured(folder: Path, runs: int, points: int) -> Iterator[list[str]]:
    """Rows of measurement, value, target."""
    command = [sys.executable, "-m", "meristem", "studio", str(folder), "--port", "0"]
    with browser() as chrome, process(*command) as (port, _):
        page, wrong = chrome.new_page(viewport={"width": 1280, "height": 800}), []
        page.set_default_timeout(60_000)
        page.on("console", lambda run: wrong.append(run.text) if run.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        address = f"http://127.0.0.1:{port}/"
        views = [_seconds(lambda: (page.goto(address), page.locator(".runs li").first.wait_for()))
                 for _ in range(6)]  # fmt: skip
        yield ["first page load after the server starts", f"{views[0]:.2f} s", "< 1 s"]
        yield ["repeated, median of 5", f"{statistics.median(views[1:]):.2f} s", "< 1 s"]
        yield ["bytes transferred for it", f"{page.evaluate(BYTES) / 1000:.0f} kB", "< 400 kB"]
        all_of_them = address + "#/compare?" + "&".join(f"run=run-{number}" for number in range(runs))

        def compare() -> None:
            page.goto("about:blank")
            page.goto(all_of_them)
            page.locator(".chart path.curve").nth(runs - 1).wait_for()

        cold, *warm = (_seconds(compare) for _ in range(4))
        yield [f"{runs} runs × {points:,} points in one chart, cold cache", f"{cold:.2f} s", ""]
        yield ["repeated, median of 3", f"{statistics.median(warm):.2f} s", ""]
        frames = page.evaluate(FRAMES)
        median_frame, slow = statistics.median(frames), frames[int(0.95 * len(frames))]
        yield ["frame time while hovering: median, 95 %", f"{median_frame:.0f} ms, {slow:.0f} ms", "smooth"]
        yield ["errors and warnings in the console", str(len(wrong)), "0"]


def _seconds(do: Any) -> float:
    start = time.perf_counter()
    do()
    return time.perf_counter() - start


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--place", type=Path, default=PLACE)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--points", type=int, default=50_000)
    parser.add_argument("--pictures", type=Path, help="only write the screenshots of docs/studio.md there")
    parser.add_argument("--all-pictures", action="store_true", help="every screen in every combination")
    options = parser.parse_args()
    if options.pictures is not None:
        runs_folder = options.place / "pictured-runs" if options.place == PLACE else options.place
        train_missing_runs(runs_folder)
        picture_names = None if options.all_pictures else documented_pictures()
        with browser() as chrome:
            for path in write_pictures(runs_folder, options.pictures, chrome, picture_names):
                print(path, path.stat().st_size)
        return
    long_runs(options.place, options.runs, options.points)
    shutil.rmtree(options.place / ".cache", ignore_errors=True)
    intro = f"`python -m benchmarks.studio`, {os.cpu_count()} cores, headless chromium."
    rows = list(measured(options.place, options.runs, options.points))
    page = f"# Studio\n\n{intro}\n\n" + table(["measurement", "measured", "target"], rows) + "\n"
    print(page)
    if options.out is not None:
        options.out.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
