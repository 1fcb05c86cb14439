"""ELMo against AllenNLP's fixture, and against the paper's formulas written out word by word."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from meristem.config.errors import MeristemError
from meristem.inputs.char_ids import (
    BOS_CHAR,
    BOW_CHAR,
    CHAR_VOCAB_SIZE,
    EOS_CHAR,
    EOW_CHAR,
    MAX_WORD_CHARS,
    word_char_ids,
)
from meristem.interfaces.backbone import Head, Model
from meristem.models.elmo import ELMo, ELMoSettings

Close = Callable[[Tensor, Tensor], None]
REFERENCE = Path(os.environ.get("MERISTEM_REFERENCE", Path(__file__).parents[3] / "shared" / "reference")) / "elmo"
SMALL = ELMoSettings(
    layers=2,
    hidden_size=6,
    cell_size=10,
    char_filters=((1, 3), (2, 4), (4, 5)),
    char_embedding_size=3,
    cell_clip=0.6,
    state_clip=0.4,
)
WORDS = 31


def char_ids(sentence: str) -> Tensor:
    """A sentence's words between the marks that begin and end a text."""
    letters = word_char_ids([b"", *(word.encode() for word in sentence.split()), b""])
    letters[0, 1:3], letters[-1, 1:3] = (BOS_CHAR, EOW_CHAR), (EOS_CHAR, EOW_CHAR)
    return torch.from_numpy(letters)


def padded(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
    sizes = torch.tensor([len(row) for row in rows])
    present = torch.arange(int(sizes.max()))[None] < sizes[:, None]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True), present


# ---------------------------------------------------------------- AllenNLP's fixture


@pytest.fixture(scope="module")
def published() -> tuple[ELMo, Any]:
    """The fixture's weights in our model."""
    if not REFERENCE.is_dir():
        pytest.skip(f"no reference in {REFERENCE}; MERISTEM_REFERENCE names another place")
    h5py = pytest.importorskip("h5py")
    options = json.loads((REFERENCE / "options.json").read_text())
    lstm, cnn = options["lstm"], options["char_cnn"]
    settings = ELMoSettings(
        layers=lstm["n_layers"],
        hidden_size=lstm["projection_dim"],
        cell_size=lstm["dim"],
        char_filters=cnn["filters"],
        char_embedding_size=cnn["embedding"]["dim"],
        highway_layers=cnn["n_highway"],
        activation=cnn["activation"],
        cell_clip=lstm["cell_clip"],
        state_clip=lstm["proj_clip"],
        residual=lstm["use_skip_connections"],
    )
    model = ELMo(settings, WORDS).eval()
    with h5py.File(REFERENCE / "lm_weights.hdf5") as file, torch.no_grad():
        copy(model, lambda name: torch.from_numpy(file[name][...]))
    return model, h5py


def copy(model: ELMo, get: Callable[[str], Tensor]) -> None:
    """TensorFlow's names and gates (input, new, forget + 1, output) → ours (input, forget, output, new)."""
    c, cells, width = model.characters, model.settings.cell_size, model.settings.hidden_size
    c.letters.weight.copy_(get("char_embed"))
    for number, convolve in enumerate(c.filters):
        convolve.weight.copy_(get(f"CNN/W_cnn_{number}")[0].permute(2, 1, 0))
        convolve.bias.copy_(get(f"CNN/b_cnn_{number}"))
    for number, highway in enumerate(c.highways):
        for ours, theirs in ((highway.gate, "carry"), (highway.transform, "transform")):
            ours.weight.copy_(get(f"CNN_high_{number}/W_{theirs}").t())
            ours.bias.copy_(get(f"CNN_high_{number}/b_{theirs}"))
    c.project.weight.copy_(get("CNN_proj/W_proj").t())
    c.project.bias.copy_(get("CNN_proj/b_proj"))
    for number, layer in enumerate(model.layers):
        for direction in range(2):
            cell_prefix = f"RNN_{direction}/RNN/MultiRNNCell/Cell{number}/LSTMCell"
            weight, bias = (get(f"{cell_prefix}/{name}").unflatten(-1, (4, cells)) for name in ("W_0", "B"))
            weight, bias = weight[:, [0, 2, 3, 1]].flatten(1), bias[[0, 2, 3, 1]].clone()
            bias[1] += 1
            layer.read[direction], layer.recur[direction] = weight[:width], weight[width:]
            layer.bias.view(2, -1)[direction] = bias.flatten()
            layer.project[direction] = get(f"{cell_prefix}/W_P_0")


