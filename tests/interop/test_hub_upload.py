"""`meristem push` and `meristem import hub:` against a hub on this machine, through huggingface_hub's own requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import pytest
import torch
from cli_runner import Meristem
from hub_server import TOKEN, HubServer, running_hub
from tiny_runs import tiny_run

import meristem as package
from meristem.checkpoint.load_run import load_run
from meristem.interop.card_metadata import exposure_lines, without_local_folders


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub, to which huggingface_hub sends its requests as with HF_ENDPOINT; its cache is empty."""
    with running_hub() as server:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", server.url)
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE",
                            server.url + "/{repo_id}/resolve/{revision}/{filename}")  # fmt: skip
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "cache"))
        yield server


def test_a_pushed_run_comes_back_with_the_same_weights(hub: HubServer, meristem: Meristem) -> None:
    run = tiny_run("bert-mini")
    pushed = meristem("push", run, "me/novels", "--private", "--license", "mit", "--language", "en")
    assert pushed.code == 0, pushed.err
    assert f"{hub.url}/me/novels (private): 5 files, " in pushed.err
    stored = hub.models["me/novels"]
    assert stored.private and {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= stored.files.keys()
    assert [path for path, content in stored.files.items() if content in hub.objects.values()] == ["model.safetensors"]
    imported = meristem("import", "hub:me/novels", "--out", "again")
    assert imported.code == 0, imported.err
    before, after = (load_run(folder).learner.model.state_dict() for folder in (run, Path("again")))
    assert all(torch.equal(before[name], after[name]) for name in before)
    text = "The sailor went [MASK]."
    assert repr(package.load(run).fill(text)) == repr(package.load("again").fill(text))
    second = meristem("push", run, "hub:me/novels", "--license", "mit")
    assert second.code == 0 and len(stored.commits) == 2, "a second push is one more commit"


def test_a_dry_run_sends_nothing_and_shows_the_card(
    hub: HubServer, meristem: Meristem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    run = tiny_run("bert-mini")
    shown = meristem("push", run, "me/novels", "--dry-run")
    assert shown.code == 0 and "would publish" in shown.out and "pipeline_tag: fill-mask" in shown.out
    assert "no license is stated" in shown.out
    (answer,) = meristem("push", run, "me/novels", "--dry-run", "--license", "mit", "--json").answers
    assert answer["dry_run"] and answer["files"]["model.safetensors"] > 0
    assert not hub.requests
    refused = meristem("push", run, "me/novels")
    assert refused.code == 1 and "hf auth login" in refused.err


def test_what_cannot_be_published_is_said_in_one_sentence(
    hub: HubServer, meristem: Meristem, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny_run("bert-mini")
    wrong_name = meristem("push", run, "novels")
    assert wrong_name.code == 1 and wrong_name.err == "meristem: novels: a model of the hub is named OWNER/NAME\n"
    monkeypatch.setenv("HF_TOKEN", "hf_" + "1" * 34)
    refused = meristem("push", run, "me/novels")
    assert refused.code == 1 and f"me/novels could not be published at {hub.url}: " in refused.err
    assert refused.err.count("\n") == 1 and "401" in refused.err
    missing = meristem("import", "hub:me/missing", "--out", "never")
    assert missing.code == 1 and "hub:me/missing is not in the local cache and cannot be downloaded" in missing.err


def test_no_folder_of_this_machine_is_on_a_card(tmp_path: Path) -> None:
    loaded = load_run(tiny_run("bert-mini"))
    corpus = loaded.recipe.corpus.model_copy(update={"source": f"{tmp_path}/novels/*.txt"})
    text = f"- main: `{tmp_path}/novels/*.txt`, 5 tokens"
    assert without_local_folders(text, replace(loaded, recipe=replace(loaded.recipe, corpus=corpus))) == (
        "- main: `*.txt`, 5 tokens"
    )


def test_the_card_of_a_task_has_metrics_with_intervals_that_the_hub_reads(tmp_path: Path) -> None:
    run = package.finetune(
        "classification",
        {
            "train.steps": 2,
            "model.layers": 1,
            "model.hidden_size": 32,
            "model.heads": 2,
            "train.threads": 1,
            "from": "scratch",
            "model.norm_position": "post",
            "model.position_encoding": "learned",
            "data.train": "builtin:microworld-sentiment?size=60&seed=1",
        },
        out=tmp_path / "tone",
    ).run
    report = json.loads((run / "report.json").read_text())
    exported = package.push(run, "me/tone", dry_run=True, license="apache-2.0", languages=["en"])
    card = huggingface_hub.ModelCard(exported.card)
    assert card.data.license == "apache-2.0" and card.data.language == ["en"]
    assert card.data.pipeline_tag == "text-classification" and card.data.library_name == "transformers"
    results = {result.metric_type: result for result in card.data.eval_results}
    low, high = report["intervals"]["accuracy"]
    accuracy = results["accuracy"]
    assert accuracy.metric_value == pytest.approx(report["metrics"]["accuracy"], abs=1e-6)
    assert accuracy.metric_args == {"confidence_level": 0.95, "low": round(low, 6), "high": round(high, 6)}
    assert f"95 % interval {low:.4g} to {high:.4g}" in accuracy.metric_name
    assert accuracy.dataset_name == "builtin:microworld-sentiment?size=60&seed=1"
    assert card.data.model_name == "tone"


def test_exposure_is_on_the_card_if_it_was_measured(tmp_path: Path) -> None:
    assert exposure_lines(tmp_path) == []
    level = {"repeats": 8, "canaries": 16, "mean_bits": 5.25, "interval": [4.0, 6.5], "extracted": 3}
    (tmp_path / "exposure.json").write_text(json.dumps({"levels": [level, {"repeats": "many"}]}))
    lines = exposure_lines(tmp_path)
    assert lines[0].startswith("## Exposure") and lines[-1] == "| 8 | 16 | 5.2 (4.0 to 6.5) | 3 |"
