"""Every use of a run feeds the same token ids for the same text, in every family: recorded at the backbone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import meristem
from meristem.config.errors import MeristemError
from meristem.corpus.document import Document
from meristem.dataset.build import build_dataset
from meristem.dataset.settings import DatasetSettings
from meristem.evaluation.attention_maps import attention_maps
from meristem.evaluation.task_predictions import predict
from meristem.evaluation.text_embeddings import embed, encode_text
from meristem.generation.generation_inputs import build_generation_inputs
from meristem.inputs.batch import Row, collate
from meristem.inputs.char_ids import BOS_CHAR, EOS_CHAR
from meristem.inputs.template import add_task_tokens
from meristem.interfaces.backbone import MODEL_FAMILIES, Model
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import TASKS
from meristem.interop.export_folder import export_run
from meristem.learning.build import build_feeds
from meristem.learning.learner import Learner
from meristem.serving.app import create_app
from meristem.serving.model_registry import ModelRegistry
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

RUNS = Path(__file__).parent.parent / "golden" / "runs"
TEXT, CUT = "Ada sold a boat.", "Ada sold the old boat in the garden and went home again. " * 4
ENCODED = {
    **dict.fromkeys(("bert", "roberta", "electra", "elmo", "multitask"), "start A end"),
    **dict.fromkeys(("gpt", "gpt2", "modern", "mamba", "transformer_xl"), "end A"),
    **dict.fromkeys(("bart", "t5", "rnn", "transformer"), "A end"),
    "xlnet": "end A end",  # trained on consecutive segments of running text
}
"""Family → special tokens around a text in training."""
AUTOREGRESSIVE = {name for name, form in ENCODED.items() if form == "end A"} | {"xlnet", "multitask"}
PAIRS = ("rnn", "transformer")
EXPORTED = ("bert", "roberta", "electra", "gpt", "gpt2", "modern", "mamba", "xlnet", "bart", "t5")


@contextmanager
def recorded(model: Model) -> Iterator[list[list[int]]]:
    """The token ids of every row that the backbone reads, a source before its target, without padding."""
    rows: list[list[int]] = []

    def record(_: Any, args: Any, inputs: dict[str, Any]) -> None:
        name = "source" if "source" in inputs else "characters" if "characters" in inputs else "tokens"
        present = inputs.get("source_present" if name == "source" else "present")
        for index, row in enumerate(inputs[name]):
            visible_ids = row if present is None else row[present[index]]
            rows.append(visible_ids.tolist())

    modules = [model.backbone, *(head for name, head in model.heads.items() if name == "generator")]  # ELECTRA's
    handles = [module.register_forward_pre_hook(record, with_kwargs=True) for module in modules]
    try:
        yield rows
    finally:
        for handle in handles:
            handle.remove()


def special(tokenizer: Tokenizer, form: str, ids: Sequence[int]) -> list[int]:
    """Token ids with special tokens as in `start A end`."""
    return [token for part in form.split() for token in (ids if part == "A" else [getattr(tokenizer, part)])]


def holds(row: Sequence[int], part: Sequence[int]) -> bool:
    """Whether a row has these consecutive ids."""
    return any(list(row[index : index + len(part)]) == list(part) for index in range(len(row)))


@pytest.fixture(scope="module", params=ENCODED)
def run(request: pytest.FixtureRequest) -> tuple[str, meristem.LoadedModel]:
    return request.param, meristem.load(RUNS / request.param)


def expected_ids(name: str, loaded: meristem.LoadedModel, text: str) -> list[int]:
    """The ids of a text as in training; what is cut keeps its closing token, and an LSTM reads any length."""
    ids, max_length = loaded.tokenizer.encode(text).ids.tolist(), loaded.model.backbone.max_length
    if name in PAIRS:  # trained on pairs, whose sources have no end token where they are cut
        return special(loaded.tokenizer, ENCODED[name], ids)[:max_length]
    size = len(ids) if name == "elmo" else max_length - len(ENCODED[name].split()) + 1
    return special(loaded.tokenizer, ENCODED[name], ids[:size])


@pytest.mark.parametrize("text", [TEXT, CUT, ""])
def test_embeddings_and_attention_read_a_text_as_training_did(run: tuple[str, meristem.LoadedModel], text: str) -> None:
    name, loaded = run
    expected = expected_ids(name, loaded, text)
    with recorded(loaded.model) as rows:
        loaded.embed(text)
    if name == "elmo":  # it reads characters: of a start token, of the words, of an end token
        assert len(rows[0]) == len(expected) and (rows[0][0][1], rows[0][-1][1]) == (BOS_CHAR, EOS_CHAR)
        return
    assert rows == [expected]
    if not loaded.model.backbone.has_attention:
        for attend in (loaded.attention, loaded.look):
            with pytest.raises(MeristemError, match="has no attention"):
                attend(text)
        return
    with recorded(loaded.model) as rows:
        loaded.attention(text)
    assert rows == [expected]
    if text or ENCODED[name] != "A end":  # nothing is written from an empty source
        with recorded(loaded.model) as rows:
            attention_maps(loaded.model, loaded.tokenizer, text)
        assert rows[-1] == expected


def test_scores_and_prompts_read_a_text_as_training_did(run: tuple[str, meristem.LoadedModel]) -> None:
    name, loaded = run
    tokenizer, ids = loaded.tokenizer, loaded.tokenizer.encode(TEXT).ids.tolist()
    with recorded(loaded.model) as rows:
        loaded.score(TEXT, "a tree") if ENCODED[name] == "A end" else loaded.score(TEXT)
    if ENCODED[name] == "A end":
        assert rows == [expected_ids(name, loaded, TEXT)]
    elif name in AUTOREGRESSIVE:  # nothing is predicted from the last token
        assert rows == [[tokenizer.end, *(ids if name == "xlnet" else ids[:-1])]]
        assert build_generation_inputs(loaded.model, tokenizer, TEXT).prompt_ids == [tokenizer.end, *ids]
    elif name == "elmo":
        assert {len(row) for row in rows} == {len(ids) + 2}
    else:  # one row for each token, in which it is masked
        input_ids = expected_ids(name, loaded, TEXT)
        assert sorted(rows) == sorted(
            [*input_ids[:index], tokenizer.mask, *input_ids[index + 1 :]] for index in range(1, len(ids) + 1)
        )


@pytest.mark.parametrize("name", [name for name in ENCODED if name not in ("multitask", "rnn", "transformer")])
def test_pretraining_feeds_a_document_with_the_same_special_tokens(name: str, tmp_path: Path) -> None:
    loaded = meristem.load(RUNS / name)
    tokenizer, learner = loaded.tokenizer, loaded.loaded_run.learner
    documents = [Document("Ada.", f"test:{number}") for number in range(40)]
    keep_words = loaded.recipe.tokenizer.kind == "words"
    dataset = build_dataset(documents, tokenizer, tmp_path, DatasetSettings(), processes=1, keep_words=keep_words)
    (source,) = learner.objectives
    feeds = build_feeds(loaded.recipe, learner.objectives, tokenizer, {source: dataset}, split="train", seed=0)
    batch = feeds[source].batch(0, 0)
    state = learner.model.backbone.empty_memory(len(batch.sample_ids))
    with recorded(learner.model) as rows:
        learner(source, batch, dict.fromkeys(batch.target_counts, 1), state or None)
    ids = tokenizer.encode("Ada.").ids.tolist()
    for row in rows:
        if name == "elmo":
            assert (row[0][1], row[-1][1]) == (BOS_CHAR, EOS_CHAR)
        elif ENCODED[name] == "start A end":
            assert (row[0], row[-1]) == (tokenizer.start, tokenizer.end)
        elif ENCODED[name] == "A end":
            assert row[-1] == tokenizer.end and tokenizer.start not in row
    if name in AUTOREGRESSIVE:
        assert any(holds(row, special(tokenizer, ENCODED[name], ids)) for row in rows)


@pytest.fixture(scope="module")
def registry() -> ModelRegistry:
    return ModelRegistry.open([RUNS / name for name in ENCODED])


@pytest.fixture(scope="module")
def client(registry: ModelRegistry) -> Iterator[TestClient]:
    with TestClient(create_app(registry), base_url="http://127.0.0.1") as client:
        yield client


@pytest.mark.parametrize("name", [name for name in ENCODED if name != "elmo"])
def test_the_server_reads_a_text_as_training_did(name: str, client: TestClient, registry: ModelRegistry) -> None:
    model = registry.runs[name].model
    expected = expected_ids(name, meristem.load(RUNS / name), TEXT)
    routes = [route for route in ("embed", "attention") if route in registry.runs[name].routes]
    assert routes == (["embed", "attention"] if model.backbone.has_attention else ["embed"])
    for route in routes:
        with recorded(model) as rows:
            assert client.post(f"/{route}", json={"model": name, "text": TEXT}).status_code == 200
        assert rows[-1] == expected, route


@pytest.mark.parametrize("name", EXPORTED)
def test_an_exported_tokenizer_gives_the_same_ids(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    export_run(RUNS / name, tmp_path / "out")
    exported = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert exported(TEXT)["input_ids"] == expected_ids(name, meristem.load(RUNS / name), TEXT)


TASK_MODES = {"bert": "bidirectional", "xlnet": "bidirectional", "modern": "bidirectional", "gpt2": "causal",
              "transformer_xl": "causal", "mamba": "causal", "transformer": "encoder_decoder",
              "elmo": "both_directions"}  # fmt: skip


@pytest.mark.parametrize("family", TASK_MODES)
def test_a_task_run_reads_a_text_as_it_was_trained(family: str) -> None:
    """Training, predictions, embeddings and attention maps of a run that was fine-tuned for a task."""
    tokenizer = Tokenizer.load(RUNS / "bert" / "tokenizer.json")
    tokenizer = add_task_tokens(tokenizer) if TASK_MODES[family] == "causal" else tokenizer
    model_class, task_class = MODEL_FAMILIES[family], TASKS["classification"]
    shape = {"layers": 1, "hidden_size": 16, "heads": 2, "max_length": 24, "cell_size": 16}
    model_settings = {key: value for key, value in shape.items() if key in model_class.Settings.model_fields}
    backbone = model_class(model_class.Settings.model_validate(model_settings), tokenizer.vocab_size)
    settings = {"backbone_mode": TASK_MODES[family], "max_length": 24, "labels": ("a", "b"), "problem_type": "single"}
    task = task_class(task_class.Settings.model_validate(settings), tokenizer)
    learner = Learner(Model(backbone, task.heads), {"task": task})
    model, sample = learner.model, Sample(inputs={"text": TEXT}, gold="a")
    row = task.prepare(Row(inputs={}, metadata={"piece": task.encode_samples([sample])[0]}), SampleRng(0, 0, 0))
    with recorded(model) as rows:
        learner("task", collate([row], task, {}), {task.name: 1})
        predict(learner, [sample])
        embed(model, tokenizer, [encode_text(model, tokenizer, TEXT)])
        if family not in ("elmo", "mamba"):  # without attention
            attention_maps(model, tokenizer, TEXT, task=task)
    assert len(rows) >= 3 and all(row == rows[0] for row in rows)
    if TASK_MODES[family] == "encoder_decoder":
        assert rows[0] == [*tokenizer.encode(TEXT).ids.tolist(), tokenizer.end]  # the source of pretraining
