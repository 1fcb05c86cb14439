"""Reading tokenizer files: against transformers, templates, roles, damaged files."""

import json

import numpy as np
import pytest
import tokenizers as library

from meristem.config.errors import MeristemError
from meristem.tokenizers import tokenizer_config
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer

KINDS = ["wordpiece", "bpe", "unigram", "characters", "words"]


def write_vocabulary(tokenizer, folder):
    path = folder / "vocab.txt"
    path.write_text(
        "".join(f"{tokenizer.id_to_token(number)}\n" for number in range(tokenizer.vocab_size)), encoding="utf-8"
    )
    return path


def write_pair(tokenizer, folder):
    model = json.loads(tokenizer.json_text)["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    merges = "".join(f"{' '.join(pair)}\n" for pair in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}", encoding="utf-8")
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_is_the_same(kind, trained, tmp_path, unusual_texts, corpus):
    original = trained[kind]
    original.save(tmp_path / "tokenizer.json")
    for path in (tmp_path / "tokenizer.json", tmp_path, str(tmp_path)):
        loaded_tokenizer = Tokenizer.load(path)
        assert loaded_tokenizer.digest == original.digest
    loaded_tokenizer.save(tmp_path)
    assert (tmp_path / "tokenizer.json").read_text(encoding="utf-8") == original.json_text
    texts = [*unusual_texts, *corpus[:3]]
    assert all(map(np.array_equal, loaded_tokenizer.encode_ids(texts), original.encode_ids(texts)))


@pytest.mark.parametrize("lowercase", [False, True])
def test_vocabulary_against_transformers(lowercase, corpus, unusual_texts, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizer = train_tokenizer(TokenizerSettings(vocab_size=500, lowercase=lowercase), corpus)
    path = write_vocabulary(tokenizer, tmp_path)
    loaded_tokenizer = Tokenizer.load(path)
    theirs = transformers.BertTokenizerFast(vocab=str(path), do_lower_case=lowercase, split_special_tokens=True)
    for text in [*unusual_texts, *corpus]:
        expected = theirs(text, add_special_tokens=False, return_offsets_mapping=True)
        encoded = loaded_tokenizer.encode(text)
        assert encoded.ids.tolist() == expected["input_ids"]
        assert encoded.offsets.tolist() == [list(pair) for pair in expected["offset_mapping"]]
        assert (
            encoded.ids.tolist()
            == loaded_tokenizer.encode_ids([text])[0].tolist()
            == tokenizer.encode(text).ids.tolist()
        )


def test_pair_against_transformers(trained, corpus, unusual_texts, tmp_path):
    transformers = pytest.importorskip("transformers")
    write_pair(trained["bpe"], tmp_path)
    loaded_tokenizer = Tokenizer.load(tmp_path)
    theirs = transformers.GPT2TokenizerFast(
        vocab=str(tmp_path / "vocab.json"),
        merges=str(tmp_path / "merges.txt"),
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        split_special_tokens=True,
    )
    for text in [*unusual_texts, *corpus]:
        ids = loaded_tokenizer.encode(text).ids.tolist()
        assert ids == theirs(text)["input_ids"] == loaded_tokenizer.encode_ids([text])[0].tolist()
        assert loaded_tokenizer.decode(ids) == theirs.decode(ids, clean_up_tokenization_spaces=False) == text
    assert (loaded_tokenizer.pad, loaded_tokenizer.start, loaded_tokenizer.end, loaded_tokenizer.mask) == (1, 0, 2, 4)
    for name in ("vocab.json", "merges.txt"):
        assert Tokenizer.load(tmp_path / name).digest == loaded_tokenizer.digest


def test_gpt2_starts_and_ends_with_one_token(trained, tmp_path):
    write_pair(trained["bpe"], tmp_path)
    words = json.loads((tmp_path / "vocab.json").read_text(encoding="utf-8"))
    vocabulary = {token: number for token, number in words.items() if number > 4} | {"<|endoftext|>": 0}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    loaded_tokenizer = Tokenizer.load(tmp_path)
    assert (
        loaded_tokenizer.pad,
        loaded_tokenizer.unknown,
        loaded_tokenizer.start,
        loaded_tokenizer.end,
        loaded_tokenizer.mask,
    ) == (None, None, 0, 0, None)
    assert 0 not in loaded_tokenizer.encode_ids(["the <|endoftext|> end"])[0]
    assert loaded_tokenizer.decode(loaded_tokenizer.encode("a [MASK]", special=True).ids) == "a [MASK]"
    assert loaded_tokenizer.id_to_token(3) == ""  # numbers the vocabulary skips
    assert loaded_tokenizer.decode([3, 2]) == ""


@pytest.mark.parametrize(("config", "lower"), [(None, True), ({"do_lower_case": False}, False), ({}, True), ([], True)])
def test_case_of_a_vocabulary(config, lower, tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\n[MASK]\nold\n##er\n", encoding="utf-8")
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert Tokenizer.load(tmp_path).encode("OLD").ids.tolist() == [2 if lower else 0]
    assert Tokenizer.load(tmp_path, lowercase=False).encode("OLD").ids[0] == 0


def test_windows_line_ends_and_byte_order_mark(tmp_path):
    (tmp_path / "vocab.txt").write_bytes("\ufeff[UNK]\r\nold\r\n##er\r\n".encode())
    assert Tokenizer.load(tmp_path).encode("older").ids.tolist() == [1, 2]


def test_truncation_and_padding_are_switched_off(trained, tmp_path):
    loud = library.Tokenizer.from_str(trained["wordpiece"].json_text)
    loud.enable_truncation(4)
    loud.enable_padding(length=50)
    loud.save(str(tmp_path / "tokenizer.json"))
    assert Tokenizer.load(tmp_path).digest == trained["wordpiece"].digest


@pytest.mark.parametrize(
    ("processor", "frame"),
    [
        (library.processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)]), ([2], [3])),
        (library.processors.TemplateProcessing("$A [SEP] [CLS]", None, [("[CLS]", 2), ("[SEP]", 3)]), ([], [3, 2])),
        (library.processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2)), ([2], [3])),
        (
            library.processors.Sequence(
                [
                    library.processors.ByteLevel(),
                    library.processors.TemplateProcessing("$A [SEP]", None, [("[SEP]", 3)]),
                ]
            ),
            ([], [3]),
        ),
        (library.processors.ByteLevel(), None),
        (None, None),
    ],
)
def test_the_template_is_kept(processor, frame, trained, tmp_path):
    library_tokenizer = library.Tokenizer.from_str(trained["wordpiece"].json_text)
    if processor is not None:
        library_tokenizer.post_processor = processor
    library_tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded_tokenizer = Tokenizer.load(tmp_path)
    assert (
        loaded_tokenizer.single_template and tuple(side.tolist() for side in loaded_tokenizer.single_template)
    ) == frame
    assert (loaded_tokenizer.digest == trained["wordpiece"].digest) == (frame is None)
    assert (
        loaded_tokenizer.encode("the").ids.tolist() == trained["wordpiece"].encode("the").ids.tolist()
    )  # a text alone has none
    loaded_tokenizer.save(tmp_path / "again.json")
    assert Tokenizer.load(tmp_path / "again.json").digest == loaded_tokenizer.digest


