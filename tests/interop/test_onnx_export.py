"""ONNX graphs in onnxruntime against the exported models: new sizes, padding, KV caches, and the README programs.

Over 10 s: torch's exporter takes two to five seconds for a graph however small, and every family has its own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor

import meristem
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.checkpoint.run_folder import RunFolder
from meristem.checkpoint.save import save_checkpoint
from meristem.checkpoint.snapshot import Snapshot
from meristem.config.errors import MeristemError
from meristem.config.recipe import resolve_recipe
from meristem.generation.fill import fill
from meristem.generation.generate import generate
from meristem.generation.incremental_decoder import DecodeSession
from meristem.generation.settings import SamplingSettings
from meristem.interfaces.backbone import Model
from meristem.interop.onnx_export import export_onnx, graph_export, onnx_graph
from meristem.learning.build import build_learner
from meristem.tokenizers.tokenizer import Tokenizer

LENGTH = 24
CLOSE = 1e-4
SMALL = {"layers": 2, "hidden_size": 32, "heads": 4, "max_length": LENGTH, "init_std": 0.3, "output_init": "normal"}
PLAIN = {"family": "transformer", **SMALL}
EARLY = {"norm_position": "pre", "position_encoding": "rotary"}
FAMILIES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "bert": ({"family": "bert", **SMALL}, ["mlm", "nsp"]),
    "roberta": ({"family": "roberta", **SMALL}, ["mlm"]),
    "modernbert": (
        {"family": "modernbert", **SMALL, "ffn_size": 48, "attention_window": 3, "global_attention_every": 2},
        ["mlm"],
    ),
    "electra": ({"family": "electra", **SMALL, "embedding_size": 16}, ["rtd"]),
    "xlnet": ({"family": "xlnet", **SMALL, "memory_length": 0}, ["mlm"]),
    "bert-prenorm": ({"family": "bert", **SMALL, **EARLY}, ["mlm", "nsp"]),
    "xlnet-prenorm": (
        {"family": "xlnet", **SMALL, "memory_length": 0, "norm_position": "pre", "segments": False},
        ["mlm"],
    ),
    "gpt": ({"family": "gpt", **SMALL}, ["clm"]),
    "gpt2": ({"family": "gpt2", **SMALL}, ["clm"]),
    "modern": (
        {"family": "modern", **SMALL, "kv_heads": 2, "attention_window": 5, "attention_window_every": 2},
        ["clm"],
    ),
    "modern-shortcuts": (
        {
            "family": "modern",
            **SMALL,
            "kv_heads": 2,
            "value_embeddings": 1,
            "embedding_shortcut": True,
            "logit_soft_cap": 0.5,
        },
        ["clm"],
    ),
    "transformer_xl": ({"family": "transformer_xl", **SMALL, "max_length": 12, "memory_length": 6}, ["clm"]),
    "plain": (PLAIN, ["denoising"]),
    "bart": (
        {
            **PLAIN,
            "position_encoding": "learned",
            "scale_embeddings": False,
            "embedding_norm": True,
            "activation": "gelu",
        },
        ["denoising"],
    ),
    "bart-prenorm": ({**PLAIN, **EARLY, "scale_embeddings": False, "activation": "gelu"}, ["denoising"]),
    "t5": (
        {
            **PLAIN,
            "position_encoding": "none",
            "scale_embeddings": False,
            "relative_buckets": 8,
            "relative_max_distance": 20,
            "scale_attention": False,
            "norm": "rms",
            "norm_position": "pre",
            "activation": "geglu",
            "tie_embeddings": False,
            "bias": False,
            "decoder_layers": 1,
        },
        ["denoising"],
    ),
    "captioner": ({"family": "captioner", **SMALL, "image_size": 16, "patch_size": 4}, ["caption"]),
}
MORE = ("electra", "roberta", "xlnet", "bert-prenorm", "xlnet-prenorm")
ENCODERS = ["bert", *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)]
CAUSAL = [
    "gpt2",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("gpt", "modern", "modern-shortcuts", "transformer_xl")),
]
PAIRS = ["plain", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bart", "bart-prenorm", "t5"))]
BROUGHT = {
    "tagging": {"kind": "tags", "sizes": {"classes": 3}, "labels": ["a", "b", "c"]},
    "pooler": {"kind": "pooler"},
    "choice": {"kind": "pooled", "sizes": {"classes": 1}},
}
"""Heads that ELECTRA's run came with; the last of them never learnt anything."""
ROOM = 5000
"""Rows of BERT's table here, so that a second copy of it would be seen in the file's size."""

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Drawn:
    """A run, and its graphs."""

    loaded: LoadedRun
    folder: Path
    summary: str

    @property
    def model(self) -> Model:
        return self.loaded.learner.model

    def session(self, file: str = "model.onnx") -> onnxruntime.InferenceSession:
        return onnxruntime.InferenceSession(self.folder / file, providers=["CPUExecutionProvider"])

    def run(self, session: onnxruntime.InferenceSession, **inputs: NDArray[Any]) -> Arrays:
        names = [port.name for port in session.get_outputs()]
        return dict(zip(names, session.run(names, inputs), strict=True))


