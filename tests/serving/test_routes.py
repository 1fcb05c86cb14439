"""Every route says what the run itself says from Python."""

from __future__ import annotations

import base64
import io
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.testclient import TestClient

from meristem.api import LoadedModel
from meristem.serving import generation_worker, request_work

TEXT, OTHER = "Ada walked to the old harbour.", "It rained on Diego, and on the garden."


def post_json(client: TestClient, route: str, **body: Any) -> Any:
    answer = client.post(route, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def alike(actual: Any, expected: Any) -> None:
    """Equal but for rounding, which follows from what is read together."""
    if isinstance(expected, dict):
        assert set(actual) == set(expected)
        for key, value in expected.items():
            alike(actual[key], value)
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for actual_item, other in zip(actual, expected, strict=True):
            alike(actual_item, other)
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, abs=1e-4)
    else:
        assert actual == expected


TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "reviews": ("/classify", {"text": TEXT}),
    "pairs": ("/classify", {"text": TEXT, "text_b": OTHER}),
    "names": ("/tag", {"text": TEXT}),
    "squad": ("/answer", {"question": "Who walked?", "passage": TEXT}),
    "choices": ("/choose", {"text": TEXT, "choices": ["It rained.", OTHER]}),
    "translator": ("/translate", {"text": TEXT}),
    "shortener": ("/summarise", {"text": TEXT}),
    "talker": ("/reply", {"turns": [TEXT, OTHER]}),
}


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("top", [None, 2])
def test_tasks(client: TestClient, loaded: dict[str, LoadedModel], name: str, top: int | None) -> None:
    route, body = TASKS[name]
    response_body = post_json(client, route, model=name, **body, **({} if top is None else {"top": top}))
    assert response_body["model"] == name
    alike(response_body["answer"], loaded[name].predict(body, top=top))


def test_several_texts_have_several_answers(client: TestClient, loaded: dict[str, LoadedModel]) -> None:
    texts = [TEXT, OTHER, "garden"]
    alike(post_json(client, "/classify", model="reviews", text=texts)["answers"], loaded["reviews"].predict(texts))


@pytest.mark.parametrize("name", ["reviews", "names", "squad", "choices"])
def test_uncertain_answers_are_withheld(client: TestClient, loaded: dict[str, LoadedModel], name: str) -> None:
    route, body = TASKS[name]
    certain = loaded[name].predict(body)
    alike(post_json(client, route, model=name, **body, abstain_below=1e-9)["answer"], certain)
    withheld = post_json(client, route, model=name, **body, abstain_below=1.0)["answer"]
    alike(withheld, loaded[name].predict(body, abstain_below=1.0))
    assert withheld != certain or not certain


def test_abstaining_of_several_texts_and_what_cannot_abstain(client: TestClient) -> None:
    answers = post_json(client, "/classify", model="reviews", text=[TEXT, OTHER], abstain_below=1.0)["answers"]
    assert [answer["label"] for answer in answers] == ["abstain", "abstain"]
    fields = client.get("/openapi.json").json()["components"]["schemas"]
    assert "abstain_below" in fields["ClassifyRequest"]["properties"]
    assert "abstain_below" not in fields["TranslateRequest"]["properties"]
    for wrong in ({"abstain_below": 0}, {"abstain_below": 1.5}, {"abstain_below": 0.5, "top": 2}):
        response = client.post("/classify", json={"model": "reviews", "text": TEXT, **wrong})
        assert response.status_code in (400, 422), response.text
        assert "abstain_below" in response.text
    assert client.post("/translate", json={"text": TEXT, "abstain_below": 0.5}).status_code in (400, 422)


def picture() -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.linear_gradient("L").convert("RGB").save(out, "PNG")
    return out.getvalue()


