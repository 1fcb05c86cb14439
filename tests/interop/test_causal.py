"""GPT, GPT-2, Llama and Mistral imported and exported: the same outputs, tensors and generated text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
import yaml
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor, nn
from transformers_models import Silence, close, opened, same_tensors, scatter

from meristem.api import load
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.checkpoint.run_folder import RunFolder
from meristem.checkpoint.save import save_checkpoint
from meristem.checkpoint.snapshot import Snapshot
from meristem.config.errors import MeristemError
from meristem.config.recipe import resolve_recipe
from meristem.generation.generation_inputs import build_generation_inputs
from meristem.interfaces.backbone import MODEL_FAMILIES, Model
from meristem.interop.export_folder import export_run
from meristem.interop.import_weights import import_folder
from meristem.interop.onnx_export.graph_export import SUPPORTED_BACKBONES
from meristem.learning.build import build_learner
from meristem.tokenizers.tokenizer import Tokenizer

END, ROWS = "<|endoftext|>", 257
LAST = ROWS
"""The number of the first special token after those."""
SHAPES: dict[str, dict[str, Any]] = {
    "GPT2": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64},
    "OpenAIGPT": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64},
    "Llama": {
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 44,
        "max_position_embeddings": 64,
        "tie_word_embeddings": True,
    },
}
SHAPES["Mamba"] = {"hidden_size": 32, "num_hidden_layers": 3, "state_size": 5, "conv_kernel": 3}
SHAPES["Mistral"] = {**SHAPES["Llama"], "sliding_window": 5}


def words(folder: Path, end: int = 0, *extra_tokens: str) -> None:
    """A byte-level tokenizer.json with one special token, whose number may be chosen, and further ones."""
    alphabet = [END, *sorted(pre_tokenizers.ByteLevel.alphabet()), *extra_tokens]
    alphabet[0], alphabet[end] = alphabet[end], alphabet[0]
    tokenizer = tokenizers.Tokenizer(models.BPE({token: number for number, token in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.add_special_tokens([END, *extra_tokens])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


def theirs(name: str, folder: Path, *, end: int = 0, **config_changes: Any) -> Any:
    """A random model of theirs, saved with its words."""
    kind = next(kind for kind in SHAPES if name.startswith(kind))
    config_fields = {
        "vocab_size": ROWS,
        "pad_token_id": end,
        "bos_token_id": end,
        "eos_token_id": end,
        **SHAPES[kind],
        **config_changes,
    }
    model = getattr(transformers, name)(getattr(transformers, f"{kind}Config")(**config_fields)).eval()
    scatter(model)
    words(folder, end)
    model.save_pretrained(folder)
    return model


def ragged(longest: int = 13) -> tuple[Tensor, Tensor]:
    """Three rows of odd lengths that never hold the padding."""
    tokens = torch.randint(1, ROWS, (3, longest), generator=torch.Generator().manual_seed(3))
    present = torch.arange(longest) < torch.tensor([longest, 7, 1])[:, None]
    return tokens.masked_fill(~present, 0), present


def ours_of(model: Model, name: str, tokens: Tensor, present: Tensor) -> Tensor:
    """What the head that came along says."""
    last = model.backbone(tokens=tokens, present=present, causal=True).last_hidden_state
    if name.endswith("SequenceClassification"):
        return model.heads["classification"](last[torch.arange(len(tokens)), present.sum(1) - 1])
    head = {"LMHeadModel": "clm", "ForCausalLM": "clm", "TokenClassification": "tagging", "Answering": "span"}
    task_head = next((model.heads[head_name] for end, head_name in head.items() if name.endswith(end)), nn.Identity())
    return task_head(last)[present]


def theirs_of(model: Any, tokens: Tensor, present: Tensor) -> Tensor:
    out = model(input_ids=tokens, attention_mask=present.long())
    if "start_logits" in out:
        return torch.stack([out.start_logits, out.end_logits], -1)[present]
    outputs = out.logits if "logits" in out else out.last_hidden_state
    return outputs if outputs.ndim == 2 else outputs[present]


CASES: list[tuple[str, dict[str, Any]]] = [
    ("GPT2Model", {}),
    ("GPT2LMHeadModel", {"n_inner": 80, "vocab_size": 300}),
    ("GPT2LMHeadModel", {"activation_function": "gelu", "layer_norm_epsilon": 1e-4}),
    ("GPT2ForSequenceClassification", {"num_labels": 3}),
    ("GPT2ForTokenClassification", {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}}),
    ("GPT2ForQuestionAnswering", {}),
    ("OpenAIGPTModel", {}),
    ("OpenAIGPTLMHeadModel", {"vocab_size": 300}),
    ("OpenAIGPTLMHeadModel", {"afn": "relu"}),
    ("OpenAIGPTForSequenceClassification", {"num_labels": 1}),
    ("LlamaModel", {}),
    ("LlamaForCausalLM", {"vocab_size": 300}),
    ("LlamaForCausalLM", {"tie_word_embeddings": False, "num_key_value_heads": 4}),
    ("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True, "rms_norm_eps": 1e-4}),
    ("LlamaForCausalLM", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    ("LlamaForSequenceClassification", {"num_labels": 3}),
    ("LlamaForTokenClassification", {"num_labels": 5}),
    ("MambaModel", {"time_step_rank": 7, "layer_norm_epsilon": 1e-4}),
    ("MambaForCausalLM", {"vocab_size": 300}),
    ("MistralForCausalLM", {}),
    ("MistralForCausalLM", {"sliding_window": None, "tie_word_embeddings": False}),
]


@pytest.mark.parametrize(("name", "config_changes"), CASES, ids=lambda value: str(value))
def test_there_and_back(name: str, config_changes: dict[str, Any], tmp_path: Path, no_warnings: Silence) -> None:
    tokens, present = ragged()
    with torch.inference_mode():
        original = theirs(name, tmp_path / "theirs", **config_changes)
        expected = theirs_of(original, tokens, present)
        import_folder(tmp_path / "theirs", tmp_path / "run")
        close(ours_of(load_run(tmp_path / "run").learner.model, name, tokens, present), expected)
        exported = export_run(tmp_path / "run", tmp_path / "back", architecture=name)
        reloaded = opened(tmp_path / "back", name, no_warnings)
        assert torch.equal(theirs_of(reloaded, tokens, present), expected)
    assert exported.architecture == name
    for key in ("id2label", "vocab_size", "num_labels"):
        assert getattr(reloaded.config, key) == getattr(original.config, key)
    import_folder(tmp_path / "back", tmp_path / "again")
    same_tensors(tmp_path / "run", tmp_path / "again")


# ---------------------------------------------------------------- other ways of saving


def test_weights_in_shards(tmp_path: Path) -> None:
    model = theirs("LlamaForCausalLM", tmp_path / "whole")
    words(tmp_path / "shards")
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("model-*.safetensors"))) > 2
    for name in ("whole", "shards"):
        import_folder(tmp_path / name, tmp_path / f"{name}-run")
    same_tensors(tmp_path / "whole-run", tmp_path / "shards-run")


def test_weights_as_torch_saves_them_with_the_masks_of_old_files(tmp_path: Path) -> None:
    model = theirs("GPT2LMHeadModel", tmp_path / "safe")
    words(tmp_path / "bin")
    model.config.save_pretrained(tmp_path / "bin")
    masks = {f"transformer.h.{n}.attn.bias": torch.ones(1, 1, 64, 64).tril().bool() for n in range(3)}
    torch.save({**model.state_dict(), **masks}, tmp_path / "bin" / "pytorch_model.bin")
    import_folder(tmp_path / "safe", tmp_path / "safe-run")
    imported = import_folder(tmp_path / "bin", tmp_path / "bin-run")
    assert imported.unused_tensors == tuple(sorted(masks))
    same_tensors(tmp_path / "safe-run", tmp_path / "bin-run")


def test_llama_as_written_before_transformers_5(tmp_path: Path) -> None:
    """The base of its turns stood beside the rest, and each layer held its frequencies."""
    model = theirs("LlamaForCausalLM", tmp_path / "old", rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    config = json.loads((tmp_path / "old" / "config.json").read_text())
    del config["rope_parameters"]
    config |= {"rope_theta": 500.0, "rope_scaling": None}
    (tmp_path / "old" / "config.json").write_text(json.dumps(config))
    (tmp_path / "old" / "model.safetensors").unlink()
    frequencies = {f"model.layers.{n}.self_attn.rotary_emb.inv_freq": torch.ones(4) for n in range(3)}
    torch.save({**model.state_dict(), **frequencies}, tmp_path / "old" / "pytorch_model.bin")
    import_folder(tmp_path / "old", tmp_path / "run")
    tokens, present = ragged()
    with torch.inference_mode():
        actual = ours_of(load_run(tmp_path / "run").learner.model, "LlamaForCausalLM", tokens, present)
        close(actual, theirs_of(model, tokens, present))


# ---------------------------------------------------------------- runs of our own


def build_run(folder: Path, model: dict[str, Any], objective: str = "clm") -> LoadedRun:
    """A run as training leaves it, with random weights."""
    words(folder.with_suffix(".words"), 0, *(["<mask>"] if objective == "mlm" else []))
    tokenizer = Tokenizer.load(folder.with_suffix(".words"))
    recipe = resolve_recipe(folder.name, {"tokenizer": {"kind": "bpe"}, "model": model, "objective": objective})
    learner = build_learner(recipe, tokenizer)
    scatter(learner.model, seed=5)
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
    return load_run(folder)


SMALL = {"layers": 2, "hidden_size": 32, "heads": 4, "max_length": 32}
OWN = [
    ("GPT2LMHeadModel", {"family": "gpt2"}),
    ("GPT2LMHeadModel", {"family": "gpt2", "ffn_size": 40, "activation": "relu", "dropout": 0.1}),
    ("OpenAIGPTLMHeadModel", {"family": "gpt"}),
    ("LlamaForCausalLM", {"family": "modern", "ffn_size": 44}),
    (
        "LlamaForCausalLM",
        {"family": "modern", "kv_heads": 1, "activation": "geglu", "tie_embeddings": False, "rotary_base": 300.0},
    ),
    ("MistralForCausalLM", {"family": "modern", "kv_heads": 2, "attention_window": 4}),
]


@pytest.mark.parametrize(("name", "model_settings"), OWN, ids=lambda value: str(value))
def test_a_run_of_ours_opens_there(
    name: str, model_settings: dict[str, Any], tmp_path: Path, no_warnings: Silence
) -> None:
    tokens, present = ragged(11)
    run = build_run(tmp_path / "run", {**SMALL, **model_settings})
    assert export_run(tmp_path / "run", tmp_path / "out").architecture == name
    with torch.inference_mode():
        actual = theirs_of(opened(tmp_path / "out", name, no_warnings), tokens, present)
        close(actual, ours_of(run.learner.model, name, tokens, present))
    import_folder(tmp_path / "out", tmp_path / "again")
    same_tensors(tmp_path / "run", tmp_path / "again")


@pytest.mark.parametrize(
    ("model", "objective", "message"),
    [
        ({"family": "modern", "norm": "layer"}, "clm", "llama has no model.norm=layer; mistral has no"),
        ({"family": "modern", "output_transform": True}, "clm", "llama has no model.output_transform=True"),
        ({"family": "modern", "activation": "gelu"}, "clm", "llama has no model.activation=gelu"),
        (
            {"family": "modern", "attention_window": 4, "attention_window_every": 2},
            "clm",
            "mistral has no model.attention_window_every=2",
        ),
        ({"family": "modern", "attention_window": 4, "bias": True}, "clm", "mistral has no model.bias=True"),
        ({"family": "modern"}, "mlm", "llama has no objective=mlm"),
        ({"family": "modern", "logit_soft_cap": 30.0}, "clm", "llama has no model.logit_soft_cap=30.0"),
        ({"family": "modern", "embedding_shortcut": True}, "clm", "llama has no model.embedding_shortcut=True"),
        ({"family": "modern", "value_embeddings": 1}, "clm", "llama has no model.value_embeddings=1"),
        ({"family": "gpt2", "norm_position": "post"}, "clm", "gpt2 has no model.norm_position=post"),
        ({"family": "gpt2", "position_encoding": "rotary"}, "clm", "gpt2 has no model.position_encoding=rotary"),
        ({"family": "gpt", "ffn_size": 40}, "clm", "openai-gpt has no model.ffn_size=40"),
    ],
)
def test_what_theirs_cannot_say_is_named(model: dict[str, Any], objective: str, message: str, tmp_path: Path) -> None:
    build_run(tmp_path / "run", {**SMALL, **model}, objective)
    with pytest.raises(MeristemError, match=message):
        export_run(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "config_changes", "message"),
    [
        (
            "LlamaForCausalLM",
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
            "rope_parameters.rope_type='linear': only 'default'",
        ),
        ("LlamaForCausalLM", {"head_dim": 16}, "head_dim=16"),
        ("LlamaForCausalLM", {"attention_bias": True}, "attention_bias and mlp_bias differ"),
        ("LlamaForCausalLM", {"hidden_act": "relu"}, "hidden_act='relu' is not supported; supported: silu"),
        ("GPT2LMHeadModel", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ("GPT2LMHeadModel", {"tie_word_embeddings": False}, "tie_word_embeddings=False"),
        ("OpenAIGPTLMHeadModel", {"afn": "swish"}, "afn='swish' is not supported"),
    ],
)
def test_what_ours_cannot_do_is_named(name: str, config_changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    theirs(name, tmp_path / "theirs", **config_changes)
    with pytest.raises(MeristemError, match=re.escape(message)):
        import_folder(tmp_path / "theirs", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("family", "objective", "others"),
    [
        ("transformer_xl", "clm", "meristem export --onnx exports this one for onnxruntime"),
        ("rnn", "seq2seq", "the run can only be used with this library (meristem.load)"),
        ("captioner", "caption", "meristem export --onnx exports this one for onnxruntime"),
    ],
)
def test_what_reads_a_family_that_they_do_not_have(family: str, objective: str, others: str, tmp_path: Path) -> None:
    shape = {"layers": 1, "hidden_size": 16, "max_length": 8} | ({} if family == "rnn" else {"heads": 2})
    build_run(tmp_path / "run", {"family": family, **shape}, objective)
    with pytest.raises(MeristemError) as error:
        export_run(tmp_path / "run", tmp_path / "out")
    assert str(error.value) == f"transformers has no {family}: {others}"
    assert issubclass(MODEL_FAMILIES[family], SUPPORTED_BACKBONES) == ("--onnx" in others)


# ---------------------------------------------------------------- writing

PROMPTS = ["The", "Once upon a time there", "To be, or not"]
NEW = 32


def enliven(model: Any) -> None:
    """Weights that say more than one word for ever, and never a start or a row that no token has: ours must not."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * (0.6 if parameter.ndim == 2 else 0.1))
            if parameter.ndim == 1 and name.endswith("weight"):
                parameter.add_(1)
        model.get_input_embeddings().weight[LAST:].zero_()


