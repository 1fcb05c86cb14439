"""The page's own routes: files from a fixed list, runs by name, weights when they are wanted."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Meristem
from starlette.testclient import TestClient

from meristem.checkpoint import folder_layout
from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.run_folder import RunFolder
from meristem.checkpoint.save import save_checkpoint
from meristem.serving.app import create_app
from meristem.serving.model_registry import ModelRegistry
from meristem.serving.settings import ServingSettings
from meristem.serving.studio import model_cache
from meristem.serving.studio.run_list import RunListing
from meristem.serving.studio.studio_routes import PAGE_DIR, studio_router

TEXT = "Ada walked to the old harbour."
PAGE = sorted(PAGE_DIR.iterdir())
SCRIPTS = [path for path in PAGE if path.suffix == ".js"]
ESCAPES = ["../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..%5c", "%252e%252e%252f", "..%c0%af", "....//", "..;/", "%00/"]


@pytest.fixture(scope="module")
def folder(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some runs with something measured, one with a report, and a report of a corpus."""
    runs_folder = tmp_path_factory.mktemp("studio") / "runs"
    for name in ("gpt2", "bert", "reviews", "names", "translator"):
        shutil.copytree(runs[name], runs_folder / name)
    rows = [{"step": n, "kind": "train", "loss": 5 - n / 10, "tokens": n, "seconds": n} for n in range(1, 31)]
    rows.append({"step": 30, "kind": "evaluation", "loss": float("nan"), "accuracy": 0.5})
    rows.append({"step": 30, "kind": "skipped", "source": "main", "samples": [1], "texts": ["x"]})
    (runs_folder / "bert" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (runs_folder / "reviews" / "report.html").write_text("<script>window.__hacked = 1</script><h1>Reviews</h1>")
    (runs_folder / "reviews" / "report.json").write_text(
        '{"model": "bert, small", "metrics": {"accuracy": 0.9, "x": null}}'
    )
    (runs_folder / "texts").mkdir()
    (runs_folder / "texts" / "report.html").write_text("<h1>Texts</h1>")
    return runs_folder


@pytest.fixture
def page(folder: Path) -> Iterator[TestClient]:
    app = create_app(
        ModelRegistry({}), ServingSettings.model_validate({}), extra_routers=[studio_router(RunListing(folder))]
    )
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def get_json(client: TestClient, path: str, **parts: Any) -> Any:
    answer = client.get(path, params=parts)
    assert answer.status_code == 200, answer.text
    return answer.json()


# ------------------------------------------------------------ files


def test_the_page_is_small_and_brings_all_it_needs(page: TestClient) -> None:
    assert sum(path.stat().st_size for path in PAGE) < 400_000
    index = page.get("/")
    assert index.headers["content-type"].startswith("text/html")
    files_needed = set(re.findall(r'(?:src|href)="(/[^"]+)"', index.text))
    for path in SCRIPTS:
        files_needed |= {f"/page/{name}" for name in re.findall(r'"\./([\w.]+)"', path.read_text(encoding="utf-8"))}
    assert len(files_needed) > 15
    for address in files_needed:
        answer = page.get(address)
        assert answer.status_code == 200, address
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert re.findall(r"<script[^>]*>[^<]*", index.text) == ['<script type="module" src="/page/app.js">']


@pytest.mark.parametrize("path", PAGE, ids=lambda path: path.name)
def test_files_of_the_page_keep_the_rules(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 300
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), "nothing comes from elsewhere"
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)


def words() -> dict[str, tuple[str, str]]:
    """Every word of the page in English and Chinese, from the dictionaries as they are sent."""
    translations: dict[str, tuple[str, str]] = {}
    for path in PAGE:
        if not path.name.startswith("dictionary_"):
            continue
        text = path.read_text(encoding="utf-8")
        entries = re.findall(r'^  (\w+): \[("(?:[^"\\]|\\.)+"), ("(?:[^"\\]|\\.)+")\],$', text, re.M)
        assert len(entries) == text.count("],\n"), f"{path.name}: a word without both languages"
        assert not {name for name, _, _ in entries} & set(translations), f"{path.name}: a word that another has too"
        translations |= {name: (json.loads(english), json.loads(chinese)) for name, english, chinese in entries}
    return translations


