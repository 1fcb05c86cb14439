"""Zero-shot and few-shot prompting: prompts, label scores, calibration and errors."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from meristem import api
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.checkpoint.load_run import LoadedRun
from meristem.checkpoint.run_folder import RunFolder
from meristem.cli.app import app
from meristem.config.errors import MeristemError
from meristem.config.recipe import resolve_recipe
from meristem.config.settings import Settings
from meristem.evaluation.prompt_template import PromptSettings, PromptTemplate, draw_examples
from meristem.evaluation.prompted_predictions import PromptedPredictions, evaluate_prompted, predict_with_prompts
from meristem.generation.score import score
from meristem.interfaces.backbone import Backbone, Head, Hidden, Model, State
from meristem.interfaces.sample import Sample
from meristem.learning.build import build_learner
from meristem.learning.learner import Learner
from meristem.tokenizers.train import train_tokenizer

TEXTS = [
    "The soup was warm.",
    "Nobody came.",
    "A bright room, and kind people!",
    "Old bread.",
    "Never again.",
    "汤很好喝。",
]
REVIEWS = [Sample(inputs={"text": text}, gold=str(n % 2), location=f"dev.tsv:{n + 2}") for n, text in enumerate(TEXTS)]
SHOTS = [
    Sample(inputs={"text": f"Meal number {n}."}, gold=str(int(n % 4 == 0)), location=f"train.tsv:{n}")
    for n in range(12)
]
CHOICES = [
    Sample(
        inputs={"text": "The grass was wet.", "question": "cause", "choices": ("It rained.", "The sun shone all day.")},
        gold=0,
    ),
    Sample(
        inputs={"text": "He fell.", "question": "effect", "choices": ("He cried.", "He sang.", "It rained.")}, gold=1
    ),
]
TEMPLATE = "{text}\nSentiment: {label}"
WORDS = {"0": "bad", "1": "very good"}


def build_run(family: str = "gpt2", *, length: int = 64) -> LoadedRun:
    """An untrained model whose weights are large enough for its opinions to differ."""
    kind, objective = ("wordpiece", "mlm") if family == "bert" else ("bpe", "clm")
    model = {"family": family, "layers": 1, "hidden_size": 32, "heads": 2, "max_length": length, "init_std": 0.2}
    recipe = resolve_recipe(
        "tiny", {"model": model, "objective": objective, "tokenizer": {"kind": kind, "vocab_size": 400}}
    )
    texts = [*TEXTS, *(sample.inputs["text"] for sample in SHOTS), "Sentiment: bad very good It rained. N/A because so"]
    tokenizer = train_tokenizer(recipe.tokenizer, texts * 3)
    learner = build_learner(recipe, tokenizer)
    learner.eval()
    return LoadedRun(
        learner=learner,
        tokenizer=tokenizer,
        recipe=recipe,
        run=None,
        step=0,
        state={},
        notices=(),  # type: ignore[arg-type]  # no folder is needed
    )


def predict_prompted(
    loaded_run: LoadedRun, samples: list[Sample] = REVIEWS, examples: Any = (), **prompt_settings: Any
) -> PromptedPredictions:
    settings = PromptSettings.model_validate({"template": TEMPLATE, "label_words": WORDS, **prompt_settings})
    return predict_with_prompts(loaded_run, samples, settings, examples, with_intervals=False)


def chance(scores: list[float]) -> np.ndarray[Any, Any]:
    exponentials = np.exp(np.array(scores) - max(scores))
    return exponentials / exponentials.sum()


def difference(loaded_run: LoadedRun, full_text: str, prompt: str) -> float:
    """log p(rest | prompt) by hand: the whole less what comes before."""
    full_score, other = score(loaded_run.learner.model, loaded_run.tokenizer, [full_text, prompt])
    assert [t for t, _ in full_score.per_token][: other.tokens] == [t for t, _ in other.per_token]
    return full_score.logprob - other.logprob


# ------------------------------------------------------------ exact sums


def test_a_label_scores_what_its_tokens_add_to_the_prompt() -> None:
    loaded_run = build_run()
    prompted = predict_prompted(loaded_run)
    for sample, answer in zip(REVIEWS, prompted.predictions, strict=True):
        prompt = f"{sample.inputs['text']}\nSentiment:"
        by_hand = [difference(loaded_run, f"{prompt} {word}", prompt) for word in WORDS.values()]
        assert answer == pytest.approx(chance(by_hand), abs=1e-5)
    predicted_labels = [str(int(answer.argmax())) for answer in prompted.predictions]
    assert prompted.evaluation.metrics["accuracy"] == np.mean(
        [s == sample.gold for s, sample in zip(predicted_labels, REVIEWS, strict=True)]
    )
    assert prompted.evaluation.confusion is not None
    assert prompted.evaluation.confusion.matrix.sum() == len(REVIEWS)


def test_a_model_of_nans_has_no_answers() -> None:
    loaded_run = build_run()
    torch.nn.init.constant_(loaded_run.learner.model.backbone.embedding().weight, math.nan)
    with pytest.raises(MeristemError, match="NaN"):
        predict_prompted(loaded_run)


def test_per_token_divides_by_the_tokens_of_the_word() -> None:
    loaded_run, prompt = build_run(), f"{TEXTS[0]}\nSentiment:"
    sizes = [len(loaded_run.tokenizer.encode(f" {word}").ids) for word in WORDS.values()]
    assert sizes[0] < sizes[1]
    by_hand = [difference(loaded_run, f"{prompt} {w}", prompt) / n for w, n in zip(WORDS.values(), sizes, strict=True)]
    assert predict_prompted(loaded_run, per_token=True).predictions[0] == pytest.approx(chance(by_hand), abs=1e-5)


def test_choices_are_scored_by_their_own_text() -> None:
    loaded_run = build_run()
    prompted = predict_prompted(loaded_run, CHOICES, template="{context} {choice}", label_words={})
    for sample, context, answer in zip(
        CHOICES, ("The grass was wet because", "He fell so"), prompted.predictions, strict=True
    ):
        by_hand = [difference(loaded_run, f"{context} {choice}", context) for choice in sample.inputs["choices"]]
        assert answer == pytest.approx(chance(by_hand), abs=1e-5)
    assert [len(answer) for answer in prompted.predictions] == [2, 3]
    assert set(prompted.evaluation.metrics) == {"accuracy"}


def test_a_masked_model_reads_the_whole_template() -> None:
    loaded_run = build_run("bert")
    prompted = predict_prompted(
        loaded_run, REVIEWS[:2], template="{text} It was {label}, they said.", label_words={"0": "bad", "1": "good"}
    )
    for sample, answer in zip(REVIEWS, prompted.predictions, strict=False):
        by_hand = []
        for word in ("bad", "good"):
            text = f"{sample.inputs['text']} It was {word}, they said."
            token_logprobs = score(loaded_run.learner.model, loaded_run.tokenizer, [text])[0].per_token
            encoding = loaded_run.tokenizer.encode(text)
            inside = (encoding.offsets[:, 0] >= text.rindex(word)) & (
                encoding.offsets[:, 1] <= text.rindex(word) + len(word)
            )
            by_hand.append(sum(p for (_, p), is_label in zip(token_logprobs, inside, strict=True) if is_label))
        assert answer == pytest.approx(chance(by_hand), abs=1e-5)


def test_pairs_are_asked_about_too() -> None:
    samples = [
        Sample(inputs={"text": "He fell.", "text_b": "He sang."}, gold=gold, location="x") for gold in ("no", "yes")
    ]
    prompted = predict_prompted(build_run(), samples, template="{text} {text_b} {label}", label_words={})
    assert prompted.first_prompt == "He fell. He sang. "
    assert prompted.evaluation.num_samples == 2


# ------------------------------------------------------------ examples in context


def test_examples_are_balanced_and_follow_from_the_seed() -> None:
    settings = PromptSettings(template=TEMPLATE, shots=6)
    examples = draw_examples(SHOTS, settings, balanced=True)
    assert sorted(sample.gold for sample in examples) == ["0"] * 3 + ["1"] * 3
    assert draw_examples(SHOTS, settings, balanced=True) == examples
    others = {
        tuple(s.location for s in draw_examples(SHOTS, settings.model_copy(update={"seed": n}), balanced=True))
        for n in range(9)
    }
    assert len(others) > 6
    orders = {
        tuple(s.gold for s in draw_examples(SHOTS, settings.model_copy(update={"seed": n}), balanced=True))
        for n in range(9)
    }
    assert len(orders) > 2  # labels do not simply take turns
    assert len(draw_examples(SHOTS, settings.model_copy(update={"shots": 12}), balanced=True)) == 12


def test_a_prompt_is_its_examples_and_then_the_question() -> None:
    prompted = predict_prompted(build_run(length=512), shots=3, examples=SHOTS, example_separator="\n--\n")
    *shots_shown, question = prompted.first_prompt.split("\n--\n")
    expected = [
        f"{s.inputs['text']}\nSentiment: {WORDS[s.gold]}"
        for s in draw_examples(SHOTS, PromptSettings(template=TEMPLATE, shots=3), balanced=True)
    ]
    assert shots_shown == expected
    assert question == f"{TEXTS[0]}\nSentiment: "
    assert prompted.notices == ()


def test_what_stands_behind_the_label_is_shown_in_examples_alone() -> None:
    prompted = predict_prompted(build_run(length=512), shots=1, examples=SHOTS, template="{text} ({label}).")
    assert prompted.first_prompt.startswith("Meal number")
    assert prompted.first_prompt.split("\n\n")[0].endswith(").")
    assert prompted.first_prompt.endswith(f"{TEXTS[0]} (")


def test_examples_that_do_not_fit_go_from_the_front_and_never_the_question() -> None:
    wide = build_run(length=512)
    one_shot = predict_prompted(wide, REVIEWS[:1], shots=1, examples=SHOTS)
    max_length = len(wide.tokenizer.encode(one_shot.first_prompt + "very good").ids)
    narrow = build_run(length=max_length)
    weights = dict(wide.learner.model.state_dict())
    positions = next(name for name, value in weights.items() if value.shape[:1] == (512,))
    narrow.learner.model.load_state_dict({**weights, positions: weights[positions][:max_length]})
    four_shot = predict_prompted(narrow, REVIEWS[:1], shots=4, examples=SHOTS)
    prompt_parts = four_shot.first_prompt.split("\n\n")
    fitting = ["\n\n".join(prompt_parts[number:]) for number in range(5)]
    longest_prompt = next(text for text in fitting if len(wide.tokenizer.encode(text + "very good").ids) <= max_length)
    assert TEXTS[0] in longest_prompt != four_shot.first_prompt
    by_hand = [difference(wide, longest_prompt + word, longest_prompt.rstrip(" ")) for word in WORDS.values()]
    assert four_shot.predictions[0] == pytest.approx(chance(by_hand), abs=1e-5)
    assert "1 of 1 prompts are longer than the model" in four_shot.notices[0]


def test_a_question_too_long_for_the_model_loses_its_beginning_and_is_counted() -> None:
    loaded_run = build_run(length=16)
    long = Sample(inputs={"text": "warm soup " * 40}, gold="0", location="x")
    prompted = predict_prompted(loaded_run, [long, REVIEWS[1]])
    assert np.isfinite(prompted.predictions[0]).all()
    assert prompted.notices == (
        "1 of 2 questions are longer than the model (16 tokens) and are truncated at their beginning",
    )


# ------------------------------------------------------------ calibration


class Biased(Backbone):
    """It always likes `liked`; `other` a little more after a warm word and a little less after a cold one."""

    Settings = Settings
    capabilities = frozenset({"causal"})

    def __init__(self, vocabulary: int, liked: int, other: int, warm: int, cold: int) -> None:
        super().__init__()
        self.warm, self.cold, self.hidden_size, self.max_length = warm, cold, 2, 64
        self.table = nn.Embedding(vocabulary, 2)
        nn.init.zeros_(self.table.weight)
        self.table.weight.data[liked, 0] = self.table.weight.data[other, 1] = 1.0

    def forward(self, *, state: State | None = None, **inputs: Any) -> Hidden:
        """[B, T] → the logits of both words, which stand for everything else too."""
        warm, cold = ((inputs["tokens"] == sign).cumsum(1) > 0 for sign in (self.warm, self.cold))
        return Hidden(
            last_hidden_state=torch.stack([torch.full(warm.shape, 3.0), 1.0 + warm.float() - cold.float()], -1)
        )

    def build_head(self, kind: str, **sizes: int) -> nn.Module:
        """The vocabulary."""
        return VocabularyHead(self.table)

    def embedding(self) -> nn.Embedding:
        """The vocabulary's."""
        return self.table