def continued(model: Any, rows: list[list[int]], no_warnings: Silence) -> list[list[int]]:
    """Their greedy search, each prompt on its own, the end left out."""
    out = []
    with no_warnings():
        for row in rows:
            ids = torch.tensor([row])
            generated = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW)
            out.append(generated[0, len(row) :].tolist())
    end = model.generation_config.eos_token_id
    return [tokens[: tokens.index(end)] if end in tokens else tokens for tokens in out]


def check_generation(model: Any, folder: Path, end: int, no_warnings: Silence) -> list[list[int]]:
    """What all of us write, told that this token ends a text."""
    words(folder, end, "<s>")
    model.config.eos_token_id = model.config.pad_token_id = model.generation_config.eos_token_id = end
    model.generation_config.pad_token_id = end
    model.save_pretrained(folder)
    import_folder(folder, folder.with_suffix(".run"))
    export_run(folder.with_suffix(".run"), folder.with_suffix(".out"))
    loaded = load(folder.with_suffix(".run"))
    token_lists = [list(completion.tokens) for (completion,) in loaded.generate(PROMPTS, greedy=True, max_tokens=NEW)]
    starts = [build_generation_inputs(loaded.model, loaded.tokenizer, prompt).prompt_ids for prompt in PROMPTS]
    assert len({len(start) for start in starts}) == len(PROMPTS)
    assert token_lists == continued(model, starts, no_warnings)
    assert token_lists == continued(
        opened(folder.with_suffix(".out"), type(model).__name__, no_warnings), starts, no_warnings
    )
    return token_lists


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("GPT2LMHeadModel", 300),
        ("OpenAIGPTLMHeadModel", LAST + 1),
        ("LlamaForCausalLM", 300),
        ("MistralForCausalLM", LAST + 1),
    ],
)
def test_they_write_the_same_text(name: str, rows: int, tmp_path: Path, no_warnings: Silence) -> None:
    """Several prompts side by side here, each alone there; then with an end that one of them comes upon."""
    start_token = None if name.startswith("OpenAI") else LAST
    model = theirs(name, tmp_path / "theirs", vocab_size=rows, bos_token_id=start_token)
    enliven(model)
    free = check_generation(model, tmp_path / "free", 0, no_warnings)
    assert all(len(tokens) == NEW for tokens in free)
    spelt = {token for prompt in PROMPTS for token in Tokenizer.load(tmp_path / "free").encode(prompt).ids.tolist()}
    token_sets = [set(tokens) for tokens in free]
    end = next(  # a word that some of them come upon after a while, and some never
        token
        for row in free
        for token in row[3:]
        if token not in spelt and not all(token in token_set for token_set in token_sets)
    )
    cut = [tokens[: tokens.index(end)] if end in tokens else tokens for tokens in free]
    assert check_generation(model, tmp_path / "ended", end, no_warnings) == cut