def test_words_have_the_published_vectors(published: tuple[ELMo, Any]) -> None:
    model, h5py = published
    words = (REFERENCE / "vocab_test.txt").read_text().split("\n")
    with h5py.File(REFERENCE / "elmo_token_embeddings.hdf5") as file:
        expected = torch.from_numpy(file["embedding"][...])
    letters = word_char_ids([word.encode() for word in words])
    for mark, sign in (("<S>", BOS_CHAR), ("</S>", EOS_CHAR)):
        letters[words.index(mark)] = char_ids("").numpy()[0]
        letters[words.index(mark), 1] = sign
    word_vectors = model.characters(torch.from_numpy(letters)[None])[0]
    assert word_vectors.shape == expected.shape
    assert (word_vectors - expected).abs().max() <= 1e-5


def test_sentences_have_the_published_states(published: tuple[ELMo, Any]) -> None:
    """Three streams of ten sentences, padded to the longest of each three; the state goes on from each to the next."""
    model, h5py = published
    streams = json.loads((REFERENCE / "sentences.json").read_text())
    state, checked = model.init_state(3), 0
    files = [h5py.File(REFERENCE / f"lm_embeddings_{number}.hdf5") for number in range(3)]
    for number, sentences in enumerate(zip(*streams, strict=True)):
        characters, present = padded([char_ids(sentence) for sentence in sentences])
        hidden = model(characters=characters, present=present, state=state)
        state = hidden.state
        for row, file in enumerate(files):
            expected = torch.from_numpy(file[str(number)][...])  # direction, word, channel
            hidden_layers = (
                hidden.last_hidden_state[row, 1 : 1 + expected.shape[1]].unflatten(-1, (2, -1)).transpose(0, 1)
            )
            assert int(present[row].sum()) == expected.shape[1] + 2
            assert (hidden_layers - expected).abs().max() <= 1e-5
            checked += 1
    assert checked == 30


# ---------------------------------------------------------------- the formulas, one word and one step at a time


def word_by_formula(model: ELMo, letters: Tensor) -> Tensor:
    """All fifty letters, every window of every filter, then the highways."""
    c = model.characters
    x = c.letters.weight[letters.long()]
    loudest = []
    for convolve in c.filters:
        span = convolve.kernel_size[0]
        windows = torch.stack([x[index : index + span].t() for index in range(len(x) - span + 1)])
        loudest.append((torch.einsum("wes,fes->wf", windows, convolve.weight) + convolve.bias).max(0).values)
    y = torch.cat(loudest).relu()
    for highway in c.highways:
        g = (highway.gate.weight @ y + highway.gate.bias).sigmoid()
        y = g * (highway.transform.weight @ y + highway.transform.bias).relu() + (1 - g) * y
    return c.project.weight @ y + c.project.bias


def layer_by_formula(model: ELMo, number: int, direction: int, inputs: list[Tensor]) -> list[Tensor]:
    s, layer = model.settings, model.layers[number]
    h, c = inputs[0].new_zeros(s.hidden_size), inputs[0].new_zeros(s.cell_size)
    out = []
    for x in inputs:
        z = x @ layer.read[direction] + h @ layer.recur[direction] + layer.bias.view(2, -1)[direction]
        i, f, o, g = z.view(4, -1)
        c = (f.sigmoid() * c + i.sigmoid() * g.tanh()).clamp(-s.cell_clip, s.cell_clip)
        h = ((o.sigmoid() * c.tanh()) @ layer.project[direction]).clamp(-s.state_clip, s.state_clip)
        out.append(h + x if number else h)
    return out


def by_formula(model: ELMo, characters: Tensor) -> list[Tensor]:
    """One row → its layers [T, 2 D]."""
    words = [word_by_formula(model, letters) for letters in characters]
    layers, directions = [torch.stack([torch.cat([word, word]) for word in words])], [words, words[::-1]]
    for number in range(len(model.layers)):
        directions = [layer_by_formula(model, number, index, inputs) for index, inputs in enumerate(directions)]
        layers.append(torch.cat([torch.stack(directions[0]), torch.stack(directions[1][::-1])], 1))
    return layers


