"""A real browser, a studio as people start it, and one over runs that mean harm."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runner import COMMAND
from example_comparison import example_report

pytest.importorskip("fastapi")
pytest.importorskip("httptools")
pytest.importorskip("playwright.sync_api", reason="no playwright here: `make browser-test` installs it")

from playwright.sync_api import sync_playwright

from meristem.checkpoint.run_folder import RunFolder
from meristem.config.recipe import resolve_recipe
from meristem.interfaces.task import TASKS
from meristem.interop.import_weights import checkpoint_state, write_run
from meristem.learning.build import build_learner
from meristem.serving.app import create_app
from meristem.serving.model_registry import ModelRegistry
from meristem.serving.settings import ServingSettings
from meristem.serving.studio.run_list import RunListing
from meristem.serving.studio.studio_routes import studio_router as routes
from meristem.tokenizers.train import train_tokenizer

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HARM = "<img src=x onerror=window.__hacked=1>"
SCRIPT = "<script>window.__hacked=1;alert(1)</script>"
LINES = [f"Ada walked from the old harbour to garden {n}, and it rained on Diego {HARM}." for n in range(40)]
MODEL = {"layers": 2, "hidden_size": 32, "heads": 2, "max_length": 48}


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's own chromium."""
    path = next((browser_path for name in BROWSERS if (browser_path := shutil.which(name))), None)
    if path is None:
        pytest.skip("no chromium here: `make browser-test` installs one")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=[*sandbox, "--disable-dev-shm-usage"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages, and in the end asks each whether anything went wrong or ran that should not."""
    opened: list[tuple[Any, list[str]]] = []

    def open_(**context_options: Any) -> Any:
        context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 800}, "locale": "en-US", **context_options}
        )
        page, wrong = context.new_page(), []
        page.set_default_timeout(30_000)
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        opened.append((page, wrong))
        return page

    yield open_
    for page, wrong in opened:
        assert page.evaluate("() => typeof window.__hacked") == "undefined"
        assert wrong == []
        page.context.close()


class Studio:
    """`meristem studio` in a process of its own, over a folder that does not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [*COMMAND, "studio", str(folder), "--port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"})
        assert self.process.stderr is not None
        output = ""
        for line in self.process.stderr:
            output += line
            if match := re.search(r"http://\S+", line):
                self.url = match[0]
                return
        raise AssertionError(output)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    """A studio before any run exists."""
    studio = Studio(tmp_path_factory.mktemp("empty") / "runs")
    yield studio
    studio.process.terminate()
    assert studio.process.wait(timeout=30) == 143


def prepared(out: Path, steps: int, **recipe_overrides: Any) -> Path:
    """A run with weights large enough that answers differ, and something measured."""
    recipe = resolve_recipe(out.name, {"model": {**MODEL, **recipe_overrides.pop("model")}, **recipe_overrides})
    words = train_tokenizer(recipe.tokenizer, LINES)
    if (task := recipe.tuned_task) is not None and recipe.model.family == "gpt2":
        words = TASKS[task.name].extend_tokenizer(task, words)
    learner = build_learner(recipe, words)
    generator = torch.Generator().manual_seed(3)
    for parameter in learner.model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.3
    state = checkpoint_state(learner.model, dict(learner.model.named_parameters()))
    run = write_run(out, recipe, words, {key: value.detach() for key, value in state.items()}, {})
    rows: list[dict[str, Any]] = [
        {"step": n, "kind": "train", "loss": 9 / n, HARM: n / 2, "tokens": n * 64, "seconds": n / 9}
        for n in range(1, steps + 1)
    ]
    rows.append({"step": steps, "kind": "evaluation", "loss": 8 / steps, "perplexity": 2.0 + 1 / steps})
    run.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run.log_path.write_text(f"2026-01-01 00:00:00 {SCRIPT}\n")
    return run.path


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs whose names, labels, corpora, logs, cards and reports hold scripts."""
    runs_folder = tmp_path_factory.mktemp("hostile") / "runs"
    bpe = {"tokenizer": {"kind": "bpe", "vocab_size": 400}}
    pieces = {"tokenizer": {"kind": "wordpiece", "vocab_size": 400}}
    for name, rate, steps in (("writer", 0.001, 40), ("writer-slow", 0.0001, 60)):
        prepared(
            runs_folder / name, steps, model={"family": "gpt2"}, objective="clm", train={"learning_rate": rate}, **bpe
        )
    prepared(runs_folder / HARM, 2000, model={"family": "bert"}, objective="mlm", corpus={"source": SCRIPT}, **pieces)
    task = {
        "name": "classification",
        "labels": (HARM, SCRIPT),
        "problem_type": "single",
        "backbone_mode": "bidirectional",
        "max_length": 48,
    }
    path = prepared(
        runs_folder / "labels", 9, model={"family": "bert"}, task=task, data={"train": "none.tsv"}, **pieces
    )
    (path / "report.html").write_text(f"<h1>Report</h1>{SCRIPT}{HARM}")
    (path / "report.json").write_text(json.dumps({"model": HARM, "metrics": {HARM: 0.5}}))
    (path / "README.md").write_text(f"# {SCRIPT}\n")
    return runs_folder


CARD = f"""---
license: {SCRIPT}
---
# Model {HARM}