def make_run(name: str, tokenizer: Tokenizer, out: Path) -> Path:
    """A run with random weights, biases and norms too."""
    model, objectives = FAMILIES[name]
    recipe_sections: dict[str, Any] = {"model": model, "objective": [{"name": objective} for objective in objectives]}
    if name == "bert":
        recipe_sections["tokenizer"] = {"padded_vocab_size": ROOM}
    if name == "electra":
        recipe_sections["heads"] = BROUGHT
    if name == "modern-shortcuts":  # its weights of seed 0 end every text after two tokens
        recipe_sections["train"] = {"seed": 1}
    if name == "captioner":
        recipe_sections |= {
            "corpus": {"source": "builtin:microworld-pictures"},
            "dataset": {"image_size": model["image_size"]},
        }
    recipe = resolve_recipe(name, recipe_sections)
    untrained_model = build_learner(recipe, tokenizer).model
    torch.manual_seed(len(name))
    with torch.no_grad():
        for parameter in untrained_model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    text = yaml.safe_dump(recipe.to_dict(), sort_keys=False)
    run = RunFolder.create(out, text, None)
    tokenizer.save(run.tokenizer_path)
    state = {"new": ["choice"]} if name == "electra" else {}
    save_checkpoint(
        run.checkpoints,
        Snapshot(
            step=0,
            model=untrained_model.state_dict(),
            optimizer={},
            memory={},
            state=state,
            recipe=text,
            tokenizer=run.tokenizer_path,
        ),
    )
    return run.path


@pytest.fixture(scope="module")
def export_of(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Drawn]:
    """Every family's graphs, made once: GPT-2's by the command line, RoBERTa's weights in a file of their own."""
    exports: dict[str, Drawn] = {}

    def draw(name: str) -> Drawn:
        if name not in exports:
            export_folder = tmp_path_factory.mktemp(name)
            run, folder = make_run(name, tokenizer, export_folder / "run"), export_folder / "graphs"
            with pytest.MonkeyPatch.context() as patch:
                if name == "roberta":
                    patch.setattr(onnx_graph, "MAX_INLINE_BYTES", 0)
                summary = by_command(run, folder) if name == "gpt2" else export_onnx(run, folder).summary()
            exports[name] = Drawn(load_run(run), folder, summary)
        return exports[name]

    return draw


