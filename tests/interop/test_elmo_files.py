"""AllenNLP's ELMo files imported and exported: published vectors, the same tensors, and words by their characters."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor
from transformers_models import same_tensors

from meristem.api import load
from meristem.checkpoint.load_run import load_run
from meristem.checkpoint.run_folder import RunFolder
from meristem.checkpoint.save import save_checkpoint
from meristem.checkpoint.snapshot import Snapshot
from meristem.config.errors import MeristemError
from meristem.config.recipe import resolve_recipe
from meristem.evaluation.text_embeddings import encode_text, hidden_states
from meristem.interop.export_folder import export_run
from meristem.interop.import_weights import import_folder
from meristem.learning.build import build_learner
from meristem.models.elmo import ELMo
from meristem.tokenizers.tokenizer import Tokenizer

h5py = pytest.importorskip("h5py")

REFERENCE = Path(os.environ.get("MERISTEM_REFERENCE", Path(__file__).parents[3] / "shared" / "reference")) / "elmo"
WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "sat"]
LSTM = {"cell_clip": 3, "use_skip_connections": True, "n_layers": 2, "proj_clip": 3, "projection_dim": 6, "dim": 10}
CNN = {
    "embedding": {"dim": 3},
    "filters": [[1, 3], [2, 4], [4, 5]],
    "n_highway": 2,
    "n_characters": 262,
    "max_characters_per_token": 50,
    "activation": "relu",
}


def random_array(**sizes: tuple[int, ...]) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    return {name: rng.normal(0, 0.4, size).astype(np.float32) for name, size in sizes.items()}


def arrays(softmax: int | None) -> dict[str, Any]:
    """Random weights under AllenNLP's names and in its shapes."""
    shapes: dict[str, tuple[int, ...]] = {"char_embed": (261, 3), "CNN_proj/W_proj": (12, 6), "CNN_proj/b_proj": (6,)}
    for number, (span, filters) in enumerate(((1, 3), (2, 4), (4, 5))):
        shapes |= {f"CNN/W_cnn_{number}": (1, span, 3, filters), f"CNN/b_cnn_{number}": (filters,)}
    for number in range(2):
        highway_prefix = f"CNN_high_{number}"
        shapes |= {f"{highway_prefix}/W_{name}": (12, 12) for name in ("carry", "transform")}
        shapes |= {f"{highway_prefix}/b_{name}": (12,) for name in ("carry", "transform")}
        for direction in range(2):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{number}/LSTMCell"
            shapes |= {f"{cell}/W_0": (12, 40), f"{cell}/B": (40,), f"{cell}/W_P_0": (10, 6)}
    if softmax:
        shapes |= {"softmax/W": (softmax, 6), "softmax/b": (softmax,)}
    return random_array(**shapes)


def theirs(folder: Path, *, words: list[str] | None = None, named: str = "", **changed: Any) -> dict[str, Any]:
    """A folder of theirs; `changed` replaces arrays, or leaves them out."""
    folder.mkdir()
    tensors = arrays(len(words) if words else None) | changed
    (folder / f"{named}options.json").write_text(json.dumps({"lstm": LSTM, "char_cnn": CNN}))
    with h5py.File(folder / f"{named}weights.hdf5", "w") as file:
        for name, array in tensors.items():
            if array is not None:
                file.create_dataset(name, data=array)
    if words:
        (folder / "vocabulary.txt").write_text("\n".join(words) + "\n")
    return tensors


def read_tensors(path: Path) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: tensors.update({name: item[...]} if isinstance(item, h5py.Dataset) else {}))
    return tensors


# ---------------------------------------------------------------- a direction by hand, gate by gate


