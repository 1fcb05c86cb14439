"""Tokenizers imported and exported: the same ids from transformers before, from ours, and from transformers after."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tokenizers as library
import torch
import transformers
from transformers import AutoTokenizer

from meristem import load
from meristem.checkpoint.load_run import load_run
from meristem.config.errors import MeristemError
from meristem.inputs.template import InputTemplate
from meristem.interop import tokenizer_conversion
from meristem.interop.export_folder import export_run
from meristem.interop.import_weights import import_folder
from meristem.interop.model_type import find_model_type
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer

NAMES = ("pad_token", "unk_token", "mask_token", "cls_token", "sep_token", "bos_token", "eos_token")
TINY = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}
SHAPES = {
    "bert": ("BertForMaskedLM", TINY),
    "roberta": ("RobertaForMaskedLM", TINY),
    "gpt2": ("GPT2LMHeadModel", {"n_layer": 1, "n_embd": 8, "n_head": 2, "n_positions": 64}),
    "openai-gpt": ("OpenAIGPTLMHeadModel", {"n_layer": 1, "n_embd": 8, "n_head": 2, "n_positions": 64}),
    "t5": ("T5ForConditionalGeneration", {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_kv": 4, "d_ff": 16}),
    "xlnet": ("XLNetLMHeadModel", {"n_layer": 1, "d_model": 8, "n_head": 2, "d_inner": 16}),
}


@pytest.fixture(scope="module")
def trained_models(varied_lines):
    """Vocabularies learnt from the lines."""
    trained_models = {
        (kind, lower): json.loads(
            train_tokenizer(
                TokenizerSettings.model_validate({"kind": kind, "vocab_size": 700, "lowercase": lower}),
                varied_lines[:500],
            ).json_text
        )["model"]
        for kind, lower in [("wordpiece", False), ("wordpiece", True), ("bpe", False), ("unigram", False)]
    }
    pieces = [tuple(piece) for piece in trained_models["unigram", False]["vocab"][5:]]
    return {**trained_models, "pieces": pieces}


def bert(folder, trained_models, lower):
    vocabulary = trained_models["wordpiece", lower]["vocab"]
    transformers.BertTokenizer(vocab=vocabulary, do_lower_case=lower).save_pretrained(folder)


def as_vocabulary(folder, **config):
    """A folder as it was before tokenizer.json: one token per line, and a word on case."""
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    ordered = sorted(model["vocab"], key=model["vocab"].get)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in ordered), encoding="utf-8")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def as_pair(folder, **config):
    """A folder with vocab.json and merges.txt alone."""
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = "".join(f"{' '.join(pair)}\n" for pair in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}", encoding="utf-8")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def byte_level(trained_models, *special):
    """The bytes' vocabulary with these special tokens first, and its merges."""
    model = trained_models["bpe", False]
    tokens = [*special, *sorted(model["vocab"], key=model["vocab"].get)[5:]]
    return {token: number for number, token in enumerate(tokens)}, [tuple(pair) for pair in model["merges"]]


def bert_cased(folder, trained_models):
    bert(folder, trained_models, lower=False)


def bert_lower(folder, trained_models):
    bert(folder, trained_models, lower=True)


def bert_vocabulary(folder, trained_models):
    bert(folder, trained_models, lower=True)
    as_vocabulary(folder, do_lower_case=True, strip_accents=False, tokenize_chinese_chars=False)


def gpt2(folder, trained_models):
    vocabulary, merges = byte_level(trained_models, "<|endoftext|>")
    transformers.GPT2Tokenizer(vocab=vocabulary, merges=merges).save_pretrained(folder)


def gpt2_pair(folder, trained_models):
    gpt2(folder, trained_models)
    as_pair(folder)


def roberta(folder, trained_models):
    vocabulary, merges = byte_level(trained_models, "<s>", "<pad>", "</s>", "<unk>", "<mask>")
    transformers.RobertaTokenizer(vocab=vocabulary, merges=merges).save_pretrained(folder)


def roberta_pair(folder, trained_models):
    roberta(folder, trained_models)
    as_pair(folder, add_prefix_space=True)


def first_gpt(folder, trained_models):
    letters = sorted(
        {token.removeprefix("##") for token in trained_models["wordpiece", True]["vocab"] if len(token) == 1}
    )
    vocabulary = ["<unk>", *letters, *(f"{letter}</w>" for letter in letters), "th", "the</w>", "er</w>", "an"]
    merges = [("t", "h"), ("th", "e</w>"), ("e", "r</w>"), ("a", "n")]
    vocab_ids = {token: number for number, token in enumerate(vocabulary)}
    transformers.OpenAIGPTTokenizer(vocab=vocab_ids, merges=merges).save_pretrained(folder)
    as_pair(folder, unk_token="<unk>")


def t5(folder, trained_models):
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *trained_models["pieces"]]
    transformers.T5Tokenizer(vocab=pieces, extra_ids=7).save_pretrained(folder)


