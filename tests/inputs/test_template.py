"""Input encoding: special tokens around one and two texts, for every kind of backbone."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers.processors import TemplateProcessing

from meristem.config.errors import MeristemError
from meristem.evaluation.text_embeddings import encode_text
from meristem.inputs.char_ids import BOS_CHAR, EOS_CHAR, MAX_WORD_CHARS
from meristem.inputs.encoded_input import EncodedInput
from meristem.inputs.template import TASK_TOKENS, BackboneMode, InputTemplate, add_task_tokens
from meristem.interfaces.backbone import MODEL_FAMILIES, Head, Model
from meristem.tokenizers import tokenizer_files
from meristem.tokenizers.tokenizer import Tokenizer


def encode_texts(reader: InputTemplate, *texts: str) -> EncodedInput:
    return reader.build_input(*reader.tokenize(texts))


def named(reader: InputTemplate, row: EncodedInput, part: str = "tokens") -> str:
    return " ".join(reader.tokenizer.id_to_token(int(token)) for token in row.inputs[part])


def with_template(tokenizer: Tokenizer, single: str, pair: str) -> Tokenizer:
    """As a published tokenizer.json brings a frame of its own."""
    library = tokenizer_files.parse_tokenizer(tokenizer.json_text, "tokenizer.json")
    special = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    library.post_processor = TemplateProcessing(single, pair, special)
    return Tokenizer(library.to_str())


def test_a_bidirectional_encoder_has_the_inputs_of_bert(tokenizer: Tokenizer) -> None:
    reader = InputTemplate(tokenizer, "bidirectional", 32)
    encoded, pair = encode_texts(reader, "the tree"), encode_texts(reader, "the tree", "a tree .")
    assert named(reader, encoded).split()[0] == "[CLS]" and named(reader, encoded).split()[-1] == "[SEP]"
    assert (encoded.text_starts, encoded.summary_position) == ((1,), 0)
    words = named(reader, pair).split()
    assert [n for n, word in enumerate(words) if word == "[SEP]"] == [pair.text_starts[1] - 1, len(words) - 1]
    assert pair.inputs["segments"].tolist() == [0] * pair.text_starts[1] + [1] * (len(words) - pair.text_starts[1])


@pytest.mark.parametrize(("single", "pair", "expected", "summary"), [
    ("[CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] $B [SEP]", "[CLS] A [SEP] [SEP] B [SEP]", 0),  # RoBERTa
    ("$A [SEP] [CLS]", "$A [SEP] $B:1 [SEP]:1 [CLS]:2", "A [SEP] B [SEP] [CLS]", -1),  # XLNet
])  # fmt: skip
def test_the_template_of_a_tokenizer_is_used(
    tokenizer: Tokenizer, single: str, pair: str, expected: str, summary: int
) -> None:
    reader = InputTemplate(with_template(tokenizer, single, pair), "bidirectional", 32)
    row = encode_texts(reader, "the", "tree")
    assert named(reader, row) == expected.replace("A", "the").replace("B", "tree")
    assert row.summary_position == summary % len(row.inputs["tokens"])
    kinds = row.inputs["segments"]
    assert kinds[row.text_starts[0]] == 0 and kinds[row.text_starts[1]] == int(":1" in pair)


def test_a_causal_model_has_three_new_special_tokens(tokenizer: Tokenizer) -> None:
    task_tokenizer = add_task_tokens(tokenizer)
    assert task_tokenizer.vocab_size == tokenizer.vocab_size + 3
    assert [task_tokenizer.token_to_id(mark) for mark in TASK_TOKENS] == [
        tokenizer.vocab_size,
        tokenizer.vocab_size + 1,
        tokenizer.vocab_size + 2,
    ]
    reader = InputTemplate(task_tokenizer, "causal", 32)
    start, delimiter, extract = TASK_TOKENS
    assert named(reader, encode_texts(reader, "the tree")) == f"{start} the tree {extract}"
    row = encode_texts(reader, "the tree", "a tree")
    assert named(reader, row) == f"{start} the tree {delimiter} a tree {extract}"
    assert row.summary_position == len(row.inputs["tokens"]) - 1 and "segments" not in row.inputs
    assert (task_tokenizer.start, task_tokenizer.end, task_tokenizer.pad, task_tokenizer.mask) == (
        tokenizer.start,
        tokenizer.end,
        tokenizer.pad,
        tokenizer.mask,
    )
    assert task_tokenizer.encode(f"{start} x").ids.tolist()[0] != task_tokenizer.token_to_id(
        start
    )  # written in a text it is only letters


def test_encoder_and_decoder_both_get_the_text(tokenizer: Tokenizer) -> None:
    reader = InputTemplate(tokenizer, "encoder_decoder", 32, decoder_start_ids=(3, 2))
    row = encode_texts(reader, "the old tree")
    source, tokens = row.inputs["source"], row.inputs["tokens"]
    assert tokens.tolist() == [3, *source.tolist()[:-1]]  # moved by one, as BART reads, however its targets begin
    assert row.summary_position == len(tokens) - 1


def test_characters_are_those_of_the_text_and_not_of_the_vocabulary(tokenizer: Tokenizer) -> None:
    reader = InputTemplate(tokenizer, "both_directions", 32)
    row = encode_texts(reader, "the Zyx", "né")
    letters = row.inputs["characters"]
    assert letters.shape == (len(row.inputs["tokens"]), MAX_WORD_CHARS)
    unknown = row.text_starts[0] + 1
    assert row.inputs["tokens"][unknown] == tokenizer.unknown
    assert bytes(letters[unknown][1:4].astype(np.uint8)) == b"Zyx"
    assert bytes(letters[row.text_starts[1]][1:4].astype(np.uint8)) == "né".encode()
    assert letters[0][1] == BOS_CHAR and letters[-1][1] == EOS_CHAR


@pytest.mark.parametrize("attention_kind", ["bidirectional", "causal", "encoder_decoder"])
def test_what_fits_fills_the_row_exactly(tokenizer: Tokenizer, attention_kind: str) -> None:
    reader = InputTemplate(add_task_tokens(tokenizer) if attention_kind == "causal" else tokenizer, attention_kind, 12)  # type: ignore[arg-type]  # one of the ways
    (text,) = reader.tokenize(["the old tree sold a tree " * 9])
    single = reader.build_input(text.slice(0, reader.max_text_tokens()))
    pair = reader.build_input(text.slice(0, 2), text.slice(2, reader.max_text_tokens(2)))
    assert len(single.inputs["tokens"]) == len(pair.inputs["tokens"]) == 12


def test_a_length_without_space_for_text_is_rejected(tokenizer: Tokenizer) -> None:
    with pytest.raises(MeristemError, match="is too short for text besides 3 special tokens"):
        InputTemplate(tokenizer, "bidirectional", 3).max_text_tokens(2)


@pytest.mark.parametrize("mode", ["bidirectional", "causal", "both_directions", "encoder_decoder"])
@pytest.mark.parametrize("length", [4, 7, 12])
@pytest.mark.parametrize("with_pair", [False, True])
def test_a_text_that_is_cut_keeps_its_special_tokens(
    tokenizer: Tokenizer, mode: BackboneMode, length: int, with_pair: bool
) -> None:
    template = InputTemplate(tokenizer, mode, length)
    long = "the old tree sold a tree " * 3
    encoded = template.encode(long, long) if with_pair else template.encode(long)
    before, after = (
        (template.pair.before, template.pair.after) if with_pair else (template.prefix_ids, template.suffix_ids)
    )
    ids = encoded.ids.tolist()
    assert len(ids) == encoded.num_tokens == length
    assert ids[: len(before)] == before.tolist() and ids[len(ids) - len(after) :] == after.tolist()
    num_texts = 1 + with_pair
    num_text_tokens = length - template.num_special_tokens(num_texts)
    assert encoded.num_truncated == num_texts * len(tokenizer.encode(long).ids) - num_text_tokens
    spans = encoded.offsets[encoded.offsets[:, 1] > 0]
    assert len(spans) == num_text_tokens and {long[start:end] for start, end in spans.tolist()} <= {
        "the",
        "old",
        "tree",
        "sold",
        "a",
    }


def test_sources_keep_their_end_and_targets_that_are_cut_have_none(tokenizer: Tokenizer) -> None:
    template = InputTemplate(tokenizer, "encoder_decoder", 4, decoder_start_ids=(2,))
    ids = np.arange(10, 20)
    assert template.source_ids(ids).tolist() == [10, 11, 12, tokenizer.end]
    paired = InputTemplate(tokenizer, "encoder_decoder", 4, closes_cut_texts=False)  # as in training on pairs
    assert paired.source_ids(ids).tolist() == [10, 11, 12, 13]
    assert paired.encode("the old tree sold a tree").num_truncated == 2
    assert template.target_ids(ids, 4).tolist() == [10, 11, 12, 13]
    assert template.target_ids(ids[:3], 4).tolist() == [10, 11, 12, tokenizer.end]
    input_template = InputTemplate(with_template(tokenizer, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]"),
        "encoder_decoder", 4,
                        decoder_start_ids=(3, 2))  # fmt: skip
    assert input_template.target_ids(ids, 4).tolist() == [2, 10, 11, 3]
    assert input_template.strip_start(input_template.target_ids(ids, 4)).tolist() == [
        10,
        11,
        3,
    ]  # [CLS] is the last start token
    assert input_template.target_special_ids() == ([], [3]) and input_template.target_special_ids(denoising=True) == (
        [],
        [3],
    )


def test_a_prompt_begins_after_the_opening_tokens(tokenizer: Tokenizer) -> None:
    start, end, ids = tokenizer.start, tokenizer.end, np.array([7, 8])
    assert InputTemplate(tokenizer, "causal").prompt_ids(ids) == [end, 7, 8]
    assert InputTemplate(tokenizer, "bidirectional").prompt_ids(ids) == [start, 7, 8]
    assert InputTemplate.for_documents(tokenizer, start_ids=()).prompt_ids(ids) == [7, 8]
    published = with_template(tokenizer, "$A [SEP] [CLS]", "$A [SEP] $B:1 [SEP]:1 [CLS]:2")  # XLNet
    assert InputTemplate(published, "bidirectional").prompt_ids(ids) == [end, 7, 8]


def test_embeddings_use_the_template_of_a_published_tokenizer(tokenizer: Tokenizer) -> None:
    """XLNet's tokenizer puts its special tokens behind the text, [CLS] in a segment of its own."""
    published = with_template(tokenizer, "$A [SEP] [CLS]:2", "$A [SEP] $B:1 [SEP]:1 [CLS]:2")
    family = MODEL_FAMILIES["xlnet"]
    settings = family.Settings.model_validate({"layers": 1, "hidden_size": 8, "heads": 1, "max_length": 16})
    model = Model(family(settings, published.vocab_size), {"plm": Head("vocabulary")})
    encoded = encode_text(model, published, "the old tree")
    assert published.decode(encoded.ids.tolist(), skip_special=False).split() == [
        "the",
        "old",
        "tree",
        "[SEP]",
        "[CLS]",
    ]
    assert encoded.inputs["segments"].tolist() == [0, 0, 0, 0, 2]
