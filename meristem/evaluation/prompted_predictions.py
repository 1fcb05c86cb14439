"""Zero-shot and few-shot prompting: labels or choices ranked by their log-probability after a prompt.

A label's score is Σ log p(x_t | prompt, x_<t) over its tokens; its probability is a softmax over the labels. Calibrated
(Zhao et al. 2021), it is divided by its probability after content-free prompts and renormalised. A masked
model reads the whole template, with each token of the label masked once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError, did_you_mean
from meristem.config.validation import build_settings
from meristem.dataset.token_dataset import IntArray
from meristem.evaluation.evaluation_report import build_evaluation_report, report_renderer
from meristem.evaluation.prompt_template import (
    FewShotPrompt,
    PromptBuilder,
    PromptSettings,
    PromptTemplate,
    draw_examples,
)
from meristem.evaluation.task_predictions import NaNError, evaluate_predictions
from meristem.generation.generation_inputs import BACKBONE_MODES, input_template
from meristem.generation.head_selection import MASKED_KINDS, LMKind, lm_kind_for
from meristem.generation.score import score_tokens
from meristem.inputs.char_ids import surface_forms
from meristem.interfaces.backbone import Model
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import TASKS, Task
from meristem.interfaces.task_evaluation import TaskEvaluation
from meristem.labelled.load import load_samples
from meristem.labelled.settings import DataSettings
from meristem.tokenizers.tokenizer import Encoding, Tokenizer

Floats = NDArray[np.float64]
TASK_BY_SAMPLE_TYPE = {"text": "classification", "pair": "pair", "choice": "choice"}
"""The task whose metrics apply to a sample type."""


@dataclass(frozen=True, kw_only=True)
class PromptedPredictions:
    """The evaluation, the label probabilities of each sample, and the first prompt."""

    evaluation: TaskEvaluation
    predictions: list[NDArray[np.float32]]
    task: Task
    first_prompt: str
    notices: tuple[str, ...]


def predict_with_prompts(
    loaded_run: LoadedRun,
    samples: Sequence[Sample],
    settings: PromptSettings,
    examples: Sequence[Sample] = (),
    *,
    with_intervals: bool = True,
) -> PromptedPredictions:
    """Prompt the model with every sample; `examples` are training samples from which `shots` are drawn."""
    template = PromptTemplate.parse(settings.template)
    scorer = AnswerScorer(loaded_run.learner.model, loaded_run.tokenizer, settings)
    if settings.shots and not examples:
        raise MeristemError(f"shots: {settings.shots} examples need data to draw from: give --shot-data FILE")
    builder = PromptBuilder(template, settings, _build_task(template, settings, [*examples, *samples], scorer))
    example_samples = draw_examples(examples, settings, balanced=bool(builder.label_words)) if settings.shots else []
    shots = tuple(builder.build_example(sample) for sample in example_samples)
    prompts = [builder.build(sample.inputs, shots) for sample in samples]
    scorer.check_distinct_words(builder.label_words)
    answer_scores = scorer(prompts)
    scores = answer_scores.logprobs
    if any(np.isnan(row).any() for row in scores):
        raise NaNError("the model's logits are NaN, so it cannot predict: use an older checkpoint")
    if settings.calibrate:
        empty_prompts = [
            builder.build_content_free(sample.inputs, shots)
            for sample in (samples[:1] if builder.label_words else samples)
        ]
        scores = _calibrate(scores, scorer, empty_prompts)
    predictions = [np.exp(_normalize(row)).astype(np.float32) for row in scores]
    return PromptedPredictions(
        evaluation=evaluate_predictions(builder.task, predictions, samples, with_intervals=with_intervals),
        predictions=predictions,
        task=builder.task,
        first_prompt=prompts[0].text(settings.example_separator),
        notices=answer_scores.notices(settings.shots, scorer.max_tokens),
    )


def evaluate_prompted(
    loaded_run: LoadedRun,
    *,
    data: str | None = None,
    shot_data: str | None = None,
    columns: Mapping[str, Any] | None = None,
    limit: int | None = None,
    report: str | Path | None = None,
    **prompt_settings: Any,
) -> dict[str, Any]:
    """The same on a file of labelled samples, as one dict; `columns` are those of the data (text, label)."""
    if data is None:
        raise MeristemError("a template needs labelled samples: give them with --data FILE")
    if report is not None:
        report_renderer(Path(report))
    settings = build_settings(PromptSettings, prompt_settings, "evaluate")
    data_settings = build_settings(DataSettings, dict(columns or {}), "columns")
    assert isinstance(settings, PromptSettings) and isinstance(data_settings, DataSettings)
    sample_type, notices = PromptTemplate.parse(settings.template).sample_type, list[str]()
    samples = load_samples(data, data_settings, sample_type, notices=notices)[:limit]
    examples = load_samples(shot_data, data_settings, sample_type) if shot_data else []
    prompted_predictions = predict_with_prompts(loaded_run, samples, settings, examples)
    evaluation_report = build_evaluation_report(
        loaded_run,
        prompted_predictions.task,
        prompted_predictions.evaluation,
        split="data",
        data=data,
        notices=[*notices, *prompted_predictions.notices],
        baselines=prompted_predictions.task.metrics.baselines(examples, samples) if examples else {},
        prompt_settings={
            "prompt": prompted_predictions.first_prompt,
            **settings.model_dump(mode="json"),
            "shot_data": shot_data,
        },
        report=report,
    )
    return {**evaluation_report, "prompt": prompted_predictions.first_prompt}


def _build_task(
    template: PromptTemplate, settings: PromptSettings, samples: Sequence[Sample], scorer: AnswerScorer
) -> Any:
    """The task of these samples; its labels are those with label words, or those of the samples."""
    task = TASKS[TASK_BY_SAMPLE_TYPE[template.sample_type]]
    known_settings: dict[str, Any] = {
        "backbone_mode": BACKBONE_MODES[scorer.lm_kind],
        "max_length": max(16, scorer.max_tokens),
    }
    if template.sample_type == "choice":
        return task(task.Settings.model_validate(known_settings), scorer.tokenizer)
    words = tuple(settings.label_words)
    for sample in samples:
        if words and str(sample.gold) not in words:
            raise MeristemError(
                f"{sample.location}: the label {str(sample.gold)!r} has no word{did_you_mean(str(sample.gold), words)}"
            )
    if words:
        return task(
            task.Settings.model_validate({"problem_type": "single", "labels": words, **known_settings}),
            scorer.tokenizer,
        )
    fitted_settings: Any = task.fit_settings(task.Settings.model_validate(known_settings), samples)
    if fitted_settings.problem_type != "single":
        problem_name = "numbers" if fitted_settings.problem_type == "regression" else "several labels"
        raise MeristemError(f"a prompt chooses one label, and these samples have {problem_name}")
    return task(fitted_settings, scorer.tokenizer)


def _calibrate(
    scores: Sequence[Floats], scorer: AnswerScorer, empty_prompts: Sequence[Sequence[FewShotPrompt]]
) -> list[Floats]:
    """log p − log of the mean probability after content-free prompts: shared ones, or each sample's own."""
    empty_scores = scorer([prompt for sample_prompts in empty_prompts for prompt in sample_prompts]).logprobs
    num_prompts = len(empty_prompts[0])
    means = [
        np.log(np.mean([np.exp(_normalize(row)) for row in empty_scores[start : start + num_prompts]], 0))
        for start in range(0, len(empty_scores), num_prompts)
    ]
    return [_normalize(row) - (means[index] if len(means) > 1 else means[0]) for index, row in enumerate(scores)]


