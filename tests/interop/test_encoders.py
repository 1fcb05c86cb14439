"""BERT and its relatives: folders of transformers imported, exported, and imported again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
import yaml
from rich.console import Console
from safetensors.torch import load_file, save_file
from tokenizers import models, pre_tokenizers
from torch import Tensor, nn
from transformers_models import Silence, opened, scatter

import meristem
from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.checkpoint.run_folder import RunFolder
from meristem.checkpoint.save import save_checkpoint
from meristem.checkpoint.snapshot import Snapshot
from meristem.config.errors import MeristemError
from meristem.config.recipe import resolve_recipe
from meristem.interfaces.backbone import Model
from meristem.interop.export_folder import export_run
from meristem.interop.import_weights import import_folder
from meristem.learning.build import build_learner
from meristem.tokenizers.train import train_tokenizer

Reads = dict[str, Tensor]

ROWS = 61
BRACKETED = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ANGLED = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 80,
         "max_position_embeddings": 20, "vocab_size": ROWS}  # fmt: skip
DISTILLED = {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 80, "max_position_embeddings": 20,
             "vocab_size": ROWS}  # fmt: skip
TURNED = {**SMALL, "position_embedding_type": "rotary", "emb_layer_norm_before": False, "token_dropout": False,
          "mask_token_id": 4, "pad_token_id": 0}  # fmt: skip
THREE = {"id2label": {0: "bad", 1: "fair", 2: "good"}, "label2id": {"bad": 0, "fair": 1, "good": 2}}


@dataclass(frozen=True)
class Case:
    """One class of theirs, and the heads of ours that it becomes."""

    architecture: str
    config: Mapping[str, Any] = field(default_factory=lambda: SMALL)
    heads: tuple[str, ...] = ()
    special: tuple[str, ...] = tuple(BRACKETED)
    segments: bool = True

    def config_class(self) -> type[transformers.PreTrainedConfig]:
        return getattr(transformers, self.architecture).config_class  # type: ignore[no-any-return]  # found by name

    def build_model(self, **config_changes: Any) -> nn.Module:
        """Theirs, with random weights."""
        config = self.config_class()(**{**self.config, **config_changes})
        other = getattr(transformers, self.architecture)(config).eval()
        scatter(other)
        return other  # type: ignore[no-any-return]  # found by name


def family(name: str, config: Mapping[str, Any], **options: Any) -> Iterator[Case]:
    """The body and the usual task heads of a family."""
    three = {**config, **THREE}
    yield Case(f"{name}Model", config, ("pooler",) if name not in ("DistilBert", "Electra") else (), **options)
    yield Case(f"{name}ForSequenceClassification", three, ("classification",), **options)
    yield Case(f"{name}ForTokenClassification", three, ("tagging",), **options)
    if name != "Esm":
        yield Case(f"{name}ForQuestionAnswering", config, ("span",), **options)
        yield Case(f"{name}ForMultipleChoice", config, ("choice",), **options)
    if name != "Electra":
        yield Case(f"{name}ForMaskedLM", config, ("mlm",), **options)


ANGLES = {**SMALL, "max_position_embeddings": 22, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1}
NARROW = {**SMALL, "embedding_size": 24}
ALTERNATING = {**SMALL, "num_hidden_layers": 4, "local_attention": 6, "pad_token_id": 0, "cls_token_id": 2,
               "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3,
               "global_attn_every_n_layers": 2}  # fmt: skip
ONE: dict[str, Any] = {"special": tuple(ANGLED), "segments": False}
CASES = [
    *family("Bert", SMALL),
    Case("BertForPreTraining", SMALL, ("mlm", "nsp")),
    Case("BertForNextSentencePrediction", SMALL, ("nsp",)),
    *family("Roberta", ANGLES, **ONE),
    Case("RobertaForMaskedLM", {**ANGLES, "type_vocab_size": 2}, ("mlm",), tuple(ANGLED)),
    Case("XLMRobertaModel", ANGLES, ("pooler",), **ONE),
    Case("XLMRobertaForSequenceClassification", {**ANGLES, **THREE}, ("classification",), **ONE),
    Case("CamembertForMaskedLM", ANGLES, ("mlm",), **ONE),
    *family("DistilBert", DISTILLED, segments=False),
    *family("Electra", NARROW),
    Case("ElectraForPreTraining", NARROW, ("rtd",)),
    Case("ElectraForPreTraining", {**SMALL, "embedding_size": 32}, ("rtd",)),
    Case("ElectraForMaskedLM", NARROW, ("mlm",)),
    *family("Esm", TURNED, segments=False),
    Case("ModernBertModel", ALTERNATING, segments=False),
    Case("ModernBertForMaskedLM", ALTERNATING, ("mlm",), segments=False),
    Case("ModernBertForSequenceClassification", {**ALTERNATING, **THREE}, ("classification",), segments=False),
]


def words(special: tuple[str, ...]) -> str:
    """A tokenizer.json of 61 words."""
    vocabulary = [*special, *(f"w{number}" for number in range(len(special), ROWS))]
    unknown = next(name for name in special if "unk" in name.lower())
    tokenizer = tokenizers.Tokenizer(
        models.WordLevel({word: n for n, word in enumerate(vocabulary)}, unk_token=unknown)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(list(special))
    return tokenizer.to_str()


def saved(case: Case, folder: Path, other: nn.Module, **options: Any) -> Path:
    """A folder as transformers writes it."""
    other.save_pretrained(folder, **options)  # type: ignore[operator]  # every model of theirs has it
    (folder / "tokenizer.json").write_text(words(case.special), encoding="utf-8")
    return folder


@pytest.fixture
def reads() -> Reads:
    """Four rows of odd lengths, two segments."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(5, ROWS, (4, 13), generator=generator)
    present = torch.arange(13)[None] < torch.tensor([13, 7, 1, 4])[:, None]
    segments = (torch.arange(13)[None] > torch.tensor([[6], [3], [0], [2]])).long()
    return {"tokens": tokens, "present": present, "segments": segments}


