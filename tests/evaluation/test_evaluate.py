"""Evaluation of runs: test split, bits per byte, pseudo-perplexity, minimal pairs and errors."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

import meristem
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.config.errors import MeristemError
from meristem.dataset.token_dataset import TokenDataset
from meristem.evaluation.evaluate import evaluate, pseudo_perplexity
from meristem.evaluation.held_out_loss import SEED, evaluate_held_out
from meristem.generation.score import score
from meristem.learning.build import build_feeds

MakeRun = Callable[..., LoadedRun]


def write_own_text(run: LoadedRun, tmp_path: Path) -> TokenDataset:
    key = json.loads((run.run.path / "data.json").read_text())["main"]
    return TokenDataset.open(tmp_path / "cache" / "stores" / key)


def test_the_test_split_is_measured_as_training_would(make_run: MakeRun, console: Console, tmp_path: Path) -> None:
    run = make_run("gpt2", "clm")
    evaluation = evaluate(run, console=console)
    store = write_own_text(run, tmp_path)
    feeds = build_feeds(run.recipe, run.learner.objectives, run.tokenizer, {"main": store}, split="test", seed=SEED)
    feed = feeds["main"]
    stream = store.split("test")
    expected = evaluate_held_out(run.learner, "main", feed, bytes_per_token=stream.bytes / len(stream)).metrics()
    assert evaluation["metrics"] == expected
    assert evaluation["metrics"]["perplexity"] == pytest.approx(math.exp(evaluation["metrics"]["loss"]))
    assert {"loss", "perplexity", "bits_per_byte"} <= set(evaluation["metrics"])
    assert evaluation["samples"] == {"rows": len(feed.view)}
    assert evaluation["run"] == str(run.run.path)
    json.dumps(evaluation)


def test_bits_per_byte_count_every_byte_of_the_text(make_run: MakeRun, console: Console, tmp_path: Path) -> None:
    run = make_run("gpt2", "clm")
    text = "水手回家了。The sailor went home."
    file = tmp_path / "other.txt"
    file.write_text(text, encoding="utf-8")
    metrics = evaluate(run, data=str(file), console=console)["metrics"]
    # one document, read without its separator before it: all but the first token, and the separator after them
    tokens = len(run.tokenizer.encode(text).ids)
    assert metrics["bits_per_byte"] == pytest.approx(metrics["loss"] / math.log(2) * (tokens + 1) / len(text.encode()))


def test_masked_and_pair_accuracies(make_run: MakeRun, console: Console) -> None:
    metrics = evaluate(make_run("bert", "mlm", "nsp"), console=console)["metrics"]
    assert {"loss", "mlm", "nsp", "perplexity", "mlm.top1", "mlm.top5", "nsp.accuracy"} <= set(metrics)
    assert 0 <= metrics["mlm.top1"] <= metrics["mlm.top5"] <= 1
    assert metrics["loss"] == pytest.approx(metrics["mlm"] + metrics["nsp"])


def test_pseudo_perplexity_is_the_mean_over_hidden_tokens(make_run: MakeRun, console: Console, tmp_path: Path) -> None:
    run = make_run("roberta", "mlm")
    text = "The gardener planted trees."
    file = tmp_path / "one.txt"
    file.write_text(text)
    evaluation = evaluate(run, data=str(file), console=console, pll=True)
    (scored,) = score(run.learner.model, run.tokenizer, [text])
    assert evaluation["metrics"]["pll"] == pytest.approx(scored.logprob / scored.tokens, abs=1e-5)
    assert evaluation["metrics"]["pll_perplexity"] == pytest.approx(math.exp(-scored.logprob / scored.tokens), rel=1e-4)
    assert evaluation["samples"]["pll_tokens"] == scored.tokens


def test_a_limit_is_kept_and_told(make_run: MakeRun, console: Console, tmp_path: Path) -> None:
    run = make_run("roberta", "mlm")
    assert evaluate(run, console=console, limit=2)["samples"] == {"rows": 2}
    assert (
        pseudo_perplexity(run, {"main": write_own_text(run, tmp_path)}, "test", limit=3).samples["pll_documents"] == 3
    )


def test_pseudo_likelihood_reads_every_source_of_a_mix(tmp_path: Path, console: Console) -> None:
    sources = {"one": "Ada walked to the old harbour. " * 3, "two": "It rained on the garden and the boats. " * 3}
    for name, text in sources.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(f"{text} {n}" for n in range(40)), encoding="utf-8")
    plain = {"document": "line", "deduplicate": False, "processes": 1, "test": 0.3}
    mix = [
        {"corpus": {"source": str(tmp_path / "one.txt"), **plain}, "objective": ["mlm"], "weight": 3, "name": "one"},
        {"corpus": {"source": str(tmp_path / "two.txt"), **plain}, "objective": ["mlm"], "weight": 1, "name": "two"},
    ]
    small = {"layers": 1, "hidden_size": 16, "heads": 2, "max_length": 32, "family": "bert"}
    recipe = {"model": small, "tokenizer": {"kind": "wordpiece", "vocab_size": 120}, "mix": mix,
              "train": {"steps": 1, "batch_tokens": 64, "evaluate_tokens": 64}}  # fmt: skip
    (tmp_path / "mix.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    run = meristem.pretrain(tmp_path / "mix.yaml", out=tmp_path / "run", console=Console(quiet=True)).run
    loaded_run = load_run(run)
    evaluation = evaluate(loaded_run, console=console, pll=True, limit=2)
    metrics, samples = evaluation["metrics"], evaluation["samples"]
    assert metrics["pll"] == pytest.approx((3 * metrics["one.pll"] + metrics["two.pll"]) / 4)
    assert metrics["one.pll"] != metrics["two.pll"]
    assert metrics["pll_perplexity"] == pytest.approx(math.exp(-metrics["pll"]), rel=1e-6)
    assert samples["one.pll_documents"] == samples["two.pll_documents"] == 2


def test_pairs_alone_need_no_text(make_run: MakeRun, console: Console, tmp_path: Path) -> None:
    run = make_run("gpt2", "clm")
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "corpus.txt").unlink()
    file = tmp_path / "pairs.jsonl"
    pair = {"sentence_good": "水手回家了。", "sentence_bad": "家水手了回。", "linguistics_term": "word order"}
    file.write_text(json.dumps(pair), encoding="utf-8")
    evaluation = evaluate(run, pairs=str(file), console=console)
    good, bad = score(run.learner.model, run.tokenizer, [pair["sentence_good"], pair["sentence_bad"]])
    assert evaluation["metrics"] == {"pairs.accuracy": float(good.logprob > bad.logprob)}
    assert evaluation["pairs"]["phenomena"]["word order"]["pairs"] == 1
    json.dumps(evaluation)


def test_shards_that_are_gone_are_made_again_or_asked_for(make_run: MakeRun, console: Console, tmp_path: Path) -> None:
    run = make_run("gpt2", "clm")
    before = evaluate(run, console=console)
    shutil.rmtree(tmp_path / "cache")
    assert evaluate(run, console=console) == before
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "corpus.txt").write_text("something else entirely")
    with pytest.raises(MeristemError, match=r"not in the cache.*--data FILE"):
        evaluate(run, console=console)


def test_a_run_without_a_test_split_asks_for_text(make_run: MakeRun, console: Console) -> None:
    with pytest.raises(MeristemError, match="--data FILE"):
        evaluate(make_run("gpt2", "clm", test=0.0), console=console)


def test_pseudo_likelihood_needs_a_masked_model(make_run: MakeRun, console: Console) -> None:
    with pytest.raises(MeristemError, match="masked model"):
        evaluate(make_run("gpt2", "clm"), console=console, pll=True)