def biased() -> LoadedRun:
    loaded_run = build_run()
    signs = [loaded_run.tokenizer.encode(word).ids.tolist() for word in (" bad", " good", " warm", " bread")]
    assert all(len(sign) == 1 for sign in signs)
    model = Model(Biased(loaded_run.tokenizer.vocab_size, *(sign[0] for sign in signs)), {"clm": Head("vocabulary")})
    return replace(loaded_run, learner=Learner(model, {}))


def test_calibration_takes_away_what_a_model_says_of_nothing() -> None:
    loaded_run, words = biased(), {"0": "bad", "1": "good"}
    samples = [
        Sample(inputs={"text": "The soup was warm."}, gold="1", location="x"),
        Sample(inputs={"text": "The old bread."}, gold="0", location="y"),
    ]
    plain, fair = (
        predict_prompted(loaded_run, samples, label_words=words, calibrate=calibrate) for calibrate in (False, True)
    )
    assert plain.evaluation.metrics["accuracy"] == 0.5  # everything is bad
    assert fair.evaluation.metrics["accuracy"] == 1.0
    sigmoid = 1 / (1 + np.exp(-1.0))  # of nothing the two differ by 2, of the warm soup by 1
    assert fair.predictions[0] == pytest.approx([1 - sigmoid, sigmoid], abs=1e-5)
    assert fair.predictions[1] == pytest.approx([sigmoid, 1 - sigmoid], abs=1e-5)