def theirs(case: Case, other: nn.Module, reads: Reads) -> dict[str, Tensor]:
    """What their model says, at the tokens that are there."""
    pad = next(n for n, name in enumerate(case.special) if "pad" in name.lower())
    present = reads["present"]
    inputs = {"input_ids": reads["tokens"].masked_fill(~present, pad), "attention_mask": present.long()}
    if case.segments:
        inputs["token_type_ids"] = reads["segments"]
    choice = case.heads == ("choice",)
    if choice:
        inputs = {key: value.view(2, 2, -1) for key, value in inputs.items()}
    with torch.no_grad():
        out = dict(other(**inputs))
    out.pop("hidden_states", None)
    return {key: value[present] if value.shape[:2] == present.shape else value for key, value in out.items()}


def ours(case: Case, model: Model, reads: Reads) -> dict[str, Tensor]:
    """What our model says, under their names."""
    present, heads = reads["present"], model.heads
    inputs = {key: value for key, value in reads.items() if key != "segments" or case.segments}
    with torch.no_grad():
        states = model.backbone(**inputs).last_hidden_state
        first, present_states = states[:, 0], states[present]
        match case.heads:
            case ():
                return {"last_hidden_state": present_states}
            case ("pooler",):
                return {"last_hidden_state": present_states, "pooler_output": heads["pooler"](first)}
            case ("mlm", "nsp"):
                return {
                    "prediction_logits": heads["mlm"](present_states),
                    "seq_relationship_logits": heads["nsp"](first),
                }
            case ("span",):
                start, end = heads["span"](present_states).unbind(-1)
                return {"start_logits": start, "end_logits": end}
            case ("choice",):
                return {"logits": heads["choice"](first).view(2, 2)}
            case (name,):
                return {"logits": heads[name](present_states if name in ("mlm", "tagging", "rtd") else first)}
    raise AssertionError(case.heads)


def agree(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert set(actual) == set(expected)
    for key, value in expected.items():
        worst = float((actual[key] - value).abs().max())
        assert worst <= 1e-5 * max(1.0, float(value.abs().max())), (key, worst)


def tensors(run: Path) -> dict[str, Tensor]:
    checkpoint = load_checkpoint(RunFolder.open(run).checkpoints)
    assert checkpoint is not None
    return dict(checkpoint.snapshot.model)


def assert_same_runs(first: Path, second: Path) -> None:
    first_tensors, other = tensors(first), tensors(second)
    assert set(first_tensors) == set(other)
    assert [name for name in first_tensors if not torch.equal(first_tensors[name], other[name])] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.architecture)
