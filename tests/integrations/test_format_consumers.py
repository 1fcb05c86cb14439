"""Exported runs opened by llama.cpp, ctranslate2, onnxruntime (int8) and sentence-transformers: the same outputs.

Skipped where a consumer is not installed; `make test-integrations` installs them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.formats.cases import CTRANSLATE2_CASES, GGUF_CASES, SENTENCE_CASES, Case
from benchmarks.formats.runs import random_run

EXACT = 1e-4
"""Largest difference of logits and states where the consumer computes every function in float32."""
LLAMA_GELU = 5e-3
"""llama.cpp takes GELU from a table of half-precision values, and the tanh form where the model has the exact one."""


@pytest.mark.parametrize("case", GGUF_CASES, ids=lambda case: case.name)
def test_llama_cpp_reads_the_same_ids_and_writes_the_same_tokens(case: Case, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="llama.cpp is not installed: make test-integrations")
    from benchmarks.formats.gguf_consumer import compare_gguf

    run = random_run(case.recipe, tmp_path / "run", case.overrides)
    row = compare_gguf(run, tmp_path / "gguf")
    assert row.is_identical, row
    assert row.difference <= (EXACT if case.exact else LLAMA_GELU) * max(1.0, row.scale), row


@pytest.mark.parametrize("case", CTRANSLATE2_CASES, ids=lambda case: case.name)
def test_ctranslate2_computes_the_same(case: Case, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: make test-integrations")
    from benchmarks.formats.ctranslate2_consumer import compare_ctranslate2

    run = random_run(case.recipe, tmp_path / "run", case.overrides)
    row = compare_ctranslate2(run, tmp_path / "ct2")
    assert row.identical == "–" or row.is_identical, row
    assert row.difference <= EXACT * max(1.0, row.scale), row
    rounded = compare_ctranslate2(run, tmp_path / "int8", int8=True)
    assert rounded.difference > 0, rounded


@pytest.mark.parametrize("case", SENTENCE_CASES, ids=lambda case: case.name)
def test_sentence_transformers_gives_the_vectors_of_embed(case: Case, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    from benchmarks.formats.sentence_transformers_consumer import compare_sentence_transformers

    run = random_run(case.recipe, tmp_path / "run", case.overrides)
    row = compare_sentence_transformers(run, tmp_path / "vectors")
    assert row.difference <= 1e-5 * max(1.0, row.scale), row


@pytest.mark.parametrize("recipe", ["gpt2-mini", "bert-mini"])
def test_int8_graphs_run_in_onnxruntime_and_are_smaller(recipe: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from benchmarks.formats.onnx_consumer import compare_onnx

    run = random_run(recipe, tmp_path / "run")
    plain, rounded = (compare_onnx(run, tmp_path / f"int8-{int8}", int8=int8) for int8 in (False, True))
    assert plain.difference <= EXACT * plain.scale, plain
    assert EXACT * plain.scale < rounded.difference <= 0.3 * rounded.scale, rounded
    sizes = [(tmp_path / f"int8-{int8}" / "model.onnx").stat().st_size for int8 in (False, True)]
    assert sizes[1] < 0.7 * sizes[0]


def test_spacy_files_are_read_as_spacy_reads_them(tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed: make test-integrations")
    from spacy.tokens import DocBin, Span

    from meristem.data.formats.spacy import SpacyFormat
    from meristem.data.read_counts import ReadCounts
    from meristem.data.records import ReadOptions
    from meristem.data.sources import FileSource

    nlp, store = spacy.blank("en"), DocBin(attrs=["ENT_IOB", "ENT_TYPE", "POS"], store_user_data=True)
    texts = ["Ada Lovelace isn't in  Zürich 😀 .", "苹果 in Paris", "nothing here"]
    documents = [nlp.make_doc(text) for text in texts]
    documents[0].ents = [Span(documents[0], 0, 2, "PER"), Span(documents[0], 6, 7, "LOC")]
    documents[1].ents = [Span(documents[1], 0, 1, "ORG"), Span(documents[1], 2, 3, "LOC")]
    for document in documents:
        document.cats = {"good": 1.0 if "Ada" in document.text else 0.0, "bad": 0.0}
        for token in document:
            token.pos_ = "PROPN" if token.ent_type_ else "X"
        store.add(document)
    store = DocBin(attrs=["ENT_IOB", "ENT_TYPE", "POS"], docs=documents)
    path = tmp_path / "train.spacy"
    store.to_disk(path)
    file = FileSource.from_path(path)
    assert file.format == "spacy"
    records = list(SpacyFormat(file, ReadOptions(), ReadCounts()).records())
    for record, document in zip(records, documents, strict=True):
        tokens = [token for token in document if token.text.strip()]
        assert record.value["text"] == document.text.rstrip()
        assert record.value["words"] == [token.text for token in tokens]
        expected = [f"{token.ent_iob_}-{token.ent_type_}" if token.ent_type_ else "O" for token in tokens]
        assert record.value["tags"] == expected
        assert record.value["pos"] == [token.pos_ for token in tokens]