def test_every_word_is_there_in_both_languages() -> None:
    translations = words()
    assert len(translations) > 200
    for name, (english, chinese) in translations.items():
        assert set(re.findall(r"\{\w+\}", english)) == set(re.findall(r"\{\w+\}", chinese)), name
        letters = len(re.findall(r"[\u4e00-\u9fff]", chinese))
        may_be_same = name in ("language", "axis_flops", "top_p") or name.startswith("metric_")
        punctuation = not re.search(r"[^\W\d]", re.sub(r"\{\w+\}", "", english)) and chinese != english
        assert letters or may_be_same or punctuation, f"{name}: not in Chinese"
        assert name == "language" or not re.search(r"[\u4e00-\u9fff]", english), f"{name}: not in English"
    scripts = [path.read_text(encoding="utf-8") for path in SCRIPTS if not path.name.startswith("dictionary_")]
    used = {word for text in scripts for word in re.findall(r'\bt\("(\w+)"', text)}
    assert used <= set(translations), used - set(translations)
    dynamic_prefixes = {prefix for text in scripts for prefix in re.findall(r"\bt\(`(\w+_)\$", text)} | {
        "metric_",
        "term_",
    }
    all_scripts = " ".join(scripts)
    for name in translations:
        somewhere = (
            name in used
            or name.startswith(tuple(dynamic_prefixes))
            or f'"{name}"' in all_scripts
            or f"{name}:" in all_scripts
        )
        assert somewhere, f"{name} is not used"
    whys = set(re.findall(r'"(budget|asked|patience|\w+_\w+|saved|unsaved|given)", ', _standing()))
    assert {f"why_{reason}" for reason in whys} <= set(translations)


def test_a_run_is_a_run_in_chinese() -> None:
    """训练 is what a run does; the run itself is 运行."""
    translations = words()
    for name in ("runs", "run", "back", "no_runs", "unknown_run", "compare_ticked", "choose_runs"):
        assert "运行" in translations[name][1] and "训练" not in translations[name][1], name


def _standing() -> str:
    text = (PAGE_DIR.parent / "run_status.py").read_text(encoding="utf-8")
    return text[text.index("def _finish_reason") : text.index("def _is_locked")]


@pytest.mark.parametrize("before", ["/page/", "/studio/", "/studio/run?name=", "/studio/report?name=", "/page/../"])
def test_no_address_leads_out(page: TestClient, folder: Path, before: str) -> None:
    (folder.parent / "secret.txt").write_text("root:")
    for escape in ESCAPES:
        for depth in (1, 3, 8):
            for end in ("etc/passwd", "secret.txt", "gpt2/recipe.yaml", "routes.py"):
                answer = page.get(before + escape * depth + end)
                assert answer.status_code in (400, 404, 422), (before, escape, end)
                assert "root:" not in answer.text and "import" not in answer.text


# ------------------------------------------------------------ runs


def test_runs_and_one_of_them(page: TestClient, folder: Path) -> None:
    listing = get_json(page, "/studio/runs")
    assert listing["folder"] == str(folder)
    assert [run["name"] for run in listing["runs"]] == ["bert", "gpt2", "names", "reviews", "translator"]
    bert = listing["runs"][0]
    assert (bert["family"], bert["learns"], bert["step"], bert["loss"]) == ("bert", "mlm", 30, 2.0)
    details = get_json(page, "/studio/run", name="bert")
    assert "mask_rate" in details["recipe"] and details["name"] == "bert"
    missing = page.get("/studio/run", params={"name": "brt"})
    assert missing.status_code == 404 and "did you mean bert?" in missing.text


def test_curves_are_sent_once(page: TestClient) -> None:
    curves = get_json(page, "/studio/curves", name="bert", axis="minutes")
    names = {(series["kind"], series["name"]) for series in curves["series"]}
    assert names == {("train", "loss"), ("evaluation", "accuracy")}, "what is no number is no point"
    assert curves["names"] == [["train", "loss"], ["evaluation", "loss"], ["evaluation", "accuracy"]]
    assert curves["skipped"] == [30]
    unchanged = get_json(page, "/studio/curves", name="bert", axis="minutes", seen=curves["seen"])
    assert unchanged == {"seen": curves["seen"]}
    other = get_json(page, "/studio/curves", name="bert", axis="step", seen=curves["seen"], series="loss", points=10)
    assert [len(series["x"]) <= 10 for series in other["series"]] == [True]
    for wrong in ({"axis": "x"}, {"points": 10**9}, {"begin": "a"}, {"name": "none"}):
        assert page.get("/studio/curves", params={"name": "bert", **wrong}).status_code in (404, 422)


