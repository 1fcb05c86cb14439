"""Token and word embeddings of any layer are the model's hidden states, whatever else is in the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from meristem.config.errors import MeristemError
from meristem.evaluation.text_embeddings import embed, encode_text, hidden_states
from meristem.evaluation.token_embeddings import token_vectors
from meristem.interfaces.backbone import MODEL_FAMILIES, Head, Model
from meristem.tokenizers.tokenizer import Tokenizer

TEXTS = ["the old gardener planted the apple tree.", "nobody else", "my youngest sister painted seventeen boats."]
FAMILIES = {
    "bert": "mlm",
    "gpt2": "clm",
    "modern": "clm",
    "transformer": "seq2seq",
    "rnn": "seq2seq",
    "elmo": "bilm",
    "xlnet": "plm",
    "transformer_xl": "clm",
    "mamba": "clm",
}


def make(family: str, size: int, *, heads: dict[str, Head] | None = None) -> Model:
    torch.manual_seed(1)
    cls, head = MODEL_FAMILIES[family], FAMILIES[family]
    model_settings: dict[str, Any] = {
        "layers": 2,
        "hidden_size": 32,
        "heads": 2,
        "max_length": 32,
        "cell_size": 48,
        "init_std": 0.3,
    }
    known_settings = {key: value for key, value in model_settings.items() if key in cls.Settings.model_fields}
    vocabulary = {head: Head("vocabulary")} if head not in ("bilm", "plm") else {}
    return Model(cls(cls.Settings.model_validate(known_settings), size), {**vocabulary, **(heads or {})}).eval()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layer", [None, 0, 1, 2, "mix"])
def test_every_layer_of_every_family(family: str, layer: Any, tokenizer: Tokenizer) -> None:
    model = make(family, tokenizer.vocab_size)
    encoded_texts = [encode_text(model, tokenizer, text) for text in TEXTS]
    text_vectors = token_vectors(model, tokenizer, TEXTS, encoded_texts, layer=layer)
    pooled = embed(model, tokenizer, encoded_texts, layer=layer)
    for vectors_of_text, row, vector in zip(text_vectors, encoded_texts, pooled, strict=True):
        assert vectors_of_text.vectors.shape[0] == len(vectors_of_text) == row.num_tokens
        torch.testing.assert_close(vectors_of_text.vectors.mean(0), vector, atol=1e-5, rtol=1e-5)
    (single_vectors,) = token_vectors(model, tokenizer, TEXTS[:1], encoded_texts[:1], layer=layer)
    torch.testing.assert_close(text_vectors[0].vectors, single_vectors.vectors, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_are_those_of_a_forward_pass(family: str, tokenizer: Tokenizer) -> None:
    model = make(family, tokenizer.vocab_size)
    encoded_texts = [encode_text(model, tokenizer, TEXTS[0])]
    with torch.no_grad():
        hidden = hidden_states(model, tokenizer, encoded_texts, ("layers",))
    hidden_layers = hidden.layers if hidden.encoder_hidden_state is None else hidden.extra["encoder_layers"]
    output = hidden.last_hidden_state if hidden.encoder_hidden_state is None else hidden.encoder_hidden_state
    assert len(hidden_layers) == 3
    for number, layer in enumerate((*hidden_layers[:-1], output)):
        (layer_vectors,) = token_vectors(model, tokenizer, TEXTS[:1], encoded_texts, layer=number)
        torch.testing.assert_close(layer_vectors.vectors, layer[0])
    assert torch.equal(
        token_vectors(model, tokenizer, TEXTS[:1], encoded_texts, layer=-1)[0].vectors, layer_vectors.vectors
    )
    assert torch.equal(token_vectors(model, tokenizer, TEXTS[:1], encoded_texts)[0].vectors, layer_vectors.vectors)
    (mixed,) = token_vectors(model, tokenizer, TEXTS[:1], encoded_texts, layer="mix")
    torch.testing.assert_close(mixed.vectors, torch.stack(list(hidden_layers)).mean(0)[0])


def test_a_fused_recurrent_net_gives_its_layers(tokenizer: Tokenizer) -> None:
    model = make("rnn", tokenizer.vocab_size)
    encoded_texts = [encode_text(model, tokenizer, text) for text in TEXTS]
    with torch.no_grad():
        hidden = hidden_states(model, tokenizer, encoded_texts, ("layers",))
    assert hidden.encoder_hidden_state is not None
    torch.testing.assert_close(
        hidden.extra["encoder_layers"][-1], hidden.encoder_hidden_state
    )  # the same weights, taken by copying


def test_a_task_s_own_mix_is_used(tokenizer: Tokenizer) -> None:
    model = make("elmo", tokenizer.vocab_size, heads={"mix": Head("mix")})
    mix: Any = model.heads["mix"]
    encoded_texts = [encode_text(model, tokenizer, TEXTS[0])]
    with torch.no_grad():
        mix.shares.copy_(torch.tensor([0.0, 40.0, 0.0]))
        mix.scale.fill_(2.0)
    (mixed,) = token_vectors(model, tokenizer, TEXTS[:1], encoded_texts, layer="mix")
    (first,) = token_vectors(model, tokenizer, TEXTS[:1], encoded_texts, layer=1)
    torch.testing.assert_close(mixed.vectors, 2 * first.vectors)


def test_words_are_the_means_of_their_pieces(tokenizer: Tokenizer) -> None:
    model = make("bert", tokenizer.vocab_size)
    text = TEXTS[2]
    encoded_texts = [encode_text(model, tokenizer, text)]
    (tokens,) = token_vectors(model, tokenizer, [text], encoded_texts)
    (words,) = token_vectors(model, tokenizer, [text], encoded_texts, level="word")
    assert tokens.units[0] == "[CLS]" and tokens.offsets[0] == (0, 0)
    assert "".join(tokens.units[1:-1]) == text.replace(" ", "")
    assert words.units == ("my", "youngest", "sister", "painted", "seventeen", "boats", ".")
    assert all(text[start:end] == word for word, (start, end) in zip(words.units, words.offsets, strict=True))
    word_positions = [
        n for n, (start, end) in enumerate(tokens.offsets) if end > start and text.find("seventeen") <= start < 37
    ]
    assert len(word_positions) == 3
    torch.testing.assert_close(words.vectors[4], tokens.vectors[word_positions].mean(0))


def test_elmo_keeps_its_own_words_and_tells_a_word_from_its_neighbours(tokenizer: Tokenizer) -> None:
    model = make("elmo", tokenizer.vocab_size)
    texts = ["the old tree", "the painter tree"]
    encoded_texts = [encode_text(model, tokenizer, text) for text in texts]
    old, painter = token_vectors(model, tokenizer, texts, encoded_texts, level="word")
    assert old.units == ("the", "old", "tree")
    assert not torch.allclose(old.vectors[2], painter.vectors[-1], atol=1e-3)  # the same word in another context
    plain = [
        token_vector.vectors[-1]
        for token_vector in token_vectors(model, tokenizer, texts, encoded_texts, level="word", layer=0)
    ]
    torch.testing.assert_close(*plain)  # its letters alone know no context


@pytest.mark.parametrize("family", ["bert", "gpt2", "transformer"])
def test_what_does_not_fit_is_counted_and_left_out(family: str, tokenizer: Tokenizer) -> None:
    model = make(family, tokenizer.vocab_size)
    text = " ".join(["garden"] * 100)
    encoded_text = encode_text(model, tokenizer, text)
    (words,) = token_vectors(model, tokenizer, [text], [encoded_text], level="word")
    assert encoded_text.num_tokens == 32
    assert len(words) + encoded_text.num_truncated == 100
    assert encode_text(model, tokenizer, TEXTS[0]).num_truncated == 0


def test_a_layer_that_is_not_there(tokenizer: Tokenizer) -> None:
    model = make("bert", tokenizer.vocab_size)
    encoded_texts = [encode_text(model, tokenizer, TEXTS[0])]
    for layer in (3, -4):
        with pytest.raises(MeristemError, match=r"0 \(embeddings\) to 2"):
            embed(model, tokenizer, encoded_texts, layer=layer)


def test_a_table_for_pandas(tokenizer: Tokenizer) -> None:
    model = make("gpt2", tokenizer.vocab_size)
    (token_vectors_of_text,) = token_vectors(
        model, tokenizer, TEXTS[:1], [encode_text(model, tokenizer, TEXTS[0])], level="word"
    )
    table = token_vectors_of_text.to_pandas()
    assert list(table["word"]) == list(token_vectors_of_text.units)
    np.testing.assert_allclose(table[[*range(32)]].to_numpy(), token_vectors_of_text.vectors.numpy())
    assert "words" in repr(token_vectors_of_text) and "32]" in repr(token_vectors_of_text)
