"""The operations on a mutated run: load, evaluate, generate, serve, studio, start, export, tokenizer, resume.

Each returns the notices that a user would see, raises MeristemError if it rejects the run, and raises anything else
only on failure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from benchmarks.mutations.base_runs import PRETRAINED, QUIET, final_weights, training_function
from meristem import api
from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError
from meristem.evaluation.evaluate import evaluate as evaluate_run
from meristem.generation.head_selection import lm_kinds_for
from meristem.serving.app import create_app
from meristem.serving.model_registry import ModelRegistry
from meristem.serving.settings import ServingSettings
from meristem.serving.studio.run_list import RunListing
from meristem.serving.studio.studio_routes import studio_router as studio_routes
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
    """Load a run for inference."""
    return "; ".join(api.load(run).loaded_run.notices)


def evaluate(run: Path, out: Path, kind: str) -> str:
    """Evaluate a run on its own test split."""
    loaded = api.load(run)
    _check_numbers(
        evaluate_run(loaded.loaded_run, console=QUIET, limit=8, trust_paths=True)["metrics"], loaded.loaded_run
    )
    return "; ".join(loaded.loaded_run.notices)


def _check_numbers(metrics: dict[str, Any], loaded_run: LoadedRun) -> None:
    if wrong := [name for name, value in metrics.items() if not isinstance(value, int | float)]:
        raise TypeError(f"{loaded_run.run.path.name}: metrics that are no numbers: {wrong}")


def generate(run: Path, out: Path, kind: str) -> str:
    """Run every inference method of its kind."""
    loaded = api.load(run)
    if kind in ("tagger", "lora"):
        loaded.predict(["Ada walked to Eastwell", "a"])
    elif kind == "electra":
        loaded.detect("the old harbour")
    if lm_kinds_for(loaded.model, "fill"):
        loaded.fill("the [MASK] walked")
    if lm_kinds_for(loaded.model, "generate"):
        loaded.generate("the old", max_tokens=4)
        loaded.generate("the", max_tokens=4, beams=2)
    if lm_kinds_for(loaded.model, "score"):
        loaded.score("the old harbour")
    loaded.embed("the old harbour")
    return "; ".join(loaded.loaded_run.notices)


def export(run: Path, out: Path, kind: str) -> str:
    """Export a run for transformers."""
    api.export(run, out / "exported")
    return ""


def start(run: Path, out: Path, kind: str) -> str:
    """Train another run from it: `from=`."""
    recipe = run.parent / "recipe.yaml"  # of the base run
    overrides = {"from.path": str(run), "train.steps": 1}
    result = training_function(kind)(recipe, overrides, out=out / "begun", console=QUIET)
    return (result.run / "log.txt").read_text(encoding="utf-8")


def resume(run: Path, out: Path, kind: str) -> str:
    """Resume a stopped run; a hash of its weights is written to `weights`."""
    result = training_function(kind)(run / "recipe.yaml", out=run, console=QUIET).run
    (out / "weights").write_text(final_weights(result))
    return ""


def tokenizer(run: Path, out: Path, kind: str) -> str:
    """Load a run's tokenizer.json and use all its methods."""
    reloaded = Tokenizer.load(run / "tokenizer.json")
    for text in TEXTS:
        ids = reloaded.encode(text).ids
        reloaded.encode(text, special=True)
        reloaded.decode(ids)
        reloaded.display_labels(ids), reloaded.token_texts(ids)
    reloaded.encode_batch(TEXTS), reloaded.encode_ids(TEXTS)
    reloaded.decode(range(reloaded.vocab_size), skip_special=False)
    [reloaded.token_text(number) for number in range(reloaded.vocab_size)]
    templates = f"{reloaded.single_template} {reloaded.pair_template} {reloaded.template_segments}"
    return f"{templates} {reloaded.word_start_mask.sum()}"[:0]


# ------------------------------------------------------------ over HTTP


def serve(run: Path, out: Path, kind: str) -> str:
    """Serve a run, and call every route it supports."""
    hub = ModelRegistry.open([run])
    failures = _record_failures()
    (served_run,) = hub.runs.values()
    with TestClient(create_app(hub, ServingSettings.model_validate({})), base_url="http://127.0.0.1") as client:
        _check(client.get("/runs"), failures)
        for verb in served_run.routes:
            if verb in REQUESTS:
                _check(client.post(ROUTES.get(verb, f"/{verb}"), json={**REQUESTS[verb], "model": run.name}), failures)
    return "; ".join(served_run.loaded_run.notices)


def studio(run: Path, out: Path, kind: str) -> str:
    """List the run's folder in the studio, and open and try the run."""
    listing, failures = RunListing(run.parent), _record_failures()
    app = create_app(ModelRegistry({}), ServingSettings.model_validate({}), extra_routers=[studio_routes(listing)])
    with TestClient(app, base_url="http://127.0.0.1") as client:
        names = [listed_run["name"] for listed_run in _check(client.get("/studio/runs"), failures).get("runs", [])]
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
    """A list that collects errors logged by the server: a 500 response contains only an id."""
    failures: list[str] = []

    class Recorder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            failures.append(logging.Formatter().formatException(record.exc_info) if record.exc_info else "")

    logging.getLogger("meristem.serving").addHandler(Recorder())
    return failures


def _check(response: Any, failures: list[str]) -> dict[str, Any]:
    """The body of a response; raises for server errors and invalid JSON."""
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
