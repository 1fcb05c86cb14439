"""BART and T5 imported and exported: the same outputs, tensors and generated texts as in transformers."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from rich.console import Console
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import meristem
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.generation.generate import generate
from meristem.generation.generation_inputs import build_generation_inputs, collate_inputs
from meristem.generation.settings import SamplingSettings
from meristem.interop import import_weights
from meristem.interop.export_folder import export_run
from meristem.interop.import_weights import import_folder
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer
from meristem.training import budget

TOLERANCE, LENGTH, NEW, ROOM = 1e-5, 40, 32, 5
TEXTS = ["The old gardener planted the apple tree.", "My sister sold seventeen boats.", "老园丁种下了苹果树。"]
SOURCES = ["The old gardener", "My sister sold seventeen boats and a small garden", "a", "sold the apple tree."]
UNTIED = "The tied weights mapping and config for this model specifies to tie shared.weight to lm_head.weight"
SHAPES: dict[str, dict[str, Any]] = {
    "bart": {
        "d_model": 32,
        "encoder_layers": 3,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 80,
        "decoder_ffn_dim": 80,
        "max_position_embeddings": LENGTH,
    },
    "t5": {
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 80,
        "num_layers": 3,
        "num_decoder_layers": 2,
        "num_heads": 4,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 12,
    },
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "bart": ("bart", {}),
    "bart-scaled": ("bart", {"scale_embedding": True, "activation_function": "relu"}),
    "t5": ("t5", {}),
    "t5-gated": ("t5", {"feed_forward_proj": "gated-gelu"}),
    "t5-silu": ("t5", {"feed_forward_proj": "gated-silu", "tie_word_embeddings": False}),
    "t5-untied": ("t5", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
}
CLASSES = {
    "bart": ["Bart" + name for name in ("Model", "ForConditionalGeneration", "ForSequenceClassification",
                                        "ForQuestionAnswering")],
    "t5": ["T5" + name for name in ("Model", "ForConditionalGeneration", "ForSequenceClassification",
                                    "ForQuestionAnswering")],
}  # fmt: skip


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return train_tokenizer(
        TokenizerSettings.model_validate({"kind": "bpe", "vocab_size": 340, "sentinels": 8}), TEXTS * 3
    )


def theirs(name: str, kind: str, words: Tokenizer, folder: Path, *, writes: bool = False, **config_changes: Any) -> Any:
    """A folder of theirs with random weights, norms and biases too, and the model it opens as."""
    family, changes = KINDS[kind]
    first = words.end if family == "bart" else words.pad
    config_fields = {"vocab_size": words.vocab_size + ROOM, "pad_token_id": words.pad, "eos_token_id": words.end,
            "decoder_start_token_id": first, **SHAPES[family], **changes, **config_changes}  # fmt: skip
    config_fields |= {"num_labels": 3} if name.endswith("Classification") else {}
    config_fields |= {"bos_token_id": words.start, "forced_eos_token_id": None} if family == "bart" else {}
    model = getattr(transformers, name)(getattr(transformers, f"{name[: len(family)]}Config")(**config_fields)).eval()
    scatter(model, lively=writes)
    if writes:
        with torch.no_grad():
            model.get_input_embeddings().weight[unwritten(words)] = 0  # so that other tokens score more
    model.save_pretrained(folder)
    words.save(folder / "tokenizer.json")
    if kind == "t5-untied" and "ForConditional" in name:  # transformers 5 cannot save one, but opens it
        weights = load_file(folder / "model.safetensors")
        own_embedding = torch.randn(weights["shared.weight"].shape, generator=torch.Generator().manual_seed(5)) * 0.2
        own_embedding[unwritten(words)] = 0
        save_file({**weights, "lm_head.weight": own_embedding}, folder / "model.safetensors", {"format": "pt"})
        model = type(model).from_pretrained(folder).eval()
        assert torch.equal(model.lm_head.weight, own_embedding)
    return model


def scatter(module: nn.Module, *, lively: bool) -> None:
    """Random weights everywhere; `lively` ones write texts that do not say one word again and again."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            deviation = 0.2
            if lively and parameter.ndim > 1 and "shared" not in name:
                deviation = 0.02 if any(part in name for part in ("fc2", "encoder_attn.out_proj")) else 0.6
            noise = torch.randn(parameter.shape, generator=generator) * deviation
            parameter.copy_(noise + (parameter.ndim == 1 and not name.endswith("bias")))