def test_captions(client: TestClient, loaded: dict[str, LoadedModel], tmp_path: Any) -> None:
    (tmp_path / "a.png").write_bytes(picture())
    expected = loaded["captioner"].predict({"picture": str(tmp_path / "a.png")})
    plain = base64.b64encode(picture()).decode()
    for image in (plain, f"data:image/png;base64,{plain}"):
        assert post_json(client, "/caption", image=image)["answer"] == expected


@pytest.mark.parametrize("image", ["/etc/passwd", "microworld:1:2 builtin", "QUJD", "data:image/png;base64,####"])
def test_what_is_no_picture_is_refused_and_never_opened(client: TestClient, image: str) -> None:
    answer = client.post("/caption", json={"image": image})
    assert answer.status_code == 422
    assert "base64" in answer.text or "not an image" in answer.text


def test_fill(client: TestClient, loaded: dict[str, LoadedModel]) -> None:
    texts = ["Ada [MASK] to the [MASK].", "[MASK]"]
    answers = post_json(client, "/fill", text=texts, top=3)["answers"]
    for answer, text in zip(answers, texts, strict=True):
        for mask, expected in zip(answer, loaded["bert"].fill(text, top=3), strict=True):
            names = [(c["token"], c["sequence"]) for c in mask["candidates"]]
            assert names == [(c.token, c.text) for c in expected.candidates]
            alike([c["score"] for c in mask["candidates"]], [c.probability for c in expected.candidates])


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_score(client: TestClient, loaded: dict[str, LoadedModel], name: str) -> None:
    answers = post_json(client, "/score", model=name, text=[TEXT, ""])["answers"]
    for answer, expected in zip(answers, loaded[name].score([TEXT, ""]), strict=True):
        alike(answer, {"text": expected.text, "logprob": expected.logprob, "tokens": expected.tokens,
                    "per_token": [list(pair) for pair in expected.per_token]})  # fmt: skip


@pytest.mark.parametrize("name", ["gpt2", "bert", "reviews", "rnn"])
@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_embed(client: TestClient, loaded: dict[str, LoadedModel], name: str, pooling: Any) -> None:
    texts = [TEXT, "garden", OTHER]
    vectors = post_json(client, "/embed", model=name, text=texts, pooling=pooling)["answers"]
    one_by_one = [loaded[name].embed([text], pooling=pooling)[0].tolist() for text in texts]
    alike(vectors, one_by_one)


@pytest.mark.parametrize("level", ["token", "word"])
@pytest.mark.parametrize("layer", [None, 0, "mix"])
def test_embed_tokens_and_words(client: TestClient, loaded: dict[str, LoadedModel], level: Any, layer: Any) -> None:
    answers = post_json(client, "/embed", model="bert", text=[TEXT, OTHER], level=level, layer=layer)["answers"]
    alike(
        answers,
        [vectors_of_text.plain() for vectors_of_text in loaded["bert"].embed([TEXT, OTHER], level=level, layer=layer)],
    )
    single = post_json(client, "/embed", model="bert", text=TEXT, level="text", layer=layer)["answer"]
    alike(single, loaded["bert"].embed(TEXT, layer=layer)[0].tolist())


def test_vectors_of_many_tokens_are_refused(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_work, "MAX_VECTOR_VALUES", 2 * 8 * 32)
    answer = client.post("/embed", json={"model": "bert", "text": [TEXT, OTHER], "level": "token"})
    assert answer.status_code == 422 and "fewer or shorter texts" in answer.text
    post_json(client, "/embed", model="bert", text=[TEXT, OTHER])  # one vector per text is always sent


@pytest.mark.parametrize("name", ["gpt2", "bert", "translator", "reviews"])
def test_attention(client: TestClient, loaded: dict[str, LoadedModel], name: str) -> None:
    attention = post_json(client, "/attention", model=name, text=TEXT)
    alike(attention, loaded[name].look(TEXT).to_dict())


