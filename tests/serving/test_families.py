"""Every family over HTTP: what a run says it can do it does, as Python does it, and nothing else."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from tiny_runs import FAMILIES, tiny_loaded, tiny_run

pytest.importorskip("fastapi")
pytest.importorskip("httptools")

from starlette.testclient import TestClient

from meristem.serving.app import create_app
from meristem.serving.model_registry import ModelRegistry
from meristem.serving.settings import ServingSettings

PICTURE = (np.arange(16 * 16 * 3).reshape(16, 16, 3) % 251).astype(np.uint8)
MASKED = "Ada walked to the [MASK] harbour."
TEXT = "Ada walked to the harbour."
ASKED: dict[str, dict[str, Any]] = {
    "generate": {"prompt": TEXT, "max_tokens": 4, "seed": 2},
    "fill": {"text": MASKED, "top": 3},
    "detect": {"text": [TEXT, "It rained."]},
    "embed": {"text": TEXT},
    "attention": {"text": TEXT},
}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    app = create_app(ModelRegistry.open([tiny_run(family) for family in FAMILIES]), ServingSettings.model_validate({}))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def image() -> str:
    from PIL import Image

    data = BytesIO()
    Image.fromarray(PICTURE).save(data, "PNG")
    return base64.b64encode(data.getvalue()).decode()


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_run_can_do_is_what_it_does(client: TestClient, family: str) -> None:
    runs = {run["name"]: run["can"] for run in client.get("/runs").json()["runs"]}
    for verb, body in ASKED.items():
        answer = client.post(f"/{verb}", json={"model": family, **body})
        assert (answer.status_code == 200) == (verb in runs[family]), (verb, runs[family], answer.text[:300])
    assert "score" in runs[family]  # a text, or a target given its source


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "captioner-mini"])
def test_generate_and_stream(client: TestClient, family: str) -> None:
    body = {"model": family, "prompt": TEXT, "max_tokens": 5, "temperature": 0}
    (text,) = client.post("/generate", json=body).json()["texts"]
    ((expected,),) = tiny_loaded(family).generate(TEXT, max_tokens=5, greedy=True)
    assert text["text"] == expected.text and text["score"] == pytest.approx(expected.score, abs=1e-3)
    assert not any(token["token"].startswith(("Ġ", "▁")) for token in text["tokens"])


@pytest.mark.parametrize("family", ["xlnet-mini", "elmo-mini", "gpt2-mini"])
def test_completions(client: TestClient, family: str) -> None:
    body = {"model": family, "prompt": [TEXT, "It"], "max_tokens": 3, "temperature": 0, "logprobs": 2}
    choices = client.post("/v1/completions", json=body).json()["choices"]
    expected = tiny_loaded(family).generate([TEXT, "It"], max_tokens=3, greedy=True)
    assert [choice["text"] for choice in choices] == [completion.text for (completion,) in expected]
    for choice in choices:
        logprobs = choice["logprobs"]
        assert len(logprobs["tokens"]) == len(logprobs["token_logprobs"]) == len(logprobs["top_logprobs"])
        assert all(
            not name.startswith(("Ġ", "▁")) for top in logprobs["top_logprobs"] for name in [*top, *logprobs["tokens"]]
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_score(client: TestClient, family: str) -> None:
    loaded, sees = tiny_loaded(family), family == "captioner-mini"
    source_body = {"image": image()} if sees else {"text": "Ada walks."}
    targets = ["a boat", "the old harbour", "rain"]
    answers = client.post("/score", json={"model": family, "text_b": targets, **source_body}).json()["answers"]
    ranked = loaded.score(PICTURE if sees else "Ada walks.", targets)
    assert [answer["text_b"] for answer in answers] == [score_of_pair.text_b for score_of_pair in ranked]
    assert [answer["logprob"] for answer in answers] == pytest.approx(
        [score_of_pair.logprob for score_of_pair in ranked], abs=1e-3
    )
    response = client.post("/score", json={"model": family, "text": [TEXT, "It rained."]})
    if family in ("rnn-mini", "transformer-mini", "captioner-mini"):
        assert response.status_code == 422 and "a text alone has none" in response.json()["error"]["message"]
        return
    scored = loaded.score([TEXT, "It rained."])
    assert [answer["logprob"] for answer in response.json()["answers"]] == pytest.approx(
        [s.logprob for s in scored], abs=1e-3
    )
    assert ("forward" in response.json()["answers"][0]) == (family == "elmo-mini")
    pairs = {"text": ["Ada walks.", "It"], "text_b": ["a boat", "rain"]}
    pair_answers = client.post("/score", json={"model": family, **pairs}).json()["answers"]
    assert [answer["text_b"] for answer in pair_answers] == ["a boat", "rain"]


def test_detect(client: TestClient) -> None:
    tokens = client.post("/detect", json={"model": "electra-mini", "text": TEXT}).json()["answer"]["tokens"]
    expected = tiny_loaded("electra-mini").detect(TEXT)
    assert [set(token) for token in tokens] == [{"text", "start", "end", "probability"}] * len(expected)
    assert [token["text"] for token in tokens] == [token.text for token in expected]
    assert [token["probability"] for token in tokens] == pytest.approx([t.probability for t in expected], abs=1e-4)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("/score", {"model": "gpt2-mini"}, "text: missing"),
    ("/score", {"model": "gpt2-mini", "text": ["a", "b"], "text_b": "c"}, "must have as many texts as text"),
    ("/score", {"model": "gpt2-mini", "text_b": "a", "image": "AAAA"}, "does not accept images"),
    ("/score", {"model": "captioner-mini", "image": "AAAA"}, "image: needs text_b"),
    ("/score", {"model": "captioner-mini", "image": "AAAA", "text_b": "a"}, "image"),
    ("/score", {"model": "bert-mini", "text": "a", "text_b": "walked " * 600}, "at most 512 tokens"),
    ("/generate", {"model": "gpt2-mini", "source": "a"}, "has no encoder"),
    ("/detect", {"model": "bert-mini", "text": "a"}, "cannot detect"),
    ("/detect", {"text": ""}, "at least 1 character"),
    ("/detect", {"text": ["a"] * 65}, "at most 64"),
    ("/fill", {"model": "gpt2-mini", "text": MASKED}, "cannot fill"),
]


@pytest.mark.parametrize(("route", "body", "message"), WRONG)
def test_what_cannot_be_is_told(client: TestClient, route: str, body: dict[str, Any], message: str) -> None:
    answer = client.post(route, json=body)
    assert answer.status_code == 422, answer.text
    assert message in answer.json()["error"]["message"]