def by_hand(tensors: dict[str, Any], words: Tensor, direction: int) -> Tensor:
    """Their formulas on their arrays: gates are input, new, forget (to which 1 is added) and output."""
    x = words.detach().double().numpy()[:: -1 if direction else 1]
    for number in range(2):
        cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{number}/LSTMCell"
        weight, bias, project = (tensors[f"{cell}/{name}"].astype(np.float64) for name in ("W_0", "B", "W_P_0"))
        h, c, out = np.zeros(6), np.zeros(10), []
        for word in x:
            i, j, f, o = (np.concatenate([word, h]) @ weight + bias).reshape(4, -1)
            c = np.clip(sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j), -3, 3)
            h = np.clip((sigmoid(o) * np.tanh(c)) @ project, -3, 3)
            out.append(h)
        x = np.stack(out) + (x if number else 0)
    return torch.from_numpy(x[:: -1 if direction else 1].copy())


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("words", [None, WORDS], ids=["letters", "words"])
def test_there_and_back(words: list[str] | None, tmp_path: Path) -> None:
    tensors = theirs(tmp_path / "theirs", words=words, named="elmo_small_")
    imported = import_folder(tmp_path / "theirs", tmp_path / "run")
    assert imported.new_weights == (() if words else ("backbone.words.weight", "heads.bilm.bias"))
    run = load_run(tmp_path / "run")
    backbone = run.learner.model.backbone
    assert isinstance(backbone, ELMo)
    loaded = load(tmp_path / "run")
    encoded_text = encode_text(loaded.model, loaded.tokenizer, "the cat said n't-so grelbon")
    hidden, tokens = (
        hidden_states(loaded.model, loaded.tokenizer, [encoded_text], extra_outputs=("layers",)),
        [loaded.tokenizer.id_to_token(t) for t in encoded_text.ids],
    )
    assert tokens[0] == "[CLS]" and len(tokens) == 7
    vectors = hidden.layers[0][0, :, :6]
    assert len({tuple(row) for row in vectors.tolist()}) == 7  # words that no vocabulary holds differ too
    for direction in range(2):
        expected = by_hand(tensors, vectors, direction)
        assert (hidden.last_hidden_state[0, :, direction * 6 : direction * 6 + 6] - expected).abs().max() <= 1e-5

    exported = export_run(tmp_path / "run", tmp_path / "back")
    assert "transformers has no ELMo; AllenNLP reads this folder" in exported.summary()
    exported_tensors = read_tensors(tmp_path / "back" / "weights.hdf5")
    assert set(exported_tensors) == {*tensors, "softmax/W", "softmax/b"}
    for name, array in tensors.items():
        assert exported_tensors[name].dtype == np.float32
        if name.endswith("/B"):  # 1 is added to a forget gate's and taken off again
            np.testing.assert_allclose(exported_tensors[name], array, rtol=0, atol=1e-7)
        else:
            np.testing.assert_array_equal(exported_tensors[name], array)
    assert json.loads((tmp_path / "back" / "options.json").read_text()) == {"lstm": LSTM, "char_cnn": CNN}
    if words:
        assert (tmp_path / "back" / "vocabulary.txt").read_text().split() == words
    import_folder(tmp_path / "back", tmp_path / "again")
    same_tensors(tmp_path / "run", tmp_path / "again")


def test_the_words_of_its_softmax_are_predicted(tmp_path: Path) -> None:
    tensors = theirs(tmp_path / "theirs", words=WORDS)
    import_folder(tmp_path / "theirs", tmp_path / "run")
    loaded = load(tmp_path / "run")
    assert loaded.tokenizer.encode("the cat danced").ids.tolist() == [3, 4, 2]
    assert (loaded.tokenizer.start, loaded.tokenizer.end, loaded.tokenizer.unknown) == (0, 1, 2)
    states = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    expected = states @ torch.from_numpy(tensors["softmax/W"]).t() + torch.from_numpy(tensors["softmax/b"])
    torch.testing.assert_close(loaded.model.heads["bilm"](states), expected)


def test_a_run_of_ours_leaves_as_their_files(tmp_path: Path) -> None:
    theirs(tmp_path / "theirs", words=WORDS)  # for its words alone
    import_folder(tmp_path / "theirs", tmp_path / "words")
    shape = {
        "family": "elmo",
        "layers": 1,
        "hidden_size": 8,
        "cell_size": 12,
        "char_embedding_size": 4,
        "char_filters": [[1, 4], [3, 6]],
        "highway_layers": 1,
        "cell_clip": None,
        "state_clip": None,
        "residual": False,
        "max_length": 16,
    }
    model = build_run(tmp_path / "run", Tokenizer.load(tmp_path / "words" / "tokenizer.json"), shape)
    export_run(tmp_path / "run", tmp_path / "out")
    options = json.loads((tmp_path / "out" / "options.json").read_text())
    assert options["lstm"]["cell_clip"] is None and options["char_cnn"]["n_characters"] == 262
    import_folder(tmp_path / "out", tmp_path / "again")
    our_state, reimported_state = (load_run(tmp_path / name).learner.model.state_dict() for name in ("run", "again"))
    for name, tensor in our_state.items():
        if re.fullmatch(
            r"backbone\.layers\.\d\.bias", name
        ):  # a forget gate's lies 1 lower there, and is rounded there
            torch.testing.assert_close(reimported_state[name], tensor, rtol=0, atol=2**-24)
        else:
            assert torch.equal(reimported_state[name], tensor)
    export_run(tmp_path / "again", tmp_path / "out-again")
    import_folder(tmp_path / "out-again", tmp_path / "once-more")
    same_tensors(tmp_path / "again", tmp_path / "once-more")
    assert load(tmp_path / "again").model.backbone.settings == model.backbone.settings.model_copy(
        update={"max_length": 128}
    )