def _normalize(logprobs: Floats) -> Floats:
    """Log-probabilities normalised over the answers."""
    return logprobs - float(np.logaddexp.reduce(logprobs))


# ------------------------------------------------------------ scoring answers


@dataclass(frozen=True, kw_only=True)
class AnswerScores:
    """For each prompt the log-probabilities of its answers, and the number of examples dropped to fit."""

    logprobs: list[Floats]
    num_dropped: list[int]
    """One more than the number of examples if the question itself was truncated."""

    def notices(self, shots: int, max_tokens: int) -> tuple[str, ...]:
        """Notices about dropped examples and truncated questions."""
        messages, of_total = [], f"of {len(self.num_dropped):,}"
        if num_shortened := sum(count > 0 for count in self.num_dropped if shots):
            mean_dropped = sum(min(count, shots) for count in self.num_dropped) / len(self.num_dropped)
            messages.append(
                f"{num_shortened:,} {of_total} prompts are longer than the model ({max_tokens} tokens) and drop "
                f"examples, {mean_dropped:.1f} of {shots} on average"
            )
        if num_cut := sum(count > shots for count in self.num_dropped):
            messages.append(
                f"{num_cut:,} {of_total} questions are longer than the model ({max_tokens} tokens) and are truncated "
                "at their beginning"
            )
        return tuple(messages)


