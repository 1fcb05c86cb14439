from __future__ import annotations

import torch

from meristem.blocks.characters import Characters, Highway
from meristem.store.letters import ALPHABET, BLANK, letters_of


def small() -> Characters:
    torch.manual_seed(0)
    return Characters(ALPHABET, 5, ((1, 4), (3, 4), (7, 6)), letter_width=3, highways=2, blank=BLANK).double()


def test_words_that_stand_twice_and_blanks_that_are_cut_change_nothing() -> None:
    net = small()
    words = [b"one", b"two", b"one", b"", b"x" * 48, b"two", b"one"]
    letters = torch.from_numpy(letters_of(words)).view(1, 7, 50)
    found, plain = net(letters)[0], net._read(letters[0])
    torch.testing.assert_close(found, plain, atol=1e-12, rtol=0)
    weight = torch.randn_like(found)
    grads = [torch.autograd.grad((states * weight).sum(), list(net.parameters())) for states in (found, plain)]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-10)
    short = torch.from_numpy(letters_of([b"one", b"two"]))
    assert net._cut(short).shape[1] == 5 + 7  # two marks and three letters, then blanks for the widest filter
    assert net._cut(torch.from_numpy(letters_of([b"y" * 60]))).shape[1] == 50


def test_every_word_has_the_same_vector_wherever_it_stands() -> None:
    net = small()
    alone = net(torch.from_numpy(letters_of([b"two"]))[None])[0, 0]
    among = net(torch.from_numpy(letters_of([b"q" * 40, b"two", b"zz"]))[None])[0, 1]
    torch.testing.assert_close(alone, among, atol=1e-12, rtol=0)


def test_a_highway_carries_at_first() -> None:
    highway = Highway(64, "relu")
    assert (highway.gate.bias == -2).all() and (highway.transform.bias == 0).all()
    x = torch.randn(100, 64)
    highway.requires_grad_(False)
    assert 0.75 < float((highway(x) * x).sum() / x.square().sum()) < 1.0
