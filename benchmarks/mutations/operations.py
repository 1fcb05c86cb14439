"""What is done with a mutated run: load, evaluate, generate, serve, studio, start, export, tokenizer, resume.

Each operation answers with the notices that a person would see, raises a MeristemError where it refuses, and raises
anything else only where it fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from benchmarks.mutations.base_runs import PRETRAINED, QUIET, final_weights, training_function
from meristem import api
from meristem.checkpoint.revive import Revived
from meristem.errors import MeristemError
from meristem.evaluation.evaluate import evaluate as evaluate_run
from meristem.generation.way import ways_for
from meristem.serving.app import create_app
from meristem.serving.hub import Hub
from meristem.serving.settings import ServingSettings
from meristem.serving.studio.routes import studio as studio_routes
from meristem.serving.studio.runs import Listing
from meristem.tokenizers.tokenizer import Tokenizer

Operation = Callable[[Path, Path, str], str]
TEXTS = ("the old harbour [MASK] is 12.5 miles away.",
         "Ada; aaaaaaaaaaaaaaaaaaaaab, 中文 ½ \u0301é", "", " \n\t", "a\x00b" * 9)  # fmt: skip
REQUESTS: dict[str, dict[str, Any]] = {
    "generate": {"prompt": "the old", "max_tokens": 4},
    "chat": {"messages": [{"role": "user", "content": "the old"}], "max_tokens": 4},
    "fill": {"text": "the [MASK] walked"},
    "score": {"text": "the old harbour"},
    "detect": {"text": "the old harbour"},
    "embed": {"text": "the old harbour"},
    "attention": {"text": "the old harbour"},
    "classify": {"text": "the old harbour"},
    "tag": {"text": "Ada walked to Eastwell"},
}
ROUTES = {"chat": "/v1/chat/completions"}


def load(run: Path, out: Path, kind: str) -> str:
    """A run for use."""
    return "; ".join(api.load(run).revived.notices)


def evaluate(run: Path, out: Path, kind: str) -> str:
    """A run measured on its own test split, whatever its recipe names now."""
    loaded = api.load(run)
    _check_numbers(evaluate_run(loaded.revived, console=QUIET, limit=8, trust_paths=True)["metrics"], loaded.revived)
    return "; ".join(loaded.revived.notices)


def _check_numbers(metrics: dict[str, Any], revived: Revived) -> None:
    if wrong := [name for name, value in metrics.items() if not isinstance(value, int | float)]:
        raise TypeError(f"{revived.run.path.name}: metrics that are no numbers: {wrong}")


def generate(run: Path, out: Path, kind: str) -> str:
    """A run asked for all that its kind answers."""
    loaded = api.load(run)
    if kind in ("tagger", "lora"):
        loaded.predict(["Ada walked to Eastwell", "a"])
    elif kind == "electra":
        loaded.detect("the old harbour")
    if ways_for(loaded.model, "fill"):
        loaded.fill("the [MASK] walked")
    if ways_for(loaded.model, "generate"):
        loaded.generate("the old", max_tokens=4)
        loaded.generate("the", max_tokens=4, beams=2)
    if ways_for(loaded.model, "score"):
        loaded.score("the old harbour")
    loaded.embed("the old harbour")
    return "; ".join(loaded.revived.notices)


def export(run: Path, out: Path, kind: str) -> str:
    """A run written for transformers."""
    api.export(run, out / "exported")
    return ""


def start(run: Path, out: Path, kind: str) -> str:
    """Another run that begins from it: `from=`."""
    recipe = run.parent / "recipe.yaml"  # of the base run
    overrides = {"from.path": str(run), "train.steps": 1}
    ended = training_function(kind)(recipe, overrides, out=out / "begun", console=QUIET)
    return (ended.run / "log.txt").read_text(encoding="utf-8")


def resume(run: Path, out: Path, kind: str) -> str:
    """A stopped run trained to its end; a hash of its weights is left in `weights`."""
    ended = training_function(kind)(run / "recipe.yaml", out=run, console=QUIET).run
    (out / "weights").write_text(final_weights(ended))
    return ""


def tokenizer(run: Path, out: Path, kind: str) -> str:
    """A run's tokenizer.json by itself, in every way it is used."""
    found = Tokenizer.load(run / "tokenizer.json")
    for text in TEXTS:
        ids = found.encode(text).ids
        found.encode(text, special=True)
        found.decode(ids)
        found.labels(ids), found.pieces(ids)
    found.encode_many(TEXTS), found.ids_many(TEXTS)
    found.decode(range(found.size), skip_special=False)
    [found.piece(number) for number in range(found.size)]
    return f"{found.frame} {found.pair_frame} {found.frame_segments} {found.starts_word.sum()}"[:0]


# ------------------------------------------------------------ over HTTP


def serve(run: Path, out: Path, kind: str) -> str:
    """A run that is served, and asked through every route that it says it can answer."""
    hub = Hub.open([run])
    failures = _record_failures()
    (served,) = hub.runs.values()
    with TestClient(create_app(hub, ServingSettings.model_validate({})), base_url="http://127.0.0.1") as client:
        _check(client.get("/runs"), failures)
        for verb in served.can:
            if verb in REQUESTS:
                _check(client.post(ROUTES.get(verb, f"/{verb}"), json={**REQUESTS[verb], "model": run.name}), failures)
    return "; ".join(served.revived.notices)


def studio(run: Path, out: Path, kind: str) -> str:
    """The folder that a run lies in as the studio shows it, and the run as it opens and tries it."""
    listing, failures = Listing(run.parent), _record_failures()
    app = create_app(Hub({}), ServingSettings.model_validate({}), more=[studio_routes(listing)])
    with TestClient(app, base_url="http://127.0.0.1") as client:
        names = [one["name"] for one in _check(client.get("/studio/runs"), failures).get("runs", [])]
        _check(client.get("/studio/reports"), failures)
        for name in names:
            for page in ("run", "curves", "compare", "report"):
                _check(client.get(f"/studio/{page}", params={"name": name}), failures)
            _check(client.get("/studio/curves", params={"name": name, "axis": "flops"}), failures)
            opened = _check(client.post("/studio/open", json={"model": name}), failures)
            if "error" in opened:
                raise MeristemError(opened["error"]["message"])
            _check(client.post("/studio/samples", json={"model": name, "prompt": "the [MASK]"}), failures)
    if not names:
        raise MeristemError("the studio lists no run here")
    return ""


def _record_failures() -> list[str]:
    """Errors that the server logs: what it answers with 500 says only a number."""
    failures: list[str] = []

    class Recorder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            failures.append(logging.Formatter().formatException(record.exc_info) if record.exc_info else "")

    logging.getLogger("meristem.serving").addHandler(Recorder())
    return failures


def _check(response: Any, failures: list[str]) -> dict[str, Any]:
    """The body of an answer; one that is a fault of the server, or no JSON that clients can read, is raised."""
    if response.status_code >= 500:
        raise RuntimeError(f"status {response.status_code}: {failures[-1][-400:] if failures else response.text[:200]}")
    if "json" not in response.headers.get("content-type", ""):
        return {}
    body = response.json()
    return body if isinstance(body, dict) else {}


OPERATIONS: dict[str, Operation] = {
    "resume": resume, "load": load, "evaluate": evaluate, "generate": generate, "serve": serve, "studio": studio,
    "start": start, "export": export, "tokenizer": tokenizer,
}  # fmt: skip
__all__ = ["OPERATIONS", "PRETRAINED"]