def test_a_template_with_missing_tokens_is_rejected(trained, tmp_path):
    library_tokenizer = library.Tokenizer.from_str(trained["wordpiece"].json_text)
    library_tokenizer.post_processor = library.processors.TemplateProcessing("$A [END]", None, [("[END]", 40_000)])
    library_tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(MeristemError, match="its template uses token 40000, which is not in its vocabulary"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    "processor",
    [
        None,
        library.processors.TemplateProcessing("the $A", "the $A $B", [("the", 9)]),
        library.processors.RobertaProcessing(("of", 8), ("the", 7)),
    ],
)
@pytest.mark.parametrize("name", ["special_tokens_map.json", "tokenizer_config.json"])
def test_unusual_tokens_have_the_roles_given_by_the_folder(processor, name, trained, tmp_path):
    plain = library.Tokenizer.from_str(trained["bpe"].json_text)
    plain.add_special_tokens(["«hide»", "«begin»", "«stop»", "«fill»"])
    if processor is not None:
        plain.post_processor = processor
    plain.save(str(tmp_path / "tokenizer.json"))
    loaded_tokenizer = Tokenizer.load(tmp_path)
    special_tokens = {
        "mask_token": {"content": "«hide»", "lstrip": True},
        "cls_token": "«begin»",
        "eos_token": "«stop»",
        "pad_token": "«fill»",
        "unk_token": "not there",
        "bos_token": None,
    }
    (tmp_path / name).write_text(json.dumps(special_tokens), encoding="utf-8")
    reloaded = Tokenizer.load(tmp_path)
    expected_ids = [plain.token_to_id(token) for token in ("«fill»", "«begin»", "«stop»", "«hide»")]
    assert [reloaded.pad, reloaded.start, reloaded.end, reloaded.mask] == expected_ids
    assert reloaded.unknown == loaded_tokenizer.unknown == 3
    assert expected_ids[3] in reloaded.encode("a [MASK] b", special=True).ids
    assert (reloaded.single_template is None) == (processor is None)
    reloaded.save(tmp_path / "again.json")  # a run keeps tokenizer.json and nothing else
    (tmp_path / name).unlink()
    saved_again = Tokenizer.load(tmp_path / "again.json")
    assert saved_again.digest == reloaded.digest
    assert [saved_again.pad, saved_again.start, saved_again.end, saved_again.mask] == expected_ids


