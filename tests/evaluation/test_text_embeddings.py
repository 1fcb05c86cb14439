"""A text's embedding does not depend on the rest of its batch, for every family."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from meristem.config.errors import MeristemError
from meristem.evaluation.text_embeddings import embed, encode_text
from meristem.interfaces.backbone import MODEL_FAMILIES, Head, Model
from meristem.tokenizers.tokenizer import Tokenizer

TEXTS = ["the old gardener planted the apple tree.", "nobody else", "", "a careful sailor sold her letters " * 9]
FAMILIES = {"bert": "mlm", "gpt2": "clm", "transformer": "seq2seq", "rnn": "seq2seq", "elmo": "bilm", "xlnet": "plm"}


def make(family: str, head: str, size: int) -> Model:
    torch.manual_seed(1)
    cls = MODEL_FAMILIES[family]
    model_settings: dict[str, Any] = {"layers": 1, "hidden_size": 32, "heads": 2, "max_length": 32}
    known_settings = {key: value for key, value in model_settings.items() if key in cls.Settings.model_fields}
    return Model(
        cls(cls.Settings.model_validate(known_settings), size), {head: Head("vocabulary")} if head != "bilm" else {}
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_together_is_alone(family: str, pooling: Any, tokenizer: Tokenizer) -> None:
    model = make(family, FAMILIES[family], tokenizer.vocab_size).eval()
    texts = [text for text in TEXTS if text or family not in ("transformer", "rnn")]  # a source is never empty
    encoded_texts = [encode_text(model, tokenizer, text) for text in texts]
    batched = embed(model, tokenizer, encoded_texts, pooling)
    single_vectors = torch.cat([embed(model, tokenizer, [encoded_text], pooling) for encoded_text in encoded_texts])
    torch.testing.assert_close(batched, single_vectors, atol=1e-5, rtol=1e-5)
    opening_only = family == "gpt2" and pooling == "first"  # before a text a causal model has read its opening token
    assert len({tuple(row) for row in batched.tolist()}) == (1 if opening_only else len(texts))


def test_what_reads_pictures_has_no_vector_of_a_text(tokenizer: Tokenizer) -> None:
    model_settings = {"layers": 1, "hidden_size": 32, "heads": 2, "max_length": 32, "image_size": 16, "patch_size": 8}
    cls = MODEL_FAMILIES["captioner"]
    model = Model(
        cls(cls.Settings.model_validate(model_settings), tokenizer.vocab_size), {"seq2seq": Head("vocabulary")}
    )
    with pytest.raises(MeristemError, match="does not encode text by itself"):
        encode_text(model, tokenizer, "the old gardener")