def test_attention_of_parts_and_pictures(client: TestClient, loaded: dict[str, LoadedModel]) -> None:
    parts = {"question": "Who walked?", "passage": TEXT}
    alike(post_json(client, "/attention", model="squad", parts=parts), loaded["squad"].look(parts).to_dict())
    image = base64.b64encode(picture()).decode()
    assert "image" in post_json(client, "/attention", model="captioner", image=image, kind="image")["kinds"]


GENERATING: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", {"temperature": 0}),
    ("gpt2", {"seed": 3, "temperature": 0.8, "top_k": 50, "n": 3}),
    ("gpt2", {"seed": 4, "top_p": 0.9, "repetition_penalty": 1.2, "stop": ["e"]}),
    ("gpt2", {"beams": 3, "n": 2}),
    ("rnn", {"seed": 5, "n": 2}),
    ("translator", {"seed": 6, "min_tokens": 4}),
    ("bert", {"seed": 7}),
]


@pytest.mark.parametrize(("name", "sampling"), GENERATING)
def test_generate(client: TestClient, loaded: dict[str, LoadedModel], name: str, sampling: dict[str, Any]) -> None:
    texts = post_json(client, "/generate", model=name, prompt=TEXT, max_tokens=9, **sampling)["texts"]
    count = sampling.get("n", 1)
    python_settings = {key: value for key, value in sampling.items() if key not in ("n", "temperature", "stop")}
    temperature = sampling.get("temperature", 1.0)
    (expected,) = loaded[name].generate(
        TEXT, count=count, max_tokens=9, temperature=temperature or 1.0, greedy=temperature == 0,
        stop=tuple(sampling.get("stop", ())), **python_settings
    )  # fmt: skip
    assert [text["text"] for text in texts] == [completion.text for completion in expected]
    assert [text["finished"] for text in texts] == [completion.finished for completion in expected]
    assert [text["score"] for text in texts] == pytest.approx([completion.score for completion in expected], abs=1e-3)


