"""Runs whose weights are NaN: refused by the server and the studio, or served as plain JSON where they are allowed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runner import Meristem
from starlette.testclient import TestClient

from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.run_folder import RunFolder
from meristem.checkpoint.save import save_checkpoint
from meristem.config.errors import MeristemError
from meristem.serving.app import create_app
from meristem.serving.model_registry import ModelRegistry
from meristem.serving.settings import ServingSettings
from meristem.serving.studio.run_list import RunListing
from meristem.serving.studio.studio_routes import studio_router

TEXT = "Ada walked to the old harbour."
WRITING: list[tuple[str, dict[str, Any]]] = [
    ("/generate", {"max_tokens": 3, "top": 2, "prompt": TEXT}),
    ("/generate", {"max_tokens": 3, "top": 2, "prompt": TEXT, "stream": True}),
    ("/generate", {"max_tokens": 3, "prompt": TEXT, "beams": 2}),
    ("/v1/completions", {"prompt": TEXT, "max_tokens": 3, "logprobs": 2, "echo": True}),
    ("/v1/completions", {"prompt": TEXT, "max_tokens": 3, "temperature": 0, "stream": True}),
    ("/score", {"text": TEXT}),
    ("/embed", {"text": TEXT}),
    ("/v1/embeddings", {"input": TEXT}),
    ("/attention", {"text": TEXT}),
]
ASKED = [
    *(("gpt2", *route_and_body) for route_and_body in WRITING),
    ("bert", "/fill", {"text": "Ada walked to the [MASK] harbour."}),
    ("bert", "/score", {"text": TEXT}),
    ("bert", "/embed", {"text": TEXT, "level": "word"}),
    ("bert", "/attention", {"text": TEXT}),
    ("reviews", "/classify", {"text": TEXT, "top": 2}),
]


def with_nan_weights(source: Path, run_copy: Path) -> Path:
    """A copy of a run that was saved with weights of NaN."""
    shutil.copytree(source, run_copy)
    run = RunFolder(run_copy)
    loaded = load_checkpoint(run.checkpoints)
    assert loaded is not None
    weights = {name: torch.full_like(value, torch.nan) if value.is_floating_point() else value
               for name, value in loaded.snapshot.model.items()}  # fmt: skip
    save_checkpoint(
        run.checkpoints, replace(loaded.snapshot, step=loaded.snapshot.step + 1, model=weights), keep_checkpoints=9
    )
    return run_copy


@pytest.fixture(scope="module")
def folder(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nonfinite")
    for name in ("gpt2", "bert", "reviews"):
        with_nan_weights(runs[name], folder / name)
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    """A server whose person allows such runs."""
    settings = ServingSettings.model_validate({"allow_nonfinite": True})
    hub = ModelRegistry.open(sorted(folder.iterdir()), allow_nonfinite=True)
    app = create_app(hub, settings, extra_routers=[studio_router(RunListing(folder))])
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def plain(line: str) -> Any:
    return json.loads(line, parse_constant=pytest.fail)


def test_they_are_refused_unless_allowed(folder: Path, meristem: Meristem) -> None:
    with pytest.raises(MeristemError, match=r"gpt2: its weights are not finite.*--allow-nonfinite"):
        ModelRegistry.open([folder / "gpt2"])
    result = meristem("serve", folder / "gpt2", "--port", 0)
    assert result.code == 1 and "--allow-nonfinite" in result.err and len(result.err.strip().splitlines()) == 1
    hub = ModelRegistry.open([folder / "gpt2"], allow_nonfinite=True)
    assert any("not finite" in notice for notice in hub.runs["gpt2"].loaded_run.notices)


def test_the_studio_refuses_to_open_them(folder: Path) -> None:
    app = create_app(
        ModelRegistry({}), ServingSettings.model_validate({}), extra_routers=[studio_router(RunListing(folder))]
    )
    with TestClient(app, base_url="http://127.0.0.1") as page:
        answer = page.post("/studio/open", json={"model": "bert"})
        assert answer.status_code == 422 and "--allow-nonfinite" in answer.json()["error"]["message"]
        samples = page.post("/studio/samples", json={"model": "gpt2", "prompt": "Ada"}).text
    assert "--allow-nonfinite" in samples and '"text"' in samples  # the finite checkpoint before it still speaks


@pytest.mark.parametrize(
    ("model", "route", "body"), ASKED, ids=[f"{route_and_body[0]}{route_and_body[1]}" for route_and_body in ASKED]
)
def test_answers_are_json_or_a_refusal(client: TestClient, model: str, route: str, body: dict[str, Any]) -> None:
    answer = client.post(route, json={"model": model, **body})
    assert answer.status_code in (200, 400 if route.startswith("/v1/") else 422), answer.text
    if body.get("stream") and answer.status_code == 200:
        lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
        assert len([plain(line) for line in lines if line != "[DONE]"]) >= 1
    else:
        assert plain(answer.text)


def test_the_studio_opens_them_where_they_are_allowed(client: TestClient) -> None:
    assert client.post("/studio/open", json={"model": "bert"}).status_code == 200
    assert plain(client.post("/studio/samples", json={"model": "gpt2", "prompt": "Ada"}).text)["samples"]
