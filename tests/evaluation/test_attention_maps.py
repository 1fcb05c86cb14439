"""Attention maps: every family, every kind of attention, token labels, and errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "tasks"))

from small import small
from writers import batch_of, fresh, pairs, recipe_of

from meristem.config.errors import MeristemError
from meristem.drawing.attention_record import AttentionRecord
from meristem.evaluation.attention_maps import attention_maps
from meristem.generation.generate import generate
from meristem.generation.settings import SamplingSettings
from meristem.interfaces.backbone import MODEL_FAMILIES, Head, Model
from meristem.interfaces.sample import Sample
from meristem.tokenizers.tokenizer import Tokenizer

TEXT = "the old gardener watered a small garden."
SMALL = {"layers": 2, "hidden_size": 32, "heads": 2, "max_length": 24, "init_std": 0.3}
PIXELS = np.random.default_rng(0).integers(256, size=(16, 16, 3), dtype=np.uint8)
HEADS = {"causal": "clm", "masked": "mlm", "source": "seq2seq", "streams": "plm", "judge": "rtd"}
FAMILIES: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "bert": ("masked", {}, {"self"}),
    "roberta": ("masked", {}, {"self"}),
    "electra": ("judge", {"embedding_size": 16}, {"self"}),
    "gpt": ("causal", {}, {"self"}),
    "gpt2": ("causal", {}, {"self"}),
    "gpt2 banded": ("causal", {"attention_window": 3, "attention_window_every": 2}, {"self"}),
    "modern": ("masked", {}, {"self"}),
    "modern causal": ("causal", {"kv_heads": 1}, {"self"}),
    "transformer": ("source", {}, {"cross", "self", "decoder"}),
    "transformer t5": ("source", {"relative_buckets": 8, "scale_attention": False}, {"cross", "self", "decoder"}),
    "transformer_xl": ("causal", {"memory_length": 6}, {"self"}),
    "xlnet": ("streams", {"memory_length": 6}, {"self", "content", "query"}),
    "rnn": ("source", {}, {"align"}),
    "rnn bahdanau": ("source", {"attention_style": "bahdanau", "attention": "additive"}, {"align"}),
    "captioner": ("source", {"image_size": 16, "patch_size": 4}, {"image", "self", "decoder"}),
}
CAUSAL = [name for name, (attention_kind, _, _) in FAMILIES.items() if attention_kind == "causal"]


def model_of(name: str, tokenizer: Tokenizer, **model_settings: Any) -> Model:
    """A small model of a family with random weights and the head its objective has."""
    head_kind, family_settings, _ = FAMILIES.get(name, ("masked", {}, set()))
    family = MODEL_FAMILIES[name.split()[0]]
    known_settings = {key: value for key, value in SMALL.items() if key in family.Settings.model_fields}
    torch.manual_seed(1)
    backbone = family(
        family.Settings.model_validate({**known_settings, **family_settings, **model_settings}), tokenizer.vocab_size
    )
    kind = "token_score" if head_kind == "judge" else "vocabulary"
    return Model(backbone, {HEADS[head_kind]: Head(kind)}).eval()


def seen_by(name: str, tokenizer: Tokenizer, text: str = TEXT, **inputs: Any) -> AttentionRecord:
    model = model_of(name, tokenizer)
    if name == "captioner" and "image" not in inputs and not text:
        inputs["image"] = PIXELS
    return attention_maps(model, tokenizer, text, **inputs)


# ------------------------------------------------------------ every family


@pytest.mark.parametrize("name", FAMILIES)
def test_every_row_is_a_distribution(name: str, tokenizer: Tokenizer) -> None:
    attention = seen_by(name, tokenizer, "" if name == "captioner" else TEXT)
    assert set(attention.kinds) == FAMILIES[name][2]
    for kind, weights_of_kind in attention.kinds.items():
        layers = 1 if kind == "align" else 2
        assert weights_of_kind.weights.shape == (
            layers,
            weights_of_kind.heads,
            len(weights_of_kind.queries),
            len(weights_of_kind.keys),
        ), kind
        assert weights_of_kind.weights.min() >= 0
        np.testing.assert_allclose(weights_of_kind.weights.sum(-1), 1.0, atol=1e-5)
        if weights_of_kind.supports_rollout:
            np.testing.assert_allclose(weights_of_kind.rollout().sum(-1), 1.0, atol=1e-5)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_causal_model_sees_nothing_later(name: str, tokenizer: Tokenizer) -> None:
    self_attention = seen_by(name, tokenizer).kinds["self"]
    later = np.triu(np.ones(self_attention.weights.shape[-2:], bool), 1)
    assert self_attention.weights[..., later].max() == 0.0
    assert np.triu(self_attention.rollout(), 1).max() == 0.0
    assert self_attention.queries[0] == "[SEP]" and self_attention.queries[1:3] == (
        "the",
        "old",
    )  # a document begins after another's end


def test_a_band_is_as_wide_as_it_is_said(tokenizer: Tokenizer) -> None:
    dense, banded = seen_by("gpt2 banded", tokenizer).kinds["self"].weights
    outside_band = np.tril(np.ones(dense.shape[-2:], bool), -3)
    assert banded[:, outside_band].max() == 0.0 < dense[:, outside_band].min()


def test_the_weights_are_softmax_of_queries_and_keys(tokenizer: Tokenizer) -> None:
    model = model_of("bert", tokenizer)
    self_attention = attention_maps(model, tokenizer, TEXT).kinds["self"]
    input_ids = [tokenizer.start, *tokenizer.encode(TEXT).ids.tolist(), tokenizer.end]
    backbone: Any = model.backbone
    with torch.no_grad():
        x = backbone.embed(torch.tensor([input_ids]), torch.zeros(1, len(input_ids), dtype=torch.long))[0]
        for number, layer in enumerate(backbone.stack.layers):
            q, k, v = layer.attention.project(x).split(32, -1)
            for head in range(2):
                part = slice(16 * head, 16 * head + 16)
                expected = torch.softmax(q[:, part] @ k[:, part].T / 4, -1)
                np.testing.assert_allclose(self_attention.weights[number, head], expected.numpy(), atol=1e-6)
            heads = [torch.from_numpy(self_attention.weights[number, h]) @ v[:, 16 * h : 16 * h + 16] for h in range(2)]
            x = layer.attention_norm(x + layer.attention.output(torch.cat(heads, -1)))
            x = layer.feed_forward_norm(x + layer.feed_forward(x))


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in ("captioner",)])
def test_padding_is_never_looked_at(name: str, tokenizer: Tokenizer) -> None:
    model = model_of(name, tokenizer)
    writes = FAMILIES[name][0] == "source"
    maps = attention_maps(model, tokenizer, TEXT, **({"target": "my youngest sister"} if writes else {}))
    kind, recorded_weights = maps.select_kind()
    short = torch.tensor([_ids(recorded_weights.keys, tokenizer)])
    size, num_padding = short.shape[1], 4
    padded = torch.nn.functional.pad(short, (0, num_padding), value=7)
    present = torch.arange(size + num_padding)[None] < size
    inputs: dict[str, Any] = {"tokens": padded, "present": present}
    if writes:
        target_ids = torch.tensor([[tokenizer.start, *_ids(recorded_weights.queries[:-1], tokenizer)]])
        inputs = {"source": padded, "source_present": present, "tokens": target_ids}
    if FAMILIES[name][0] == "causal":
        inputs["causal"] = True
    with torch.no_grad():
        layers = model.backbone(**inputs, want=("attention",)).attention
    for number, layer in enumerate(layers):
        rows = layer[0, :, : len(recorded_weights.queries)]
        assert float(rows[..., size:].max()) == 0.0, kind
        np.testing.assert_allclose(rows[..., :size].numpy(), recorded_weights.weights[number], atol=1e-5)


def _ids(labels: Any, tokenizer: Tokenizer) -> list[int]:
    token_ids = [tokenizer.token_to_id(label) for label in labels]
    assert None not in token_ids
    return [number for number in token_ids if number is not None]


# ------------------------------------------------------------ what is written


@pytest.mark.parametrize("name", ["transformer", "rnn"])
def test_a_target_is_written_unless_it_is_given(name: str, tokenizer: Tokenizer) -> None:
    model = model_of(name, tokenizer)
    maps = attention_maps(model, tokenizer, TEXT, target="the painter sold her letters.")
    _, recorded_weights = maps.select_kind()
    assert recorded_weights.queries == ("the", "paint", "##er", "sold", "her", "letters", ".", "[SEP]")
    assert recorded_weights.keys[-1] == "[SEP]" and recorded_weights.keys[:2] == ("the", "old")
    assert maps.target == "the painter sold her letters."
    attention = attention_maps(model, tokenizer, TEXT)
    settings = SamplingSettings.model_validate({"greedy": True, "max_tokens": 24})
    ((completion,),) = generate(model, tokenizer, [TEXT], settings)
    assert attention.target == tokenizer.decode(completion.tokens).strip()
    if name == "transformer":
        decoder = maps.kinds["decoder"]
        assert decoder.queries == decoder.keys == ("[CLS]", *recorded_weights.queries[:-1])
        assert np.triu(decoder.weights[0, 0], 1).max() == 0.0


def test_what_never_ends_is_cut(tokenizer: Tokenizer) -> None:
    model = model_of("transformer", tokenizer, max_length=200)
    torch.nn.init.zeros_(model.backbone.embedding().weight[tokenizer.end])  # it can never be the likeliest
    maps = attention_maps(model, tokenizer, TEXT)
    assert len(maps.kinds["cross"].queries) == 64
    assert "did not end within 64 tokens" in maps.notices[0]


def test_a_captioner_looks_at_patches(tokenizer: Tokenizer) -> None:
    model = model_of("captioner", tokenizer)
    maps = attention_maps(model, tokenizer, image=PIXELS / 255.0, target="a small garden")
    name, recorded_weights = maps.select_kind()
    assert (name, recorded_weights.queries) == ("image", ("a", "small", "garden", "[SEP]"))
    assert recorded_weights.keys[:5] == ("1,1", "1,2", "1,3", "1,4", "2,1") and len(recorded_weights.keys) == 16
    assert maps.text == "a small garden" and np.array_equal(maps.picture, PIXELS)
    assert maps.kinds["self"].keys == recorded_weights.keys
    assert set(attention_maps(model, tokenizer, TEXT).kinds) == {"cross", "self", "decoder"}  # it reads texts too
    with pytest.raises(MeristemError, match="give an image without a text"):
        attention_maps(model, tokenizer, TEXT, image=PIXELS)
    with pytest.raises(MeristemError, match="image: this model has no image encoder; use a captioner"):
        attention_maps(model_of("bert", tokenizer), tokenizer, image=PIXELS)


# ------------------------------------------------------------ orders and memory


def test_an_order_of_words_is_one_of_their_pieces(tokenizer: Tokenizer) -> None:
    model = model_of("xlnet", tokenizer)
    text = "the painter watered seventeen boats"  # 1, 2, 2, 3 and 1 pieces
    by_words = attention_maps(model, tokenizer, text, order=[3, 0, 4, 1, 2])
    assert by_words.order == (5, 6, 7, 0, 8, 1, 2, 3, 4)
    assert attention_maps(model, tokenizer, text, order=by_words.order).order == by_words.order
    with pytest.raises(MeristemError, match="9 tokens once, numbered 0 to 8, or each of its 5 words"):
        attention_maps(model, tokenizer, text, order=[0, 1])


def test_two_streams_follow_the_order_they_are_given(tokenizer: Tokenizer) -> None:
    model = model_of("xlnet", tokenizer)
    text = "the painter sold her letters"
    size = len(tokenizer.encode(text).ids)
    order = [3, 0, 5, 1, 4, 2]
    assert size == 6
    maps = attention_maps(model, tokenizer, text, order=order)
    content, query = maps.kinds["content"], maps.kinds["query"]
    assert maps.order == tuple(order) and len(query.queries) == 6 and len(query.keys) == 8
    rank = np.argsort(order)
    for position in range(6):
        knows = np.array([True, *(rank < rank[position]), True])  # the special tokens around the text are known to all
        assert (query.weights[:, :, position] > 0).all((0, 1)).tolist() == knows.tolist()
        knows[position + 1] = True  # content knows itself
        assert (content.weights[:, :, position + 1] > 0).all((0, 1)).tolist() == knows.tolist()
    assert (maps.kinds["self"].weights > 0).all()
    attention, other = attention_maps(model, tokenizer, text), attention_maps(model, tokenizer, text)
    assert attention.order == other.order and sorted(attention.order) == list(range(6))
    with pytest.raises(MeristemError, match="text's 6 tokens once, numbered 0 to 5, or each of its 5 words; got 0 1 2"):
        attention_maps(model, tokenizer, text, order=[0, 1, 2])
    with pytest.raises(MeristemError, match="two-stream"):
        attention_maps(model_of("bert", tokenizer), tokenizer, text, order=order)


@pytest.mark.parametrize("name", ["transformer_xl", "xlnet"])
def test_memory_stands_before_the_text(name: str, tokenizer: Tokenizer) -> None:
    model = model_of(name, tokenizer)
    maps = attention_maps(model, tokenizer, "her letters", previous_text="the painter sold")
    prefix = ("[SEP]",) if name == "transformer_xl" else ()
    for kind, recorded_weights in maps.kinds.items():
        assert recorded_weights.keys[: 4 + len(prefix)] == (*prefix, "the", "paint", "##er", "sold"), kind
        np.testing.assert_allclose(recorded_weights.weights.sum(-1), 1.0, atol=1e-5)
        assert (
            not recorded_weights.supports_rollout
            or recorded_weights.rollout().shape == recorded_weights.weights.shape[-2:]
        )
    longer = attention_maps(
        model, tokenizer, "her letters", previous_text=" ".join(["the painter sold her letters."] * 7)
    )
    assert len(longer.kinds["self"].keys) == 6 + len(longer.kinds["self"].queries)  # as much as memory holds
    plain = attention_maps(model, tokenizer, "her letters")
    assert plain.kinds["self"].keys == plain.kinds["self"].queries
    with pytest.raises(MeristemError, match="has no memory"):
        attention_maps(model_of("gpt2", tokenizer), tokenizer, TEXT, previous_text="the painter")
    with pytest.raises(MeristemError, match="has no memory"):
        attention_maps(model_of(name, tokenizer, memory_length=0), tokenizer, TEXT, previous_text="the painter")


# ------------------------------------------------------------ texts as they are read


def test_two_texts_and_masks(tokenizer: Tokenizer) -> None:
    model = model_of("bert", tokenizer)
    maps = attention_maps(model, tokenizer, {"text": "the [MASK] sold", "text_b": "her letters"})
    assert maps.kinds["self"].keys == ("[CLS]", "the", "[MASK]", "sold", "[SEP]", "her", "letters", "[SEP]")
    assert maps.text == "the [MASK] sold | her letters"
    with pytest.raises(MeristemError, match="question: a run without a task takes text"):
        attention_maps(model, tokenizer, {"question": "who?"})
    with pytest.raises(MeristemError, match="trained on single texts"):
        attention_maps(model_of("gpt2", tokenizer), tokenizer, {"text": "a", "text_b": "b"})
    with pytest.raises(MeristemError, match="does not generate from a source"):
        attention_maps(model, tokenizer, TEXT, target="a garden")


@pytest.mark.parametrize("name", ["bert", "gpt2", "transformer", "rnn"])
def test_a_text_that_is_too_long_is_cut_and_that_is_said(name: str, tokenizer: Tokenizer) -> None:
    maps = attention_maps(model_of(name, tokenizer), tokenizer, "the old harbour " * 20)
    _, recorded_weights = maps.select_kind("self") if "self" in maps.kinds else maps.select_kind()
    assert len(recorded_weights.keys) == 24
    assert any("of 100 tokens are not shown" in notice for notice in maps.notices)


def test_an_empty_text_is_only_its_special_tokens(tokenizer: Tokenizer) -> None:
    assert attention_maps(model_of("bert", tokenizer), tokenizer, "").kinds["self"].keys == ("[CLS]", "[SEP]")
    assert attention_maps(model_of("gpt2", tokenizer), tokenizer, "").kinds["self"].keys == ("[SEP]",)
    assert "query" not in attention_maps(model_of("xlnet", tokenizer), tokenizer, "").kinds


def test_half_characters_are_no_obstacle(tokenizer: Tokenizer) -> None:
    maps = attention_maps(model_of("bert", tokenizer), tokenizer, "the \ud800\x00 garden")
    assert json.dumps(maps.to_dict(), ensure_ascii=False).encode() and "\ufffd" in maps.text


def test_what_has_no_attention_is_refused(tokenizer: Tokenizer) -> None:
    letters = {"cell_size": 16, "char_filters": ((1, 8),), "char_embedding_size": 4}
    for name, family_settings in (("rnn", {"attention": None}), ("elmo", letters)):
        with pytest.raises(MeristemError, match=r"has no attention; Transformers have it .* and so has rnn"):
            attention_maps(model_of(name, tokenizer, **family_settings), tokenizer, TEXT)


# ------------------------------------------------------------ tasks

PAIR = {"text": "two dogs run over a field", "text_b": "dogs are outside"}


def _pairs(label: str = "yes") -> list[Sample]:
    return [Sample(inputs=PAIR, gold=label), Sample(inputs={"text": "rain", "text_b": "the sun shines"}, gold="no")]


@pytest.mark.parametrize("backbone", ["bert", "gpt2", "xlnet", "transformer"])
def test_a_task_reads_as_it_was_taught(backbone: str) -> None:
    trained_task = small("pair", _pairs(), backbone)
    maps = attention_maps(trained_task.learner.model, trained_task.tokenizer, PAIR, task=trained_task.task)
    batch = trained_task.batch([0])
    row = batch.inputs["source" if backbone == "transformer" else "tokens"][0].tolist()
    self_attention = maps.kinds["self"]
    assert list(self_attention.keys) == trained_task.tokenizer.display_labels(row)
    np.testing.assert_allclose(self_attention.weights.sum(-1), 1.0, atol=1e-5)
    later = float(np.triu(self_attention.weights, 1).max())
    assert (later == 0.0) is (backbone == "gpt2")
    assert "query" not in maps.kinds
    if backbone == "bert":
        with pytest.raises(MeristemError, match="task pair does not generate text"):
            attention_maps(
                trained_task.learner.model, trained_task.tokenizer, PAIR, task=trained_task.task, target="yes"
            )


@pytest.mark.parametrize("backbone", ["transformer", "bart", "rnn", "gpt2"])
def test_a_task_that_writes_shows_what_it_writes(backbone: str) -> None:
    samples = pairs([("two dogs run", "zwei Hunde rennen")])
    learner = fresh(recipe_of("translation", backbone, samples), samples)
    task: Any = learner.objectives["task"]
    maps = attention_maps(learner.model, task.tokenizer, "two dogs run", task=task, target="zwei Hunde rennen")
    row = batch_of(learner, samples)
    if backbone == "gpt2":
        assert list(maps.kinds["self"].keys) == task.tokenizer.display_labels(row.inputs["tokens"][0].tolist())
        return
    _, recorded_weights = maps.select_kind()
    assert list(recorded_weights.queries) == task.tokenizer.display_labels(row.targets["seq2seq"]["values"].tolist())
    assert list(recorded_weights.keys) == task.tokenizer.display_labels(row.inputs["source"][0].tolist())
    pretrained = attention_maps(learner.model, task.tokenizer, "two dogs run", target="zwei Hunde rennen")
    np.testing.assert_array_equal(
        pretrained.select_kind()[1].weights, recorded_weights.weights
    )  # as a run without a task would read it
    _, generated_weights = attention_maps(learner.model, task.tokenizer, "two dogs run", task=task).select_kind()
    assert generated_weights.keys == recorded_weights.keys and 1 <= len(generated_weights.queries) <= 64


def test_a_task_of_several_rows_says_so() -> None:
    choices = {"text": "she opens the door", "choices": ("she walks in", "she flies")}
    trained_task = small("choice", [Sample(inputs=choices, gold=0)] * 2)
    maps = attention_maps(trained_task.learner.model, trained_task.tokenizer, choices, task=trained_task.task)
    assert maps.notices == ("task choice splits this input into 2 rows; the first is shown",)
    assert maps.text == "she opens the door | she walks in | she flies"
