"""Token and word embeddings of any layer are the model's hidden states, whatever else is in the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from meristem.config.errors import MeristemError
from meristem.config.settings import find_class
from meristem.evaluation.text_embeddings import embed, encode_text, hidden_states
from meristem.evaluation.token_embeddings import token_vectors
from meristem.interfaces.backbone import Head, Model
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
}


def make(family: str, size: int, *, heads: dict[str, Head] | None = None) -> Model:
    torch.manual_seed(1)
    cls, head = find_class("models", family), FAMILIES[family]
    told: dict[str, Any] = {
        "layers": 2,
        "hidden_size": 32,
        "heads": 2,
        "max_length": 32,
        "cell_size": 48,
        "init_std": 0.3,
    }
    known = {key: value for key, value in told.items() if key in cls.Settings.model_fields}
    vocabulary = {head: Head("vocabulary")} if head not in ("bilm", "plm") else {}
    return Model(cls(cls.Settings.model_validate(known), size), {**vocabulary, **(heads or {})}).eval()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layer", [None, 0, 1, 2, "mix"])
def test_every_layer_of_every_family(family: str, layer: Any, tokenizer: Tokenizer) -> None:
    model = make(family, tokenizer.vocab_size)
    framed = [encode_text(model, tokenizer, text) for text in TEXTS]
    found = token_vectors(model, tokenizer, TEXTS, framed, layer=layer)
    pooled = embed(model, tokenizer, framed, layer=layer)
    for one, row, vector in zip(found, framed, pooled, strict=True):
        assert one.vectors.shape[0] == len(one) == row.num_tokens
        torch.testing.assert_close(one.vectors.mean(0), vector, atol=1e-5, rtol=1e-5)
    (alone,) = token_vectors(model, tokenizer, TEXTS[:1], framed[:1], layer=layer)
    torch.testing.assert_close(found[0].vectors, alone.vectors, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_are_those_of_a_forward_pass(family: str, tokenizer: Tokenizer) -> None:
    model = make(family, tokenizer.vocab_size)
    framed = [encode_text(model, tokenizer, TEXTS[0])]
    with torch.no_grad():
        hidden = hidden_states(model, tokenizer, framed, ("layers",))
    kept = hidden.layers if hidden.encoder_hidden_state is None else hidden.extra["encoder_layers"]
    output = hidden.last_hidden_state if hidden.encoder_hidden_state is None else hidden.encoder_hidden_state
    assert len(kept) == 3
    for number, layer in enumerate((*kept[:-1], output)):
        (found,) = token_vectors(model, tokenizer, TEXTS[:1], framed, layer=number)
        torch.testing.assert_close(found.vectors, layer[0])
    assert torch.equal(token_vectors(model, tokenizer, TEXTS[:1], framed, layer=-1)[0].vectors, found.vectors)
    assert torch.equal(token_vectors(model, tokenizer, TEXTS[:1], framed)[0].vectors, found.vectors)
    (mixed,) = token_vectors(model, tokenizer, TEXTS[:1], framed, layer="mix")
    torch.testing.assert_close(mixed.vectors, torch.stack(list(kept)).mean(0)[0])


def test_a_fused_recurrent_net_gives_its_layers(tokenizer: Tokenizer) -> None:
    model = make("rnn", tokenizer.vocab_size)
    framed = [encode_text(model, tokenizer, text) for text in TEXTS]
    with torch.no_grad():
        hidden = hidden_states(model, tokenizer, framed, ("layers",))
    assert hidden.encoder_hidden_state is not None
    torch.testing.assert_close(
        hidden.extra["encoder_layers"][-1], hidden.encoder_hidden_state
    )  # the same weights, taken by copying


def test_a_task_s_own_mix_is_used(tokenizer: Tokenizer) -> None:
    model = make("elmo", tokenizer.vocab_size, heads={"mix": Head("mix")})
    mix: Any = model.heads["mix"]
    framed = [encode_text(model, tokenizer, TEXTS[0])]
    with torch.no_grad():
        mix.shares.copy_(torch.tensor([0.0, 40.0, 0.0]))
        mix.scale.fill_(2.0)
    (mixed,) = token_vectors(model, tokenizer, TEXTS[:1], framed, layer="mix")
    (first,) = token_vectors(model, tokenizer, TEXTS[:1], framed, layer=1)
    torch.testing.assert_close(mixed.vectors, 2 * first.vectors)


def test_words_are_the_means_of_their_pieces(tokenizer: Tokenizer) -> None:
    model = make("bert", tokenizer.vocab_size)
    text = TEXTS[2]
    framed = [encode_text(model, tokenizer, text)]
    (tokens,) = token_vectors(model, tokenizer, [text], framed)
    (words,) = token_vectors(model, tokenizer, [text], framed, level="word")
    assert tokens.units[0] == "[CLS]" and tokens.offsets[0] == (0, 0)
    assert "".join(tokens.units[1:-1]) == text.replace(" ", "")
    assert words.units == ("my", "youngest", "sister", "painted", "seventeen", "boats", ".")
    assert all(text[start:end] == word for word, (start, end) in zip(words.units, words.offsets, strict=True))
    at = [n for n, (start, end) in enumerate(tokens.offsets) if end > start and text.find("seventeen") <= start < 37]
    assert len(at) == 3
    torch.testing.assert_close(words.vectors[4], tokens.vectors[at].mean(0))


def test_elmo_keeps_its_own_words_and_tells_a_word_from_its_neighbours(tokenizer: Tokenizer) -> None:
    model = make("elmo", tokenizer.vocab_size)
    texts = ["the old tree", "the painter tree"]
    framed = [encode_text(model, tokenizer, text) for text in texts]
    old, painter = token_vectors(model, tokenizer, texts, framed, level="word")
    assert old.units == ("the", "old", "tree")
    assert not torch.allclose(old.vectors[2], painter.vectors[-1], atol=1e-3)  # the same word in another context
    plain = [
        token_vector.vectors[-1]
        for token_vector in token_vectors(model, tokenizer, texts, framed, level="word", layer=0)
    ]
    torch.testing.assert_close(*plain)  # its letters alone know no context


@pytest.mark.parametrize("family", ["bert", "gpt2", "transformer"])
def test_what_does_not_fit_is_counted_and_left_out(family: str, tokenizer: Tokenizer) -> None:
    model = make(family, tokenizer.vocab_size)
    text = " ".join(["garden"] * 100)
    framed = encode_text(model, tokenizer, text)
    (words,) = token_vectors(model, tokenizer, [text], [framed], level="word")
    assert framed.num_tokens == 32
    assert len(words) + framed.num_truncated == 100
    assert encode_text(model, tokenizer, TEXTS[0]).num_truncated == 0


def test_a_layer_that_is_not_there(tokenizer: Tokenizer) -> None:
    model = make("bert", tokenizer.vocab_size)
    framed = [encode_text(model, tokenizer, TEXTS[0])]
    for layer in (3, -4):
        with pytest.raises(MeristemError, match=r"0 \(embeddings\) to 2"):
            embed(model, tokenizer, framed, layer=layer)


def test_a_table_for_pandas(tokenizer: Tokenizer) -> None:
    model = make("gpt2", tokenizer.vocab_size)
    (found,) = token_vectors(model, tokenizer, TEXTS[:1], [encode_text(model, tokenizer, TEXTS[0])], level="word")
    table = found.to_pandas()
    assert list(table["word"]) == list(found.units)
    np.testing.assert_allclose(table[[*range(32)]].to_numpy(), found.vectors.numpy())
    assert "words" in repr(found) and "32]" in repr(found)
