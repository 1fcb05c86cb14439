"""XLNet imported and exported: content stream with padding on either side, query slots in any order, and every head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
import yaml
from tokenizers import models, pre_tokenizers
from torch import Tensor, nn
from transformers_models import Silence, close, opened, same_tensors, scatter

from meristem.checkpoint.load_run import load_run
from meristem.checkpoint.run_folder import RunFolder
from meristem.checkpoint.save import save_checkpoint
from meristem.checkpoint.snapshot import Snapshot
from meristem.config.errors import MeristemError
from meristem.config.recipe import resolve_recipe
from meristem.interfaces.backbone import Model
from meristem.interop.export_folder import export_run
from meristem.interop.import_weights import import_folder
from meristem.learning.build import build_learner
from meristem.tokenizers.tokenizer import Tokenizer

SPECIAL = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>"]
WORDS = [*SPECIAL, *(f"w{number}" for number in range(54))]
PAD = SPECIAL.index("<pad>")


def words(folder: Path) -> None:
    """Words between spaces, under XLNet's special names."""
    tokenizer = tokenizers.Tokenizer(
        models.WordLevel({token: number for number, token in enumerate(WORDS)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(SPECIAL)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


def theirs(name: str, folder: Path, **config_changes: Any) -> Any:
    """A random model of theirs, saved with its words."""
    config_fields = {
        "vocab_size": len(WORDS),
        "d_model": 32,
        "n_layer": 3,
        "n_head": 4,
        "d_inner": 80,
        "mem_len": None,
        **config_changes,
    }
    model = getattr(transformers, name)(transformers.XLNetConfig(**config_fields)).eval()
    scatter(model)
    words(folder)
    model.save_pretrained(folder)
    return model


def ragged(pad_left: bool) -> dict[str, Tensor]:
    """Three rows of odd lengths with two segments, padded on either side."""
    tokens = torch.randint(len(SPECIAL), len(WORDS), (3, 13), generator=torch.Generator().manual_seed(3))
    present = torch.arange(13) < torch.tensor([13, 7, 1])[:, None]
    present = present.flip(1) if pad_left else present
    segments = (torch.arange(13) > torch.tensor([[6], [9], [11]])).long()
    return {"tokens": tokens.masked_fill(~present, PAD), "present": present, "segments": segments}


def theirs_of(model: Any, tokens: Tensor, present: Tensor, segments: Tensor) -> Tensor:
    rows = {"input_ids": tokens, "attention_mask": present.float(), "token_type_ids": segments}
    if type(model).__name__.endswith("MultipleChoice"):
        return model(**{key: value[:, None] for key, value in rows.items()}).logits
    out = model(**rows)
    if "start_logits" in out:
        return torch.stack([out.start_logits, out.end_logits], -1)[present]
    outputs = out.logits if "logits" in out else out.last_hidden_state
    return outputs if outputs.ndim == 2 else outputs[present]


HEADS = {"LMHeadModel": "plm", "TokenClassification": "tagging", "AnsweringSimple": "span"}
LAST = {"SequenceClassification": "classification", "MultipleChoice": "choice"}


def ours_of(model: Model, name: str, tokens: Tensor, present: Tensor, segments: Tensor) -> Tensor:
    """What the head that came along says; those for whole texts read the last place there is, padding or not."""
    last = model.backbone(tokens=tokens, present=present, segments=segments).last_hidden_state
    for end, head_name in LAST.items():
        if name.endswith(end):
            return model.heads[head_name](last[:, -1])
    return next((model.heads[head_key] for end, head_key in HEADS.items() if name.endswith(end)), nn.Identity())(last)[
        present
    ]


CASES: list[tuple[str, dict[str, Any]]] = [
    ("XLNetModel", {"ff_activation": "relu"}),
    ("XLNetLMHeadModel", {"vocab_size": 70, "clamp_len": 4, "layer_norm_eps": 1e-4}),
    ("XLNetLMHeadModel", {"mem_len": 7}),
    ("XLNetForSequenceClassification", {"num_labels": 3}),
    ("XLNetForTokenClassification", {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}}),
    ("XLNetForQuestionAnsweringSimple", {}),
    ("XLNetForMultipleChoice", {}),
]


@pytest.mark.parametrize(("name", "config_changes"), CASES, ids=lambda value: str(value))
def test_there_and_back(name: str, config_changes: dict[str, Any], tmp_path: Path, no_warnings: Silence) -> None:
    original = theirs(name, tmp_path / "theirs", **config_changes)
    imported = import_folder(tmp_path / "theirs", tmp_path / "run")
    assert imported.recipe.model.memory_length == (config_changes.get("mem_len") or 0)
    assert not imported.unused_tensors
    export_run(tmp_path / "run", tmp_path / "back", architecture=name)
    reexported, run = opened(tmp_path / "back", name, no_warnings), load_run(tmp_path / "run")
    for pad_left in (False, True):
        rows = ragged(pad_left)
        if not pad_left and any(name.endswith(end) for end in LAST):
            rows["present"] = torch.ones_like(rows["present"])  # with them the last place must be the text's
        with torch.inference_mode():
            expected = theirs_of(original, **rows)
            close(ours_of(run.learner.model, name, **rows), expected)
            assert torch.equal(theirs_of(reexported, **rows), expected)
    assert reexported.config.id2label == original.config.id2label
    assert (reexported.config.mem_len, reexported.config.clamp_len) == (
        original.config.mem_len,
        original.config.clamp_len,
    )
    import_folder(tmp_path / "back", tmp_path / "again")
    same_tensors(tmp_path / "run", tmp_path / "again")


@pytest.mark.parametrize("covers_all", [True, False], ids=["whole", "ordered"])
def test_queries_in_any_order_say_the_same(covers_all: bool, tmp_path: Path, no_warnings: Silence) -> None:
    """Tokens predicted from those before them in a random order, as perm_mask and target_mapping tell it."""
    torch.manual_seed(0)
    original = theirs("XLNetLMHeadModel", tmp_path / "theirs")
    import_folder(tmp_path / "theirs", tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "back")
    reexported = opened(tmp_path / "back", "XLNetLMHeadModel", no_warnings)
    model = load_run(tmp_path / "run").learner.model
    tokens = torch.randint(len(WORDS), (3, 11))
    rank = torch.stack([torch.randperm(11) for _ in range(3)])
    slots = (rank >= 7).nonzero()[:, 1].view(3, 4)
    rank = 1 + ((rank - 6).clamp(min=0) if covers_all else rank)
    mapping = nn.functional.one_hot(slots, 11).float()
    later = (rank[:, None] > rank[:, :, None]).float() + torch.diag_embed(mapping.sum(1))
    masks = {"perm_mask": later.clamp(max=1), "target_mapping": mapping}
    with torch.inference_mode():
        expected = original(input_ids=tokens, **masks).logits
        close(model.heads["plm"](model.backbone(tokens=tokens, order=rank, slots=slots).last_hidden_state), expected)
        assert torch.equal(reexported(input_ids=tokens, **masks).logits, expected)


# ---------------------------------------------------------------- runs of our own


def build_run(folder: Path, **model: Any) -> Model:
    """A run as training leaves it, with random weights."""
    words(folder.with_suffix(".words"))
    tokenizer = Tokenizer.load(folder.with_suffix(".words"))
    shape = {"family": "xlnet", "layers": 2, "hidden_size": 32, "heads": 4, "max_length": 24, **model}
    recipe = resolve_recipe(folder.name, {"tokenizer": {"kind": "words"}, "model": shape, "objective": "plm"})
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
    return load_run(folder).learner.model


@pytest.mark.parametrize(
    "model_settings",
    [{}, {"memory_length": 5, "bidirectional_data": True, "clamp_distance": 6, "ffn_size": 40}],
    ids=str,
)
def test_a_run_of_ours_opens_there(model_settings: dict[str, Any], tmp_path: Path, no_warnings: Silence) -> None:
    model = build_run(tmp_path / "run", **model_settings)
    assert export_run(tmp_path / "run", tmp_path / "out").architecture == "XLNetLMHeadModel"
    other = opened(tmp_path / "out", "XLNetLMHeadModel", no_warnings)
    with torch.inference_mode():
        for pad_left in (False, True):
            close(theirs_of(other, **ragged(pad_left)), ours_of(model, "XLNetLMHeadModel", **ragged(pad_left)))
    imported = import_folder(tmp_path / "out", tmp_path / "again")
    assert (imported.recipe.model.max_length, imported.recipe.model.memory_length) == (
        24,
        model_settings.get("memory_length", 0),
    )
    same_tensors(tmp_path / "run", tmp_path / "again")


@pytest.mark.parametrize(
    ("model_settings", "message"),
    [
        ({"norm_position": "pre"}, "xlnet has no model.norm_position=pre"),
        ({"segments": False}, "xlnet has no model.segments=False"),
        ({"activation": "swiglu"}, "xlnet has no model.activation=swiglu"),
    ],
)
def test_what_theirs_cannot_say_is_named(model_settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    build_run(tmp_path / "run", **model_settings)
    with pytest.raises(MeristemError, match=message):
        export_run(tmp_path / "run", tmp_path / "out")


@pytest.mark.parametrize(
    ("config_changes", "message"),
    [
        ({"attn_type": "uni"}, "attn_type='uni': only 'bi'"),
        ({"same_length": True}, "same_length=True"),
        ({"summary_type": "mean"}, "summary_type='mean': only 'last'"),
    ],
)
def test_what_ours_cannot_do_is_named(config_changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    theirs("XLNetModel", tmp_path / "theirs", **config_changes)
    with pytest.raises(MeristemError, match=message):
        import_folder(tmp_path / "theirs", tmp_path / "run")


def test_their_other_class_for_questions_is_named(tmp_path: Path) -> None:
    theirs("XLNetForQuestionAnswering", tmp_path / "theirs")
    with pytest.raises(MeristemError, match="XLNetForQuestionAnswering is not supported; supported classes of xlnet"):
        import_folder(tmp_path / "theirs", tmp_path / "run")