def test_there_and_back(case: Case, tmp_path: Path, reads: Reads, no_warnings: Silence) -> None:
    other = case.build_model()
    expected = theirs(case, other, reads)
    imported = import_folder(saved(case, tmp_path / "theirs", other), tmp_path / "run")
    assert imported.architecture == case.architecture
    agree(ours(case, load_run(tmp_path / "run").learner.model, reads), expected)

    exported = export_run(tmp_path / "run", tmp_path / "ours")
    reexported = theirs(case, opened(tmp_path / "ours", exported.architecture, no_warnings), reads)
    assert set(reexported) == set(expected)
    for key, value in expected.items():
        assert torch.equal(reexported[key], value), (key, float((reexported[key] - value).abs().max()))

    import_folder(tmp_path / "ours", tmp_path / "again")
    assert_same_runs(tmp_path / "run", tmp_path / "again")


# ---------------------------------------------------------------- other forms of the same folder

BERT = next(case for case in CASES if case.architecture == "BertForMaskedLM")
CLASSES = next(case for case in CASES if case.architecture == "RobertaForSequenceClassification")


def test_weights_in_several_files(tmp_path: Path, reads: Reads) -> None:
    other = BERT.build_model()
    folder = saved(BERT, tmp_path / "theirs", other, max_shard_size="20KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 3
    import_folder(folder, tmp_path / "run")
    agree(ours(BERT, load_run(tmp_path / "run").learner.model, reads), theirs(BERT, other, reads))


def test_weights_as_torch_saves_them_under_their_oldest_names(tmp_path: Path, reads: Reads) -> None:
    other = BERT.build_model()
    folder = saved(BERT, tmp_path / "theirs", other)
    (folder / "model.safetensors").unlink()
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in other.state_dict().items()
    }
    torch.save({**old, "bert.embeddings.position_ids": torch.arange(20)[None]}, folder / "pytorch_model.bin")
    imported = import_folder(folder, tmp_path / "run")
    assert imported.unused_tensors == ("bert.embeddings.position_ids",)
    agree(ours(BERT, load_run(tmp_path / "run").learner.model, reads), theirs(BERT, other, reads))


def test_a_masked_model_that_holds_next_sentences_too(tmp_path: Path, reads: Reads) -> None:
    """As the published BERTs are: config.json names one head, the weights are of two."""
    case = next(case for case in CASES if case.architecture == "BertForPreTraining")
    other = case.build_model()
    folder = saved(case, tmp_path / "theirs", other)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["BertForMaskedLM"]}))
    imported = import_folder(folder, tmp_path / "run")
    assert imported.architecture == "BertForPreTraining"
    assert [part.name for part in imported.recipe.objective] == ["mlm", "nsp"]
    agree(ours(case, load_run(tmp_path / "run").learner.model, reads), theirs(case, other, reads))


def test_a_body_without_its_pooler(tmp_path: Path, reads: Reads, no_warnings: Silence) -> None:
    """The body of a masked model has none: what goes out is zeros, and this is said."""
    case, other = replace(BERT, architecture="BertModel", heads=()), BERT.build_model().bert
    imported = import_folder(saved(case, tmp_path / "theirs", other), tmp_path / "run")
    assert list(imported.recipe.heads) == []
    assert {name.split(".")[1] for name in imported.new_weights} == {"mlm"}
    expected = theirs(case, other, reads)
    agree(ours(case, load_run(tmp_path / "run").learner.model, reads), expected)
    exported = export_run(tmp_path / "run", tmp_path / "ours")
    assert "pooler: zeros, since the run has none" in exported.notes
    reexported = theirs(case, opened(tmp_path / "ours", "BertModel", no_warnings), reads)
    assert torch.equal(reexported["last_hidden_state"], expected["last_hidden_state"])
    assert not reexported["pooler_output"].any()