def small(dtype: torch.dtype = torch.float32, seed: int = 0) -> ELMo:
    """Random weights everywhere, large enough that cells and states are clipped."""
    model = ELMo(SMALL, WORDS).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return model


ROWS = ["the quick brown fox jumped over the lazy dog again", "Hé", f"a {'x' * 47} {'y' * 48} {'z' * 60} a a"]


def test_the_same_as_the_formulas(dtype: torch.dtype, close: Close) -> None:
    model = small(dtype)
    characters, present = padded([char_ids(row) for row in ROWS])
    hidden = model(characters=characters, present=present, want=("layers",))
    ours = [layer[present] for layer in hidden.layers]
    rows = [by_formula(model, char_ids(row)) for row in ROWS]
    theirs = [torch.cat([row[number] for row in rows]) for number in range(3)]
    clipped = (ours[1].abs() == SMALL.state_clip).double().mean()
    assert 0.02 < clipped < 0.9  # both sides of the bound are there
    for actual, other in zip(ours, theirs, strict=True):
        close(actual, other)
    weights = [torch.randn(layer.shape, dtype=dtype) for layer in ours]
    names, parameters = zip(*((n, p) for n, p in model.named_parameters() if n != "words.weight"), strict=True)
    gradients, expected = (
        torch.autograd.grad(sum((layer * w).sum() for layer, w in zip(layers, weights, strict=True)), parameters)
        for layers in (ours, theirs)
    )
    assert len(names) == 25
    for actual, other in zip(gradients, expected, strict=True):
        assert other.abs().max() > 0
        close(actual, other)


def test_golden_states_of_fixed_weights(golden: Path) -> None:
    """Made once by the code that gave AllenNLP's numbers, so that every machine can compare."""
    model = ELMo(SMALL, WORDS).double()
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            values = np.sin(np.arange(parameter.numel(), dtype=np.float64) * 1.7 + number)
            parameter.copy_(torch.from_numpy(values).view(parameter.shape) * 0.5)
    expected = torch.tensor(json.loads((golden / "elmo.json").read_text()), dtype=torch.float64)
    hidden = model(characters=char_ids("Words never seen: zyxwv")[None]).last_hidden_state[0]
    assert (hidden - expected).abs().max() <= 1e-9


# ---------------------------------------------------------------- what sees what


def test_padding_and_neighbours_change_nothing(dtype: torch.dtype, close: Close) -> None:
    model = small(dtype)
    characters, present = padded([char_ids(row) for row in ROWS])
    hidden = model(characters=characters, present=present).last_hidden_state
    for row, text in enumerate(ROWS):
        single = model(characters=char_ids(text)[None]).last_hidden_state[0]
        close(hidden[row, : len(single)], single)


def test_each_direction_sees_only_its_side() -> None:
    model = small()
    with torch.no_grad():  # nothing may hide behind a bound
        for parameter in model.parameters():
            parameter.mul_(0.3)
    characters = char_ids("one two three four five six seven")[None]
    embedded: list[Tensor] = []

    def hold(module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1]

    handle = model.characters.register_forward_hook(hold)
    last = model(characters=characters).last_hidden_state
    handle.remove()
    time, width = last.shape[1], SMALL.hidden_size
    for index in range(time):
        (grad,) = torch.autograd.grad(last[0, index, :width].sum(), embedded[0], retain_graph=True)
        assert (grad[0, : index + 1].abs().amax(-1) > 0).all()
        assert not grad[0, index + 1 :].any()
        (grad,) = torch.autograd.grad(last[0, index, width:].sum(), embedded[0], retain_graph=True)
        assert (grad[0, index:].abs().amax(-1) > 0).all()
        assert not grad[0, :index].any()
        changed = characters.clone()
        changed[0, index] = torch.from_numpy(word_char_ids([b"otherwise"]))[0]
        after = model(characters=changed).last_hidden_state[0]
        unchanged = (after == last[0]).unflatten(-1, (2, width)).all(-1)
        assert unchanged[:index, 0].all() and not unchanged[index:, 0].any()
        assert unchanged[index + 1 :, 1].all() and not unchanged[: index + 1, 1].any()


