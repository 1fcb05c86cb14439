"""Every family × fill, score, generate and minimal pairs, on tiny trained runs; what cannot be is refused with why."""

from __future__ import annotations

import json
import re
import shlex
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_runs import FAMILIES, tiny_loaded, tiny_run

import meristem as meristem_package
from meristem.config.errors import MeristemError
from meristem.generation.head_selection import LM_KIND_PREFERENCE, lm_kind_for, lm_kinds_for, supported_operations
from meristem.interfaces.backbone import MODEL_FAMILIES, Head, Model
from meristem.interop.import_weights import checkpoint_state, write_run

PICTURE = (np.arange(16 * 16 * 3).reshape(16, 16, 3) % 251).astype(np.uint8)
TEXT = "Ada walked to the old harbour."
MASKED = "Ada walked to the [MASK] harbour and the [MASK]."
WAYS: dict[str, dict[str, str]] = {
    "bart-mini": {"generate": "source", "fill": "source", "score": "source"},
    "bert-mini": {"generate": "masked", "fill": "masked", "score": "masked"},
    "captioner-mini": {"generate": "source"},
    "electra-mini": {"generate": "generator", "fill": "generator", "score": "generator"},
    "elmo-mini": {"generate": "bilm", "fill": "bilm", "score": "bilm"},
    "gpt-mini": {"generate": "causal", "score": "causal"},
    "gpt2-mini": {"generate": "causal", "score": "causal"},
    "mamba-mini": {"generate": "causal", "score": "causal"},
    "modern-mini": {"generate": "causal", "score": "causal"},
    "modernbert-mini": {"generate": "masked", "fill": "masked", "score": "masked"},
    "multitask-mini": {"generate": "causal", "fill": "masked", "score": "causal"},
    "rnn-mini": {"generate": "source"},
    "roberta-mini": {"generate": "masked", "fill": "masked", "score": "masked"},
    "t5-mini": {"generate": "source", "fill": "source", "score": "source"},
    "transformer-mini": {"generate": "source"},
    "transformer-xl-mini": {"generate": "causal", "score": "causal"},
    "xlnet-mini": {"generate": "permutation", "fill": "permutation", "score": "permutation"},
}
"""How each family answers a verb about a text alone."""
SUPERVISED = {"captioner-mini", "rnn-mini", "transformer-mini"}


def source(family: str) -> Any:
    """What this family's decoder writes from, or what its text goes on from."""
    return PICTURE if family == "captioner-mini" else "Ada walks to the old harbour."


def test_every_family_is_asked() -> None:
    assert set(WAYS) == set(FAMILIES)
    assert {MODEL_FAMILIES[name].Settings().family for name in ("bert", "xlnet", "elmo")}  # they can be found
    families = {tiny_loaded(family).recipe.model.family for family in FAMILIES}
    assert families >= {"bert", "roberta", "electra", "gpt", "gpt2", "modern", "transformer", "transformer_xl", "xlnet",
                    "elmo", "rnn", "captioner"}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_generate(family: str) -> None:
    loaded = tiny_loaded(family)
    assert lm_kind_for(loaded.model, "generate") == WAYS[family]["generate"]
    settings = {"max_tokens": 6, "seed": 3, "temperature": 0.9}
    (texts,) = loaded.generate(source(family), count=2, **settings)
    assert len(texts) == 2 and all(text.score < 0 and len(text.tokens) <= 6 for text in texts)
    (second_completions,) = loaded.generate(source(family), count=2, **settings)
    assert [completion.text for completion in second_completions] == [text.text for text in texts]