def test_a_body_of_a_run_with_next_sentences_has_their_pooler(
    tmp_path: Path, reads: Reads, no_warnings: Silence
) -> None:
    case = next(case for case in CASES if case.architecture == "BertForPreTraining")
    other = case.build_model()
    import_folder(saved(case, tmp_path / "theirs", other), tmp_path / "run")
    exported = export_run(tmp_path / "run", tmp_path / "ours", architecture="BertModel")
    assert exported.notes == (
        "mlm: left out, since BertModel has no such head; --architecture BertForMaskedLM exports it",
        "nsp: left out, since BertModel has no such head; --architecture BertForPreTraining exports it",
        "pooler: taken from the head nsp",
    )
    body = replace(case, architecture="BertModel", heads=("pooler",))
    reexported = theirs(body, opened(tmp_path / "ours", "BertModel", no_warnings), reads)
    assert torch.equal(reexported["pooler_output"], theirs(body, other.bert, reads)["pooler_output"])


@pytest.mark.parametrize(
    ("problem", "labels"),
    [
        ("regression", {0: "stars"}),
        ("multi_label_classification", {0: "wet", 1: "cold", 2: "dark"}),
        ("single_label_classification", {0: "no", 1: "yes"}),
        (None, {0: "no", 1: "yes"}),
    ],
)
def test_what_the_labels_mean_comes_back(problem: str | None, labels: dict[int, str], tmp_path: Path, reads: Reads,
                                         no_warnings: Silence) -> None:  # fmt: skip
    label_ids = {label: number for number, label in labels.items()}
    other = CLASSES.build_model(id2label=labels, label2id=label_ids, problem_type=problem)
    imported = import_folder(saved(CLASSES, tmp_path / "theirs", other), tmp_path / "run")
    head = imported.recipe.heads["classification"]
    assert (head.labels, head.problem) == (tuple(labels.values()), problem)
    agree(ours(CLASSES, load_run(tmp_path / "run").learner.model, reads), theirs(CLASSES, other, reads))
    export_run(tmp_path / "run", tmp_path / "ours")
    config = opened(tmp_path / "ours", CLASSES.architecture, no_warnings).config
    assert (config.id2label, config.label2id, config.problem_type) == (labels, label_ids, problem)  # type: ignore[union-attr]  # theirs


def test_a_discriminator_gets_a_new_generator(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.architecture == "ElectraForPreTraining")
    imported = import_folder(saved(case, tmp_path / "theirs", case.build_model()), tmp_path / "run")
    assert [part.name for part in imported.recipe.objective] == ["rtd"]
    assert {name.split(".")[1] for name in imported.new_weights} == {"generator"}
    assert "newly initialised, since the folder has none: generator" in imported.summary()


# ---------------------------------------------------------------- runs that began here

TEXTS = [f"The gardener number {n} planted {n * 7} trees. The sailor went home, it rained." for n in range(40)]
MODEL = {"layers": 2, "hidden_size": 32, "heads": 4, "max_length": 24}
EARLY = {"norm_position": "pre", "position_encoding": "rotary"}


def build_run(path: Path, model: dict[str, Any], objective: Any, kind: str = "wordpiece") -> LoadedRun:
    """A run with weights of its own, as training leaves it."""
    recipe = resolve_recipe("tiny", {"tokenizer": {"kind": kind, "vocab_size": 512 if kind == "bpe" else 200},
                              "model": {**MODEL, **model}, "objective": objective})  # fmt: skip
    tokenizer = train_tokenizer(recipe.tokenizer, TEXTS)
    learner = build_learner(recipe, tokenizer)
    scatter(learner, 5)
    text = yaml.safe_dump(recipe.to_dict())
    run = RunFolder.create(path, text, None)
    tokenizer.save(run.tokenizer_path)
    weights = learner.model.state_dict()
    save_checkpoint(run.checkpoints, Snapshot(step=1, model=weights, optimizer={}, memory={}, state={}, recipe=text,
                                   tokenizer=run.tokenizer_path))  # fmt: skip
    return load_run(path)


