"""OpenAI's routes: the shapes that their clients read, with the numbers that runs give."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from starlette.testclient import TestClient

from meristem.api import LoadedModel

TEXT = "Ada walked to the old harbour"


def completed(client: TestClient, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/completions", json={"model": "gpt2", "prompt": TEXT, "temperature": 0, **body})
    assert answer.status_code == 200, answer.text
    response_body: dict[str, Any] = answer.json()
    return response_body


def test_models(client: TestClient) -> None:
    body = client.get("/v1/models").json()
    assert body["object"] == "list"
    assert {"id": "gpt2", "object": "model", "created": 0, "owned_by": "meristem"} in body["data"]
    assert client.get("/v1/models/bert").json()["id"] == "bert"
    missing = client.get("/v1/models/brt")
    assert missing.status_code == 404
    assert missing.json()["error"]["param"] == "model" and "did you mean bert?" in missing.text


def test_a_completion(client: TestClient, loaded: dict[str, LoadedModel]) -> None:
    completion = completed(client, max_tokens=6)
    ((expected,),) = loaded["gpt2"].generate(TEXT, greedy=True, max_tokens=6)
    assert (
        completion["object"] == "text_completion"
        and completion["id"].startswith("cmpl-")
        and completion["created"] > 1e9
    )
    (choice,) = completion["choices"]
    assert choice == {"index": 0, "text": expected.text, "logprobs": None, "finish_reason": "length"}
    usage = completion["usage"]
    assert usage["completion_tokens"] == 6
    assert usage["total_tokens"] == usage["prompt_tokens"] + 6


def test_several_prompts_and_texts_in_order(client: TestClient, loaded: dict[str, LoadedModel]) -> None:
    prompts = [TEXT, "It rained", "Diego"]
    choices = completed(client, prompt=prompts, n=2, temperature=1, seed=5, max_tokens=4)["choices"]
    expected = loaded["gpt2"].generate(prompts, count=2, seed=5, max_tokens=4)
    assert [choice["index"] for choice in choices] == list(range(6))
    assert [choice["text"] for choice in choices] == [
        completion.text for completions_of_prompt in expected for completion in completions_of_prompt
    ]


def test_tokens_are_a_prompt_too(client: TestClient, loaded: dict[str, LoadedModel]) -> None:
    ids = loaded["gpt2"].tokenizer.encode(TEXT).ids.tolist()
    expected = completed(client)["choices"][0]["text"]
    for prompt in (ids, [ids], [loaded["gpt2"].tokenizer.end, *ids]):
        assert completed(client, prompt=prompt)["choices"][0]["text"] == expected


def test_an_echo_has_the_log_probabilities_of_the_prompt(client: TestClient, loaded: dict[str, LoadedModel]) -> None:
    (scored,) = loaded["gpt2"].score(TEXT)
    for prompt in (TEXT, loaded["gpt2"].tokenizer.encode(TEXT).ids.tolist()):
        (choice,) = completed(client, prompt=prompt, echo=True, logprobs=2, max_tokens=1)["choices"]
        logprobs = choice["logprobs"]
        assert choice["text"].startswith(TEXT)
        assert len(logprobs["tokens"]) == scored.tokens + 1
        assert logprobs["token_logprobs"][:-1] == pytest.approx([value for _, value in scored.per_token], abs=1e-4)
        for token, value, top in zip(
            logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
        ):
            assert top[token] == value
            assert len(top) in (2, 3)
        assert logprobs["token_logprobs"][-1] == max(logprobs["top_logprobs"][-1].values())  # it was written greedily
        assert logprobs["text_offset"][0] == 0 and logprobs["text_offset"] == sorted(logprobs["text_offset"])


def test_an_echo_alone_and_what_nothing_comes_before(client: TestClient, loaded: dict[str, LoadedModel]) -> None:
    tokenizer = loaded["gpt2"].tokenizer
    ids = [tokenizer.end, *tokenizer.encode(TEXT).ids.tolist()]
    (choice,) = completed(client, prompt=ids, echo=True, logprobs=0, max_tokens=0)["choices"]
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert None not in choice["logprobs"]["token_logprobs"][1:]
    assert choice["text"] == TEXT and len(choice["logprobs"]["tokens"]) == len(ids)


def lines(client: TestClient, route: str, body: dict[str, Any]) -> list[Any]:
    with client.stream("POST", route, json={**body, "stream": True}) as answer:
        assert answer.status_code == 200
        events = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert events.pop() == "[DONE]"
    return [json.loads(line) for line in events]


def test_a_streamed_completion(client: TestClient) -> None:
    completion = completed(client, max_tokens=5, n=2, temperature=1, echo=True)
    choices, seed = completion["choices"], completion["seed"]
    assert seed != completed(client, max_tokens=5, n=2, temperature=1, echo=True)["seed"]
    body = {"model": "gpt2", "prompt": TEXT, "max_tokens": 5, "n": 2, "echo": True, "seed": seed}
    *chunks, last = lines(client, "/v1/completions", {**body, "stream_options": {"include_usage": True}})
    assert last["choices"] == [] and last["usage"] == completion["usage"] and last["seed"] == seed
    for index in range(2):
        chunks_of_choice = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert "".join(chunk_choice["text"] for chunk_choice in chunks_of_choice) == choices[index]["text"]
        assert chunks_of_choice[-1]["finish_reason"] == choices[index]["finish_reason"]
        assert {chunk_choice["finish_reason"] for chunk_choice in chunks_of_choice[:-1]} == {None}


@pytest.mark.parametrize("name", ["gpt2", "talker"])
def test_chat(client: TestClient, name: str) -> None:
    messages = [{"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Hello"}]}]  # fmt: skip
    body = {"model": name, "messages": messages, "max_tokens": 6, "seed": 2, "logprobs": True, "top_logprobs": 2}
    response_body = client.post("/v1/chat/completions", json=body).json()
    assert response_body["object"] == "chat.completion"
    (choice,) = response_body["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] in ("stop", "length")
    assert all(len(token["top_logprobs"]) == 2 for token in choice["logprobs"]["content"])
    first, *chunks = lines(client, "/v1/chat/completions", body)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks).strip() == choice["message"]["content"]


def test_a_reply_taught_by_a_task_goes_on_from_its_own_start(
    client: TestClient, loaded: dict[str, LoadedModel]
) -> None:
    from meristem.generation.generate import generate_from_inputs
    from meristem.generation.settings import SamplingSettings

    task: Any = loaded["talker"].task()
    start = task.parts.head.layout.generation_inputs(task.encode_samples([task.parse_input({"turns": ["Hello"]})])[0])
    settings = SamplingSettings.model_validate({"greedy": True, "max_tokens": 7})
    ((expected,),) = generate_from_inputs(loaded["talker"].model, loaded["talker"].tokenizer, [start], settings,
                                end_id=task.parts.head.layout.end_id)  # fmt: skip
    messages = [{"role": "user", "content": "Hello"}]
    body = {"model": "talker", "messages": messages, "max_tokens": 7, "temperature": 0}
    response_body = client.post("/v1/chat/completions", json=body).json()
    assert response_body["choices"][0]["message"]["content"] == expected.text.strip()


def test_embeddings(client: TestClient, loaded: dict[str, LoadedModel]) -> None:
    texts = [TEXT, "garden"]
    expected = [loaded["bert"].embed([text])[0].tolist() for text in texts]
    plain = client.post("/v1/embeddings", json={"model": "bert", "input": texts}).json()
    assert [embedding["embedding"] for embedding in plain["data"]] == [
        pytest.approx(embedding, abs=1e-5) for embedding in expected
    ]
    packed = client.post("/v1/embeddings", json={"model": "bert", "input": TEXT, "encoding_format": "base64"}).json()
    data = base64.b64decode(packed["data"][0]["embedding"])
    assert list(struct.unpack(f"<{len(data) // 4}f", data)) == pytest.approx(expected[0], abs=1e-5)
    assert plain["usage"]["prompt_tokens"] == plain["usage"]["total_tokens"] > 2


WRONG: list[tuple[str, dict[str, Any], int, str, str | None]] = [
    ("completions", {"prompt": [10**6]}, 400, "token 1000000 is outside the vocabulary of gpt2", "prompt"),
    ("completions", {"prompt": [-1]}, 400, "greater than or equal to 0", "prompt.0"),
    ("completions", {"suffix": "x"}, 400, "at most 0 characters", "suffix"),
    ("completions", {"best_of": 2}, 400, "not supported; use n", None),
    ("completions", {"max_tokens": 0}, 400, "0 needs echo", None),
    ("completions", {"n": 10**9}, 400, "less than or equal to 16", "n"),
    ("completions", {"presence_penalty": 1}, 400, "presence_penalty", "presence_penalty"),
    ("completions", {"logit_bias": {"3": 1}}, 400, "logit_bias", "logit_bias"),
    ("completions", {"model": "nobody"}, 404, "not served here", "model"),
    ("completions", {"model": "bert"}, 400, "is a masked language model", "model"),
    ("completions", {"model": "translator", "echo": True}, 400, "only supported by causal models", "echo"),
    ("completions", {"model": "translator", "prompt": [1, 2]}, 400, "only causal models accept token ids", "prompt"),
    ("chat/completions", {"messages": []}, 400, "messages", "messages"),
    ("chat/completions", {"messages": [{"role": "robot", "content": "x"}]}, 400, "role", "messages.0.role"),
    ("embeddings", {"model": "bert", "input": "x", "dimensions": 7}, 400, "have 32 dimensions", "dimensions"),
]  # fmt: skip


@pytest.mark.parametrize(("route", "body", "status", "message", "param"), WRONG)
def test_errors_are_objects_that_clients_know(
    client: TestClient, route: str, body: dict[str, Any], status: int, message: str, param: str | None
) -> None:
    answer = client.post(f"/v1/{route}", json={"model": "gpt2", **body})
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert message in error["message"]
    assert error["param"] == param


def test_parts_that_nobody_knows_are_passed_over(client: TestClient) -> None:
    assert completed(client, user="me", service_tier="auto", presence_penalty=0, best_of=1)
