"""Weight folders in practice: sharded, in torch's own format, with symbolic links, and with old tensor names."""

from __future__ import annotations

import copy
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

import meristem
from meristem.checkpoint.load_run import load_run
from meristem.config.errors import MeristemError
from meristem.interop.cached_import import resolve_run
from meristem.interop.import_weights import import_folder
from meristem.interop.weights_folder import FolderWeights, read_config
from meristem.utils.untrusted_files import CONFIG_LIMITS, read_json_object

SHAPE = {
    "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48,
    "max_position_embeddings": 20,
}  # fmt: skip
WORDS = "".join(f"{word}\n" for word in ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"])


@pytest.fixture(scope="module")
def model() -> transformers.BertForMaskedLM:
    torch.manual_seed(0)
    return transformers.BertForMaskedLM(transformers.BertConfig(**SHAPE))


@pytest.fixture(scope="module")
def expected_state(
    model: transformers.BertForMaskedLM, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, torch.Tensor]:
    """What the run of a plain folder holds."""
    folder = tmp_path_factory.mktemp("whole")
    model.save_pretrained(folder / "theirs")
    (folder / "theirs" / "vocab.txt").write_text(WORDS)
    return state(import_folder(folder / "theirs", folder / "run").run)


def state(run: Path) -> dict[str, torch.Tensor]:
    return dict(load_run(run).learner.model.state_dict())


def has_weights(run: Path, expected: dict[str, torch.Tensor]) -> bool:
    state_dict_of_run = state(run)
    return state_dict_of_run.keys() == expected.keys() and all(
        torch.equal(state_dict_of_run[name], expected[name]) for name in expected
    )


def test_in_parts(model: transformers.BertForMaskedLM, expected_state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 2
    (tmp_path / "theirs" / "vocab.txt").write_text(WORDS)
    assert has_weights(import_folder(tmp_path / "theirs", tmp_path / "run").run, expected_state)


def test_runs_that_begin_at_once_import_a_folder_once(
    model: transformers.BertForMaskedLM,
    expected_state: dict[str, torch.Tensor],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "cache"))
    model.save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / "vocab.txt").write_text(WORDS)
    with ThreadPoolExecutor(4) as executor:
        run_folders = set(executor.map(resolve_run, [tmp_path / "theirs"] * 4))
    assert len(run_folders) == 1 and has_weights(run_folders.pop(), expected_state)


@pytest.mark.parametrize("zipped", [True, False], ids=["now", "before-2020"])
@pytest.mark.parametrize("parts", [1, 3])
def test_torchs_own_files(
    zipped: bool,
    parts: int,
    model: transformers.BertForMaskedLM,
    expected_state: dict[str, torch.Tensor],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    model.config.save_pretrained(folder)
    (folder / "vocab.txt").write_text(WORDS)
    state_dict = model.state_dict()
    names = [f"pytorch_model-{number}.bin" for number in range(parts)] if parts > 1 else ["pytorch_model.bin"]
    for number, name in enumerate(names):
        part = {key: state_dict[key] for index, key in enumerate(state_dict) if index % parts == number}
        torch.save(part, folder / name, _use_new_zipfile_serialization=zipped)
    if parts > 1:
        weight_map = {key: names[index % parts] for index, key in enumerate(state_dict)}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    assert has_weights(import_folder(folder, tmp_path / "run").run, expected_state)


def test_links_are_followed_as_the_hubs_cache_has_them(
    model: transformers.BertForMaskedLM, expected_state: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    blobs, folder = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    model.save_pretrained(blobs)
    (blobs / "vocab.txt").write_text(WORDS)
    folder.mkdir(parents=True)
    for number, file in enumerate(sorted(blobs.iterdir())):
        file.rename(blobs / f"{number:064x}")
        (folder / file.name).symlink_to(os.path.relpath(blobs / f"{number:064x}", folder))
    run = import_folder(folder, tmp_path / "run").run
    assert has_weights(run, expected_state)
    assert not any(path.is_symlink() and path.name != "latest" for path in run.rglob("*"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_become_ours(dtype: torch.dtype, model: transformers.BertForMaskedLM, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    model.config.save_pretrained(folder)
    (folder / "vocab.txt").write_text(WORDS)
    torch.save({name: tensor.to(dtype) for name, tensor in model.state_dict().items()}, folder / "pytorch_model.bin")
    state_dict_of_run = state(import_folder(folder, tmp_path / "run").run)
    words = model.state_dict()["bert.embeddings.word_embeddings.weight"]
    assert state_dict_of_run["backbone.embed.tokens.weight"].dtype == torch.float32
    assert torch.equal(state_dict_of_run["backbone.embed.tokens.weight"], words.to(dtype).float())


def test_a_body_alone_gets_the_same_new_head_each_time(model: transformers.BertForMaskedLM, tmp_path: Path) -> None:
    copy.deepcopy(model.bert).save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / "vocab.txt").write_text(WORDS)
    imports = [import_folder(tmp_path / "theirs", tmp_path / name) for name in "ab"]
    assert imports[0].new_weights and all(name.startswith("heads.mlm.") for name in imports[0].new_weights)
    first_state, second_state = (state(imported.run) for imported in imports)
    assert all(torch.equal(first_state[name], second_state[name]) for name in first_state)
    initial_weight = first_state["heads.mlm.transform.dense.weight"]
    assert 0.015 < float(initial_weight.std()) < 0.025  # as any run begins: normal, 0.02
    assert first_state["heads.mlm.transform.norm.weight"].eq(1).all()


def test_rows_that_no_token_has_are_never_written(model: transformers.BertForMaskedLM, tmp_path: Path) -> None:
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.cls.predictions.bias[13:] = 50.0  # the vocabulary has 13 tokens, the table 60 rows
    other.save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / "vocab.txt").write_text(WORDS)
    loaded = meristem.load(import_folder(tmp_path / "theirs", tmp_path / "run").run)
    assert loaded.recipe.tokenizer.padded_vocab_size == 60
    (filled,) = loaded.fill("a [MASK] c", top=60)
    assert {candidate.token for candidate in filled.candidates} == set("abcdefgh")
    ((completion,),) = loaded.generate("a b", max_tokens=8)
    assert max(completion.tokens) < 13


def test_greek_names_of_old_norms(
    model: transformers.BertForMaskedLM, expected_state: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    model.config.save_pretrained(folder)
    (folder / "vocab.txt").write_text(WORDS)
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in model.state_dict().items()
    }
    assert any(name.endswith("gamma") for name in renamed)
    torch.save(renamed, folder / "pytorch_model.bin")
    assert has_weights(import_folder(folder, tmp_path / "run").run, expected_state)


def test_safetensors_go_before_bin(model: transformers.BertForMaskedLM, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"never opened")
    with FolderWeights(tmp_path) as weights:
        assert set(weights) == set(load_file(tmp_path / "model.safetensors"))
        assert len(weights) == len(set(weights))
        assert "bert.embeddings.LayerNorm.bias" in weights and "nothing" not in weights


def test_json_of_any_size_but_too_large(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"a": 1}')
    assert read_json_object(path) == {"a": 1} == read_config(tmp_path)
    with path.open("ab") as file:
        file.truncate(CONFIG_LIMITS.max_bytes + 1)
    with pytest.raises(MeristemError, match=r"too large for config\.json"):
        read_json_object(path)
    with pytest.raises(MeristemError, match="no such folder"):
        read_config(tmp_path / "nowhere")