def build_run(folder: Path, tokenizer: Tokenizer, shape: dict[str, Any]) -> Any:
    """A run as training leaves it, with random weights."""
    recipe = resolve_recipe(folder.name, {"tokenizer": {"kind": "words"}, "model": shape, "objective": "bilm"})
    learner = build_learner(recipe, tokenizer)
    with torch.no_grad():
        for number, parameter in enumerate(learner.model.parameters()):
            generator = torch.Generator().manual_seed(number)
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    text = yaml.safe_dump(recipe.to_dict(), sort_keys=False)
    run = RunFolder.create(folder, text, None)
    tokenizer.save(run.tokenizer_path)
    save_checkpoint(
        run.checkpoints,
        Snapshot(
            step=3,
            model=learner.model.state_dict(),
            optimizer={},
            memory={},
            state={},
            recipe=text,
            tokenizer=run.tokenizer_path,
        ),
    )
    return learner.model


# ---------------------------------------------------------------- AllenNLP's own numbers


def test_the_published_files_give_the_published_vectors(tmp_path: Path) -> None:
    """Thirty sentences in three streams; the state goes on from each to the next."""
    if not REFERENCE.is_dir():
        pytest.skip(f"no reference in {REFERENCE}; MERISTEM_REFERENCE names another place")
    import_folder(REFERENCE, tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "back")
    import_folder(tmp_path / "back", tmp_path / "again")
    same_tensors(tmp_path / "run", tmp_path / "again")
    loaded = load(tmp_path / "again")
    backbone: Any = loaded.model.backbone
    streams = json.loads((REFERENCE / "sentences.json").read_text())
    with torch.inference_mode():
        for number, stream in enumerate(streams):
            state = backbone.init_state(1)
            with h5py.File(REFERENCE / f"lm_embeddings_{number}.hdf5") as file:
                for index, sentence in enumerate(stream):
                    letters = torch.as_tensor(
                        encode_text(loaded.model, loaded.tokenizer, sentence).inputs["characters"]
                    )
                    hidden = backbone(characters=letters[None], state=state)
                    state = hidden.state
                    expected = torch.from_numpy(file[str(index)][...])  # direction, word, channel
                    ours = hidden.last_hidden_state[0, 1:-1].unflatten(-1, (2, -1)).transpose(0, 1)
                    assert ours.shape == expected.shape
                    assert (ours - expected).abs().max() <= 1e-5


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"CNN_proj/b_proj": None}, "CNN_proj/b_proj is missing"),
        ({"CNN_proj/W_proj": np.zeros((12, 7), np.float32)}, "CNN_proj/W_proj is 12×7, which does not convert to 6×12"),
        ({"char_embed": np.zeros((5000, 300), np.float32)}, "char_embed is larger than any tensor of the model"),
        ({"char_embed": np.zeros((261, 3), np.int32)}, "char_embed has dtype torch.int32, which is not a weight"),
        ({"other": np.zeros(3, np.float32)}, "other is unknown"),
        ({"softmax/W": np.zeros((5, 6), np.float32)}, "softmax/b is missing"),
    ],
)
def test_weights_that_are_not_those_of_the_options(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    theirs(tmp_path / "theirs", **changed)
    with pytest.raises(MeristemError, match=message):
        import_folder(tmp_path / "theirs", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("part", "key", "value", "message"),
    [
        ("char_cnn", "activation", "tanh", "char_cnn.activation='tanh' is not supported; supported: relu"),
        ("char_cnn", "max_characters_per_token", 20, "max_characters_per_token=20: only 50"),
        ("char_cnn", "n_characters", 99, "n_characters=99: only 261"),
        ("lstm", "n_layers", 0, "layers"),
    ],
)
def test_options_that_ours_has_not(part: str, key: str, value: Any, message: str, tmp_path: Path) -> None:
    theirs(tmp_path / "theirs")
    options = {"lstm": dict(LSTM), "char_cnn": dict(CNN)}
    options[part][key] = value
    (tmp_path / "theirs" / "options.json").write_text(json.dumps(options))
    with pytest.raises(MeristemError, match=message):
        import_folder(tmp_path / "theirs", tmp_path / "run")


def test_files_that_lead_elsewhere_or_nowhere(tmp_path: Path) -> None:
    theirs(tmp_path / "theirs")
    weights = tmp_path / "theirs" / "weights.hdf5"
    (tmp_path / "secret").write_bytes(bytes(12 * 6 * 4))
    with h5py.File(weights, "a") as file:
        del file["CNN_proj/W_proj"]
        file.create_dataset("CNN_proj/W_proj", (12, 6), "f4", external=[(str(tmp_path / "secret"), 0, 288)])
    with pytest.raises(MeristemError, match="CNN_proj/W_proj: stored in other files, which are not opened"):
        import_folder(tmp_path / "theirs", tmp_path / "run")
    with h5py.File(weights, "a") as file:
        del file["CNN_proj/W_proj"]
        file["CNN_proj/W_proj"] = h5py.ExternalLink("elsewhere.hdf5", "/x")
    with pytest.raises(MeristemError, match="CNN_proj/W_proj is missing"):
        import_folder(tmp_path / "theirs", tmp_path / "run")
    weights.write_bytes(b"not HDF5")
    with pytest.raises(MeristemError, match=r"weights.hdf5: not readable as HDF5"):
        import_folder(tmp_path / "theirs", tmp_path / "run")
    weights.unlink()
    with pytest.raises(MeristemError, match=r"weights.hdf5 of an ELMo: there is none"):
        import_folder(tmp_path / "theirs", tmp_path / "run")
    for name in ("a.hdf5", "b.hdf5"):
        (tmp_path / "theirs" / name).touch()
    with pytest.raises(MeristemError, match=r"several files match \(a.hdf5, b.hdf5\)"):
        import_folder(tmp_path / "theirs", tmp_path / "run")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["<S>", "</S>", "the"], "has no <UNK>"),
        ([*WORDS, "cat"], "has a duplicate word"),
        ([*WORDS, "", "cat"], "or an empty line"),
    ],
)
def test_words_that_cannot_be_read(words: list[str], message: str, tmp_path: Path) -> None:
    theirs(tmp_path / "theirs", words=words)
    with pytest.raises(MeristemError, match=message):
        import_folder(tmp_path / "theirs", tmp_path / "run")


