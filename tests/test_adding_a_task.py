"""docs/adding-a-task.md, executed: its task is fine-tuned, predicts, is served with a form; export refuses it."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cli_runner import Meristem
from starlette.testclient import TestClient

import meristem.tasks as tasks_package
from meristem.config.registry import module_names
from meristem.interfaces.task import TASKS
from meristem.serving.app import create_app
from meristem.serving.model_registry import ModelRegistry
from meristem.serving.settings import ServingSettings
from meristem.serving.studio.run_list import RunListing
from meristem.serving.studio.studio_routes import studio_router

PAGE = Path(__file__).parent.parent / "docs" / "adding-a-task.md"
BLOCK = re.compile(r"```(python|yaml|bash)\n(.*?)```", re.DOTALL)
GRADES = ("dreadful", "dull", "fair", "good", "great")


@pytest.fixture
def page_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Path]]:
    """The page's files by name, written to a folder whose tasks are found like the package's own."""
    files = {}
    for kind, code in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind != "bash":
            path = tmp_path / "page" / code.partition("\n")[0].removeprefix("# ")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code, encoding="utf-8")
            files[path.name] = path
    folder = str(files["rating.py"].parent)
    monkeypatch.setattr(tasks_package, "__path__", [*tasks_package.__path__, folder])
    module_names.cache_clear()
    yield files
    module_names.cache_clear()
    sys.modules.pop("meristem.tasks.rating", None)


def load_module(path: Path) -> ModuleType:
    """The module in a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_own_tests_pass(page_files: dict[str, Path]) -> None:
    module = load_module(page_files["test_rating.py"])
    tests = [value for key, value in vars(module).items() if key.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()


def test_the_pages_task_is_used_everywhere_without_another_edit(
    page_files: dict[str, Path], meristem: Meristem
) -> None:
    things = ("film", "meal", "walk", "song", "room", "trip")
    lines = [f"a {word} {thing}\t{grade}" for grade, word in enumerate(GRADES, 1) for thing in things]
    Path("reviews.tsv").write_text("\n".join(["text\tlabel", *lines]), encoding="utf-8")
    result = meristem("finetune", page_files["rating.yaml"], "data.train=reviews.tsv", "--out", "runs/rating")
    assert result.code == 0, result.err
    assert "meristem predict runs/rating 'a " in result.err
    assert TASKS["rating"].__name__ == "RatingTask"

    (prediction,) = meristem("predict", "runs/rating", "a great film", "--json").answers
    assert prediction["label"] == "5"
    ranked = meristem("predict", "runs/rating", "a dreadful meal", "--top", 5, "--json").answers[0]
    assert ranked[0]["label"] == "1"
    assert sum(item["score"] for item in ranked) == pytest.approx(1.0, abs=1e-5)
    assert re.fullmatch(r" *\d+\.\d\d%  5 +a great film\n", meristem("predict", "runs/rating", "a great film").out)
    refused = meristem("predict", "runs/rating", "--question", "Who?")
    assert refused.code != 0
    assert 'task rating needs text: meristem predict RUN "…", or {"text": …}' in refused.err

    exported = meristem("export", "runs/rating", "exported")
    assert exported.code == 1
    assert (
        "transformers has no class for it, since it needs a head whose logits are the steps of a scale" in exported.err
    )
    check_served(Path("runs/rating"), prediction)


def check_served(run: Path, prediction: dict[str, Any]) -> None:
    """The run over HTTP: its route, the entry of the route in the schema, and its form on the page."""
    studio = studio_router(RunListing(run.parent))
    app = create_app(ModelRegistry({}), ServingSettings.model_validate({}), extra_routers=[studio])
    with TestClient(app, base_url="http://127.0.0.1") as client:
        opened = client.post("/studio/open", json={"model": run.name}).json()
        assert opened["can"][0] == "rate"
        assert opened["forms"]["rate"] == {
            "summary": "The grade of a text on an ordered scale",
            "output": "label",
            "fields": [
                {
                    "name": "text",
                    "kind": "text",
                    "help": "One or several texts.",
                    "required": True,
                    "example": "What a film!",
                }
            ],
        }
        answer = client.post("/rate", json={"text": "a great film"}).json()["answer"]
        assert answer["label"] == prediction["label"]
        assert answer["score"] == pytest.approx(prediction["score"], abs=1e-5)
        grades = client.post("/rate", json={"text": [f"a {word} walk" for word in GRADES]}).json()["answers"]
        labels = [item["label"] for item in grades]
        assert (labels[0], labels[-1], sorted(labels)) == ("1", "5", labels)
        assert client.post("/rate", json={"question": "Who?"}).status_code == 422
        post = client.get("/openapi.json").json()["paths"]["/rate"]["post"]
        assert post["summary"] == "The grade of a text on an ordered scale"