Some **bold**, *italic* and `code` text, a [link](https://example.org/a?b=c "title") and [none](javascript:alert(1)),
[another](data:text/html,{SCRIPT}) and a picture ![of a cat](https://example.org/cat.png).

## Numbers

| measure | value |
| --- | --- |
| F1 \\| exact | 0.5 {SCRIPT} |

- one {HARM}
  - inner
- two

1. first

> quoted

```bash
meristem fill . "A [MASK]." {SCRIPT}
```

<iframe srcdoc="{SCRIPT}"></iframe>
<a href="javascript:alert(1)" onclick="alert(1)">click</a>
"""
TASK_RUNS: dict[str, dict[str, Any]] = {
    "pairs": {"family": "bert", "task": {"name": "pair", "labels": ("same", "other"), "problem_type": "single"}},
    "names": {"family": "bert", "task": {"name": "tagging", "labels": ("O", "B-person", "I-person", "B-place")}},
    "squad": {"family": "bert", "task": {"name": "span"}},
    "choices": {"family": "bert", "task": {"name": "choice"}},
    "translator": {"family": "transformer", "task": {"name": "translation", "beams": 2, "max_tokens": 8}},
    "shortener": {"family": "transformer", "task": {"name": "summary", "beams": 2, "max_tokens": 8}},
    "talker": {"family": "gpt2", "task": {"name": "dialogue", "beams": 2, "max_tokens": 8}, "kind": "bpe"},
    "captioner": {"family": "captioner", "task": {"name": "caption", "beams": 2, "max_tokens": 8, "image_size": 16}},
}
READS = {"bert": "bidirectional", "transformer": "encoder_decoder", "captioner": "encoder_decoder", "gpt2": "causal"}


@pytest.fixture(scope="session")
def task_studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A studio over a run for each task, and those that only write or fill, one of them with a card."""
    runs_folder = tmp_path_factory.mktemp("able") / "runs"
    for name, shape in TASK_RUNS.items():
        family = shape["family"]
        model = {"family": family, **({"image_size": 16, "patch_size": 8} if family == "captioner" else {})}
        task = {"backbone_mode": READS[family], "max_length": 48, **shape["task"]}
        words = {"kind": shape.get("kind", "wordpiece"), "vocab_size": 400}
        prepared(runs_folder / name, 3, model=model, task=task, data={"train": "none.tsv"}, tokenizer=words)
    prepared(
        runs_folder / "writer",
        3,
        model={"family": "gpt2"},
        objective="clm",
        tokenizer={"kind": "bpe", "vocab_size": 400},
    )
    path = prepared(
        runs_folder / "filler",
        3,
        model={"family": "bert"},
        objective="mlm",
        tokenizer={"kind": "wordpiece", "vocab_size": 400},
    )
    (path / "README.md").write_text(CARD)
    prepared(
        runs_folder / "detector",
        3,
        model={"family": "electra"},
        objective="rtd",
        tokenizer={"kind": "wordpiece", "vocab_size": 400},
    )
    prepared(
        runs_folder / "reader",
        3,
        model={"family": "multitask", "decoder_layers": 1, "image_size": 16, "patch_size": 8},
        mix=[{"objective": "mlm"}, {"objective": "caption", "corpus": "builtin:microworld-pictures?size=8"}],
        dataset={"image_size": 16},
        tokenizer={"kind": "wordpiece", "vocab_size": 400},
    )
    with listening(runs_folder) as url:
        yield url


@pytest.fixture(scope="session")
def sweep_studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A studio over 120 runs of three kinds, as training leaves them on the disk, weights aside."""
    runs_folder = tmp_path_factory.mktemp("many") / "runs"
    for number in range(120):
        task, failed = number % 3 == 1, number % 10 == 7
        objective_line = "task: {name: classification}" if task else "objective: [{name: clm}]"
        name = f"sweep-{number:03d}-rate-{number % 4}"
        run = RunFolder.create(
            runs_folder / name,
            f"name: {name}\nmodel: {{family: {'bert' if task else 'gpt2'}}}\n{objective_line}\ntrain: {{steps: 8}}\n",
            None,
        )
        rows = [
            {"step": n, "kind": "train", "loss": 5 - n / 10 + number / 100, "tokens": n * 64, "seconds": n / 2}
            for n in range(1, 5)
        ]
        rows.append({"step": 4, "kind": "evaluation", "loss": 4 + number / 100, "accuracy": number / 1000})
        run.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        if not failed:
            facts = {"step": 4, "judged_by": "accuracy" if task else "loss", "validation": rows[-1]}
            run.mark_finished(facts)
        for path in run.path.iterdir():
            os.utime(path, (time.time() - 3600 * (number + 1),) * 2)
    with listening(runs_folder) as url:
        yield url


@contextmanager
def listening(folder: Path, **settings: Any) -> Iterator[str]:
    """A studio over a folder, in a thread of this process."""
    import uvicorn

    from meristem.serving.http_protocol import TimeoutHttpProtocol

    app = create_app(
        ModelRegistry({}), ServingSettings.model_validate(settings), extra_routers=[routes(RunListing(folder))]
    )
    server = uvicorn.Server(
        uvicorn.Config(app, http=TimeoutHttpProtocol, ws="none", log_config=None, log_level="warning")
    )
    bound = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    server.should_exit = True
    thread.join(timeout=30)


@pytest.fixture(scope="session")
def served_studio(hostile: Path) -> Iterator[str]:
    """A studio over those runs."""
    with listening(hostile) as url:
        yield url


@pytest.fixture(scope="session")
def comparisons_studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A studio over a folder with a comparison."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "masking").mkdir()
    example_report().write(folder / "masking")
    with listening(folder) as url:
        yield url


@pytest.fixture(scope="session")
def empty_studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A studio over a folder without runs."""
    with listening(tmp_path_factory.mktemp("bare")) as url:
        yield url


@pytest.fixture(scope="session")
def locked(hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The same behind a key, and the key."""
    path = tmp_path_factory.mktemp("keys") / "key.txt"
    path.write_text("a-key-with-enough-characters")
    with listening(hostile, key_file=path) as url:
        yield url, path.read_text()