@pytest.mark.parametrize("family", FAMILIES)
def test_fill(family: str) -> None:
    loaded = tiny_loaded(family)
    if "fill" not in WAYS[family]:
        reason = (
            "trained on pairs.*--text-b"
            if family in SUPERVISED
            else "both sides of a mask.*supports generate and score"
        )
        with pytest.raises(MeristemError, match=reason):
            loaded.fill(MASKED)
        return
    assert lm_kind_for(loaded.model, "fill") == WAYS[family]["fill"]
    first_fill, other = loaded.fill(MASKED, top=4)
    for filled in (first_fill, other):
        chances = [candidate.probability for candidate in filled.candidates]
        assert len(chances) == 4 and chances == sorted(chances, reverse=True) and 0 < sum(chances) <= 1 + 1e-5
        assert all(candidate.text.count("[MASK]") == 1 for candidate in filled.candidates)
    full_fill = loaded.fill(MASKED, top=loaded.tokenizer.vocab_size)[0]
    assert 0.2 < sum(candidate.probability for candidate in full_fill.candidates) <= 1 + 1e-4
    assert not any(candidate.token.startswith(("Ġ", "▁")) for candidate in full_fill.candidates)


@pytest.mark.parametrize("family", FAMILIES)
def test_score(family: str) -> None:
    loaded = tiny_loaded(family)
    if "score" not in WAYS[family]:
        with pytest.raises(MeristemError, match=r"trained on pairs.*score RUN SOURCE --text-b TARGET"):
            loaded.score(TEXT)
        return
    assert lm_kind_for(loaded.model, "score") == WAYS[family]["score"]
    text_score, other, empty = loaded.score([TEXT, "The harbour.", ""])
    assert text_score.logprob < other.logprob < 0 == empty.logprob  # more tokens, less likely
    assert text_score.logprob == pytest.approx(sum(value for _, value in text_score.per_token), abs=1e-4)
    assert loaded.score(TEXT)[0].logprob == pytest.approx(text_score.logprob, abs=1e-3)
    assert (text_score.forward is not None) == (family == "elmo-mini")


@pytest.mark.parametrize("family", FAMILIES)
def test_score_a_target_given_its_source(family: str) -> None:
    loaded = tiny_loaded(family)
    targets = ["the old boats", "a garden", "the boats and a garden"]
    ranked = loaded.score(source(family), targets)
    assert [pair_score.logprob for pair_score in ranked] == sorted(
        (pair_score.logprob for pair_score in ranked), reverse=True
    )
    assert {pair_score.text_b for pair_score in ranked} == set(targets)
    pair_scores = loaded.score([source(family)] * 2, targets[:2])  # pairs stay in their order
    assert [pair_score.text_b for pair_score in pair_scores] == targets[:2]
    logprobs_by_target = {pair_score.text_b: pair_score.logprob for pair_score in ranked}
    assert [pair_score.logprob for pair_score in pair_scores] == pytest.approx(
        [logprobs_by_target[target] for target in targets[:2]], abs=1e-3
    )
    others = PICTURE[::-1].copy() if family == "captioner-mini" else "Everything else was sold yesterday."
    assert loaded.score(others, targets[0])[0].logprob != pytest.approx(logprobs_by_target[targets[0]], abs=1e-6)


@pytest.mark.parametrize("family", [name for name in FAMILIES if WAYS[name]["generate"] == "source"])
def test_what_is_written_from_a_source_has_the_score_it_was_written_with(family: str) -> None:
    loaded = tiny_loaded(family)
    completions = loaded.generate([source(family)], count=32, seed=1, max_tokens=2, temperature=1.3)[0]
    compared = 0
    for completion in completions:
        if loaded.tokenizer.encode(completion.text).ids.tolist() != list(completion.tokens) or not completion.tokens:
            continue  # other tokens than those that were drawn spell the same text
        (scored,) = loaded.score(source(family), completion.text)
        *words, (_, end) = scored.per_token
        end_logprob = end if completion.finished == "end" else 0.0
        assert completion.score == pytest.approx(sum(value for _, value in words) + end_logprob, abs=1e-3)
        assert scored.logprob == pytest.approx(sum(value for _, value in words) + end, abs=1e-3)
        compared += 1
    assert compared


