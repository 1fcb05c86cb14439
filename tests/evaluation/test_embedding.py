"""A text's vector does not depend on what is read beside it, whatever the family."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from meristem.batch import Head, Model
from meristem.errors import MeristemError
from meristem.evaluation.embedding import embed, frame
from meristem.settings import find
from meristem.tokenizers.tokenizer import Tokenizer

TEXTS = ["the old gardener planted the apple tree.", "nobody else", "", "a careful sailor sold her letters " * 9]
FAMILIES = {"bert": "mlm", "gpt2": "clm", "transformer": "seq2seq", "rnn": "seq2seq", "elmo": "bilm", "xlnet": "plm"}


def make(family: str, head: str, size: int) -> Model:
    torch.manual_seed(1)
    cls = find("models", family)
    told: dict[str, Any] = {"layers": 1, "width": 32, "heads": 2, "length": 32}
    known = {key: value for key, value in told.items() if key in cls.Settings.model_fields}
    return Model(cls(cls.Settings.model_validate(known), size), {head: Head("vocabulary")} if head != "bilm" else {})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_together_is_alone(family: str, pooling: Any, tokenizer: Tokenizer) -> None:
    model = make(family, FAMILIES[family], tokenizer.size).eval()
    texts = [text for text in TEXTS if text or family not in ("transformer", "rnn")]  # a source is never empty
    framed = [frame(model, tokenizer, text) for text in texts]
    together = embed(model, framed, pooling)
    alone = torch.cat([embed(model, [one], pooling) for one in framed])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    assert len({tuple(row) for row in together.tolist()}) == len(texts)


def test_what_reads_pictures_has_no_vector_of_a_text(tokenizer: Tokenizer) -> None:
    told = {"layers": 1, "width": 32, "heads": 2, "length": 32, "picture": 16, "patch": 8}
    cls = find("models", "captioner")
    model = Model(cls(cls.Settings.model_validate(told), tokenizer.size), {"seq2seq": Head("vocabulary")})
    with pytest.raises(MeristemError, match="reads no text by itself"):
        frame(model, tokenizer, "the old gardener")