def test_more_words_than_the_softmax_has(tmp_path: Path) -> None:
    theirs(tmp_path / "theirs", words=WORDS)
    with (tmp_path / "theirs" / "vocabulary.txt").open("a") as file:
        file.write("dog\n")
    with pytest.raises(MeristemError, match="softmax/W is 6×6, which does not convert to 7×6"):
        import_folder(tmp_path / "theirs", tmp_path / "run")


def test_without_h5py_its_pip_line_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs(tmp_path / "theirs")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MeristemError, match=r'pip install "meristem-lm\[export\]"'):
        import_folder(tmp_path / "theirs", tmp_path / "run")


def test_what_theirs_has_not_is_named(tmp_path: Path) -> None:
    theirs(tmp_path / "theirs", words=WORDS)
    import_folder(tmp_path / "theirs", tmp_path / "words")
    shape = {
        "family": "elmo",
        "layers": 1,
        "hidden_size": 8,
        "cell_size": 12,
        "char_filters": [[1, 4]],
        "activation": "gelu",
    }
    build_run(tmp_path / "run", Tokenizer.load(tmp_path / "words" / "tokenizer.json"), shape)
    with pytest.raises(
        MeristemError, match=r"AllenNLP's ELMo has no model\.activation=gelu; this run can only be used with"
    ):
        export_run(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()
