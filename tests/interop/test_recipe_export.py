"""Every built-in recipe exports to its transformers class and back, or gets an error with alternatives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers_models import Silence, close, opened, run_card, same_tensors, scatter

from meristem.api import resolve_pretrain_recipe
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.config.errors import MeristemError
from meristem.config.recipe import builtin_budget_recipes, builtin_recipes
from meristem.evaluation.text_embeddings import encode_text
from meristem.interfaces.backbone import Model
from meristem.interop.export_folder import export_run
from meristem.interop.import_weights import checkpoint_state, import_folder, write_run
from meristem.learning.build import build_learner
from meristem.tokenizers.train import train_tokenizer

CLASSES = {
    "bert-mini": "BertForPreTraining",
    "roberta-mini": "RobertaForMaskedLM",
    "electra-mini": "ElectraForPreTraining",
    "xlnet-mini": "XLNetLMHeadModel",
    "bart-mini": "BartForConditionalGeneration",
    "t5-mini": "T5ForConditionalGeneration",
    "ul2-mini": "T5ForConditionalGeneration",
    "gpt-mini": "OpenAIGPTLMHeadModel",
    "gpt2-mini": "GPT2LMHeadModel",
    "modern-mini": "LlamaForCausalLM",
    "gpt-bert-mini": "LlamaForCausalLM",
    "modernbert-mini": "ModernBertForMaskedLM",
    "roberta-mini-prenorm": "EsmForMaskedLM",
    "bert-base": "BertForPreTraining",
    "roberta-base": "RobertaForMaskedLM",
    "electra-small": "ElectraForPreTraining",
    "xlnet-base": "XLNetLMHeadModel",
    "bart-base": "BartForConditionalGeneration",
    "t5-small": "T5ForConditionalGeneration",
    "gpt-base": "OpenAIGPTLMHeadModel",
    "gpt2-small": "GPT2LMHeadModel",
    "mamba-mini": "MambaForCausalLM",
    "stories": "GPT2LMHeadModel",
}
HEADLESS = {"contrastive-mini": "BertModel"}
"""Recipes without a head: tests/objectives/test_contrastive.py compares their vectors."""
REFUSED = {
    "bert-mini-prenorm": ("esm has no model.segments=2", "meristem pretrain bert-mini"),
    "electra-mini-prenorm": (
        "electra has no model.norm_position=pre, model.position_encoding=rotary",
        "meristem pretrain electra-mini",
    ),
    "xlnet-mini-prenorm": (
        "xlnet has no model.norm_position=pre, model.segments=False",
        "meristem pretrain xlnet-mini",
    ),
    "bart-mini-prenorm": (
        "bart has no model.norm_position=pre, model.position_encoding=rotary",
        "meristem pretrain bart-mini",
    ),
    "transformer-mini": ("bart has no model.norm_position=pre", "meristem export --onnx"),
    "transformer-xl-mini": ("transformers has no transformer_xl", "meristem export --onnx"),
    "rnn-mini": ("transformers has no rnn", "meristem.load"),
    "captioner-mini": ("transformers has no captioner", "meristem export --onnx"),
    "clm-mlm-mini": ("llama has no objective=mlm", "meristem export --onnx"),
    "multitask-mini": ("transformers has no multitask", "meristem export --onnx"),
    "scenes": ("transformers has no captioner", "meristem export --onnx"),
    "transformer-base": ("bart has no model.position_encoding=sinusoidal", "meristem export --onnx"),
    "transformer-xl-base": ("transformers has no transformer_xl", "meristem export --onnx"),
    "rnn-luong": ("transformers has no rnn", "meristem.load"),
    "gpt3-small": ("gpt2 has no model.attention_window=256", "meristem pretrain gpt2-mini"),
}
ELSEWHERE = {"elmo-mini", "elmo-base"}
"""They leave as AllenNLP's files, which tests/interop/test_elmo_files.py reads there and back."""
SAME_ARCHITECTURE = {"encoder": "modernbert-mini", "causal": "modern-mini", "encoder-decoder": "t5-mini"}
"""Recipes by budget → the recipe whose architecture they have in other sizes, which is compared."""
SIZES = {"layers", "hidden_size", "heads", "ffn_size", "max_length", "attention_window"}
PAGE = Path(__file__).parents[2] / "docs" / "interop.md"
TEXTS = [f"The gardener number {n} planted {n * 7} trees. The sailor went home, it rained." for n in range(40)]
SENTENCES = ["The sailor planted 7 trees.", "it rained", "naïve gardeners 😀", ""]
SMALL = {"layers": 2, "hidden_size": 32, "heads": 4, "max_length": 24}
BATCH, TIME = 3, 11


