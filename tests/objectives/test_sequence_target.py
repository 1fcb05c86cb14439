"""Seq2seq and caption: the decoder reads one step behind what it predicts, and only what is there is judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from meristem.config.errors import MeristemError, RecipeError
from meristem.inputs.batch import Row, collate
from meristem.interfaces.backbone import Head
from meristem.learning.learner import decoder_start_ids
from meristem.objectives.denoising import DenoisingObjective
from meristem.objectives.seq2seq import Seq2SeqObjective, Seq2SeqObjectiveSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

SOURCE, TARGET = np.array([7, 8, 9, 3]), np.array([10, 11, 3])


def row_of(**inputs: Any) -> Row:
    return Row(inputs={"tokens": TARGET, **inputs}, metadata={"special": TARGET == 3}, sample_id=5)


@pytest.mark.parametrize(
    ("name", "raw_inputs"), [("seq2seq", {"source": SOURCE}), ("caption", {"image": np.zeros((4, 4, 3), np.uint8)})]
)
def test_decoder_inputs_are_shifted_by_one(
    name: str, raw_inputs: dict[str, Any], make: Callable[..., Any], tokenizer: Tokenizer
) -> None:
    row = make(name).prepare(row_of(**raw_inputs), SampleRng(0, 0, 0))
    assert row.inputs["tokens"].tolist() == [tokenizer.start, 10, 11]
    assert row.targets[name]["values"].tolist() == [10, 11, 3]
    assert row.targets[name]["at"].tolist() == [0, 1, 2]
    (key,) = raw_inputs
    assert row.inputs[key] is raw_inputs[key]
    assert set(row.inputs) == {"tokens", key}


def test_one_head_serves_all_three(make: Callable[..., Any]) -> None:
    objectives = [make(name) for name in ("seq2seq", "denoising", "caption")]
    assert all(objective.heads == {"seq2seq": Head("vocabulary")} for objective in objectives)
    assert [list(objective.loss_weights) for objective in objectives] == [["seq2seq"], ["denoising"], ["caption"]]


def test_without_a_start_token_targets_start_with_the_end_token(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[SEP]", "[MASK]", "a", "b"]))
    loaded_tokenizer = Tokenizer.load(path)
    assert loaded_tokenizer.start is None
    row = Seq2SeqObjective(Seq2SeqObjectiveSettings(), loaded_tokenizer).prepare(
        row_of(source=SOURCE), SampleRng(0, 0, 0)
    )
    assert row.inputs["tokens"][0] == loaded_tokenizer.end == 2
    path.write_text("\n".join(["[PAD]", "[UNK]", "a", "b"]))
    for kind in (Seq2SeqObjective, DenoisingObjective):
        with pytest.raises(MeristemError, match=f"objective {kind.name}: this tokenizer has no end token"):
            kind(kind.Settings(), Tokenizer.load(path))


@pytest.mark.parametrize(
    ("start_tokens", "expected_prefix", "first"),
    [(["end"], [3], 0), (["pad"], [0], 0), (["end", "start"], [3, 2], 1), (["pad", "end", "start"], [0, 3, 2], 2)],
)
@pytest.mark.parametrize("name", ["seq2seq", "caption"])
def test_targets_start_with_the_set_tokens(
    name: str,
    start_tokens: list[str],
    expected_prefix: list[int],
    first: int,
    make: Callable[..., Any],
    tokenizer: Tokenizer,
) -> None:
    assert (tokenizer.pad, tokenizer.start, tokenizer.end) == (0, 2, 3)
    objective = make(name, start_tokens=start_tokens)
    raw_inputs = {"seq2seq": {"source": SOURCE}, "caption": {"image": np.zeros((4, 4, 3), np.uint8)}}[name]
    row = objective.prepare(row_of(**raw_inputs), SampleRng(0, 0, 0))
    assert row.inputs["tokens"].tolist() == [*expected_prefix, 10, 11]
    assert row.targets[name]["values"].tolist() == [10, 11, 3]
    assert row.targets[name]["at"].tolist() == [first, first + 1, first + 2]  # each from the token before it
    assert objective.decoder_start_ids == tuple(expected_prefix)
    assert dict(objective.view.options).get("spare", 0) == first  # rows stay within the model's length


def test_a_template_prefix_is_not_predicted_where_targets_start_with_it(tokenizer: Tokenizer) -> None:
    """A tokenizer that frames every text frames targets too; its start is then read, or predicted, but never both."""
    template_tokenizer = with_template(tokenizer)
    assert template_tokenizer.single_template is not None and [
        part.tolist() for part in template_tokenizer.single_template
    ] == [[2], [3]]
    target = Row(inputs={"source": SOURCE, "tokens": np.array([2, 10, 11, 3])}, metadata={})
    expected = {("start",): [2, 10, 11], ("end", "start"): [3, 2, 10, 11], ("end",): [3, 2, 10, 11]}
    for start_tokens, expected_ids in expected.items():
        row = Seq2SeqObjective(Seq2SeqObjectiveSettings(start_tokens=start_tokens), template_tokenizer).prepare(
            target, SampleRng(0, 0, 0)
        )
        assert row.inputs["tokens"].tolist() == expected_ids
        values = row.targets["seq2seq"]["values"].tolist()
        assert values == ([2, 10, 11, 3] if start_tokens == ("end",) else [10, 11, 3])
        assert row.targets["seq2seq"]["at"].tolist() == list(range(len(expected_ids) - len(values), len(expected_ids)))
    noisy = DenoisingObjective(
        DenoisingObjective.Settings(permute_rate=0, infill_rate=0, delete_rate=0.5, start_tokens=("end", "start")),
        template_tokenizer,
    )
    tokens = np.array([10, 11, 12, 13])
    metadata = {"special": np.zeros(4, bool), "sentences": np.zeros(0, np.int64)}
    row = noisy.prepare(Row(inputs={"tokens": tokens}, metadata=metadata), SampleRng(0, 0, 0))
    assert row.inputs["source"][[0, -1]].tolist() == [2, 3] and len(row.inputs["source"]) == 4
    assert row.inputs["tokens"].tolist() == [3, 2, *tokens]
    assert dict(noisy.view.options)["spare"] == 2


def with_template(tokenizer: Tokenizer) -> Tokenizer:
    description = json.loads(tokenizer.json_text)
    names = {number: tokenizer.id_to_token(number) for number in (2, 3)}
    around = [{"SpecialToken": {"id": names[n], "type_id": 0}} for n in (2, 3)]
    single = [around[0], {"Sequence": {"id": "A", "type_id": 0}}, around[1]]
    description["post_processor"] = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 0}}, around[1]],
        "special_tokens": {name: {"id": name, "ids": [n], "tokens": [name]} for n, name in names.items()},
    }
    return Tokenizer(json.dumps(description))


def test_start_tokens_that_cannot_be_are_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(["[UNK]", "[SEP]", "[MASK]", "a", "b"]))
    with pytest.raises(MeristemError, match="objective seq2seq: begin=pad, but this tokenizer has no pad token"):
        Seq2SeqObjective(Seq2SeqObjectiveSettings(start_tokens=("pad",)), Tokenizer.load(path))
    with pytest.raises(ValidationError):
        Seq2SeqObjectiveSettings(start_tokens=())
    parts = {
        "one": Seq2SeqObjective(Seq2SeqObjectiveSettings(start_tokens=("end",)), tokenizer),
        "two": DenoisingObjective(DenoisingObjective.Settings(), tokenizer),
    }
    with pytest.raises(
        RecipeError, match=r"objective.start_tokens: seq2seq and denoising start their targets with different tokens"
    ):
        decoder_start_ids(parts)
    assert decoder_start_ids({"one": parts["one"]}) == (tokenizer.end,)
    assert decoder_start_ids({}) is None


def test_sources_that_happen_to_be_as_long_as_targets_keep_their_padding(make: Callable[..., Any]) -> None:
    """Two axes that agree by chance are still two: the encoder must not read padding."""
    objective = make("seq2seq")
    rows = [
        objective.prepare(
            Row(inputs={"source": np.arange(5, 5 + n), "tokens": np.arange(5, 5 + n)}, metadata={}), SampleRng(0, 0, 0)
        )
        for n in (3, 5)
    ]
    batch = collate(rows, objective, {"tokens": 0, "source": 0})
    expected = torch.tensor([[True] * 3 + [False] * 2, [True] * 5])
    assert torch.equal(batch.inputs["source_present"], expected)
    assert torch.equal(batch.inputs["present"], expected)
    assert batch.target_counts == {"seq2seq": 8} and batch.num_tokens == 16  # source and target
    assert batch.targets["seq2seq"]["at"].tolist() == [0, 1, 2, 5, 6, 7, 8, 9]  # no padded position is judged