def by_command(run: Path, folder: Path) -> str:
    completed = subprocess.run(
        [sys.executable, "-m", "meristem", "export", str(run), str(folder), "--onnx"],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
        timeout=240,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout + completed.stderr


def words(rows: int, time: int, seed: int = 0) -> NDArray[np.int64]:
    """Ordinary tokens."""
    return np.random.default_rng(seed).integers(5, 40, (rows, time))


def mask_of(sizes: list[int], time: int, side: str = "right") -> NDArray[np.int64]:
    """1 where rows of these sizes have tokens."""
    right = (np.arange(time) < np.array(sizes)[:, None]).astype(np.int64)
    return right if side == "right" else right[:, ::-1].copy()


def assert_close(actual: NDArray[Any], expected: Tensor | NDArray[Any]) -> None:
    assert actual.shape == tuple(expected.shape)
    assert np.abs(actual - np.asarray(expected)).max(initial=0) <= CLOSE


SHAPES = [(1, [1]), (7, [7, 4, 1]), (LENGTH, [LENGTH, 13])]
"""Lengths that no graph saw when it was drawn, each with rows of these sizes."""


@pytest.mark.parametrize("name", ENCODERS)
@torch.no_grad()
def test_an_encoder_says_the_same(name: str, export_of: Callable[[str], Drawn]) -> None:
    exported = export_of(name)
    session, model = exported.session(), exported.model
    with_segments = "token_type_ids" in {port.name for port in session.get_inputs()}
    assert with_segments == (name in ("bert", "bert-prenorm", "electra", "xlnet"))
    for time, sizes in SHAPES:
        tokens, mask = words(len(sizes), time), mask_of(sizes, time)
        segments = (np.arange(time) > time // 2).astype(np.int64)[None].repeat(len(sizes), 0)
        segment_inputs = {"token_type_ids": segments} if with_segments else {}
        outputs = exported.run(session, input_ids=tokens, attention_mask=mask, **segment_inputs)
        segment_tensors = {"segments": torch.from_numpy(segments)} if with_segments else {}
        last = model.backbone(
            tokens=torch.from_numpy(tokens), present=torch.from_numpy(mask > 0), **segment_tensors
        ).last_hidden_state
        expected = {"last_hidden_state": last}
        if name.startswith("bert"):
            expected |= {"mlm_logits": model.heads["mlm"](last), "nsp_logits": model.heads["nsp"](last[:, 0])}
        elif name == "electra":
            heads = model.heads
            expected |= {"rtd_logits": heads["rtd"](last), "tagging_logits": heads["tagging"](last)}
            expected["pooler_output"] = heads["pooler"](last[:, 0])
        else:
            expected["logits"] = model.heads["mlm"](last)
        assert set(outputs) == set(expected)
        for output, value in expected.items():
            assert_close(outputs[output], value)


def empty(session: onnxruntime.InferenceSession, rows: int) -> Arrays:
    """A past that holds nothing."""
    return {
        port.name: np.zeros((rows, port.shape[1], 0, port.shape[3]), np.float32)
        for port in session.get_inputs()
        if port.name.startswith("past_key_values")
    }


def past_key_values(outputs: Arrays) -> Arrays:
    """What came out, as the next call takes it."""
    return {name.replace("present", "past_key_values"): value for name, value in outputs.items() if name != "logits"}


@torch.no_grad()
def causal_logits(model: Model, tokens: NDArray[np.int64]) -> Tensor:
    """Ours, of rows without padding."""
    return model.heads["clm"](model.backbone(tokens=torch.from_numpy(tokens), causal=True).last_hidden_state)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", CAUSAL)
def test_a_causal_model_says_the_same_whatever_is_padded(name: str, export_of: Callable[[str], Drawn]) -> None:
    exported = export_of(name)
    session = exported.session()
    for time, sizes in [(1, [1]), (7, [7, 4, 1]), (exported.loaded.recipe.model.max_length, [12, 9])]:
        sizes = [min(size, time) for size in sizes]
        tokens = words(len(sizes), time)
        for side in ("right", "left"):
            mask = mask_of(sizes, time, side)
            outputs = exported.run(session, input_ids=tokens, attention_mask=mask, **empty(session, len(sizes)))
            for row in range(len(sizes)):
                present_row = mask[row] > 0
                assert_close(
                    outputs["logits"][row, present_row],
                    causal_logits(exported.model, tokens[row : row + 1, present_row])[0],
                )


@pytest.mark.parametrize("name", CAUSAL)
def test_a_causal_model_goes_on_from_its_cache(name: str, export_of: Callable[[str], Drawn]) -> None:
    exported, time = export_of(name), 12
    session, tokens = exported.session(), words(2, time, seed=1)
    expected = causal_logits(exported.model, tokens)
    past, logits = empty(session, 2), []
    for start, stop in [(0, 5), (5, 6), (6, 11), (11, 12)]:
        mask = np.ones((2, stop), np.int64)
        out = exported.run(session, input_ids=tokens[:, start:stop], attention_mask=mask, **past)
        past = past_key_values(out)
        logits.append(out["logits"])
    assert_close(np.concatenate(logits, 1), expected)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_gap_between_prompt_and_text_changes_nothing(name: str, export_of: Callable[[str], Drawn]) -> None:
    exported = export_of(name)
    session, tokens = exported.session(), words(1, 6, seed=2)
    padded = np.pad(tokens[:, :4], ((0, 0), (0, 3)))
    mask = mask_of([4], 7)
    out = exported.run(session, input_ids=padded, attention_mask=mask, **empty(session, 1))
    mask = np.pad(mask, ((0, 0), (0, 2)), constant_values=1)
    logits = exported.run(session, input_ids=tokens[:, 4:], attention_mask=mask, **past_key_values(out))["logits"]
    assert_close(logits, causal_logits(exported.model, tokens)[:, 4:])


@pytest.mark.slow
def test_transformer_xl_sees_no_further_than_it_writes_with(export_of: Callable[[str], Drawn]) -> None:
    exported, tokens = export_of("transformer_xl"), words(2, 30, seed=4)  # 12 + 6 are in sight
    session = exported.session()
    mask = np.ones(tokens.shape, np.int64)
    logits = exported.run(session, input_ids=tokens, attention_mask=mask, **empty(session, 2))["logits"]
    grows = DecodeSession(exported.model, torch.from_numpy(tokens[:, :1]), capacity=8)
    for time in range(30):
        assert_close(logits[:, time], grows.logits)
        if time < 29:
            grows.decode_step(torch.from_numpy(tokens[:, time + 1]))


@pytest.mark.parametrize("name", PAIRS)
@torch.no_grad()
def test_an_encoder_decoder_says_the_same(name: str, export_of: Callable[[str], Drawn]) -> None:
    exported = export_of(name)
    reads, writes, model = (
        exported.session("encoder_model.onnx"),
        exported.session("decoder_model.onnx"),
        exported.model,
    )
    for time, sizes in SHAPES:
        source, mask = words(len(sizes), time), mask_of(sizes, time)
        tokens = words(len(sizes), min(time + 2, LENGTH), seed=3)
        present = torch.from_numpy(mask > 0)
        hidden = model.backbone(
            source=torch.from_numpy(source), tokens=torch.from_numpy(tokens), source_present=present
        )
        states = exported.run(reads, input_ids=source, attention_mask=mask)["last_hidden_state"]
        assert hidden.encoder_hidden_state is not None
        assert_close(states, hidden.encoder_hidden_state)
        logits, past = [], empty(writes, len(sizes))
        for start, stop in [(0, 2), (2, tokens.shape[1])]:  # the second call brings nothing of the source
            encoder_inputs = {"encoder_hidden_states": states, "encoder_attention_mask": mask}
            out = exported.run(writes, input_ids=tokens[:, start:stop], **encoder_inputs, **past)
            states, past = states[:, :0], past_key_values(out)
            logits.append(out["logits"])
        assert_close(np.concatenate(logits, 1), model.heads["seq2seq"](hidden.last_hidden_state))


# ---------------------------------------------------------------- the folder


def program(exported: Drawn) -> str:
    """The one program on the page."""
    (code,) = re.findall(r"```python\n(.*?)```", (exported.folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    return str(code)


def executed(exported: Drawn, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the names of the page's program stand for at its end."""
    monkeypatch.chdir(exported.folder)
    space: dict[str, Any] = {}
    exec(compile(program(exported), "README.md", "exec"), space)
    return space


@pytest.mark.parametrize("name", [*CAUSAL, *PAIRS])
def test_the_readme_program_generates_what_we_generate(
    name: str, export_of: Callable[[str], Drawn], monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = export_of(name)
    space = executed(exported, monkeypatch)
    prompts = json.loads(re.search(r"encode_batch\((\[.*?\])\)", program(exported)).group(1))  # type: ignore[union-attr]
    max_tokens = max(map(len, space["generated"]))
    settings = SamplingSettings(greedy=True, max_tokens=max_tokens)
    ours = [
        completion.tokens for (completion,) in generate(exported.model, exported.loaded.tokenizer, prompts, settings)
    ]
    end = exported.loaded.tokenizer.end
    assert [tuple(token for token in text if token != end) for text in space["generated"]] == ours
    assert max_tokens > 1  # more depends on near ties, which processors round in different ways
    if name in ("gpt", "gpt2", "modern", "t5"):  # random weights make the others say one word again and again
        assert len({token for text in ours for token in text}) > 5


def test_the_readme_program_fills_masks_as_we_do(
    export_of: Callable[[str], Drawn], monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = export_of("roberta")
    space = executed(exported, monkeypatch)
    row, masked_logits, best = space["row"], space["here"], space["best"]  # those of the last text
    (ours,) = fill(exported.model, exported.loaded.tokenizer, "My sister sold [MASK] boats and a garden.", top=5)
    assert [exported.loaded.tokenizer.token_text(int(token)) for token in best] == [
        candidate.token for candidate in ours.candidates
    ]
    tokenizer = exported.loaded.tokenizer
    assert [token for token in row.ids if token in (tokenizer.start, tokenizer.end)] == [tokenizer.start, tokenizer.end]
    assert np.isfinite(masked_logits).sum() == (~exported.loaded.tokenizer.special_mask).sum()


def test_the_command_says_what_it_does(export_of: Callable[[str], Drawn]) -> None:
    exported = export_of("gpt2")
    first, second = exported.summary.splitlines()  # and nothing of what torch says meanwhile
    assert re.fullmatch(r"model\.onnx … \d+ s", first)
    assert re.fullmatch(r"model\.onnx \(gpt2, causal\), 0\.0 M parameters, in .*graphs", second)


def test_heads_without_a_place_are_named(export_of: Callable[[str], Drawn]) -> None:
    summary = export_of("electra").summary
    assert re.findall(r"^(\w+): left out", summary, re.MULTILINE) == ["choice", "generator"]


def test_the_folder_says_what_a_reader_needs(export_of: Callable[[str], Drawn]) -> None:
    exported = export_of("gpt2")
    assert {path.name for path in exported.folder.iterdir()} == {
        "model.onnx",
        "config.json",
        "tokenizer.json",
        "recipe.yaml",
        "README.md",
    }
    config = json.loads((exported.folder / "config.json").read_text())
    tokenizer = exported.loaded.tokenizer
    assert (config["family"], config["kind"], config["length"]) == ("gpt2", "causal", LENGTH)
    assert (config["eos_token_id"], config["pad_token_id"]) == (tokenizer.end, tokenizer.pad)
    assert config["decoder_start_token_ids"] == [tokenizer.end]
    assert tokenizer.end not in config["suppress_tokens"] and tokenizer.pad in config["suppress_tokens"]
    assert config["graphs"]["model.onnx"]["inputs"]["past_key_values.1.key"] == ["batch", 4, "past", 8]
    assert resolve_recipe("again", yaml.safe_load((exported.folder / "recipe.yaml").read_text())).model.family == "gpt2"


def test_a_file_holds_each_weight_once_and_nothing_of_this_machine(export_of: Callable[[str], Drawn]) -> None:
    exported = export_of("bert")
    path = exported.folder / "model.onnx"
    onnx.checker.check_model(path, full_check=True)
    weights = 4 * sum(parameter.numel() for parameter in exported.model.parameters())
    assert weights <= path.stat().st_size <= 1.1 * weights
    assert str(Path(meristem.__file__).parent).encode() not in path.read_bytes()


def test_large_weights_lie_in_a_file_of_their_own(export_of: Callable[[str], Drawn]) -> None:
    exported = export_of("roberta")
    weights = 4 * sum(parameter.numel() for parameter in exported.model.parameters())
    assert (exported.folder / "model.onnx_data").stat().st_size > 0.8 * weights
    assert (exported.folder / "model.onnx").stat().st_size < 60_000
    onnx.checker.check_model(exported.folder / "model.onnx")


# ---------------------------------------------------------------- what is refused


def test_a_family_without_graphs_is_refused_by_name(tokenizer: Tokenizer, tmp_path: Path) -> None:
    FAMILIES["rnn"] = ({"family": "rnn", "layers": 1, "hidden_size": 16, "max_length": LENGTH}, ["denoising"])
    run = make_run("rnn", tokenizer, tmp_path / "run")
    del FAMILIES["rnn"]
    with pytest.raises(MeristemError, match=r"the rnn family has no ONNX export; these have one: bert, .*xlnet"):
        export_onnx(run, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def test_nothing_half_written_stays(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run("plain", tokenizer, tmp_path / "run")

    def fails(graph: onnx_graph.OnnxGraph, folder: Path) -> None:
        if graph.file == "decoder_model.onnx":
            assert (folder / "encoder_model.onnx").exists()
            raise OSError(28, "No space left on device", str(folder / graph.file))
        (folder / graph.file).write_bytes(b"half")

    monkeypatch.setattr(graph_export, "save_graph", fails)
    with pytest.raises(MeristemError, match="out could not be written: No space left on device"):
        export_onnx(run, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"run"}
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("kept")
    with pytest.raises(MeristemError, match="full already exists"):
        export_onnx(run, tmp_path / "full")
    assert (tmp_path / "full" / "mine.txt").read_text() == "kept"


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MeristemError, match=re.escape('pip install "meristem-lm[export]"')):
        export_onnx(tmp_path / "run", tmp_path / "out")


@pytest.mark.slow
@torch.no_grad()
def test_a_captioner_reads_pictures_and_texts(
    export_of: Callable[[str], Drawn], monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = export_of("captioner")
    space = executed(exported, monkeypatch)
    pictures = space["rows"]
    (states,) = space["encoder"].run(None, {"pixel_values": pictures})
    assert_close(states, exported.model.backbone.encode(image=torch.from_numpy(pictures))[0])  # type: ignore[operator]
    settings = SamplingSettings(greedy=True, max_tokens=max(map(len, space["generated"])))
    ours = [
        completion.tokens
        for (completion,) in generate(exported.model, exported.loaded.tokenizer, list(pictures), settings)
    ]
    end = exported.loaded.tokenizer.end
    assert [tuple(token for token in text if token != end) for text in space["generated"]] == ours
    tokens, mask = words(2, 7), mask_of([7, 3], 7)
    outputs = exported.run(exported.session("text_encoder_model.onnx"), input_ids=tokens, attention_mask=mask)
    expected, _ = exported.model.backbone.encode(  # type: ignore[operator]
        source=torch.from_numpy(tokens), source_present=torch.from_numpy(mask > 0)
    )
    assert_close(outputs["last_hidden_state"], expected)