def unwritten(words: Tokenizer) -> list[int]:
    """Special tokens and rows without a token: never written here, though `generate` may choose them."""
    special = [n for n in words.special_mask.nonzero()[0].tolist() if n not in (words.end, *words.sentinels)]
    return [*special, *range(words.vocab_size, words.vocab_size + ROOM)]


@contextmanager
def no_warnings(*allowed: str) -> Iterator[None]:
    """Nothing is said at WARNING or above, by any logger of theirs or as a Python warning, but what is allowed."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]  # all it must do
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught_warnings:
            warnings.simplefilter("always")
            yield
    finally:
        logger.removeHandler(handler)
    messages += [str(warning.message) for warning in caught_warnings]
    assert [line for line in messages if not line.startswith(allowed or "\0")] == []


def opened(folder: Path, kind: str, name: str | None = None) -> Any:
    """Their model of a folder of ours, with nothing missing, unexpected or complained of."""
    architecture = name or json.loads((folder / "config.json").read_text())["architectures"][0]
    automatic = {
        "Model": "AutoModel",
        "ForConditionalGeneration": "AutoModelForSeq2SeqLM",
        "ForSequenceClassification": "AutoModelForSequenceClassification",
        "ForQuestionAnswering": "AutoModelForQuestionAnswering",
    }
    auto = next(auto_class for ending, auto_class in automatic.items() if architecture.endswith(ending))
    with no_warnings(*([UNTIED] if kind == "t5-untied" and "Conditional" in architecture else [])):
        model, info = getattr(transformers, auto).from_pretrained(folder, output_loading_info=True)
    assert type(model).__name__ == architecture
    assert not any(info.values()), info
    return model.eval()


def sides(words: Tokenizer, rows: int, *, ends: bool = False) -> dict[str, Tensor]:
    """Source and target of odd lengths with padding on both sides; with `ends` a source alone, each with one end."""
    generator = torch.Generator().manual_seed(3)
    source, target = (torch.randint(5, rows, (3, n), generator=generator) for n in (13, 9))
    sizes = torch.tensor([[13], [7], [1]])
    source_present, present = torch.arange(13) < sizes, torch.arange(9) < torch.tensor([[4], [9], [1]])
    if not ends:
        return {"source": source, "tokens": target, "source_present": source_present, "present": present}
    source = source.masked_fill(~source_present, int(words.pad or 0)).scatter(1, sizes - 1, int(words.end or 0))
    return {"source": source, "source_present": source_present}


@torch.inference_mode()
def outputs(model: Any, words: Tokenizer) -> list[Tensor]:
    """What their model makes of such sides, where there is something."""
    if type(model).__name__.endswith("Classification"):
        inputs = sides(words, words.vocab_size, ends=True)
        return [model(input_ids=inputs["source"], attention_mask=inputs["source_present"].long()).logits]
    inputs = sides(words, words.vocab_size + ROOM)
    output = model(
        input_ids=inputs["source"],
        attention_mask=inputs["source_present"].long(),
        decoder_input_ids=inputs["tokens"],
        decoder_attention_mask=inputs["present"].long(),
    )
    last = output.encoder_last_hidden_state[inputs["source_present"]]
    if type(model).__name__.endswith("Answering"):
        output = torch.stack([output.start_logits, output.end_logits], -1)
    else:
        output = output.logits if "logits" in output else output.last_hidden_state
    return [output[inputs["present"]], last]


@torch.inference_mode()
def ours(loaded_run: LoadedRun, name: str) -> list[Tensor]:
    """The same from a run."""
    model, words = loaded_run.learner.model, loaded_run.tokenizer
    if name.endswith("Classification"):
        inputs = sides(words, words.vocab_size, ends=True)
        assert model.decoder_start_ids is not None
        first = torch.full((3, 1), model.decoder_start_ids[0])
        hidden = model.backbone(tokens=torch.cat([first, inputs["source"][:, :-1]], 1), **inputs)
        return [model.heads["classification"](hidden.last_hidden_state[inputs["source"] == words.end])]
    inputs = sides(words, words.vocab_size + ROOM)
    hidden = model.backbone(**inputs)
    head = {"Answering": "span", "Generation": "seq2seq"}.get(name.rsplit("Question")[-1].rsplit("Conditional")[-1])
    logits = hidden.last_hidden_state if head is None else model.heads[head](hidden.last_hidden_state)
    return [logits[inputs["present"]], hidden.encoder_hidden_state[inputs["source_present"]]]


def close(actual_tensors: list[Tensor], expected: list[Tensor]) -> None:
    for actual, other in zip(actual_tensors, expected, strict=True):
        assert actual.shape == other.shape
        assert float((actual - other).abs().max()) <= TOLERANCE * max(1.0, float(other.abs().max()))


def assert_same_runs(first_run: LoadedRun, other: LoadedRun) -> None:
    """Every tensor of two runs, and everything they were told."""
    state_dict, weights = first_run.learner.model.state_dict(), other.learner.model.state_dict()
    assert state_dict.keys() == weights.keys()
    assert [name for name, value in state_dict.items() if not torch.equal(value, weights[name])] == []
    assert first_run.recipe.to_dict() == other.recipe.to_dict()
    assert first_run.learner.model.decoder_start_ids == other.learner.model.decoder_start_ids


EVERY = [(kind, name) for kind in ("bart", "t5") for name in CLASSES[kind]]
OTHERS = [(kind, CLASSES[family][1]) for kind, (family, _) in KINDS.items() if kind != family]


@pytest.mark.parametrize(("kind", "name"), [*EVERY, *OTHERS])
def test_in_and_out(kind: str, name: str, words: Tokenizer, tmp_path: Path) -> None:
    model = theirs(name, kind, words, tmp_path / "theirs")
    expected = outputs(model, words)
    imported = import_folder(tmp_path / "theirs", tmp_path / "run")
    assert (imported.architecture, imported.new_weights, imported.unused_tensors) == (name, (), ())
    run = load_run(tmp_path / "run")
    close(ours(run, name), expected)
    export_run(tmp_path / "run", tmp_path / "out", architecture=name)
    exported_outputs = outputs(opened(tmp_path / "out", kind), words)
    assert all(torch.equal(actual, other) for actual, other in zip(exported_outputs, expected, strict=True))
    import_folder(tmp_path / "out", tmp_path / "again")
    assert_same_runs(run, load_run(tmp_path / "again"))


@pytest.mark.parametrize("file_layout", ["sharded", "bin"])
@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_other_files(kind: str, file_layout: str, words: Tokenizer, tmp_path: Path) -> None:
    name = CLASSES[kind][1]
    model = theirs(name, kind, words, tmp_path / "theirs")
    import_folder(tmp_path / "theirs", tmp_path / "run")
    (tmp_path / "theirs" / "model.safetensors").unlink()
    if file_layout == "sharded":
        model.save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
        assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 2
    else:  # every name of the one table of words is in such a file
        torch.save(model.state_dict(), tmp_path / "theirs" / "pytorch_model.bin")
        assert "lm_head.weight" in model.state_dict()
    import_folder(tmp_path / "theirs", tmp_path / "again")
    assert_same_runs(load_run(tmp_path / "run"), load_run(tmp_path / "again"))


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_any_name_of_the_one_table_of_words_will_do(kind: str, words: Tokenizer, tmp_path: Path) -> None:
    theirs(CLASSES[kind][1], kind, words, tmp_path / "theirs")
    import_folder(tmp_path / "theirs", tmp_path / "run")
    before, path = {"bart": "model.", "t5": ""}[kind], tmp_path / "theirs" / "model.safetensors"
    weights = load_file(path)
    table = weights.pop(f"{before}shared.weight")
    save_file({**weights, f"{before}encoder.embed_tokens.weight": table}, path)
    import_folder(tmp_path / "theirs", tmp_path / "again")
    assert_same_runs(load_run(tmp_path / "run"), load_run(tmp_path / "again"))
    other = f"{before}decoder.embed_tokens.weight"
    save_file({**weights, f"{before}shared.weight": table, other: table + 1}, path)
    with pytest.raises(MeristemError, match=rf"{other} and {before}shared.weight differ, but in this family they are"):
        import_folder(tmp_path / "theirs", tmp_path / "third")


# ---------------------------------------------------------------- writing


def greedy(loaded_run: LoadedRun, model: Any, *, variety: int = 8, min_new_tokens: int = 0, **settings: Any) -> None:
    """Sources of several lengths, written from together here and there: the same tokens."""
    our_model, words = loaded_run.learner.model, loaded_run.tokenizer
    starts = [build_generation_inputs(our_model, words, source) for source in SOURCES]
    _, _, inputs = collate_inputs(starts, torch.device("cpu"))
    with no_warnings(), torch.inference_mode():
        generated = model.generate(
            input_ids=inputs["source"],
            attention_mask=inputs["source_present"].long(),
            do_sample=False,
            num_beams=1,
            max_new_tokens=NEW + len(starts[0].prompt_ids) - 1,
            min_new_tokens=min_new_tokens,
            **settings,
        )
    completions = generate(
        our_model, words, SOURCES, SamplingSettings(greedy=True, max_tokens=NEW, min_tokens=min_new_tokens)
    )
    for row, start, (completion,) in zip(generated.tolist(), starts, completions, strict=True):
        assert row[: len(start.prompt_ids)] == start.prompt_ids
        text = row[len(start.prompt_ids) :]
        assert list(completion.tokens) == text[: text.index(words.end) if words.end in text else NEW]
    assert max(len(generated_completion.tokens) for (generated_completion,) in completions) == NEW
    assert (
        len({token for (generated_completion,) in completions for token in generated_completion.tokens}) > variety
    )  # or little would be shown


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_texts_are_theirs(kind: str, words: Tokenizer, tmp_path: Path) -> None:
    model = theirs(CLASSES[KINDS[kind][0]][1], kind, words, tmp_path / "theirs", writes=True)
    import_folder(tmp_path / "theirs", tmp_path / "run")
    greedy(load_run(tmp_path / "run"), model)
    export_run(tmp_path / "run", tmp_path / "out")
    greedy(load_run(tmp_path / "run"), opened(tmp_path / "out", kind))


def test_a_forced_first_word_is_what_targets_begin_after(words: Tokenizer, tmp_path: Path) -> None:
    """Older folders say in config.json what newer ones say in generation_config.json."""
    model = theirs("BartForConditionalGeneration", "bart", words, tmp_path / "theirs", writes=True)
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "forced_bos_token_id": words.start}))
    assert build_run(tmp_path / "theirs", tmp_path / "ignored") == ("end",)
    (tmp_path / "theirs" / "generation_config.json").unlink()
    assert build_run(tmp_path / "theirs", tmp_path / "run") == ("end", "start")
    model.generation_config.forced_bos_token_id = words.start
    model.save_pretrained(tmp_path / "theirs")
    assert build_run(tmp_path / "theirs", tmp_path / "newer") == ("end", "start")
    run = load_run(tmp_path / "run")
    assert run.learner.model.decoder_start_ids == (words.end, words.start)
    greedy(run, model)
    export_run(tmp_path / "run", tmp_path / "out")
    greedy(run, opened(tmp_path / "out", "bart"))
    assert build_run(tmp_path / "out", tmp_path / "again") == ("end", "start")


def build_run(folder: Path, out: Path) -> Any:
    return import_folder(folder, out).recipe.objective[0].start_tokens


def test_rows_beyond_the_words_are_never_written(words: Tokenizer, tmp_path: Path) -> None:
    """Weights have more rows than the tokenizer has words (T5: 32,128 and 32,100), even where a model wants one."""
    model = theirs("T5ForConditionalGeneration", "t5", words, tmp_path / "theirs")
    with torch.no_grad():
        model.shared.weight[: words.vocab_size] *= 0.01
    model.save_pretrained(tmp_path / "theirs")
    import_folder(tmp_path / "theirs", tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert run.recipe.tokenizer.padded_vocab_size == words.vocab_size + ROOM
    our_model = run.learner.model
    start = build_generation_inputs(our_model, words, "The old")
    with torch.inference_mode():
        hidden = our_model.backbone(source=start.inputs["source"][None], tokens=torch.tensor([start.prompt_ids]))
    assert int(our_model.heads["seq2seq"](hidden.last_hidden_state[0, -1]).argmax()) >= words.vocab_size
    ((completion,),) = generate(our_model, words, ["The old"], SamplingSettings(greedy=True, max_tokens=9))
    assert len(completion.tokens) == 9 and max(completion.tokens) < words.vocab_size


def test_older_folders_say_by_their_ties_whether_states_are_scaled(words: Tokenizer, tmp_path: Path) -> None:
    theirs("T5ForConditionalGeneration", "t5-gated", words, tmp_path / "theirs")
    path = tmp_path / "theirs" / "config.json"
    config_fields = {
        key: value for key, value in json.loads(path.read_text()).items() if key != "scale_decoder_outputs"
    }
    for number, tie_settings in enumerate(({"tie_word_embeddings": False}, {"tie_word_embeddings": True}, {})):
        path.write_text(
            json.dumps({**{k: v for k, v in config_fields.items() if k != "tie_word_embeddings"}, **tie_settings})
        )
        model = import_folder(tmp_path / "theirs", tmp_path / f"run{number}").recipe.model
        their_model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "theirs")
        assert model.scale_output == their_model.config.scale_decoder_outputs == (number > 0)
        assert model.tie_embeddings  # whatever is said: there is no second table


# ---------------------------------------------------------------- runs trained here


TINY = {
    "model.layers": 2, "model.hidden_size": 32, "model.heads": 4, "model.max_length": LENGTH, "model.ffn_size": 48,
    "tokenizer.vocab_size": 330, "train.steps": 3, "train.batch_tokens": 160, "train.threads": 1, "corpus.processes": 1,
    "train.minutes": None, "train.micro_batch_tokens": None, "train.learning_rate": 1e-2, "train.warmup": 0,
    "model.init_std": 0.6,
    "model.output_init": "normal",
}  # fmt: skip
SOURCE = "builtin:microworld-en?size=30"


def pretrained(recipe: str, out: Path, **overrides: Any) -> LoadedRun:
    settings = {key: value for key, value in {**TINY, **overrides}.items() if value is not None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "PEAK_SIZE", 64)
        meristem.pretrain(recipe, settings, source=SOURCE, out=out, console=Console(quiet=True))
    return load_run(out)


@pytest.mark.parametrize(
    ("recipe", "kind", "overrides"),
    [
        ("bart-base", "bart", {}),
        ("t5-mini", "t5", {"tokenizer.sentinels": 16}),
        ("t5-small", "t5", {"tokenizer.kind": "bpe", "tokenizer.sentinels": 16, "objective.start_tokens": ["pad"]}),
    ],
)
def test_a_run_trained_here_goes_out(recipe: str, kind: str, overrides: dict[str, Any], tmp_path: Path) -> None:
    run = pretrained(recipe, tmp_path / "run", **overrides)
    export_run(tmp_path / "run", tmp_path / "out")
    model, words = opened(tmp_path / "out", kind), run.tokenizer
    pair_inputs = sides(words, words.vocab_size)
    with torch.inference_mode():
        hidden = run.learner.model.backbone(**pair_inputs)
        expected = model(
            input_ids=pair_inputs["source"],
            attention_mask=pair_inputs["source_present"].long(),
            decoder_input_ids=pair_inputs["tokens"],
        ).logits
        logits = run.learner.model.heads["seq2seq"](hidden.last_hidden_state)
    close([logits[pair_inputs["present"]]], [expected[pair_inputs["present"]]])
    greedy(run, model, variety=3, min_new_tokens=NEW, suppress_tokens=unwritten(words)[:-ROOM])
    cut = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")(SOURCES, padding=True, return_tensors="pt")
    _, _, inputs = collate_inputs(
        [build_generation_inputs(run.learner.model, words, source) for source in SOURCES], torch.device("cpu")
    )
    assert torch.equal(cut["attention_mask"].bool(), inputs["source_present"])
    assert torch.equal(cut["input_ids"][inputs["source_present"]], inputs["source"][inputs["source_present"]])
    assert run.learner.model.decoder_start_ids == (words.pad if "objective.start_tokens" in overrides else words.start,)
    import_folder(tmp_path / "out", tmp_path / "again")
    reimported = load_run(tmp_path / "again").learner.model
    assert reimported.decoder_start_ids == run.learner.model.decoder_start_ids
    for name, value in run.learner.model.state_dict().items():
        assert torch.equal(reimported.state_dict()[name], value), name


def test_a_shape_that_neither_has_is_refused(tmp_path: Path) -> None:
    pretrained("bart-mini-prenorm", tmp_path / "run", **{"train.steps": 1})
    with pytest.raises(MeristemError) as error:
        export_run(tmp_path / "run", tmp_path / "out")
    bart, t5 = str(error.value).split("; t5 has no ")
    assert "bart has no model.norm_position=pre, model.position_encoding=rotary, model.embedding_norm=False" in bart
    assert "model.norm=layer" in t5 and "model.position_encoding=rotary" in t5
    assert not (tmp_path / "out").exists()


def test_an_imported_run_goes_on(words: Tokenizer, tmp_path: Path) -> None:
    """T5's spans, after T5's own beginning, into T5's own weights."""
    theirs("T5ForConditionalGeneration", "t5", words, tmp_path / "theirs", n_positions=LENGTH)
    start = load_run(import_folder(tmp_path / "theirs", tmp_path / "start").run)
    train_settings = {
        "train.steps": 2,
        "train.batch_tokens": 160,
        "train.learning_rate": 1e-3,
        "train.warmup": 0,
        "train.threads": 1,
    }
    meristem.pretrain(
        tmp_path / "start", {**train_settings, "corpus.processes": 1}, source=SOURCE, out=tmp_path / "on",
        console=Console(quiet=True),
    )  # fmt: skip
    loaded_run = load_run(tmp_path / "on")
    assert loaded_run.learner.model.decoder_start_ids == (words.pad,)
    assert loaded_run.recipe.objective[0].kind == "spans"
    moved = (
        (loaded_run.learner.model.backbone.tokens.weight - start.learner.model.backbone.tokens.weight).detach().abs()
    )
    assert 0 < float(moved.max()) < 0.1


