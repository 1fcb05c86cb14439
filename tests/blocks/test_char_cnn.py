from __future__ import annotations

import torch

from meristem.blocks.embeddings.char_cnn import CharCNN, Highway
from meristem.inputs.char_ids import CHAR_VOCAB_SIZE, PAD_CHAR, word_char_ids


def small() -> CharCNN:
    torch.manual_seed(0)
    return CharCNN(
        CHAR_VOCAB_SIZE, 5, ((1, 4), (3, 4), (7, 6)), char_embedding_size=3, num_highways=2, padding_id=PAD_CHAR
    ).double()


def test_repeated_words_and_trimmed_padding_change_nothing() -> None:
    net = small()
    words = [b"one", b"two", b"one", b"", b"x" * 48, b"two", b"one"]
    letters = torch.from_numpy(word_char_ids(words)).view(1, 7, 50)
    vectors, plain = net(letters)[0], net._encode_words(letters[0])
    torch.testing.assert_close(vectors, plain, atol=1e-12, rtol=0)
    weight = torch.randn_like(vectors)
    grads = [torch.autograd.grad((states * weight).sum(), list(net.parameters())) for states in (vectors, plain)]
    for actual, other in zip(*grads, strict=True):
        torch.testing.assert_close(actual, other, atol=1e-12, rtol=1e-10)
    short = torch.from_numpy(word_char_ids([b"one", b"two"]))
    assert net._trim_padding(short).shape[1] == 5 + 7  # two marks and three letters, then blanks for the widest filter
    assert net._trim_padding(torch.from_numpy(word_char_ids([b"y" * 60]))).shape[1] == 50


def test_every_word_has_the_same_vector_at_every_position() -> None:
    net = small()
    single = net(torch.from_numpy(word_char_ids([b"two"]))[None])[0, 0]
    among = net(torch.from_numpy(word_char_ids([b"q" * 40, b"two", b"zz"]))[None])[0, 1]
    torch.testing.assert_close(single, among, atol=1e-12, rtol=0)


def test_a_highway_starts_near_the_identity() -> None:
    highway = Highway(64, "relu")
    assert (highway.gate.bias == -2).all() and (highway.transform.bias == 0).all()
    x = torch.randn(100, 64)
    highway.requires_grad_(False)
    assert 0.75 < float((highway(x) * x).sum() / x.square().sum()) < 1.0
