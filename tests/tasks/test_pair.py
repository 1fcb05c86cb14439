"""Sentence pairs: encoded together, in both orders or separately; labels and numbers, on every backbone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rich.console import Console

sys.path.append(str(Path(__file__).parent))

from small import FEW_FIRST, Small, close, small

from meristem import api
from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError, RecipeError
from meristem.inputs.encoded_input import truncate_pair
from meristem.interfaces.sample import Sample

PAIRS = [
    ("a man plays a flute", "a man makes music", "yes", "4.5"),
    ("a man plays a flute", "a man sleeps", "no", "1"),
    ("two dogs run over a field in the morning", "dogs are outside", "yes", "3.5"),
    ("two dogs run", "the dogs lie on the sofa and do not move", "no", "0.5"),
    ("she cuts an onion", "a woman cuts a vegetable with a knife", "yes", "4"),
    ("she cuts an onion", "nobody is in the kitchen", "no", "0"),
    ("rain", "it rains", "yes", "5"),
    ("rain", "the sun shines on the dry field", "no", "0.5"),
]


def samples(numbers: bool = False) -> list[Sample]:
    return [
        Sample(inputs={"text": a, "text_b": b}, gold=number if numbers else label, location=f"a.tsv:{n}")
        for n, (a, b, label, number) in enumerate(PAIRS, 2)
    ]


def build_task(backbone: str = "bert", *, numbers: bool = False, **task_settings: Any) -> Small:
    return small("pair", samples(numbers), backbone, **task_settings)


def words(it: Small, row: int) -> list[str]:
    batch = it.batch()
    key = "source" if "source" in batch.inputs else "tokens"
    size = len(batch.inputs[key][row])
    present = batch.inputs.get("source_present" if key == "source" else "present", torch.ones(row + 1, size))[
        row
    ].bool()
    return [it.tokenizer.id_to_token(int(token)) for token in batch.inputs[key][row][present]]


# ------------------------------------------------------------ every backbone


@pytest.mark.parametrize("backbone", FEW_FIRST)
def test_it_overfits_a_few_pairs(backbone: str) -> None:
    it = build_task(backbone)
    first = it.learn(1)
    assert it.learn(150, until=first / 10) < first / 4
    assert it.score()["accuracy"] == 1.0


@pytest.mark.parametrize("backbone", ["bert", "gpt2", "elmo", "transformer"])
@pytest.mark.parametrize("numbers", [False, True])
def test_texts_read_apart_are_learned_too(backbone: str, numbers: bool) -> None:
    it = build_task(backbone, numbers=numbers, siamese=True)
    it.learn(200, until=0.003 if numbers else 0.05)
    metrics = it.score()
    assert metrics["spearman"] > 0.9 if numbers else metrics["accuracy"] == 1.0


@pytest.mark.parametrize("backbone", FEW_FIRST)
@pytest.mark.parametrize(
    "task_settings", [{}, {"pair_orders": "both"}, {"siamese": True}], ids=["one", "both", "siamese"]
)
def test_padding_changes_no_prediction(backbone: str, task_settings: dict[str, Any]) -> None:
    it = build_task(backbone, numbers=bool(task_settings), **task_settings)
    it.learn(3)
    alone = [it.answers([sample])[0] for sample in it.samples]
    assert close(it.answers(), alone)
    assert not close(alone[:1], alone[3:4], 1e-4)


# ------------------------------------------------------------ what is read


def test_an_encoder_reads_both_texts_between_separators() -> None:
    it = build_task("bert")
    read = words(it, 0)
    assert read[0] == "[CLS]"
    assert [n for n, word in enumerate(read) if word == "[SEP]"][-1] == len(read) - 1
    assert read.count("[SEP]") == 2
    segments = it.batch().inputs["segments"][0].tolist()
    second = read.index("[SEP]") + 1
    assert segments[:second] == [0] * second
    assert segments[second : len(read)] == [1] * (len(read) - second)


def test_a_causal_model_reads_start_delimiter_extract() -> None:
    it = build_task("gpt2")
    read = words(it, 0)
    assert (read[0], read[-1], read.count("<|delimiter|>")) == ("<|start|>", "<|extract|>", 1)
    assert it.task.max_rows_per_sample == 1


def test_similarity_is_encoded_in_both_orders_by_causal_models() -> None:
    it = build_task("gpt2", numbers=True)
    assert it.task.max_rows_per_sample == 2
    first_order, second_order = words(it, 0), words(it, 1)
    cut = first_order.index("<|delimiter|>")
    assert second_order == [
        "<|start|>",
        *first_order[cut + 1 : -1],
        "<|delimiter|>",
        *first_order[1:cut],
        "<|extract|>",
    ]
    turned = [Sample(inputs={"text": s.inputs["text_b"], "text_b": s.inputs["text"]}) for s in it.samples]
    assert close(it.answers(), it.answers(turned))
    assert not close(
        build_task("gpt2", numbers=True, pair_orders="one").answers(),
        build_task("gpt2", pair_orders="one", numbers=True).answers(turned),
        1e-4,
    )
    assert build_task("bert", numbers=True).task.max_rows_per_sample == 1


def test_the_vectors_of_both_orders_are_added() -> None:
    it, one_order = build_task("bert", pair_orders="both"), build_task("bert")
    one_order.learner.load_state_dict(it.learner.state_dict())
    turned = small(
        "pair",
        [Sample(inputs={"text": s.inputs["text_b"], "text_b": s.inputs["text"]}, gold=s.gold) for s in it.samples],
        "bert",
    )
    model, vectors = it.learner.model, []
    for task in (one_order, turned):
        batch = one_order.batch() if task is one_order else turned.batch()
        vectors.append(one_order.task.encode(model, batch).select(batch.targets["read"]["at"]))
    expected = model.heads["pair"](vectors[0] + vectors[1]).softmax(1)
    assert close(it.answers(), list(expected.detach().numpy()))


def test_the_cosine_is_the_prediction_within_the_range_of_the_scores() -> None:
    it = build_task(numbers=True, siamese=True)
    assert (it.task.heads, it.task.parts.head.logit_layer.pooling) == ({}, "mean")
    batch = it.batch()
    assert len(batch.sample_index) == 2 * len(PAIRS)
    hidden = it.task.encode(it.learner.model, batch)
    present = batch.inputs["present"][..., None].float()
    means = (hidden.last_hidden_state * present).sum(1) / present.sum(1)
    cosines = F.cosine_similarity(means[::2], means[1::2])
    assert close(it.answers(), list(5 * cosines.detach().numpy()[:, None]))
    values = torch.tensor([float(number) / 5 for *_, number in PAIRS])
    outcome = it.learner("task", batch, {"pair": 1})
    assert outcome.loss_sums["pair"].item() == pytest.approx((cosines - values).square().sum().item(), rel=1e-5)
    shown = it.task.format_output(np.array([-0.7], np.float32), it.samples[0])
    assert shown == {"label": "similarity", "score": 0.0}


def test_siamese_vectors_are_concatenated_as_u_v_and_their_distance() -> None:
    it = build_task(siamese=True, pooling="first")
    batch = it.batch()
    first = it.task.encode(it.learner.model, batch).last_hidden_state[:, 0]
    u, v = first[::2], first[1::2]
    expected = it.learner.model.heads["pair"](torch.cat([u, v, (u - v).abs()], 1)).softmax(1)
    assert close(it.answers(), list(expected.detach().numpy()))
    wide = build_task("elmo recurrent", siamese=True)  # the mixed layers beside the net's states, three times over
    assert np.isfinite(wide.answers()).all()


def test_a_siamese_text_is_encoded_independently_of_its_partner() -> None:
    it = build_task(numbers=True, siamese=True)
    same = [Sample(inputs={"text": a, "text_b": a}) for a, *_ in PAIRS]
    assert close(it.answers(same), [np.array([5.0])] * len(same), 1e-4)


@pytest.mark.parametrize(("sizes", "room", "kept_sizes"), [
    ((3, 4), 10, (3, 4)), ((20, 4), 10, (6, 4)), ((4, 20), 10, (4, 6)), ((20, 30), 10, (5, 5)), ((20, 30), 11, (5, 6)),
    ((30, 20), 11, (6, 5)), ((9, 9), 11, (5, 6)), ((0, 30), 11, (0, 11)),
])  # fmt: skip
def test_the_longer_text_is_truncated_first(sizes: tuple[int, int], room: int, kept_sizes: tuple[int, int]) -> None:
    assert truncate_pair(*sizes, room) == kept_sizes


def test_pairs_are_truncated_as_by_the_tokenizers_library() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    theirs = Tokenizer(models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))
    theirs.pre_tokenizer = pre_tokenizers.Whitespace()
    for first in range(9):
        for second in range(9):
            for room in range(2, 12):
                theirs.enable_truncation(room, strategy="longest_first")
                ids = theirs.encode(" ".join("a" * first), " ".join("b" * second)).ids
                assert truncate_pair(first, second, room) == (ids.count(0), ids.count(1)), (first, second, room)


@pytest.mark.parametrize("task_settings", [{}, {"siamese": True}])
def test_truncated_tokens_are_counted(task_settings: dict[str, Any]) -> None:
    it = build_task(max_length=10, **task_settings)
    sizes = np.array([[len(it.tokenizer.encode(text).ids) for text in pair[:2]] for pair in PAIRS])
    cut = np.maximum(sizes - 8, 0).sum(1) if task_settings else np.maximum(sizes.sum(1) - 7, 0)
    assert [piece.num_truncated for piece in it.task.encode_samples(it.samples)] == cut.tolist()
    assert cut.any()
    assert it.batch().inputs["tokens"].shape[1] == 10


# ------------------------------------------------------------ the rest


def test_the_language_model_loss_covers_every_row() -> None:
    it = build_task("gpt2", numbers=True, lm_weight=0.5)
    batch = it.batch()
    assert batch.target_counts == {
        "pair": len(PAIRS),
        "lm": int(batch.inputs["present"].sum()) - len(batch.sample_index),
    }


def test_input_and_output_formats() -> None:
    it = build_task()
    sample = it.task.parse_input({"text": "rain", "text_b": "it rains"})
    shown = it.task.format_output(it.answers([sample])[0], sample)
    assert shown["label"] in ("yes", "no")
    assert 0.5 <= shown["score"] <= 1
    for wrong in ("rain", {"text": "rain"}, {"text": "rain", "text_b": None}):
        with pytest.raises(MeristemError, match="task pair takes two texts"):
            it.task.parse_input(wrong)
    assert it.task.example_commands("runs/x", it.samples[6]) == ["meristem predict runs/x rain --text-b 'it rains'"]


def test_siamese_texts_have_no_order() -> None:
    with pytest.raises(MeristemError, match=r"task\.pair_orders: siamese texts are encoded separately"):
        build_task(siamese=True, pair_orders="both")


def test_a_captioner_is_rejected_with_the_families_that_can() -> None:
    overrides = {"task": "pair", "model": {"family": "captioner"}, "data.train": "nowhere.tsv"}
    with pytest.raises(RecipeError, match=r"task pair needs .* captioner is .*support it: bert, .*xlnet"):
        api.finetune("classification", overrides, console=Console(quiet=True))


def test_an_interrupted_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    rows = [f"{a}\t{b}\t{number}" for a, b, _, number in PAIRS]
    file.write_text("\n".join(["sentence1\tsentence2\tlabel", *rows]) + "\n", encoding="utf-8")

    def train(out: str, steps: int) -> dict[str, Any]:
        overrides = {
            "task": {"name": "pair", "siamese": True},
            "model": {"family": "bert", "max_length": 32, "dropout": 0.1, "layers": 1, "hidden_size": 32, "heads": 2},
            "tokenizer": {"kind": "wordpiece", "vocab_size": 300},
            "data": {"train": str(file), "held_out": 0},
            "train": {"steps": steps, "schedule": "constant", "batch_samples": 5, "threads": 1, "warmup": 0},
        }  # fmt: skip
        api.finetune("classification", overrides, out=tmp_path / out, console=Console(quiet=True))
        checkpoint = load_checkpoint(RunFolder.open(tmp_path / out).checkpoints)
        assert checkpoint is not None
        return {"step": torch.tensor(checkpoint.snapshot.step), **checkpoint.snapshot.model}

    whole = train("whole", 7)
    train("parted", 3)
    parted = train("parted", 7)
    assert int(whole["step"]) == 7
    assert all(torch.equal(value, parted[name]) for name, value in whole.items())
    assert "score" in api.load(tmp_path / "whole").predict({"text": "rain", "text_b": "it rains"})