def test_calibration_is_the_mean_over_content_free_texts_with_the_same_examples() -> None:
    loaded_run = build_run(length=512)
    plain = predict_prompted(loaded_run, shots=2, examples=SHOTS)
    fair = predict_prompted(loaded_run, shots=2, examples=SHOTS, calibrate=True)
    prompt_start = plain.first_prompt.split(TEXTS[0])[0]
    content_free_probs = []
    for text in ("N/A", "", "[MASK]"):
        prompt = f"{prompt_start}{text}\nSentiment:"
        content_free_probs.append(
            chance([difference(loaded_run, f"{prompt} {word}", prompt) for word in WORDS.values()])
        )
    for prediction, other in zip(plain.predictions, fair.predictions, strict=True):
        expected = prediction / np.mean(content_free_probs, 0)
        assert other == pytest.approx(expected / expected.sum(), abs=1e-5)


def test_choices_are_calibrated_each_by_itself() -> None:
    loaded_run = build_run()
    fair = predict_prompted(
        loaded_run, CHOICES, template="{context} {choice}", label_words={}, calibrate=True, content_free=("N/A",)
    )
    contexts = (("The grass was wet because", "N/A because"), ("He fell so", "N/A so"))
    for sample, (context, content_free), answer in zip(CHOICES, contexts, fair.predictions, strict=True):
        after, before = (
            [difference(loaded_run, f"{text} {choice}", text) for choice in sample.inputs["choices"]]
            for text in (context, content_free)
        )
        assert answer == pytest.approx(
            chance([after_score - other for after_score, other in zip(after, before, strict=True)]), abs=1e-5
        )


