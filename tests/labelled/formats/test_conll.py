"""CoNLL and CoNLL-U files: one word per line."""

from __future__ import annotations

from pathlib import Path

import pytest

from meristem.config.errors import MeristemError
from meristem.interfaces.sample import Sample
from meristem.labelled.load import load_samples
from meristem.labelled.settings import DataSettings


def tagged(
    folder: Path, text: str, name: str = "a.conll", sample_type: str = "words", **options: object
) -> list[Sample]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return load_samples(str(path), DataSettings(**options), sample_type)


def test_four_columns_documents_and_comments(tmp_path):
    text = (
        "-DOCSTART- -X- -X- O\n\n# a comment\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n\n"
        "Peter NNP I-NP I-PER\nBlackburn NNP I-NP I-PER\nBritain NNP I-NP I-LOC\n"
    )
    samples = tagged(tmp_path, text)
    assert [(sample.inputs["words"], sample.gold, sample.location) for sample in samples] == [
        (("EU", "rejects"), ("B-ORG", "O"), f"{tmp_path}/a.conll:4"),
        (("Peter", "Blackburn", "Britain"), ("B-PER", "I-PER", "B-LOC"), f"{tmp_path}/a.conll:8"),
    ]
    assert samples[0].inputs["text"] == "EU rejects" and samples[0].inputs["offsets"] == ((0, 2), (3, 10))
    assert tagged(tmp_path, text, label="2")[0].gold == ("NNP", "VBZ")
    with pytest.raises(MeristemError, match=r"data\.label: no column '5'.* here 1 to 4"):
        tagged(tmp_path, text, label="5")


def test_a_converted_tag_scheme_is_reported(tmp_path):
    path = tmp_path / "a.bio"
    path.write_text("a\tS-X\nb\tO\n", encoding="utf-8")
    notices: list[str] = []
    assert load_samples(str(path), DataSettings(), "words", notices=notices)[0].gold == ("B-X", "O")
    assert notices == ["tags use the BIOES scheme and were converted to BIO (samples changed: 1)"]


def test_a_tsv_of_words_and_tags(tmp_path):
    samples = tagged(tmp_path, "From\tADP\nthe\tDET\n\n#\tSYM\n1\tNUM\n", name="train.tsv")
    assert [sample.inputs["words"] for sample in samples] == [("From", "the"), ("#", "1")]
    assert [sample.gold for sample in samples] == [("ADP", "DET"), ("SYM", "NUM")]


def test_a_first_word_that_could_be_a_name(tmp_path):
    assert tagged(tmp_path, "Text\tNOUN\nis\tAUX\n", name="train.tsv")[0].inputs["words"] == ("Text", "is")


def test_a_table_with_lists_is_no_conll(tmp_path):
    samples = tagged(tmp_path, 'tokens\ttags\na b c\tO B-X I-X\n["d e", "f"]\t["O", "O"]\n', name="train.tsv")
    assert [sample.inputs["words"] for sample in samples] == [("a", "b", "c"), ("d e", "f")]
    with pytest.raises(MeristemError, match=r"train\.tsv:2: 3 words, but 2 tags"):
        tagged(tmp_path, "tokens\ttags\na b c\tO B-X\n", name="train.tsv")


def test_one_chinese_character_a_line(tmp_path):
    samples = tagged(tmp_path, "我\tO\n在\tO\n北\tB-GPE\n京\tI-GPE\n。\tO\n", name="zh.train")
    assert samples[0].inputs["text"] == "我在北京。" and samples[0].inputs["offsets"][2] == (2, 3)
    numbered = tagged(tmp_path, "北0\tB-GPE\n京1\tI-GPE\n10\tO\n\n好0\tO\n", name="zh.train")
    assert [sample.inputs["words"] for sample in numbered] == [("北", "京", "1"), ("好",)]
    assert tagged(tmp_path, "B2\tO\nis\tO\n", name="en.train")[0].inputs["words"] == ("B2", "is")


def test_conllu_with_its_original_text(tmp_path):
    text = (
        "# sent_id = 1\n# text = Don't go!\n1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_\n"
        "1\tDo\tdo\tAUX\tVB\t_\t3\taux\t_\t_\n2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_\n"
        "3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n3.1\tx\tx\tX\tX\t_\t_\t_\t_\t_\n4\t!\t!\tPUNCT\t.\t_\t3\tpunct\t_\t_\n"
    )
    (sample,) = tagged(tmp_path, text, name="a.conllu")
    assert sample.inputs["words"] == ("Do", "n't", "go", "!") and sample.gold == ("AUX", "PART", "VERB", "PUNCT")
    assert sample.inputs["text"] == "Don't go!" and sample.inputs["offsets"] == ((0, 2), (2, 5), (6, 8), (8, 9))
    assert tagged(tmp_path, text, name="a.conllu", label="5")[0].gold == ("VB", "RB", "VB", ".")


def test_ragged_lines_are_reported(tmp_path):
    with pytest.raises(MeristemError, match=r"a\.conll:3: 1 cell \('alone'\), but other lines have 2"):
        tagged(tmp_path, "a O\nb O\nalone\nc O\n")
    with pytest.raises(MeristemError, match=r"a\.conll:2: 3 cells"):
        tagged(tmp_path, "a\tO\nb\tO\tO\nc\tO\n")
    with pytest.raises(MeristemError, match="only one column"):
        tagged(tmp_path, "a\nb\n")
    with pytest.raises(MeristemError, match="no words in this file"):
        tagged(tmp_path, "# only\n\n# comments\n")


def test_words_alone_are_enough_to_predict(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("a\nb\n\nc\n")
    samples = load_samples(str(path), DataSettings(), "words", require_gold=False)
    assert [(sample.inputs["words"], sample.gold) for sample in samples] == [(("a", "b"), None), (("c",), None)]


def test_commands_have_their_intent_in_a_comment_or_a_column(tmp_path):
    samples = tagged(tmp_path, "# intent: play\nplay\tO\njazz\tS-genre\n", sample_type="command")
    assert samples[0].gold == ("play", ("O", "B-genre"))
    line = '{"text": "play jazz", "tags": "O B-genre", "intent": "play"}\n'
    assert tagged(tmp_path, line, name="a.jsonl", sample_type="command")[0].gold == ("play", ("O", "B-genre"))
    with pytest.raises(MeristemError, match=r"which column holds the intent\?"):
        tagged(tmp_path, "play\tO\n", sample_type="command")
    with pytest.raises(MeristemError, match=r"a\.jsonl:1: no intent"):
        tagged(tmp_path, line.replace('"play"}', '""}'), name="a.jsonl", sample_type="command")