def test_usual_names_are_not_stored(trained, tmp_path):
    trained["wordpiece"].save(tmp_path)
    (tmp_path / "special_tokens_map.json").write_text('{"mask_token": "[MASK]", "cls_token": "[CLS]"}')
    assert Tokenizer.load(tmp_path).digest == trained["wordpiece"].digest


def test_xlnets_names_come_before_those_it_does_not_use():
    pieces = [(name, 0.0) for name in ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "▁a")]
    foreign = library.Tokenizer(library.models.Unigram(pieces, unk_id=0))
    foreign.decoder = library.decoders.Metaspace()
    tokenizer = Tokenizer(foreign.to_str())
    assert (tokenizer.start, tokenizer.end, tokenizer.pad, tokenizer.mask, tokenizer.unknown) == (3, 4, 5, 6, 0)


@pytest.mark.parametrize(
    ("config", "text", "ids"),
    [
        ({"do_lower_case": True}, "Älter 中中", [3, 4, 4]),
        ({"do_lower_case": True, "strip_accents": False}, "Älter 中中", [2, 4, 4]),
        ({"do_lower_case": True, "tokenize_chinese_chars": False}, "Älter 中中", [3, 5]),
        ({"do_lower_case": False, "unk_token": "<?>"}, "Älter older", [6, 1]),
    ],
)
def test_normalisation_of_a_vocabulary(config, text, ids, tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\nolder\nälter\nalter\n中\n中中\n<?>\n", encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert Tokenizer.load(tmp_path).encode(text).ids.tolist() == ids


def test_added_tokens_come_after_the_vocabulary(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\nold\n", encoding="utf-8")
    (tmp_path / "added_tokens.json").write_text('{"brandnew": 2}')
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"added_tokens_decoder": {"3": {"content": "[ENT]", "special": True}}})
    )
    loaded_tokenizer = Tokenizer.load(tmp_path)
    assert loaded_tokenizer.encode("old brandnew [ENT]").ids[:2].tolist() == [1, 2]
    assert (
        loaded_tokenizer.token_to_id("[ENT]"),
        loaded_tokenizer.vocab_size,
        loaded_tokenizer.special_mask.tolist(),
    ) == (3, 4, [True, False, False, True])
    (tmp_path / "added_tokens.json").write_text('{"brandnew": 7}')
    with pytest.raises(MeristemError, match=r"'\[ENT\]' should be token 3, but its id is 2"):
        Tokenizer.load(tmp_path)