# ------------------------------------------------------------ files, and what is refused


def test_files_are_asked_about_like_any_other(tmp_path: Path) -> None:
    loaded_run = replace(build_run(length=512), run=RunFolder(tmp_path))
    for name, split_samples in (("dev", REVIEWS), ("train", SHOTS)):
        rows = [f"{sample.inputs['text']}\t{sample.gold}" for sample in split_samples]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n", encoding="utf-8")
    prompted = evaluate_prompted(
        loaded_run,
        data=str(tmp_path / "dev.tsv"),
        shot_data=str(tmp_path / "train.tsv"),
        limit=4,
        template=TEMPLATE,
        label_words=WORDS,
        shots=2,
    )
    expected = predict_prompted(loaded_run, REVIEWS[:4], shots=2, examples=SHOTS)
    assert prompted["metrics"] == expected.evaluation.metrics
    assert prompted["samples"] == {"data": 4}
    assert prompted["prompt"] == expected.first_prompt
    low, high = prompted["intervals"]["accuracy"]
    assert low <= prompted["metrics"]["accuracy"] <= high


@pytest.mark.parametrize(("template", "message"), [
    ("{tex} {label}", r"no field \{tex\}, did you mean text\?"),
    ("{text} is what?", r"\{label\} must occur exactly once"),
    ("{label} {text} {label}", r"\{label\} must occur exactly once"),
    ("{text} {label", "template: .*brace twice"),
    ("{text!r} {label}", "plain name in braces"),
    ("{text} {label} {choice}", r"no field \{label\}"),
])  # fmt: skip
def test_templates_that_ask_nothing_are_refused(template: str, message: str) -> None:
    with pytest.raises(MeristemError, match=message):
        PromptTemplate.parse(template)


