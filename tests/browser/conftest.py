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
from commanding import COMMAND

pytest.importorskip("fastapi")
pytest.importorskip("httptools")
pytest.importorskip("playwright.sync_api", reason="no playwright here: `make browser-test` installs it")

from playwright.sync_api import sync_playwright

from meristem.interop.importing import whole_state, write_run
from meristem.learning.assemble import learner_of
from meristem.recipe import resolve
from meristem.serving.app import create_app
from meristem.serving.hub import Hub
from meristem.serving.settings import ServingSettings
from meristem.serving.studio.routes import studio as routes
from meristem.serving.studio.runs import Listing
from meristem.tokenizers.train import train

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HARM = "<img src=x onerror=window.__hacked=1>"
SCRIPT = "<script>window.__hacked=1;alert(1)</script>"
LINES = [f"Ada walked from the old harbour to garden {n}, and it rained on Diego {HARM}." for n in range(40)]
MODEL = {"layers": 2, "width": 32, "heads": 2, "length": 48}


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's own chromium."""
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no chromium here: `make browser-test` installs one")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=[*sandbox, "--disable-dev-shm-usage"])
        yield made
        made.close()


@pytest.fixture
def look(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages, and in the end asks each whether anything went wrong or ran that should not."""
    opened: list[tuple[Any, list[str]]] = []

    def open_(**how: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, "locale": "en-US", **how})
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
        said = ""
        for line in self.process.stderr:
            said += line
            if found := re.search(r"http://\S+", line):
                self.url = found[0]
                return
        raise AssertionError(said)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    """A studio before any run exists."""
    made = Studio(tmp_path_factory.mktemp("empty") / "runs")
    yield made
    made.process.terminate()
    assert made.process.wait(timeout=30) == 143


def prepared(out: Path, steps: int, **told: Any) -> Path:
    """A run with weights large enough that answers differ, and something measured."""
    recipe = resolve(out.name, {"model": {**MODEL, **told.pop("model")}, **told})
    words = train(recipe.tokenizer, LINES)
    learner = learner_of(recipe, words)
    generator = torch.Generator().manual_seed(3)
    for parameter in learner.model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.3
    state = whole_state(learner.model, dict(learner.model.named_parameters()))
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
    place = tmp_path_factory.mktemp("hostile") / "runs"
    bpe = {"tokenizer": {"kind": "bpe", "size": 400}}
    pieces = {"tokenizer": {"kind": "wordpiece", "size": 400}}
    for name, rate, steps in (("writer", 0.001, 40), ("writer-slow", 0.0001, 60)):
        prepared(place / name, steps, model={"family": "gpt2"}, objective="clm", train={"rate": rate}, **bpe)
    prepared(place / HARM, 2000, model={"family": "bert"}, objective="mlm", corpus={"source": SCRIPT}, **pieces)
    task = {
        "name": "classification",
        "labels": (HARM, SCRIPT),
        "problem": "single",
        "way": "bidirectional",
        "length": 48,
    }
    path = prepared(place / "labels", 9, model={"family": "bert"}, task=task, data={"train": "none.tsv"}, **pieces)
    (path / "report.html").write_text(f"<h1>Report</h1>{SCRIPT}{HARM}")
    (path / "report.json").write_text(json.dumps({"model": HARM, "metrics": {HARM: 0.5}}))
    (path / "README.md").write_text(f"# {SCRIPT}\n")
    return place


@contextmanager
def listening(folder: Path, **settings: Any) -> Iterator[str]:
    """A studio over a folder, in a thread of this process."""
    import uvicorn

    from meristem.serving.protocol import Patient

    app = create_app(Hub({}), ServingSettings.model_validate(settings), more=[routes(Listing(folder))])
    server = uvicorn.Server(uvicorn.Config(app, http=Patient, ws="none", log_level="warning"))
    bound = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    server.should_exit = True
    thread.join(timeout=30)


@pytest.fixture(scope="session")
def served(hostile: Path) -> Iterator[str]:
    """A studio over those runs."""
    with listening(hostile) as url:
        yield url


@pytest.fixture(scope="session")
def locked(hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The same behind a key, and the key."""
    path = tmp_path_factory.mktemp("keys") / "key.txt"
    path.write_text("a-key-with-enough-characters")
    with listening(hostile, key_file=path) as url:
        yield url, path.read_text()