@pytest.mark.parametrize("family", FAMILIES)
def test_minimal_pairs(family: str, tmp_path: Path) -> None:
    loaded = tiny_loaded(family)
    rows: list[dict[str, str]] = [
        {"sentence_good": "Ada walked.", "sentence_bad": "Walked Ada the.", "UID": "order"},
        {"sentence_good": "The boats are old.", "sentence_bad": "The boats is old old.", "UID": "number"},
    ]
    if family == "captioner-mini":
        from PIL import Image

        Image.fromarray(PICTURE).save(tmp_path / "one.png")
        rows = [{**row, "image": "one.png"} for row in rows]
    elif family in SUPERVISED:
        rows = [{**row, "source": "Ada walks."} for row in rows]
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    evaluation = loaded.evaluate(pairs=str(file))
    assert evaluation["samples"]["pairs"] == 2 and 0 <= evaluation["metrics"]["pairs.accuracy"] <= 1
    sources = [PICTURE if "image" in row else row.get("source") for row in rows]
    for row, before in zip(rows, sources, strict=True):
        sentences = [row["sentence_good"], row["sentence_bad"]]
        good, bad = loaded.score(sentences) if before is None else loaded.score([before, before], sentences)
        assert evaluation["pairs"]["paradigms"][row["UID"]]["accuracy"] == float(good.logprob > bad.logprob)


def test_which_tokens_look_replaced() -> None:
    loaded = tiny_loaded("electra-mini")
    text = "Ada walked to the old harbour. " * 8  # longer than the model
    tokens = loaded.detect(text)
    assert [token.text for token in tokens] == loaded.tokenizer.token_texts(loaded.tokenizer.encode(text).ids)
    assert all(0 < token.probability < 1 for token in tokens)
    assert text[tokens[0].start : tokens[0].end].lower() == tokens[0].text.lower()
    short = loaded.detect([TEXT, "", text])
    assert short[1] == [] and [detection.probability for detection in short[2]] == pytest.approx(
        [token.probability for token in tokens], abs=1e-4
    )
    with pytest.raises(MeristemError, match=r"objective=rtd, as electra-mini.*supports generate and fill and score"):
        tiny_loaded("bert-mini").detect(TEXT)


def test_a_model_with_several_heads_takes_the_best_for_each_verb() -> None:
    cls = MODEL_FAMILIES["gpt2"]
    backbone = cls(cls.Settings(layers=1, hidden_size=8, heads=1, max_length=16), 40)
    model = Model(backbone, {name: Head("vocabulary") for name in ("clm", "seq2seq", "mlm")})
    assert [lm_kind_for(model, verb) for verb in LM_KIND_PREFERENCE] == ["causal", "masked", "causal"]
    assert all(lm_kind_for(model, verb, source=True) == "source" for verb in LM_KIND_PREFERENCE)
    assert "source" not in lm_kinds_for(model, "fill")  # it was not trained to write what is missing
    model.source_kinds = frozenset({"text", "masks"})
    assert lm_kinds_for(model, "score") == ("causal", "masked", "source")


def test_xlnet_takes_an_order_from_the_command_line(meristem: Any) -> None:
    run = tiny_run("xlnet-mini")
    size = tiny_loaded("xlnet-mini").score("Ada walked.")[0].tokens
    backwards = ",".join(map(str, range(size)[::-1]))
    (left_to_right,) = json.loads(meristem("score", run, "Ada walked.", "--json").out)
    (right,) = json.loads(meristem("score", run, "Ada walked.", "--order", backwards, "--json").out)
    assert left_to_right["logprob"] != right["logprob"]
    assert "once, numbered" in meristem("score", run, "Ada walked.", "--order", "0,0").err