def test_every_recipe_is_accounted_for_here_and_on_the_page() -> None:
    budgets = builtin_budget_recipes().keys()
    assert builtin_recipes().keys() == CLASSES.keys() | HEADLESS.keys() | REFUSED.keys() | ELSEWHERE | budgets
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `") and "-" in line]
    for name in builtin_recipes().keys() - budgets:
        (row,) = (row for row in rows if f"`{name}`" in row.split("|")[1])
        expected_class = {**CLASSES, **HEADLESS}.get(name, "AllenNLP" if name in ELSEWHERE else "nothing")
        assert expected_class in row.split("|")[2], (name, row)


@pytest.mark.parametrize("name", builtin_budget_recipes())
def test_recipes_by_budget_differ_from_a_mini_recipe_in_sizes(name: str) -> None:
    kind = name.rpartition("-")[0]
    recipe, mini = (resolve_pretrain_recipe(other) for other in (name, SAME_ARCHITECTURE[kind]))
    model, other_model = recipe.model.model_dump(), mini.model.model_dump()
    assert {key for key in model if model[key] != other_model[key]} <= SIZES
    assert [type(part) for part in recipe.objective] == [type(part) for part in mini.objective]
    assert f"`{kind}-…`" in PAGE.read_text(encoding="utf-8")


def tiny_run(recipe_name: str, folder: Path) -> Path:
    """A run of the recipe's own shape in small, with random weights everywhere: norms and biases too."""
    family = resolve_pretrain_recipe(recipe_name).model
    sizes = SMALL | {key: 48 for key in ("inner", "memory", "embedding") if getattr(family, key, None)}
    sizes = {key: value for key, value in sizes.items() if hasattr(family, key)}
    settings = [f"model.{key}={value}" for key, value in sizes.items()]
    recipe = resolve_pretrain_recipe(recipe_name, [*settings, "tokenizer.vocab_size=700"])
    tokenizer = train_tokenizer(recipe.tokenizer, TEXTS)
    learner = build_learner(recipe, tokenizer)
    scatter(learner, 5)
    state = checkpoint_state(learner.model, dict(learner.model.named_parameters()))
    return write_run(folder, recipe, tokenizer, {key: value.detach() for key, value in state.items()}, {}).path


def tokens_of(run: LoadedRun) -> tuple[Tensor, Tensor]:
    """Random ordinary tokens, and which of them exist: rows of odd lengths."""
    ordinary = torch.from_numpy(~run.tokenizer.special_mask).nonzero()[:, 0]
    picks = torch.randint(len(ordinary), (BATCH, TIME), generator=torch.Generator().manual_seed(3))
    present = torch.arange(TIME) < torch.tensor([TIME, 7, 1])[:, None]
    pad = run.tokenizer.end if run.tokenizer.pad is None else run.tokenizer.pad
    return ordinary[picks].masked_fill(~present, int(pad or 0)), present


def our_outputs(run: LoadedRun) -> dict[str, Tensor]:
    """What every head of a run says, at the tokens that exist, under the names of transformers' outputs."""
    model: Model = run.learner.model
    tokens, present = tokens_of(run)
    segments = (torch.arange(TIME) > torch.tensor([[6], [3], [0]])).long()
    inputs: dict[str, Any] = {"tokens": tokens, "present": present}
    if "seq2seq" in model.heads:
        inputs = {"source": tokens, "source_present": present, "tokens": tokens.flip(0), "present": present.flip(0)}
        present = present.flip(0)
    elif run.recipe.model.family in ("bert", "electra", "xlnet"):
        inputs["segments"] = segments
    if run.recipe.model.family == "modern":
        inputs["causal"] = True
    with torch.inference_mode():
        states = model.backbone(**inputs).last_hidden_state
        (main,) = (head for name, head in model.heads.items() if name not in ("nsp", "generator"))
        logits = main(states[present])
        if "nsp" not in model.heads:
            return {"logits": logits}
        return {"prediction_logits": logits, "seq_relationship_logits": model.heads["nsp"](states[:, 0])}


def their_outputs(run: LoadedRun, other: Any) -> Mapping[str, Tensor]:
    """The same of their model."""
    tokens, present = tokens_of(run)
    inputs: dict[str, Any] = {"input_ids": tokens, "attention_mask": present.long()}
    if other.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens.flip(0)
        present = present.flip(0)
    elif other.config.model_type in ("bert", "electra", "xlnet"):
        inputs["token_type_ids"] = (torch.arange(TIME) > torch.tensor([[6], [3], [0]])).long()
    with torch.inference_mode():
        out = other(**inputs)
    output_names = ("logits", "prediction_logits", "seq_relationship_logits")
    outputs = {key: out[key] for key in output_names if key in out}
    return {key: value[present] if value.shape[:2] == present.shape else value for key, value in outputs.items()}


def agree(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        close(ours[key], value)
        assert float(value.std()) > 1e-3, f"{key}: all the same, which shows nothing"


def parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", CLASSES)
def test_a_recipe_leaves_as_its_class_and_comes_back(
    name: str, tmp_path: Path, no_warnings: Silence, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = load_run(tiny_run(name, tmp_path / "run"))
    exported = export_run(tmp_path / "run", tmp_path / "out")
    assert exported.architecture == CLASSES[name]
    other = opened(tmp_path / "out", CLASSES[name], no_warnings)
    agree(our_outputs(run), their_outputs(run, other))
    import_folder(tmp_path / "out", tmp_path / "again")
    loaded_run = load_run(tmp_path / "again")
    agree(our_outputs(loaded_run), our_outputs(run))
    assert set(loaded_run.learner.model.heads) == set(run.learner.model.heads)
    assert parameters(loaded_run.learner.model) == parameters(run.learner.model)
    same_tensors(tmp_path / "run", tmp_path / "again")
    same_tokens(run, transformers.AutoTokenizer.from_pretrained(tmp_path / "out"), loaded_run)
    assert run_card(tmp_path / "out", monkeypatch)


def same_tokens(run: LoadedRun, theirs: Any, reimported: LoadedRun) -> None:
    """Ids of texts, what stands around them, and every special token."""
    ours = run.tokenizer
    for text in SENTENCES:
        ids = ours.encode(text).ids.tolist()
        assert theirs(text, add_special_tokens=False)["input_ids"] == ids
        assert reimported.tokenizer.encode(text).ids.tolist() == ids
        assert theirs(text)["input_ids"] == encode_text(run.learner.model, ours, text).ids.tolist()
    for number in ours.special_mask.nonzero()[0].tolist():
        assert (
            theirs.convert_tokens_to_ids(ours.id_to_token(number))
            == number
            == reimported.tokenizer.token_to_id(ours.id_to_token(number))
        )
        assert number in theirs.all_special_ids
    for role in ("pad", "unknown", "mask", "start", "end"):
        assert getattr(reimported.tokenizer, role) == getattr(ours, role), role
    if ours.mask is not None:
        assert theirs(f"it {theirs.mask_token} rained")["input_ids"].count(ours.mask) == 1


@pytest.mark.parametrize("name", REFUSED)
def test_a_shape_without_a_class_is_refused_with_what_to_use(name: str, tmp_path: Path) -> None:
    tiny_run(name, tmp_path / "run")
    with pytest.raises(MeristemError) as error:
        export_run(tmp_path / "run", tmp_path / "out")
    for part in REFUSED[name]:
        assert part in str(error.value)
    assert not (tmp_path / "out").exists()
