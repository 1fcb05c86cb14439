"""Screenshots of the studio for the documentation: laptop and phone, light and dark, English and Chinese.

    python -m benchmarks.studio --pictures docs/pictures           # those used in docs/studio.md
    python -m benchmarks.studio --pictures DIR --all-pictures      # every screen in every combination

The runs shown are trained first if `--place` does not have them: about a quarter of an hour on two cores.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmarks.serving import COMMAND, process

DEVICES = {"laptop": (1280, 800), "phone": (390, 1180)}
"""Width and height in pixels; screenshots of a phone show the full page."""
THEMES = ("light", "dark")
LOCALES = {"en": "en-US", "zh": "zh-CN"}
PALETTE_SIZE = 128
"""Palette size of a screenshot: text stays sharp, and the file is a third of the size with all colours."""
TEXTS = "builtin:microworld-en?size=3000"
SHAPE = "model.layers=2 model.hidden_size=128 model.heads=4"
PRETRAIN = f"{SHAPE} model.max_length=96 tokenizer.vocab_size=2000 train.evaluate_tokens=4096"
STORIES = f"pretrain stories {PRETRAIN} train.evaluate_every=40"
RUNS = {
    "bert-small-world": f"pretrain bert-mini-prenorm {TEXTS} {PRETRAIN} train.minutes=null train.steps=700 "
    "train.batch_tokens=2048 train.learning_rate=3e-3",
    "sentiment": "finetune sentiment from=bert-small-world train.epochs=4",
    "entities": "finetune entities from=bert-small-world train.epochs=5",
    "stories": f"{STORIES} train.steps=400",
    "stories-rate-5e-4": f"{STORIES} train.steps=300 train.learning_rate=5e-4",
    "stories-rate-8e-3": f"{STORIES} train.steps=300 train.learning_rate=8e-3",
    "dialogue": "finetune dialogue from=stories data.train=builtin:microworld-dialogues?size=1500&seed=1 "
    "train.epochs=4",
    "captions": "finetune caption data.train=builtin:microworld-pictures?size=4000&seed=1 train.epochs=4",
    "electra": f"pretrain electra-mini {TEXTS} {PRETRAIN} train.minutes=null train.steps=300 train.batch_tokens=2048",
    "中文情感": f"finetune sentiment-zh {SHAPE} tokenizer.vocab_size=1500 train.epochs=3",
}
"""Run name → the command that trains it."""
CONTENT_BOTTOM = """() => Math.ceil(Math.max(...[...document.querySelectorAll("main *")]
  .map((one) => one.getBoundingClientRect().bottom)))"""
COMPARED = ("stories", "stories-rate-5e-4", "stories-rate-8e-3")
Prepare = Callable[[Any], None]


def picture_name(screen: str, device: str, theme: str, language: str) -> str:
    """The file name of a screenshot; a light English laptop is the default and not mentioned."""
    default_parts = {"laptop", "light", "en"}
    return (
        "-".join(["studio", screen, *(part for part in (device, theme, language) if part not in default_parts)])
        + ".png"
    )


def documented_pictures() -> set[str]:
    """Names of the screenshots in docs/studio.md."""
    laptop = {
        picture_name(screen, "laptop", *theme_and_language)
        for screen in SCREENS
        for theme_and_language in (("light", "en"), ("dark", "zh"))
    }
    look_cycle = itertools.cycle([("light", "en"), ("dark", "zh"), ("light", "zh"), ("dark", "en")])
    return laptop | {
        picture_name(screen, "phone", *theme_and_language)
        for screen, theme_and_language in zip(SCREENS, look_cycle, strict=False)
    }


def train_missing_runs(folder: Path) -> None:
    """Train the runs that are not in the folder yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, command in RUNS.items():
        if not (folder / name / "finished.json").exists():
            print(f"training {name}", file=sys.stderr)
            subprocess.run([*COMMAND, *command.split(), "--out", name], cwd=folder, check=True)


def write_pictures(folder: Path, out: Path, browser: Any, picture_names: set[str] | None = None) -> Iterator[Path]:
    """One PNG per screen, device, theme and language, or only those in `wanted`."""
    out.mkdir(parents=True, exist_ok=True)
    with process(*COMMAND, "studio", str(folder), "--port", "0") as (port, _):
        for device, theme, language in itertools.product(DEVICES, THEMES, LOCALES):
            width, height = DEVICES[device]
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme,
                                          locale=LOCALES[language], has_touch=device == "phone")  # fmt: skip
            for screen, (views, prepare) in SCREENS.items():
                path = out / picture_name(screen, device, theme, language)
                if picture_names is None or path.name in picture_names:
                    page = context.new_page()
                    page.goto(f"http://127.0.0.1:{port}/#/{views[language]}")
                    page.locator("main h1, main section").first.wait_for()
                    prepare(page)
                    used = min(height, page.evaluate(CONTENT_BOTTOM) + 24)
                    clip = {"x": 0, "y": 0, "width": width, "height": used}
                    page.screenshot(path=path, animations="disabled", clip=clip)
                    page.close()
                    compress(path)
                    yield path
            context.close()


def compress(path: Path) -> None:
    """Reduce a PNG to a palette."""
    from PIL import Image

    with Image.open(path) as image:
        small = image.convert("RGB").quantize(PALETTE_SIZE, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def listed(page: Any) -> None:
    """Wait for the sparklines of the run list."""
    page.locator(".runs li svg").nth(len(RUNS) - 1).wait_for()


def pointed_at_curve(page: Any) -> None:
    """Show the crosshair on the first chart."""
    page.locator(".chart path.curve").first.wait_for()
    chart = page.locator(".chart").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.4)
    page.locator(".readout").first.wait_for()


def answered(page: Any) -> None:
    """Submit the form and wait for the model's output."""
    page.locator(".ask button[type=submit]").first.click()
    page.locator(".answer[aria-busy=false]").wait_for()
    if page.locator(".written .token").count() > 9:
        page.locator(".written .token").nth(9).hover()


def attended(page: Any) -> None:
    """Show the attention lines of one token."""
    page.locator(".large canvas").wait_for()
    page.locator(".ask textarea").fill("Kenji was an innkeeper in Winterton.")
    with page.expect_response(lambda answer: answer.url.endswith("/attention")):
        page.locator(".ask button[type=submit]").click()
    page.locator(".tokens.from li", has_text="innkeeper").or_(page.locator(".tokens.from li").nth(2)).first.hover()


def reported(page: Any) -> None:
    """Wait for the report in its iframe."""
    page.frame_locator("iframe.report").locator("h1").first.wait_for()


def _both(view: str) -> dict[str, str]:
    return dict.fromkeys(LOCALES, view)


SCREENS: dict[str, tuple[dict[str, str], Prepare]] = {
    "runs": (_both("runs"), listed),
    "run": (_both("run/stories"), pointed_at_curve),
    "compare": (_both("compare?" + "&".join(f"run={name}" for name in COMPARED)), pointed_at_curve),
    "playground": ({"en": "playground/stories?do=generate", "zh": f"playground/{quote('中文情感')}"}, answered),
    "attention": (_both("attention/bert-small-world"), attended),
    "report": (_both("tasks/sentiment"), reported),
}
"""Screen → its address in each language, and the action before the screenshot."""