def test_commands_of_score_and_detect(meristem: Any, tmp_path: Path) -> None:
    run = tiny_run("rnn-mini")
    payload = json.loads(meristem("score", run, "Ada walks.", "--text-b", "one", "--text-b", "two two", "--json").out)
    assert [text_score["text"] for text_score in payload] == ["Ada walks."] * 2 and payload[0]["logprob"] >= payload[1][
        "logprob"
    ]
    assert {text_score["text_b"] for text_score in payload} == {"one", "two two"}
    (tmp_path / "pairs.tsv").write_text("Ada walks.\tone\nIt rains.\ttwo two\n", encoding="utf-8")
    rows = json.loads(meristem("score", run, "--file", "pairs.tsv", "--json").out)
    assert [(row["text"], row["text_b"]) for row in rows] == [("Ada walks.", "one"), ("It rains.", "two two")]
    result = meristem("score", run, "Ada walks.")
    assert result.code == 1 and "meristem score RUN SOURCE --text-b TARGET" in result.err
    assert "forward" in meristem("score", tiny_run("elmo-mini"), "Ada walks.").out
    (elmo,) = json.loads(meristem("score", tiny_run("elmo-mini"), "Ada walks.", "--json").out)
    assert elmo["logprob"] == pytest.approx((elmo["forward"] + elmo["backward"]) / 2)
    output = meristem("detect", tiny_run("electra-mini"), "Ada walks.").out
    assert "%" in output and "##" in output
    (detections,) = json.loads(meristem("detect", tiny_run("electra-mini"), "Ada walks.", "--json").out)
    assert set(detections["tokens"][0]) == {"text", "start", "end", "probability"}
    assert "--image needs --text-b CAPTION" in meristem("score", run, "--image", "a.png").err
    assert "give a text" in meristem("detect", run).err


def test_a_caption_is_scored_given_its_picture(meristem: Any, tmp_path: Path) -> None:
    from PIL import Image

    Image.fromarray(PICTURE).save(tmp_path / "one.png")
    run = tiny_run("captioner-mini")
    arguments = ["score", run, "--image", "one.png", "--text-b", "a red square", "--text-b", "a circle", "--json"]
    payload = json.loads(meristem(*arguments).out)
    assert payload[0]["logprob"] >= payload[1]["logprob"]
    (tmp_path / "pairs.tsv").write_text("one.png\ta red square\n", encoding="utf-8")
    (pair_score,) = json.loads(meristem("score", run, "--file", "pairs.tsv", "--json").out)
    assert pair_score["logprob"] == pytest.approx(
        next(image_score["logprob"] for image_score in payload if "red" in image_score["text_b"]), abs=1e-3
    )


def commands_of(page: str) -> list[str]:
    """The commands in a page's bash blocks."""
    text = (Path(__file__).parent.parent / page).read_text(encoding="utf-8")
    return [line for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]


@pytest.mark.parametrize("command", commands_of("docs/using.md"))
def test_commands_of_the_page(command: str, meristem: Any, tmp_path: Path) -> None:
    from PIL import Image

    Image.fromarray(PICTURE).save(tmp_path / "photo.png")
    (tmp_path / "pairs.tsv").write_text("Ada walks.\tone\nIt rains.\ttwo\n", encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "BLiMP.zip", "w") as archive:
        archive.writestr("one.jsonl", json.dumps({"sentence_good": "Ada walks.", "sentence_bad": "Ada walk."}))
    words = [str(tiny_run(word[5:])) if word.startswith("runs/") else word for word in shlex.split(command)[1:]]
    result = meristem(*words)
    assert result.code == 0 and result.out.strip(), result.err


def test_a_head_that_was_never_trained_is_not_asked(tmp_path: Path) -> None:
    """An imported discriminator comes without its generator: it detects, and does not fill with fresh weights."""
    loaded_run = meristem_package.load(tiny_run("electra-mini")).loaded_run
    model = loaded_run.learner.model
    state = checkpoint_state(model, dict(model.named_parameters()))
    write_run(tmp_path / "import", loaded_run.recipe, loaded_run.tokenizer, state, {"new": ["generator"]})
    loaded = meristem_package.load(tmp_path / "import")
    assert supported_operations(loaded.model) == ("detect",)
    assert len(loaded.detect(TEXT)) == len(tiny_loaded("electra-mini").detect(TEXT))
    with pytest.raises(MeristemError, match=r"fill: the imported folder had no generator head.*pretrain from=RUN"):
        loaded.fill(MASKED)