def test_documents_can_be_kept_apart(dtype: torch.dtype, close: Close) -> None:
    model = small(dtype)
    first_text, other = char_ids("a first text here"), char_ids("and a second")
    both_texts = torch.cat([first_text, other])[None]
    documents = torch.tensor([[0] * len(first_text) + [1] * len(other)])
    separate = torch.cat([model(characters=row[None]).last_hidden_state[0] for row in (first_text, other)])
    separated = model(characters=both_texts, documents=documents).last_hidden_state[0]
    close(separated, separate)
    assert (model(characters=both_texts).last_hidden_state[0] - separate).abs().max() > 1e-3
    weight = torch.randn(separated.shape, dtype=dtype)
    parameters = [p for n, p in model.named_parameters() if n.startswith("layers")]
    grads = [torch.autograd.grad((states * weight).sum(), parameters) for states in (separated, separate)]
    for our_gradient, theirs in zip(*grads, strict=True):
        close(our_gradient, theirs)


def test_a_row_in_two_parts_is_the_row_for_the_forward_direction(dtype: torch.dtype, close: Close) -> None:
    model = small(dtype)
    characters = char_ids("one two three four five six seven")[None]
    hidden = model(characters=characters).last_hidden_state
    first = model(characters=characters[:, :4], state=model.init_state(1))
    second = model(characters=characters[:, 4:], state=first.state)
    close(
        torch.cat([first.last_hidden_state, second.last_hidden_state], 1)[..., : SMALL.hidden_size],
        hidden[..., : SMALL.hidden_size],
    )
    assert not model(characters=characters).state


def test_words_never_seen_have_vectors_of_their_own() -> None:
    model = small().eval()
    first_vector, other, same_word_vector = (
        model.characters(char_ids(word)[None])[0, 1] for word in ("grelbon", "grelbons", "grelbon")
    )
    assert torch.equal(first_vector, same_word_vector)
    assert not torch.allclose(first_vector, other, atol=1e-4)


# ---------------------------------------------------------------- sizes and heads


def test_elmo_has_its_published_parameters() -> None:
    with torch.device("meta"):
        model = Model(ELMo(ELMoSettings(), 793_471), {"bilm": Head("vocabulary")})
    softmax = model.backbone.words.weight.numel() + model.heads["bilm"].bias.numel()
    assert softmax == 793_471 * 513
    assert sum(p.numel() for p in model.parameters()) - softmax == 93_600_848


def test_heads() -> None:
    model = small()
    hidden = model(characters=char_ids("a b c")[None], want=("layers",))
    mix = model.build_head("mix")
    with torch.no_grad():
        mix.shares.copy_(torch.tensor([0.0, 1.0, -1.0]))
        mix.scale.fill_(2.0)
    shares = torch.tensor([0.0, 1.0, -1.0]).softmax(0)
    expected = 2 * sum(share * layer for share, layer in zip(shares, hidden.layers, strict=True))
    torch.testing.assert_close(mix(hidden.layers), expected)
    with pytest.raises(MeristemError, match=r"a scalar mix of 3 layers got 2; .*want"):
        mix(hidden.layers[:2])
    assert model.build_head("pooled", classes=3)(hidden.last_hidden_state[:, 0]).shape == (1, 3)
    assert model.build_head("vocabulary").weight is model.embedding().weight
    with pytest.raises(MeristemError, match="the elmo family has no head 'span'; it has vocabulary, pooled, tags"):
        model.build_head("span")


def test_character_ids_equal_the_reference() -> None:
    letters = word_char_ids([b"ab", b"", "é".encode(), b"x" * 60])
    assert letters.shape == (4, MAX_WORD_CHARS) and letters.max() == CHAR_VOCAB_SIZE - 1
    assert letters[0, :5].tolist() == [BOW_CHAR, 97, 98, EOW_CHAR, 260] and (letters[0, 4:] == 260).all()
    assert letters[1, :3].tolist() == [BOW_CHAR, EOW_CHAR, 260]
    assert letters[2, :4].tolist() == [BOW_CHAR, 0xC3, 0xA9, EOW_CHAR]
    assert letters[3, 0] == BOW_CHAR and (letters[3, 1:49] == 120).all() and letters[3, 49] == EOW_CHAR