class AnswerScorer:
    """Scores the answers of prompts with a model."""

    def __init__(self, model: Model, tokenizer: Tokenizer, settings: PromptSettings) -> None:
        self.model, self.tokenizer, self.settings = model, tokenizer, settings
        self.lm_kind: LMKind = lm_kind_for(model, "score")
        self.max_tokens = (
            model.backbone.max_length
            if self.lm_kind == "causal"
            else input_template(model, tokenizer, self.lm_kind).max_text_tokens()
        )

    def __call__(self, prompts: Sequence[FewShotPrompt]) -> AnswerScores:
        """Scores of all answers to all prompts, batched by length."""
        rows: list[IntArray] = []
        first_scored: list[int] = []
        sizes: list[int] = []
        num_dropped: list[int] = []
        token_bytes: list[list[bytes]] = []
        for prompt, encodings in zip(prompts, self._encode(prompts), strict=True):
            spans = self._answer_spans(prompt, encodings)
            start, dropped = self._fit_examples(prompt, encodings, spans)
            num_dropped.append(dropped)
            for answer, encoding, (first, stop) in zip(prompt.answers, encodings, spans, strict=True):
                rows.append(encoding.ids[start:].astype(np.int64))
                token_bytes.append(surface_forms(self._prompt_text(prompt, answer), encoding.offsets[start:]))
                first_scored.append(first - start)
                sizes.append(stop - first)
        token_scores = score_tokens(
            self.model, self.tokenizer, rows, first_scored, lm_kind=self.lm_kind, token_bytes=token_bytes
        )
        logprobs = [scores.logprobs[:size].sum() for scores, size in zip(token_scores, sizes, strict=True)]
        sums = np.array(logprobs) / (np.array(sizes) if self.settings.per_token else 1)
        ends = np.cumsum([len(prompt.answers) for prompt in prompts])[:-1]
        return AnswerScores(logprobs=list(np.split(sums, ends)), num_dropped=num_dropped)

    def _prompt_text(self, prompt: FewShotPrompt, answer: str) -> str:
        """A prompt with an answer; only masked models also read the text after it."""
        return prompt.text(self.settings.example_separator, answer, with_suffix=self.lm_kind in MASKED_KINDS)

    def _encode(self, prompts: Sequence[FewShotPrompt]) -> list[list[Encoding]]:
        """Encodings of every prompt with each of its answers."""
        texts = [self._prompt_text(prompt, answer) for prompt in prompts for answer in prompt.answers]
        encodings = iter(self.tokenizer.encode_batch(texts))
        return [[next(encodings) for _ in prompt.answers] for prompt in prompts]

    def _answer_spans(self, prompt: FewShotPrompt, encodings: Sequence[Encoding]) -> list[tuple[int, int]]:
        """Token span of each answer with the white space before it, which may be part of a token or separate."""
        text = prompt.text(self.settings.example_separator)
        prompt_end, spans = len(text.rstrip()), []
        for answer, encoding in zip(prompt.answers, encodings, strict=True):
            first = int(np.count_nonzero(encoding.offsets[:, 1] <= prompt_end))
            stop = int(np.count_nonzero(encoding.offsets[:, 0] < len(text) + len(answer)))
            if stop <= first or not answer.strip():
                raise MeristemError(f"the answer {answer!r} has no tokens in this model's vocabulary; use another word")
            spans.append((first, stop))
        return spans

    def _fit_examples(
        self, prompt: FewShotPrompt, encodings: Sequence[Encoding], spans: Sequence[tuple[int, int]]
    ) -> tuple[int, int]:
        """The first token that is read, the same for all answers, and how many of the first examples are dropped.

        A question that is too long by itself is truncated at its beginning.
        """
        longest = max(len(encoding.ids) for encoding in encodings)
        edges = np.cumsum([0, *(len(example) + len(self.settings.example_separator) for example in prompt.examples)])
        starts = np.searchsorted(encodings[0].offsets[:, 0], edges).tolist()
        for num_dropped, start in enumerate(starts):
            if longest - start <= self.max_tokens:
                return start, num_dropped
        return min(longest - self.max_tokens, *(first for first, _ in spans)), len(starts)

    def check_distinct_words(self, words: Sequence[str]) -> None:
        """Raise an error if two words have the same tokens."""
        word_by_ids: dict[tuple[int, ...], str] = {}
        for word, encoding in zip(words, self.tokenizer.encode_batch([f" {word}" for word in words]), strict=True):
            ids = tuple(encoding.ids.tolist())
            if ids in word_by_ids:
                raise MeristemError(
                    f"words: {word_by_ids[ids]!r} and {word!r} have the same tokens in this model's "
                    "vocabulary; use other words"
                )
            word_by_ids[ids] = word
