"""lm-eval scores a server through OpenAI's completions as it scores the run itself."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("lm_eval")
pytest.importorskip("transformers")
pytest.importorskip("tenacity")  # which lm-eval asks servers with

import lm_eval
import lm_eval.models
import uvicorn
from lm_eval.tasks import TaskManager

from meristem.api import export
from meristem.interop.lm_eval_model import MeristemLM
from meristem.serving.app import create_app
from meristem.serving.http_protocol import TimeoutHttpProtocol
from meristem.serving.model_registry import ModelRegistry

QUESTIONS = [
    {
        "context": f"Ada walked from {place_phrase}",
        "choices": [" to the garden", " and it rained", " harbour"],
        "label": n % 3,
    }
    for n, place_phrase in enumerate(["the old harbour", "garden 7", "Diego", "the rain", "the garden"])
]
TASK = {
    "task": "local_choice",
    "dataset_path": "json",
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "{{context}}",
    "doc_to_choice": "choices",
    "doc_to_target": "label",
    "target_delimiter": "",
    "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
}


@pytest.fixture(scope="module")
def address(hub: ModelRegistry) -> Iterator[str]:
    """Where a live server answers, in a thread of this process."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    app = create_app(ModelRegistry({"gpt2": hub.runs["gpt2"].loaded_run}))
    server = uvicorn.Server(
        uvicorn.Config(app, http=TimeoutHttpProtocol, ws="none", log_config=None, log_level="warning")
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{bound.getsockname()[1]}/v1/completions"
    server.should_exit = True
    thread.join(timeout=30)


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A multiple-choice task in a folder."""
    folder = tmp_path_factory.mktemp("lm-eval")
    (folder / "tasks").mkdir()
    (folder / "questions.jsonl").write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    kwargs = {"data_files": {"test": str(folder / "questions.jsonl")}, "cache_dir": str(folder / "cache")}
    (folder / "tasks" / "local.yaml").write_text(yaml.safe_dump({**TASK, "dataset_kwargs": kwargs}))
    return folder / "tasks"


def evaluated(model: Any, task: Path, **evaluator_options: Any) -> list[list[tuple[float, bool]]]:
    """What it says of each choice of each question."""
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    manager = TaskManager(include_path=str(task), include_defaults=False)
    arguments = {"tasks": ["local_choice"], "task_manager": manager, "bootstrap_iters": 0, **evaluator_options}
    evaluation = lm_eval.simple_evaluate(model=model, **arguments)
    samples = sorted(evaluation["samples"]["local_choice"], key=lambda sample: sample["doc_id"])
    return [[tuple(answer) for answer in sample["filtered_resps"]] for sample in samples]


@pytest.mark.slow  # lm-eval and transformers take their time to be imported; test_openai.py checks the same numbers
def test_local_completions_is_the_run_itself(address: str, task: Path, runs: dict[str, Path], tmp_path: Path) -> None:
    export(runs["gpt2"], tmp_path / "exported")  # its tokenizer is how lm-eval cuts texts
    model_arguments = {"model": "gpt2", "base_url": address, "tokenizer": str(tmp_path / "exported"),
                       "num_concurrent": 2,
            "tokenizer_backend": "huggingface", "max_length": 48}  # fmt: skip
    samples = evaluated("local-completions", task, model_args=model_arguments)
    expected = evaluated(MeristemLM(runs["gpt2"]), task)
    assert len(samples) == len(QUESTIONS)
    for ours, theirs in zip(samples, expected, strict=True):
        assert [value for value, _ in ours] == pytest.approx([value for value, _ in theirs], abs=1e-3)
        assert [greedy for _, greedy in ours] == [greedy for _, greedy in theirs]