@pytest.mark.parametrize(
    ("model", "objective", "kind", "architecture", "heads"),
    [
        ({"family": "bert"}, ["mlm", "nsp"], "wordpiece", "BertForPreTraining", ("mlm", "nsp")),
        ({"family": "bert", "segments": 0}, "mlm", "wordpiece", "DistilBertForMaskedLM", ("mlm",)),
        ({"family": "roberta"}, "mlm", "bpe", "RobertaForMaskedLM", ("mlm",)),
        ({"family": "roberta"}, "mlm", "wordpiece", "RobertaForMaskedLM", ("mlm",)),
        ({"family": "electra", "embedding_size": 24}, "mlm", "wordpiece", "ElectraForMaskedLM", ("mlm",)),
        ({"family": "electra", "embedding_size": None}, "rtd", "wordpiece", "ElectraForPreTraining", ("rtd",)),
        ({"family": "bert", **EARLY, "segments": 0, "rotary_base": 500}, "mlm", "bpe", "EsmForMaskedLM", ("mlm",)),
        ({"family": "roberta", **EARLY}, "mlm", "bpe", "EsmForMaskedLM", ("mlm",)),
    ],
)  # fmt: skip
def test_a_run_that_began_here(
    model: dict[str, Any],
    objective: Any,
    kind: str,
    architecture: str,
    heads: tuple[str, ...],
    tmp_path: Path,
    reads: Reads,
    no_warnings: Silence,
) -> None:
    loaded_run = build_run(tmp_path / "run", model, objective, kind)
    exported = export_run(tmp_path / "run", tmp_path / "ours")
    assert exported.architecture == architecture
    special = [""] * loaded_run.tokenizer.vocab_size
    assert loaded_run.tokenizer.pad is not None
    special[loaded_run.tokenizer.pad] = "[PAD]"
    pairs = architecture.startswith(("Bert", "Electra"))
    case = Case(architecture, {}, heads, tuple(special), segments=pairs)
    other = opened(tmp_path / "ours", architecture, no_warnings)
    assert other.config.pad_token_id == loaded_run.tokenizer.pad  # type: ignore[union-attr]  # RoBERTa counts from there
    agree(theirs(case, other, reads), ours(case, loaded_run.learner.model, reads))


def test_an_early_norm_with_segments_is_refused(tmp_path: Path) -> None:
    """ESM has no segments: with them folded into the words pairs had other numbers, and no import read it back."""
    build_run(tmp_path / "run", {"family": "bert", **EARLY}, ["mlm", "nsp"])
    with pytest.raises(MeristemError) as error:
        export_run(tmp_path / "run", tmp_path / "ours")
    assert "bert has no model.norm_position=pre, model.position_encoding=rotary" in str(error.value)
    assert "esm has no model.segments=2" in str(error.value)
    assert "meristem pretrain bert-mini trains an architecture it supports; meristem export --onnx exports" in str(
        error.value
    )
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("model", "objective", "kind", "architecture", "lost"),
    [
        ({"family": "roberta"}, ["mlm", "nsp"], "bpe", "RobertaForMaskedLM", "nsp"),
        ({"family": "bert", "segments": 0, **EARLY}, ["mlm", "nsp"], "wordpiece", "EsmForMaskedLM", "nsp"),
        ({"family": "bert"}, "rtd", "wordpiece", "BertModel", "generator and rtd"),
    ],
)
def test_a_head_without_a_place_is_lost_only_on_request(
    model: dict[str, Any], objective: Any, kind: str, architecture: str, lost: str, tmp_path: Path
) -> None:
    build_run(tmp_path / "run", model, objective, kind)
    with pytest.raises(MeristemError, match=f"--architecture {architecture} exports it without {lost}"):
        export_run(tmp_path / "run", tmp_path / "ours")
    exported = export_run(tmp_path / "run", tmp_path / "ours", architecture=architecture)
    assert [note.split(":")[0] for note in exported.notes if "left out" in note] == lost.split(" and ")


def test_an_early_norm_without_segments_comes_back(tmp_path: Path) -> None:
    build_run(tmp_path / "run", {"family": "bert", "segments": 0, **EARLY}, "mlm")
    export_run(tmp_path / "run", tmp_path / "ours")
    import_folder(tmp_path / "ours", tmp_path / "again")
    assert_same_runs(tmp_path / "run", tmp_path / "again")