def streamed(client: TestClient, **body: Any) -> list[Any]:
    with client.stream("POST", "/generate", json={**body, "stream": True}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


@pytest.mark.parametrize("model", ["gpt2", "bert", "translator"])
def test_without_a_seed_every_request_draws_anew_and_returns_its_seed(client: TestClient, model: str) -> None:
    body = {"model": model, "prompt": TEXT, "max_tokens": 10, "temperature": 1.5}
    responses = [post_json(client, "/generate", **body) for _ in range(3)]
    assert (
        len({response["seed"] for response in responses})
        == len({response["texts"][0]["text"] for response in responses})
        == 3
    )
    repeated = post_json(client, "/generate", **body, seed=responses[0]["seed"])
    assert repeated["texts"][0]["text"] == responses[0]["texts"][0]["text"] and repeated["seed"] == responses[0]["seed"]
    assert post_json(client, "/generate", **{**body, "temperature": 0}, seed=3)["seed"] is None


def test_a_stream_adds_up_to_the_whole(client: TestClient) -> None:
    body = {"model": "gpt2", "prompt": TEXT, "max_tokens": 12, "seed": 9, "n": 2, "top": 2}
    texts = post_json(client, "/generate", **body)["texts"]
    *events, last = streamed(client, **body)
    assert last == {"done": True, "seed": 9}
    assert len(events) >= 12
    for index, expected in enumerate(texts):
        events_of_text = [event for event in events if event["index"] == index]
        assert "".join(event["text"] for event in events_of_text) == expected["text"]
        alike([token for event in events_of_text for token in event["tokens"]], expected["tokens"])
        assert [event["finished"] for event in events_of_text][-1] == expected["finished"]
        assert all(len(token["top"]) == 2 for token in expected["tokens"])


def test_tokens_of_a_long_stream_are_sent_together(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation_worker, "STREAM_INTERVAL", 1000.0)
    body = {"model": "gpt2", "prompt": TEXT, "max_tokens": 20, "min_tokens": 20, "seed": 9, "n": 16}
    texts = post_json(client, "/generate", **body)["texts"]
    *events, _ = streamed(client, **body)
    assert len(events) == 2 * 16  # the first tokens, and all others with the end
    for index, expected in enumerate(texts):
        events_of_text = [event for event in events if event["index"] == index]
        assert "".join(event["text"] for event in events_of_text) == expected["text"]
        alike([token for event in events_of_text for token in event["tokens"]], expected["tokens"])


EVERY_ROUTE: list[tuple[str, dict[str, Any]]] = [
    *((route, {"model": name, **body}) for name, (route, body) in TASKS.items()),
    *(("/attention", {"model": model, "text": text}) for model in ("bert", "gpt2") for text in (TEXT, OTHER)),
    *(("/embed", {"model": model, "text": text}) for model in ("bert", "gpt2") for text in (TEXT, OTHER)),
    *(("/score", {"model": model, "text": text}) for model in ("bert", "gpt2") for text in (TEXT, OTHER)),
    *(("/fill", {"model": "bert", "text": f"{text} [MASK]", "top": 3}) for text in (TEXT, OTHER)),
    *(("/generate", {"model": "gpt2", "prompt": TEXT, "max_tokens": 9, "seed": seed}) for seed in (1, 2)),
]


def test_every_route_answers_under_load_what_it_answers_alone(client: TestClient) -> None:
    expected_answers = [post_json(client, route, **body) for route, body in EVERY_ROUTE]
    numbers = [number for shift in range(3) for number in range(shift, len(EVERY_ROUTE), 3)] * 3
    with ThreadPoolExecutor(16) as executor:
        answers = list(
            executor.map(lambda number: post_json(client, EVERY_ROUTE[number][0], **EVERY_ROUTE[number][1]), numbers)
        )
    for number, answer in zip(numbers, answers, strict=True):
        alike(answer, expected_answers[number])


def test_many_clients_at_once_get_what_each_gets_alone(client: TestClient, loaded: dict[str, LoadedModel]) -> None:
    """Requests of different kinds, lengths and seeds, all at the same time."""
    prompts = [" ".join(LINE[: 1 + n % 9]) for n in range(24)]

    def ask(number: int) -> Any:
        if number % 3 == 0:
            return post_json(client, "/classify", model="reviews", text=prompts[number])["answer"]
        if number % 3 == 1:
            return post_json(client, "/fill", text=f"{prompts[number]} [MASK]", top=1)["answer"]
        body = {"model": "gpt2", "prompt": prompts[number], "seed": number, "max_tokens": 5 + number % 7}
        return post_json(client, "/generate", **body)["texts"][0]["text"]

    with ThreadPoolExecutor(24) as executor:
        answers = list(executor.map(ask, range(24)))
    for number, answer in enumerate(answers):
        if number % 3 == 0:
            alike(answer, loaded["reviews"].predict(prompts[number]))
        elif number % 3 == 1:
            (expected,) = loaded["bert"].fill(f"{prompts[number]} [MASK]", top=1)
            assert answer[0]["candidates"][0]["token"] == expected.candidates[0].token
        else:
            settings = {"seed": number, "max_tokens": 5 + number % 7}
            assert answer == loaded["gpt2"].generate(prompts[number], **settings)[0][0].text


LINE = ["Ada", "walked", "from", "the", "old", "harbour", "to", "garden", "and", "it", "rained"]


# ------------------------------------------------------------ refusals


WRONG: list[tuple[str, dict[str, Any], int, str]] = [
    ("/fill", {"text": "no mask"}, 422, "there is no mask in the text"),
    ("/fill", {"text": "[MASK] " * 65}, 422, "65 masks"),
    ("/classify", {"text": "a"}, 422, "several runs can classify: set model to one of reviews, pairs"),
    ("/classify", {"text": "a", "model": "review"}, 404, "did you mean reviews?"),
    ("/classify", {"text": "a", "model": "gpt2"}, 422, "cannot classify: it can generate"),
    ("/classify", {"model": "pairs", "text": "a"}, 422, "needs text_b"),
    ("/classify", {"model": "reviews", "text": "a", "tpo": 1}, 422, "tpo: Extra inputs are not permitted"),
    ("/classify", {"model": "reviews", "text": ""}, 422, "at least 1 character"),
    ("/classify", {"model": "reviews", "text": ["a"] * 65}, 422, "at most 64"),
    ("/classify", {"model": "reviews", "text": "a\x00b"}, 422, "NUL"),
    ("/classify", {"model": "reviews"}, 422, "text: Field required"),
    ("/generate", {"model": "gpt2", "n": 10**9}, 422, "n: Input should be less than or equal to 16"),
    ("/generate", {"model": "gpt2", "max_tokens": 0}, 422, "max_tokens"),
    ("/generate", {"model": "gpt2", "temperature": -1}, 422, "temperature"),
    ("/generate", {"model": "gpt2", "stop": ["x"] * 17}, 422, "stop"),
    ("/generate", {"model": "gpt2", "stop": [""]}, 422, "stop.0"),
    ("/generate", {"model": "gpt2", "n": 3, "beams": 2}, 422, "need at least as many beams"),
    ("/generate", {"model": "bert", "max_tokens": 500}, 422, "this masked model takes"),
    ("/generate", {"model": "bert", "stream": True}, 422, "stream"),
    ("/generate", {"model": "rnn", "prompt": ""}, 422, "source text"),
    ("/score", {"model": "bert", "text": "walked " * 600}, 422, "at most 512 tokens"),
    ("/embed", {"model": "captioner", "text": "a"}, 422, "cannot embed"),
    ("/embed", {"model": "bert", "text": "a", "layer": 99}, 422, "layer 99"),
    ("/embed", {"model": "bert", "text": "a", "layer": "top"}, 422, "layer"),
    ("/embed", {"model": "bert", "text": "a", "level": "letter"}, 422, "level"),
    ("/attention", {"model": "bert", "text": "a", "kind": "croos"}, 422, "no such attention"),
    ("/reply", {"turns": []}, 422, "turns"),
    ("/choose", {"text": "a", "choices": ["b"]}, 422, "choices"),
]  # fmt: skip


@pytest.mark.parametrize(("route", "body", "status", "message"), WRONG)
def test_what_cannot_be_is_told_in_a_sentence(
    client: TestClient, route: str, body: dict[str, Any], status: int, message: str
) -> None:
    answer = client.post(route, json=body)
    assert answer.status_code == status, answer.text
    assert message in answer.json()["error"]["message"]


def test_what_each_run_is_and_can_do_is_told(client: TestClient) -> None:
    runs_by_name = {run["name"]: run for run in client.get("/runs").json()["runs"]}
    assert runs_by_name["reviews"]["can"] == ["classify", "embed", "attention"]
    assert runs_by_name["gpt2"]["family"] == "gpt2" and runs_by_name["gpt2"]["length"] == 48


def test_metrics_add_up(client: TestClient) -> None:
    def count(start: str) -> float:
        return sum(float(line.rpartition(" ")[2]) for line in client.get("/metrics").text.splitlines()
                   if line.startswith(start))  # fmt: skip

    before = count('meristem_requests_total{route="/fill"'), count('meristem_tokens_total{kind="written"')
    post_json(client, "/fill", text="[MASK]")
    generated = post_json(client, "/generate", model="gpt2", max_tokens=7, min_tokens=7)["texts"][0]
    after = count('meristem_requests_total{route="/fill"'), count('meristem_tokens_total{kind="written"')
    assert after[0] - before[0] == 1
    assert after[1] - before[1] == len(generated["tokens"]) == 7
    assert count("meristem_inside ") == 0
    assert count('meristem_request_seconds_count{route="/fill"') == count('meristem_requests_total{route="/fill"')
    assert client.get("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")
