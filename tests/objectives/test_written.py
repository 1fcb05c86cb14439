"""Seq2seq and caption: the decoder reads one step behind what it predicts, and only what is there is judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from meristem.batch import Head, Row, collate
from meristem.objectives.denoising import Denoising
from meristem.objectives.seq2seq import Seq2Seq, Seq2SeqSettings
from meristem.randomness import Draw
from meristem.settings import MeristemError
from meristem.tokenizers.tokenizer import Tokenizer

SOURCE, TARGET = np.array([7, 8, 9, 3]), np.array([10, 11, 3])


def row_of(**inputs: Any) -> Row:
    return Row(inputs={"tokens": TARGET, **inputs}, notes={"special": TARGET == 3}, sample=5)


@pytest.mark.parametrize(
    ("name", "given"), [("seq2seq", {"source": SOURCE}), ("caption", {"image": np.zeros((4, 4, 3), np.uint8)})]
)
def test_decoders_read_one_step_behind(
    name: str, given: dict[str, Any], make: Callable[..., Any], tokenizer: Tokenizer
) -> None:
    row = make(name).prepare(row_of(**given), Draw(0, 0, 0))
    assert row.inputs["tokens"].tolist() == [tokenizer.start, 10, 11]
    assert row.goals[name]["values"].tolist() == [10, 11, 3]
    assert row.goals[name]["at"].tolist() == [0, 1, 2]
    (key,) = given
    assert row.inputs[key] is given[key]
    assert set(row.inputs) == {"tokens", key}


def test_one_head_serves_all_three(make: Callable[..., Any]) -> None:
    made = [make(name) for name in ("seq2seq", "denoising", "caption")]
    assert all(one.heads == {"seq2seq": Head("vocabulary")} for one in made)
    assert [list(one.weights) for one in made] == [["seq2seq"], ["denoising"], ["caption"]]


def test_without_a_start_token_the_end_begins(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[SEP]", "[MASK]", "a", "b"]))
    own = Tokenizer.load(path)
    assert own.start is None
    row = Seq2Seq(Seq2SeqSettings(), own).prepare(row_of(source=SOURCE), Draw(0, 0, 0))
    assert row.inputs["tokens"][0] == own.end == 2
    path.write_text("\n".join(["[PAD]", "[UNK]", "a", "b"]))
    for kind in (Seq2Seq, Denoising):
        with pytest.raises(MeristemError, match=f"objective {kind.name}: this tokenizer has no end token"):
            kind(kind.Settings(), Tokenizer.load(path))


def test_sources_that_happen_to_be_as_long_as_targets_keep_their_padding(make: Callable[..., Any]) -> None:
    """Two axes that agree by chance are still two: the encoder must not read padding."""
    objective = make("seq2seq")
    rows = [
        objective.prepare(
            Row(inputs={"source": np.arange(5, 5 + n), "tokens": np.arange(5, 5 + n)}, notes={}), Draw(0, 0, 0)
        )
        for n in (3, 5)
    ]
    batch = collate(rows, objective, {"tokens": 0, "source": 0})
    expected = torch.tensor([[True] * 3 + [False] * 2, [True] * 5])
    assert torch.equal(batch.inputs["source_present"], expected)
    assert torch.equal(batch.inputs["present"], expected)
    assert batch.counts == {"seq2seq": 8} and batch.tokens == 8
    assert batch.goals["seq2seq"]["at"].tolist() == [0, 1, 2, 5, 6, 7, 8, 9]  # no padded position is judged