def generated(loaded_run: LoadedRun, reads: Reads) -> dict[str, Tensor]:
    """What the generator inside a run says of the tokens that are there."""
    generator: Any = loaded_run.learner.model.heads["generator"]
    with torch.no_grad():
        return {"logits": generator.words(generator.body(**reads).last_hidden_state)[reads["present"]]}


def test_a_generator_leaves_alone(tmp_path: Path, reads: Reads, no_warnings: Silence) -> None:
    loaded_run = build_run(tmp_path / "run", {"family": "electra", "embedding_size": 24}, "rtd")
    expected = generated(loaded_run, reads)
    export_run(tmp_path / "run", tmp_path / "guesser", architecture="ElectraForMaskedLM")
    other = opened(tmp_path / "guesser", "ElectraForMaskedLM", no_warnings)
    assert (other.config.hidden_size, other.config.embedding_size) == (8, 24)  # type: ignore[union-attr]  # theirs
    agree(theirs(Case("ElectraForMaskedLM"), other, reads), expected)
    import_folder(tmp_path / "guesser", tmp_path / "masked")
    agree(
        ours(Case("ElectraForMaskedLM", heads=("mlm",)), load_run(tmp_path / "masked").learner.model, reads), expected
    )


def test_a_generator_goes_along_in_a_subfolder(tmp_path: Path, reads: Reads, no_warnings: Silence) -> None:
    loaded_run = build_run(tmp_path / "run", {"family": "electra", "embedding_size": 24}, "rtd")
    exported = export_run(tmp_path / "run", tmp_path / "both")
    assert exported.notes == ("generator: ElectraForMaskedLM in the subfolder generator",)
    other = opened(tmp_path / "both" / "generator", "ElectraForMaskedLM", no_warnings)
    agree(theirs(Case("ElectraForMaskedLM"), other, reads), generated(loaded_run, reads))
    imported = import_folder(tmp_path / "both", tmp_path / "again")
    assert imported.new_weights == ()
    assert_same_runs(tmp_path / "run", tmp_path / "again")
    agree(generated(load_run(tmp_path / "again"), reads), generated(loaded_run, reads))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 12}, "hidden_size=12 does not divide the discriminator's 32"),
        ({"hidden_act": "relu"}, "hidden_act='relu' is not supported"),
        ({"intermediate_size": 48}, "is not the generator of this model, since these settings differ: ffn_size"),
    ],
)
def test_a_generator_of_another_model_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    build_run(tmp_path / "run", {"family": "electra", "embedding_size": 24}, "rtd")
    export_run(tmp_path / "run", tmp_path / "both")
    path = tmp_path / "both" / "generator" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(MeristemError, match=message):
        import_folder(tmp_path / "both", tmp_path / "again")


def test_a_generator_with_embeddings_of_its_own_is_refused(tmp_path: Path) -> None:
    build_run(tmp_path / "run", {"family": "electra", "embedding_size": 24}, "rtd")
    export_run(tmp_path / "run", tmp_path / "both")
    path = tmp_path / "both" / "generator" / "model.safetensors"
    file = load_file(path)
    file["electra.embeddings.LayerNorm.bias"] += 1
    save_file(file, path, {"format": "pt"})
    with pytest.raises(MeristemError, match=r"its own embeddings.*backbone\.embed\.norm\.bias"):
        import_folder(tmp_path / "both", tmp_path / "again")
    (tmp_path / "both" / "generator").rename(tmp_path / "elsewhere")
    (tmp_path / "both" / "generator").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MeristemError, match="generator: symbolic links are not followed"):
        import_folder(tmp_path / "both", tmp_path / "again")