def test_a_first_run_is_seen_when_it_appears(tmp_path: Path, runs: dict[str, Path]) -> None:
    app = create_app(
        ModelRegistry({}),
        ServingSettings.model_validate({}),
        extra_routers=[studio_router(RunListing(tmp_path / "runs"))],
    )
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert get_json(client, "/studio/runs")["runs"] == []
        assert get_json(client, "/studio/reports") == {"reports": []}
        shutil.copytree(runs["gpt2"], tmp_path / "runs" / "first")
        assert [run["name"] for run in get_json(client, "/studio/runs")["runs"]] == ["first"]


def test_runs_compared(page: TestClient) -> None:
    body = page.get("/studio/compare?name=bert&name=gpt2&name=bert").json()
    assert body["names"] == ["bert", "gpt2"]
    differences = {row["setting"]: row["values"] for row in body["differences"]}
    assert differences["model.family"] == ["bert", "gpt2"]
    assert {row["name"] for row in body["numbers"]} >= {"validation accuracy"}
    assert page.get("/studio/compare").status_code == 422
    assert page.get("/studio/compare?" + "&".join(["name=bert"] * 40)).status_code == 422


def test_reports_are_shown_without_scripts(page: TestClient) -> None:
    reports = {report["name"]: report for report in get_json(page, "/studio/reports")["reports"]}
    assert reports["reviews"] == {
        "name": "reviews",
        "kind": "tasks",
        "numbers": {"accuracy": 0.9},
        "title": "bert, small",
        "changed": reports["reviews"]["changed"],
    }
    assert reports["texts"]["kind"] == "corpus"
    report = page.get("/studio/report", params={"name": "reviews"})
    policy = report.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "sandbox" in policy.split("; ") and "script-src" not in policy
    assert page.get("/studio/report", params={"name": "bert"}).status_code == 404


def test_a_report_takes_the_colours_that_are_chosen(page: TestClient, folder: Path) -> None:
    (folder / "texts" / "report.html").write_text('<!doctype html>\n<html lang="en">\n<p>&lt;html lang="en"&gt;</p>')
    for theme in ("light", "dark"):
        text = page.get("/studio/report", params={"name": "texts", "theme": theme}).text
        assert f'<html lang="en" data-theme="{theme}">' in text and text.count("data-theme") == 1
    assert "data-theme" not in page.get("/studio/report", params={"name": "texts"}).text
    both = page.get("/studio/report", params={"name": "texts", "theme": "dark", "language": "zh"}).text
    assert '<html lang="en" data-theme="dark" data-language="zh">' in both
    wrong = page.get("/studio/report", params={"name": "texts", "theme": '"><script>'})
    assert wrong.status_code == 422


# ------------------------------------------------------------ trying


def opened(client: TestClient, name: str) -> Any:
    answer = client.post("/studio/open", json={"model": name})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_run_is_loaded_when_it_is_wanted(page: TestClient) -> None:
    fill_body = {"model": "bert", "text": "Ada [MASK].", "top": 2}
    assert page.post("/fill", json=fill_body).status_code == 404
    assert "fill" in opened(page, "bert")["can"]
    assert len(page.post("/fill", json=fill_body).json()["answer"][0]["candidates"]) == 2
    opened(page, "gpt2")
    body = page.post("/generate", json={"model": "gpt2", "prompt": "Ada", "max_tokens": 3, "top": 2}).json()
    assert len(body["texts"][0]["tokens"]) == 3
    assert page.post("/studio/open", json={"model": "none"}).status_code == 404
    assert page.post("/studio/open", json={"model": "../outside"}).status_code == 404
    assert page.post("/studio/open", json={"model": "texts"}).status_code == 422