def test_rows_that_no_token_has_are_never_written(tmp_path: Path) -> None:
    model = theirs("GPT2LMHeadModel", tmp_path / "theirs", vocab_size=300)
    enliven(model)
    with torch.no_grad():
        model.transformer.wte.weight[ROWS:] = model.transformer.wte.weight[1:44] * 9  # they would shout all else down
    model.save_pretrained(tmp_path / "theirs")
    import_folder(tmp_path / "theirs", tmp_path / "run")
    loaded = load(tmp_path / "run")
    start = torch.tensor([build_generation_inputs(loaded.model, loaded.tokenizer, "The").prompt_ids])
    assert int(loaded.model.heads["clm"](loaded.model.backbone(tokens=start).last_hidden_state)[0, -1].argmax()) >= ROWS
    (completion,) = loaded.generate("The", greedy=True, max_tokens=NEW)[0]
    assert completion.tokens and max(completion.tokens) < ROWS


def test_a_model_whose_words_have_no_end(tmp_path: Path, no_warnings: Silence) -> None:
    """As OpenAI published GPT: it writes from what it is given, and from nothing it cannot."""
    model = theirs("OpenAIGPTLMHeadModel", tmp_path / "theirs", pad_token_id=None, bos_token_id=None, eos_token_id=None)
    alphabet = {token: number for number, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = tokenizers.Tokenizer(models.BPE(alphabet, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "theirs" / "tokenizer.json"))
    import_folder(tmp_path / "theirs", tmp_path / "run")
    loaded = load(tmp_path / "run")
    start = loaded.tokenizer.encode("The").ids.tolist()
    (completion,) = loaded.generate("The", greedy=True, max_tokens=NEW)[0]
    theirs_say = model.generate(torch.tensor([start]), do_sample=False, max_new_tokens=NEW, pad_token_id=0)
    assert [*start, *completion.tokens] == theirs_say[0].tolist()
    with pytest.raises(MeristemError, match="this model has no start token"):
        loaded.generate("")
    export_run(tmp_path / "run", tmp_path / "out")
    opened(tmp_path / "out", "OpenAIGPTLMHeadModel", no_warnings)