def xlnet(folder, trained_models):
    special = ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>")
    pieces = [*((name, 0.0) for name in special), *trained_models["pieces"]]
    transformers.XLNetTokenizer(vocab=pieces).save_pretrained(folder)


CASES = {
    "bert-cased": ("bert", bert_cased),
    "bert-lower": ("bert", bert_lower),
    "bert-vocab.txt": ("bert", bert_vocabulary),
    "gpt2": ("gpt2", gpt2),
    "gpt2-merges.txt": ("gpt2", gpt2_pair),
    "roberta": ("roberta", roberta),
    "roberta-merges.txt": ("roberta", roberta_pair),
    "gpt-merges.txt": ("openai-gpt", first_gpt),
    "t5": ("t5", t5),
    "xlnet": ("xlnet", xlnet),
}


@pytest.fixture(scope="module", params=CASES)
def case(request, trained_models, tmp_path_factory):
    """Their model type, their tokenizer, the run it became, and the folder that the run became."""
    kind, make = CASES[request.param]
    folder = tmp_path_factory.mktemp(kind)
    make(folder / "theirs", trained_models)
    weights(folder / "theirs", kind, size_of(folder / "theirs"))
    original = AutoTokenizer.from_pretrained(folder / "theirs")
    run = import_folder(folder / "theirs", folder / "run").run
    export_run(run, folder / "out")
    return kind, original, run, folder / "out"


def size_of(folder):
    return Tokenizer.load(folder).vocab_size


def weights(folder, kind, size):
    """Random weights that fit a tokenizer."""
    name, shape = SHAPES[kind]
    config = transformers.AutoConfig.for_model(kind, vocab_size=size, **shape)
    torch.manual_seed(0)
    getattr(transformers, name)(config).save_pretrained(folder)


def test_two_thousand_lines_are_cut_alike(case, varied_lines, no_warnings):
    _, original, run, out = case
    ours = load_run(run).tokenizer
    with no_warnings():
        exported_tokenizer = AutoTokenizer.from_pretrained(out)
    assert not any(token in line for line in varied_lines for token in original.all_special_tokens)
    plain_ids = original(varied_lines, add_special_tokens=False)["input_ids"]
    assert [ids.tolist() for ids in ours.encode_ids(varied_lines)] == plain_ids
    assert [encoding.ids.tolist() for encoding in ours.encode_batch(varied_lines)] == plain_ids
    assert exported_tokenizer(varied_lines, add_special_tokens=False)["input_ids"] == plain_ids
    assert sum(map(len, plain_ids)) > 20_000
    template_ids = original(varied_lines)["input_ids"]
    assert exported_tokenizer(varied_lines)["input_ids"] == template_ids
    before, after = ours.single_template if ours.single_template is not None else ([], [])
    assert [[*before, *ids, *after] for ids in plain_ids] == template_ids
    pairs = original(varied_lines[:200], varied_lines[200:400], return_token_type_ids=True)
    assert exported_tokenizer(varied_lines[:200], varied_lines[200:400], return_token_type_ids=True) == pairs
    for ids in template_ids[3:40]:
        assert exported_tokenizer.decode(ids) == original.decode(ids)


def test_special_tokens_keep_their_names(case):
    kind, original, run, out = case
    exported_tokenizer = AutoTokenizer.from_pretrained(out)
    tokenizer = load_run(run).tokenizer
    for name in NAMES:
        if kind == "xlnet" and name in ("bos_token", "eos_token"):
            continue  # there they are two more tokens than any text has: additional special ones
        if kind == "gpt2" and name == "unk_token":
            continue  # nothing is unknown to bytes
        assert getattr(exported_tokenizer, name) == getattr(original, name), name
    if kind == "openai-gpt":  # it has no token that ends a text, and a run needs one between documents
        assert tokenizer.end == tokenizer.unknown is not None
        assert load(run).score("a text of its own")[0].logprob < 0
    assert set(exported_tokenizer.all_special_tokens) >= set(original.all_special_tokens)
    assert exported_tokenizer.all_special_ids and set(exported_tokenizer.all_special_ids) == set(
        tokenizer.special_mask.nonzero()[0].tolist()
    )
    assert exported_tokenizer.padding_side == original.padding_side
    segments = ["token_type_ids"] if kind == "xlnet" else []  # it reads them, and version 5 no longer gives them
    assert set(exported_tokenizer.model_input_names) == {*original.model_input_names, *segments}
    assert len(exported_tokenizer) == len(original) == tokenizer.vocab_size


def test_import_after_export_gives_the_same_tokenizer(case, tmp_path):
    _, _, run, out = case
    imported = import_folder(out, tmp_path / "again")
    export_run(imported.run, tmp_path / "out")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "out" / name).read_text() == (out / name).read_text()
    tokenizer, reimported = load_run(run).tokenizer, load_run(imported.run).tokenizer
    assert (tokenizer.pad, tokenizer.unknown, tokenizer.start, tokenizer.end, tokenizer.mask) == (
        reimported.pad,
        reimported.unknown,
        reimported.start,
        reimported.end,
        reimported.mask,
    )
    templates = [InputTemplate(variant, "bidirectional") for variant in (tokenizer, reimported)]
    assert len({(*template.prefix_ids, None, *template.suffix_ids) for template in templates}) == 1