# ---------------------------------------------------------------- refusals


REFUSED = {
    "uneven heads": ("bart", {"decoder_attention_heads": 8}, "encoder_attention_heads=4 and decoder_attention_heads=8"),
    "uneven inner": ("bart", {"decoder_ffn_dim": 64}, "encoder_ffn_dim=80 and decoder_ffn_dim=64"),
    "untied": ("bart", {"tie_word_embeddings": False}, "tie_word_embeddings=False: only True has a counterpart"),
    "activation": ("bart", {"activation_function": "tanh"}, "activation_function='tanh' is not supported"),
    "first word": ("bart", {"decoder_start_token_id": 9}, "targets begin with token 9, which is neither"),
    "wide heads": ("t5", {"d_kv": 16}, "d_kv=16 × num_heads=4 is not d_model=32"),
    "exact gate": ("t5", {"feed_forward_proj": "gated-gelu", "is_gated_act": True, "dense_act_fn": "gelu"},
                   r"feed_forward_proj='gated-gelu' \(gelu\) is not supported"),
    "encoder alone": ("t5", {"architectures": ["T5EncoderModel"]}, "T5EncoderModel is not supported"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_counterpart_is_named(case: str, words: Tokenizer, tmp_path: Path) -> None:
    kind, change, message = REFUSED[case]
    theirs(CLASSES[kind][1], kind, words, tmp_path / "theirs")
    (tmp_path / "theirs" / "generation_config.json").unlink()
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(MeristemError, match=message):
        import_folder(tmp_path / "theirs", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_no_config_gives_a_traceback(kind: str, words: Tokenizer, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(import_weights, "write_run", lambda out, *_: RunFolder(out))  # everything but the disk
    theirs(CLASSES[kind][1], kind, words, tmp_path / "theirs")
    (tmp_path / "theirs" / "generation_config.json").unlink()
    path = tmp_path / "theirs" / "config.json"
    config = json.loads(path.read_text())
    for invalid_value in (None, -1, "x", {"a": [1]}):
        num_refused = 0
        for number, key in enumerate([*config, "forced_bos_token_id", "n_positions", "d_kv"]):
            path.write_text(json.dumps({**config, key: invalid_value}))
            try:
                import_folder(tmp_path / "theirs", tmp_path / f"run-{number}")
            except MeristemError:
                num_refused += 1
        assert num_refused >= (0 if invalid_value is None else 5), invalid_value


def test_a_bias_on_words_is_refused_unless_it_is_none(words: Tokenizer, tmp_path: Path) -> None:
    model = theirs("BartForConditionalGeneration", "bart", words, tmp_path / "theirs")
    assert "final_logits_bias" in load_file(tmp_path / "theirs" / "model.safetensors")
    import_folder(tmp_path / "theirs", tmp_path / "run")
    model.final_logits_bias[0, 7] = 1e-3
    model.save_pretrained(tmp_path / "theirs")
    with pytest.raises(MeristemError, match=r"final_logits_bias is not zero, and .* has no such parameter"):
        import_folder(tmp_path / "theirs", tmp_path / "again")


def test_a_target_that_begins_after_three_tokens_stays_here(words: Tokenizer, tmp_path: Path) -> None:
    theirs("T5ForConditionalGeneration", "t5", words, tmp_path / "theirs")
    run = import_folder(tmp_path / "theirs", tmp_path / "run").run
    text = (run / "recipe.yaml").read_text()
    changed = text.replace("  start_tokens:\n  - pad\n", "  start_tokens:\n  - pad\n  - end\n  - start\n")
    assert changed != text
    (run / "recipe.yaml").write_text(changed)
    with pytest.raises(
        MeristemError, match=r"t5 has no objective.start_tokens of 3 tokens: its targets begin after one or two"
    ):
        export_run(run, tmp_path / "out")