@pytest.mark.parametrize(("family", "kind"), [("bert", "wordpiece"), ("roberta", "bpe")])
@pytest.mark.parametrize("model_settings", [{}, {**EARLY, "segments": 0}], ids=["late norms", "early norms"])
def test_the_same_words_fill_a_mask(family: str, kind: str, model_settings: dict[str, Any], tmp_path: Path,
                                    monkeypatch: pytest.MonkeyPatch, no_warnings: Silence) -> None:  # fmt: skip
    """A run trained here from text, opened by their pipeline."""
    monkeypatch.setenv("MERISTEM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump({
        "corpus": {"source": str(tmp_path / "text.txt"), "document": "line"},
        "tokenizer": {"kind": kind, "vocab_size": 512 if kind == "bpe" else 200},
        "model": {"family": family, **MODEL, **model_settings}, "objective": "mlm",
        "train": {"steps": 3, "batch_tokens": 96, "learning_rate": 1e-2}}))  # fmt: skip
    meristem.pretrain(recipe, out=tmp_path / "run", console=Console(quiet=True))
    export_run(tmp_path / "run", tmp_path / "ours")
    loaded = meristem.load(tmp_path / "run")
    with no_warnings():
        pipeline = transformers.pipeline("fill-mask", model=str(tmp_path / "ours"), device="cpu")
    special = {loaded.tokenizer.id_to_token(number) for number in loaded.tokenizer.special_mask.nonzero()[0].tolist()}
    for text in ("The gardener planted [MASK] trees.", "[MASK] went home, it rained.", "The sailor went [MASK]"):
        predictions = pipeline(text.replace("[MASK]", pipeline.tokenizer.mask_token), top_k=5 + len(special))
        theirs_ = [
            prediction
            for prediction in predictions
            if pipeline.tokenizer.convert_ids_to_tokens(prediction["token"]) not in special
        ][:5]
        (filled,) = loaded.fill(text, top=5)
        names = [
            loaded.tokenizer.token_text(prediction["token"]) for prediction in theirs_
        ]  # the same ids on both sides
        assert [candidate.token for candidate in filled.candidates] == names
        for candidate, other in zip(filled.candidates, theirs_, strict=True):
            assert abs(candidate.probability - other["score"]) <= 1e-5


# ---------------------------------------------------------------- what has no counterpart


def test_a_shape_that_theirs_cannot_say_is_named(tmp_path: Path) -> None:
    build_run(tmp_path / "run", {"family": "bert", "segments": 0, "norm_epsilon": 1e-5}, "mlm")
    with pytest.raises(MeristemError) as error:
        export_run(tmp_path / "run", tmp_path / "ours")
    assert "bert has no model.segments=0; distilbert has no model.norm_epsilon=1e-05; esm has no" in str(error.value)
    assert not (tmp_path / "ours").exists()


def test_a_pooler_of_another_kind_is_named_only_where_one_is_used(tmp_path: Path) -> None:
    build_run(tmp_path / "run", {"family": "bert", "segments": 0}, ["mlm", "nsp"])
    with pytest.raises(MeristemError, match=r"distilbert has no model\.pooler_activation=tanh"):
        export_run(tmp_path / "run", tmp_path / "ours")


@pytest.mark.parametrize(
    ("case", "change", "message"),
    [
        (BERT, {"hidden_act": "silu"}, "hidden_act='silu' is not supported; supported: gelu, gelu_new, relu"),
        (BERT, {"is_decoder": True}, "is_decoder=True: only False has a counterpart in the bert family"),
        (CLASSES, {"hidden_act": "relu"}, "hidden_act='relu' is not supported; supported: gelu"),
        (Case("EsmForMaskedLM", TURNED), {"token_dropout": True}, "token_dropout=True: only False has a counterpart"),
        (Case("DistilBertForMaskedLM", DISTILLED), {"sinusoidal_pos_embds": True}, "sinusoidal_pos_embds=True: only"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
def test_what_ours_cannot_do_is_refused(case: Case, change: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = saved(case, tmp_path / "theirs", case.build_model())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(MeristemError, match=message.replace("(", r"\(")):
        import_folder(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_output_that_is_not_the_embedding_is_refused(tmp_path: Path) -> None:
    folder = saved(BERT, tmp_path / "theirs", BERT.build_model())
    weights = load_file(folder / "model.safetensors")
    weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"] + 1
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(MeristemError, match=r"cls\.predictions\.decoder\.weight and bert\.embeddings\.word_embeddings"):
        import_folder(folder, tmp_path / "run")