@pytest.fixture(scope="module", params=["wordpiece", "bpe", "unigram", "characters", "words"])
def ours(request, varied_lines):
    """A tokenizer of each kind."""
    return train_tokenizer(
        TokenizerSettings.model_validate({"kind": request.param, "vocab_size": 400, "sentinels": 3}), varied_lines[:300]
    )


@pytest.mark.parametrize(("model_type_name", "mode", "special"), [
    ("bert", "bidirectional", "start A end"), ("roberta", "bidirectional", "start A end"),
    ("xlnet", "bidirectional", "start A end"), ("gpt2", "causal", "end A"), ("llama", "causal", "end A"),
    ("t5", "encoder_decoder", "A end"), ("bart", "encoder_decoder", "A end"),
])  # fmt: skip
def test_every_kind_of_ours_opens_without_a_warning(
    ours, model_type_name, mode, special, varied_lines, tmp_path, no_warnings
):
    our_tokenizer, model_type = ours, find_model_type(model_type_name)
    files = tokenizer_conversion.tokenizer_files(
        our_tokenizer, model_type, 777, template=InputTemplate(our_tokenizer, mode)
    )
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type_name}))
    with no_warnings():
        theirs = AutoTokenizer.from_pretrained(tmp_path)
        encoded = theirs(varied_lines[:300])
    plain_ids = [ids.tolist() for ids in our_tokenizer.encode_ids(varied_lines[:300])]
    assert theirs(varied_lines[:300], add_special_tokens=False)["input_ids"] == plain_ids
    before, after = ([getattr(our_tokenizer, role) for role in side.split()] for side in special.split("A"))
    assert encoded["input_ids"] == [[*before, *ids, *after] for ids in plain_ids]
    assert set(encoded) == set(model_type.model_input_names)
    assert theirs.model_max_length == 777
    assert [theirs.pad_token_id, theirs.unk_token_id, theirs.mask_token_id] == [
        our_tokenizer.pad,
        our_tokenizer.unknown,
        our_tokenizer.mask,
    ]
    assert set(theirs.all_special_ids) == set(our_tokenizer.special_mask.nonzero()[0].tolist())
    assert set(our_tokenizer.sentinels) <= set(theirs.all_special_ids)
    hidden = theirs(f"the old {theirs.mask_token} tree", add_special_tokens=False)["input_ids"]
    assert hidden == our_tokenizer.encode("the old [MASK] tree", special=True).ids.tolist()


def test_unusual_names_survive(tmp_path, trained_models):
    vocabulary, merges = byte_level(trained_models, "«s»", "«p»", "«e»", "«u»", "«m»")
    theirs = tmp_path / "theirs"
    transformers.RobertaTokenizer(
        vocab=vocabulary, merges=merges, bos_token="«s»", cls_token="«s»", eos_token="«e»", sep_token="«e»",
        unk_token="«u»", pad_token="«p»", mask_token="«m»",
    ).save_pretrained(theirs)  # fmt: skip
    weights(theirs, "roberta", len(vocabulary))
    run = import_folder(theirs, tmp_path / "run").run
    tokenizer = load_run(run).tokenizer
    assert (tokenizer.start, tokenizer.pad, tokenizer.end, tokenizer.unknown, tokenizer.mask) == (0, 1, 2, 3, 4)
    export_run(run, tmp_path / "out")
    exported_tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert [
        exported_tokenizer.mask_token,
        exported_tokenizer.cls_token,
        exported_tokenizer.eos_token,
        exported_tokenizer.pad_token,
    ] == ["«m»", "«s»", "«e»", "«p»"]
    original = AutoTokenizer.from_pretrained(theirs)
    assert exported_tokenizer("the old", "tree")["input_ids"] == original("the old", "tree")["input_ids"]


def test_a_role_without_a_token_is_left_out_of_the_template(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\n[SEP]\nold\n", encoding="utf-8")
    tokenizer = tokenizer_conversion.read_tokenizer(tmp_path, find_model_type("bert"), {})
    assert tokenizer.single_template is not None and [side.tolist() for side in tokenizer.single_template] == [[], [1]]


def test_a_folder_without_a_tokenizer_says_so(tmp_path):
    weights(tmp_path / "theirs", "bert", 60)
    with pytest.raises(MeristemError, match=r"has no tokenizer\.json"):
        import_folder(tmp_path / "theirs", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_pair_of_two_segments(tmp_path, trained_models):
    bert_cased(tmp_path, trained_models)
    encoded = library.Tokenizer.from_str(
        tokenizer_conversion.read_tokenizer(tmp_path, find_model_type("bert"), {}).json_text
    ).encode("the", "old")
    assert encoded.type_ids == [0] * (encoded.ids.index(3) + 1) + [1] * (len(encoded.ids) - encoded.ids.index(3) - 1)
    assert np.count_nonzero(np.array(encoded.ids) == 3) == 2