def test_the_run_that_was_longest_unused_leaves(page: TestClient) -> None:
    order = ["bert", "gpt2", "reviews", "names", "bert", "translator"]
    for name in order:
        opened(page, name)
    run_names = {run["name"] for run in get_json(page, "/runs")["runs"]}
    assert run_names == {"bert", "reviews", "names", "translator"} and len(run_names) == model_cache.MAX_LOADED
    opened(page, "gpt2")
    writes = {"model": "gpt2", "prompt": "Ada", "max_tokens": 3}
    assert page.post("/generate", json=writes).status_code == 200, "one that came back writes again"


def test_new_weights_are_taken_and_samples_remembered(page: TestClient, folder: Path) -> None:
    run = RunFolder(folder / "gpt2")
    first = folder_layout.read_pointer(run.checkpoints, "latest")
    assert first is not None and opened(page, "gpt2")["step"] == first
    loaded = load_checkpoint(run.checkpoints)
    assert loaded is not None
    save_checkpoint(run.checkpoints, replace(loaded.snapshot, step=first + 7), keep_checkpoints=9)
    body = {"model": "gpt2", "prompt": "Ada walked"}
    samples = page.post("/studio/samples", json=body).json()["samples"]
    assert [sample["step"] for sample in samples] == [first, first + 7] and samples[0]["text"] == samples[1]["text"]
    shutil.rmtree(run.checkpoints / folder_layout.folder_name(first))
    assert opened(page, "gpt2")["step"] == first + 7
    samples_again = page.post("/studio/samples", json=body).json()["samples"]
    assert samples_again == samples, "a checkpoint that has gone is remembered"
    masks = page.post("/studio/samples", json={"model": "bert", "prompt": "Ada [MASK]."}).json()["samples"]
    assert len(masks[0]["masks"][0]) == 3
    response = page.post("/studio/samples", json={"model": "reviews", "prompt": "Ada"})
    assert response.status_code == 422 and "cannot generate text or fill masks" in response.text


def test_served_runs_have_the_page_too(hub: ModelRegistry, runs: dict[str, Path]) -> None:
    listing = RunListing(None, {name: runs[name] for name in ("bert", "gpt2")})
    model_registry = ModelRegistry({name: hub.runs[name].loaded_run for name in ("bert", "gpt2")})
    app = create_app(model_registry, ServingSettings.model_validate({}), extra_routers=[studio_router(listing)])
    with TestClient(app, base_url="http://127.0.0.1") as client:
        run_listing = get_json(client, "/studio/runs")
        assert run_listing["folder"] is None and [run["name"] for run in run_listing["runs"]] == ["bert", "gpt2"]
        assert opened(client, "bert")["name"] == "bert"
        assert client.post("/studio/open", json={"model": "reviews"}).status_code == 404


def test_a_browser_may_bring_the_key_as_a_password(folder: Path, tmp_path: Path) -> None:
    key = "a-key-with-enough-characters"
    (tmp_path / "keys.txt").write_text(key)
    settings = ServingSettings.model_validate({"key_file": tmp_path / "keys.txt"})
    app = create_app(ModelRegistry({}), settings, extra_routers=[studio_router(RunListing(folder))])
    with TestClient(app, base_url="http://elsewhere.example") as client:
        for path in ("/", "/page/app.js", "/studio/runs", "/studio/report?name=reviews"):
            response = client.get(path)
            assert response.status_code == 401 and "Basic" in response.headers["www-authenticate"]
            for wrong in (key, f"me:{key}x", f"{key}:", ""):
                decoded = base64.b64encode(wrong.encode()).decode()
                assert client.get(path, headers={"authorization": f"Basic {decoded}"}).status_code == 401
            assert client.get(path, headers={"authorization": "Basic ###"}).status_code == 401
            decoded = base64.b64encode(f"me:{key}".encode()).decode()
            assert client.get(path, headers={"authorization": f"Basic {decoded}"}).status_code == 200


def test_the_verb_wants_a_key_where_others_can_reach_it(meristem: Meristem, tmp_path: Path) -> None:
    result = meristem("studio", tmp_path / "runs", "--host", "0.0.0.0", "--port", 0)
    assert result.code == 1 and "--key-file" in result.err
    assert "default: runs" in meristem("studio", "--help").out