def test_the_first_gpts_pair(tmp_path):
    transformers = pytest.importorskip("transformers")
    words = ["<unk>", "a", "b", ".", "a</w>", "b</w>", ".</w>", "ab</w>", "ab"]
    (tmp_path / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b</w>\na b\n")
    loaded_tokenizer = Tokenizer.load(tmp_path)
    theirs = transformers.OpenAIGPTTokenizer(
        vocab=json.loads((tmp_path / "vocab.json").read_text()), merges=[("a", "b</w>"), ("a", "b")]
    )
    for text in ("AB ab. abab, ba\tÀ", "", "a z b", "中ab"):
        assert loaded_tokenizer.encode(text).ids.tolist() == theirs(text)["input_ids"]
    assert loaded_tokenizer.decode(loaded_tokenizer.encode("Ab ba. abab").ids) == "ab ba. abab"
    assert loaded_tokenizer.unknown == 0
    assert loaded_tokenizer.word_start_mask.all()


def test_sentencepiece_alone_is_rejected_with_what_to_do(tmp_path):
    (tmp_path / "spiece.model").write_bytes(b"\n\x0e\n\x05<unk>")
    with pytest.raises(MeristemError, match=r"spiece\.model cannot be read without tokenizer\.json.*save_pretrained"):
        Tokenizer.load(tmp_path)


def test_an_added_word_is_found_across_spaces(trained, corpus):
    plain = library.Tokenizer.from_str(trained["wordpiece"].json_text)
    plain.add_tokens(["old gardener"])
    tokenizer = Tokenizer(plain.to_str())
    assert tokenizer.vocab_size == trained["wordpiece"].vocab_size + 1
    assert tokenizer._pattern is None  # cutting at spaces would miss it
    text = "The old gardener sold it."
    ids = tokenizer.encode_ids([text])[0]
    assert ids[1] == tokenizer.vocab_size - 1
    ((located, tokens),) = tokenizer.encode_with_boundaries([text], [np.array([0, 4, 17])])
    assert (located == ids).all()
    assert tokens.tolist() == [0, 1, 2]


def test_a_foreign_unigram_does_not_find_special_names():
    vocabulary = [("<unk>", 0.0), ("</s>", 0.0), *((character, -5.0) for character in "▁</s>abc")]
    foreign = library.Tokenizer(library.models.Unigram(vocabulary, unk_id=0))
    foreign.pre_tokenizer = library.pre_tokenizers.Metaspace()
    foreign.decoder = library.decoders.Metaspace()
    foreign.add_special_tokens(["</s>"])
    tokenizer = Tokenizer(foreign.to_str())
    assert tokenizer.end == 1
    assert 1 not in tokenizer.encode("ab</s>c").ids
    assert tokenizer.decode(tokenizer.encode("ab</s> c").ids) == "ab</s> c"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", b"", "tokenizer.json:1: not JSON"),
        ("tokenizer.json", b'{\n"model": ', "tokenizer.json:2: not JSON"),
        ("tokenizer.json", b"[" * 100_000, "not JSON"),
        ("tokenizer.json", b"[]", "no model"),
        ("tokenizer.json", b"{}", "no model"),
        ("tokenizer.json", b'{"model": {"type": "Unigram", "vocab": 3}}', "tokenizer.json"),
        ("tokenizer.json", b'{"model": {"type": "WordPiece", "vocab": {"a": -1}}}', "tokenizers` library"),
        (
            "tokenizer.json",
            b'{"model": {"type": "WordPiece", "vocab": {"a": 0, "b": 4000000000}, "unk_token": "a", '
            b'"continuing_subword_prefix": "##", "max_input_chars_per_word": 9}}',
            "highest id is 4000000000",
        ),
        ("tokenizer.json", b"\xff\xfe\x00", "not UTF-8"),
        ("tokenizer.json", b"\x80\x04\x95cposix\nsystem\n", "not UTF-8"),
        ("vocab.txt", b"", "vocab.txt:1: an empty line"),
        ("vocab.txt", b"[UNK]\nold\n\nnew\n", "vocab.txt:3: an empty line"),
        ("vocab.txt", b"[UNK]\nold\nold\n", "vocab.txt:3: 'old' is already on line 2"),
        ("vocab.txt", b"old\nnew\n", "no \\[UNK\\]"),
        ("vocab.json", b'{"a": 0}', "merges.txt: missing"),
        ("vocab.json", b'{"a": 4000000000}', "highest id is 4000000000"),
        ("vocab.json", b'{"a": "b"}', "expected tokens with their ids"),
    ],
)
def test_damaged_files_are_reported(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(MeristemError, match=message):
        Tokenizer.load(tmp_path)
    with pytest.raises(MeristemError, match=name.split(".")[0]):
        Tokenizer.load(tmp_path / name)


@pytest.mark.parametrize(("merges", "message"), [("a b c\n", "merges.txt:1: expected two"), ("a z\n", "does not fit")])
def test_damaged_merges_are_reported(merges, message, tmp_path):
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2}')
    (tmp_path / "merges.txt").write_text(merges)
    with pytest.raises(MeristemError, match=message):
        Tokenizer.load(tmp_path)


def test_a_missing_tokenizer_is_reported(tmp_path):
    with pytest.raises(MeristemError, match="no tokenizer found"):
        Tokenizer.load(tmp_path / "missing.json")
    with pytest.raises(MeristemError, match=r"has no tokenizer\.json"):
        Tokenizer.load(tmp_path)


def test_a_file_too_large_is_rejected_unread(tmp_path):
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(tokenizer_config.MAX_BYTES + 1)
    with pytest.raises(MeristemError, match="too large"):
        Tokenizer.load(tmp_path)


def test_an_unknown_decoder_is_rejected(trained):
    description = json.loads(trained["wordpiece"].json_text)
    description["model"]["type"], description["decoder"] = (
        "WordLevel",
        {"type": "CTC", "pad_token": "_", "word_delimiter_token": "|", "cleanup": True},
    )
    del description["model"]["continuing_subword_prefix"], description["model"]["max_input_chars_per_word"]
    with pytest.raises(MeristemError, match="CTC"):
        Tokenizer(json.dumps(description), "odd.json")
