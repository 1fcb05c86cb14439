"""Contrastive learning: groups of texts, the loss by its formula, and vectors that transformers computes too."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from rich.console import Console

import meristem
from meristem.dataset.token_dataset import TokenDataset
from meristem.dataset.views.text_groups import TextGroupsView
from meristem.inputs.batch import Row, collate
from meristem.interfaces.backbone import Model
from meristem.models.bert import Bert
from meristem.objectives.contrastive import pool_texts
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

Make = Callable[..., Any]


def test_a_group_is_distinct_documents_cut_at_a_sentence(store: TokenDataset, tokenizer: Tokenizer) -> None:
    stream = store.split("train")
    view = TextGroupsView(stream, tokenizer, 48, size=6, longest=10)
    texts = {index: stream.document(index) for index in range(stream.documents)}
    sentences = set(stream.sentences(0, len(stream)).tolist()) | {span.start for span in texts.values()}
    starts = {tuple(stream.tokens(start, start + 4).tolist()) for start in sentences}
    for index in range(len(view)):
        row = view.row(index, SampleRng(0, 0, index))
        parts = np.split(row.inputs["tokens"], row.metadata["starts"][1:])
        assert len(parts) == 6
        for part in parts:
            assert part[0] == tokenizer.start and part[-1] == tokenizer.end and 3 <= len(part) <= 12
            assert len(part) < 6 or tuple(part[1:5].tolist()) in starts
    first, again, later = (view.row(3, SampleRng(0, epoch, 3)).inputs["tokens"].tolist() for epoch in (0, 0, 1))
    assert first == again != later


def test_repeated_texts_and_halves_of_pairs_are_left_out(make: Make) -> None:
    objective = make("contrastive")
    tokens, starts = np.array([5, 6, 5, 6, 7, 8, 9]), np.array([0, 2, 4, 6])
    for is_pair, expected in ((False, [[5, 6], [7, 8], [9]] * 2), (True, [[5, 6], [7, 8], [5, 6], [9]])):
        row = Row(inputs={"tokens": tokens}, metadata={"starts": starts, "pairs": is_pair}, sample_id=4)
        rows = objective.prepare(row, SampleRng(0, 0, 0))
        assert [part.inputs["tokens"].tolist() for part in rows] == expected
        assert ["contrastive" in part.targets for part in rows] == [True] * (len(rows) // 2) + [False] * (
            len(rows) // 2
        )
        assert {part.sample_id for part in rows} == {4}


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_the_loss_is_the_softmax_of_cosines_within_a_group(
    pooling: str, make: Make, store: TokenDataset, tokenizer: Tokenizer
) -> None:
    objective = make("contrastive", temperature=0.2, pooling=pooling, group_size=5, max_text_length=12)
    view = TextGroupsView(store.split("train"), tokenizer, 48, size=5, longest=12)
    groups = [objective.prepare(view.row(index, SampleRng(0, 0, index)), SampleRng(0, 0, index)) for index in range(3)]
    torch.manual_seed(1)
    settings = Bert.Settings(layers=1, hidden_size=16, heads=2, max_length=48, init_std=0.3)
    model = Model(Bert(settings, tokenizer.vocab_size), {}).double().eval()
    batch = collate([row for rows in groups for row in rows], objective, {"tokens": tokenizer.pad or 0})
    outcome = objective.loss(model, objective.encode(model, batch), batch)
    expected, correct = 0.0, 0
    for rows in groups:
        states = [
            model.backbone(tokens=torch.from_numpy(row.inputs["tokens"])[None]).last_hidden_state[0] for row in rows
        ]
        pooled = [
            {"mean": state.mean(0), "first": state[0], "last": state[-1]}[pooling].detach().numpy() for state in states
        ]
        unit = [vector / np.linalg.norm(vector) for vector in pooled]
        half = len(unit) // 2
        for number in range(half):
            scores = np.array([unit[number] @ unit[half + other] for other in range(half)]) / 0.2
            expected += np.log(np.exp(scores).sum()) - scores[number]
            correct += int(scores.argmax() == number)
    assert float(outcome.loss_sums["contrastive"]) == pytest.approx(expected, rel=1e-6)
    assert float(outcome.metrics["contrastive.accuracy"][0]) == correct
    assert batch.target_counts["contrastive"] == sum(len(rows) // 2 for rows in groups)


def test_two_commands_from_text_to_vectors_that_transformers_computes_too(tmp_path: Path) -> None:
    small = {"train.minutes": None, "train.steps": 3, "train.threads": 1, "corpus.processes": 1}
    shape = {"tokenizer.vocab_size": 300, "model.layers": 1, "model.hidden_size": 32, "model.heads": 2}
    source, quiet = "builtin:microworld-en?size=60", Console(quiet=True)
    sizes = {"model.max_length": 32, "train.batch_tokens": 256, "train.evaluate_tokens": 256}
    settings = {**small, **shape, **sizes}
    masked = meristem.pretrain("bert-mini", settings, source=source, out=tmp_path / "masked", console=quiet)
    tuned = {**settings, "objective.group_size": 4, "objective.pooling": "first", "from": str(masked.run)}
    tuned.pop("tokenizer.vocab_size")
    run = meristem.pretrain("contrastive-mini", tuned, source=source, out=tmp_path / "run", console=quiet).run
    texts = ["Ada walked to the old harbour.", "The garden."]
    loaded = meristem.load(run)
    vectors = loaded.embed(texts)
    assert torch.equal(vectors, loaded.embed(texts, pooling="first"))
    assert not torch.equal(vectors, loaded.embed(texts, pooling="mean"))

    exported = meristem.export(run, tmp_path / "folder", sentence_transformers=True)
    assert exported.architecture == "BertModel"
    modules = json.loads((tmp_path / "folder" / "modules.json").read_text())
    assert [(module["path"], module["type"].rpartition(".")[2]) for module in modules] == [
        ("", "Transformer"),
        ("1_Pooling", "Pooling"),
    ]
    pooling = json.loads((tmp_path / "folder" / "1_Pooling" / "config.json").read_text())
    switched_on = [key for key, value in pooling.items() if key.startswith("pooling_mode") and value]
    assert switched_on == ["pooling_mode_cls_token"] and pooling["word_embedding_dimension"] == 32
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    model = transformers.AutoModel.from_pretrained(tmp_path / "folder").eval()
    with torch.no_grad():
        states = model(**tokenizer(texts, padding=True, return_tensors="pt")).last_hidden_state
    torch.testing.assert_close(states[:, 0], vectors, atol=1e-5, rtol=1e-5)


def test_pooling_leaves_padding_out() -> None:
    states = torch.arange(12.0).reshape(2, 3, 2)
    present = torch.tensor([[True, True, True], [True, True, False]])
    assert pool_texts(states, present, "mean").tolist() == [[2.0, 3.0], [7.0, 8.0]]
    assert pool_texts(states, present, "last").tolist() == [[4.0, 5.0], [8.0, 9.0]]
    assert pool_texts(states, present, "first").tolist() == [[0.0, 1.0], [6.0, 7.0]]


def test_a_causal_model_is_refused_by_the_export(tmp_path: Path) -> None:
    from tiny_runs import tiny_run

    with pytest.raises(meristem.MeristemError, match="reads texts causal"):
        meristem.export(tiny_run("gpt2-mini"), tmp_path / "folder", sentence_transformers=True)