def test_braces_and_line_breaks_may_be_typed() -> None:
    assert PromptTemplate.parse(r"{{a}} {text}\n-> {label}").fill({"text": "{label}"}) == ("{a} {label}\n-> ", "")


@pytest.mark.parametrize(("prompt_settings", "message"), [
    ({"label_words": {"1": "good", "2": "bad"}}, r"dev\.tsv:2: the label '0' has no word"),
    ({"label_words": {"0": "good", "1": "good"}}, "'good' and 'good' have the same tokens"),
    ({"label_words": {"0": "", "1": "good"}}, "'' has no tokens"),
    ({"shots": 2}, "give --shot-data FILE"),
    ({"shots": 99, "examples": SHOTS}, "99 examples requested, but there are only 12"),
])  # fmt: skip
def test_what_cannot_be_asked_is_said(prompt_settings: dict[str, Any], message: str) -> None:
    with pytest.raises(MeristemError, match=message):
        predict_prompted(build_run(), **prompt_settings)


def test_numbers_are_not_asked_for() -> None:
    samples = [Sample(inputs={"text": "a"}, gold=gold, location="x") for gold in ("1.5", "2.5")]
    with pytest.raises(MeristemError, match="chooses one label, and these samples have numbers"):
        predict_prompted(build_run(), samples, label_words={})


def test_the_command_asks_as_python_does(make_run: Callable[..., LoadedRun], tmp_path: Path) -> None:
    run = str(make_run("gpt2", "clm").run.path)
    file = tmp_path / "dev.csv"
    rows = [f"{n % 2},{text.replace(',', '')}" for n, text in enumerate(TEXTS)]
    file.write_text("\n".join(["stars,opinion", *rows]) + "\n", encoding="utf-8")
    shots = ["--shots", "2", "--shot-data", str(file), "--calibrate", "--columns", "text=opinion,label=stars"]
    template = r"{text}\nSentiment: {label}"
    words = [
        "evaluate",
        run,
        "--data",
        str(file),
        "--template",
        template,
        "--label-words",
        "0=bad,1=good",
        *shots,
        "--json",
    ]
    result = CliRunner().invoke(app, words)
    evaluation = api.load(run).evaluate(
        data=str(file), template=template, label_words={"0": "bad", "1": "good"}, shots=2, shot_data=str(file),
        calibrate=True, columns={"text": "opinion", "label": "stars"},
    )  # fmt: skip
    assert json.loads(result.stdout) == json.loads(json.dumps(evaluation))
    assert evaluation["task"] == "classification"
    assert evaluation["prompt"].endswith(f"{TEXTS[0]}\nSentiment: ")
    page = tmp_path / "asked.html"
    assert CliRunner().invoke(app, [*words, "--report", str(page)]).stdout == result.stdout
    text = page.read_text(encoding="utf-8")
    assert "Confusion matrix" in text and "Sentiment:" in text and "calibrate: true" in text
    for wrong, message in (
        (["--report", str(page)], "a report shows predictions on labelled samples"),
        (["--shots", "2"], "--shots: needs --template"),
        (["--template", template, "--pll"], "measure one at a time"),
        (["--template", template, "--label-words", "0"], "expected NAME=VALUE"),
        (["--template", template], "give them with --data FILE"),
    ):
        assert message in str(CliRunner().invoke(app, ["evaluate", run, *wrong]).exception)
    with pytest.raises(MeristemError, match=r"evaluate\.shot: unknown setting, did you mean shots"):
        api.load(run).evaluate(data=str(file), template=template, shot=2)
