"""Answers without training: label words or choices compared by how likely they are after a prompt (SPEC A7).

A label's score is Σ log p(x_t | prompt, x_<t) over its tokens; its probability is a softmax over the labels. Calibrated
(Zhao et al. 2021), it is divided by what the label gets after content-free prompts, and normalised anew. A masked
model reads the whole template, each token of the label hidden once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.batch import Model
from meristem.checkpoint.revive import Revived
from meristem.errors import MeristemError, did_you_mean
from meristem.evaluation.answering import NaNError, judge
from meristem.evaluation.prompting import Asking, Prompt, PromptSettings, Template, drawn
from meristem.evaluation.reported import form, reported
from meristem.generation.framed import Frame
from meristem.generation.score import judged
from meristem.generation.way import Way, way_for
from meristem.labelled.reading import read
from meristem.labelled.settings import DataSettings
from meristem.settings import build, find
from meristem.store.letters import written_words
from meristem.store.store import Ints
from meristem.task import Judged, Sample, Task
from meristem.tokenizers.tokenizer import Encoding, Tokenizer

Floats = NDArray[np.float64]
READS: dict[Way, str] = {
    "causal": "causal",
    "permutation": "bidirectional",
    "bilm": "both_directions",
    "masked": "bidirectional",
    "generator": "bidirectional",
    "source": "encoder_decoder",
}
TASKS = {"text": "classification", "pair": "pair", "choice": "choice"}
"""Whose numbers are the ones to cite for samples of a shape."""


@dataclass(frozen=True, kw_only=True)
class Prompted:
    """What came of asking: the judgement, a probability for each label of each sample, and the first prompt."""

    judged: Judged
    answers: list[NDArray[np.float32]]
    task: Task
    prompt: str
    notices: tuple[str, ...]


def prompted(
    revived: Revived,
    samples: Sequence[Sample],
    settings: PromptSettings,
    examples: Sequence[Sample] = (),
    *,
    sure: bool = True,
) -> Prompted:
    """Ask the model about every sample; `examples` are training samples that `shots` are drawn from."""
    template, scorer = Template.of(settings.template), Scorer(revived.learner.model, revived.tokenizer, settings)
    if settings.shots and not examples:
        raise MeristemError(f"shots: {settings.shots} examples must come from somewhere: give --shot-data FILE")
    asking = Asking(template, settings, _task(template, settings, [*examples, *samples], scorer))
    shown = drawn(examples, settings, balanced=bool(asking.words)) if settings.shots else []
    shots = tuple(asking.example(sample) for sample in shown)
    prompts = [asking.prompt(sample.given, shots) for sample in samples]
    scorer.tell_apart(asking.words)
    found = scorer(prompts)
    scores = found.logprobs
    if any(np.isnan(row).any() for row in scores):
        raise NaNError("the model's scores are NaN, so that it has no answers: take an older checkpoint")
    if settings.calibrate:
        asked = [asking.empty(sample.given, shots) for sample in (samples[:1] if asking.words else samples)]
        scores = _calibrated(scores, scorer, asked)
    answers = [np.exp(_normal(row)).astype(np.float32) for row in scores]
    return Prompted(
        judged=judge(asking.task, answers, samples, sure=sure),
        answers=answers,
        task=asking.task,
        prompt=prompts[0].text(settings.between),
        notices=found.notices(settings.shots, scorer.room),
    )


def evaluate_prompted(
    revived: Revived,
    *,
    data: str | None = None,
    shot_data: str | None = None,
    columns: Mapping[str, Any] | None = None,
    limit: int | None = None,
    report: str | Path | None = None,
    **asked: Any,
) -> dict[str, Any]:
    """The same on a file of labelled samples, as one plain mapping: `asked` are prompt settings, `columns` those of
    data (text, label)."""
    if data is None:
        raise MeristemError("a template is asked about labelled samples: give them with --data FILE")
    if report is not None:
        form(Path(report))
    settings, told = build(PromptSettings, asked, "evaluate"), build(DataSettings, dict(columns or {}), "columns")
    assert isinstance(settings, PromptSettings) and isinstance(told, DataSettings)
    shape, notices = Template.of(settings.template).shape, list[str]()
    samples = read(data, told, shape, notices=notices)[:limit]
    examples = read(shot_data, told, shape) if shot_data else []
    found = prompted(revived, samples, settings, examples)
    measured = reported(
        revived,
        found.task,
        found.judged,
        split="data",
        data=data,
        notices=[*notices, *found.notices],
        baselines=found.task.baselines(examples, samples) if examples else {},
        asked={"prompt": found.prompt, **settings.model_dump(mode="json"), "shot_data": shot_data},
        report=report,
    )
    return {**measured, "prompt": found.prompt}


def _task(template: Template, settings: PromptSettings, samples: Sequence[Sample], scorer: Scorer) -> Any:
    """The task that such samples are of; its labels are those with words, or those of the samples."""
    task = find("tasks", TASKS[template.shape])
    told: dict[str, Any] = {"way": READS[scorer.way], "length": max(16, scorer.room)}
    if template.shape == "choice":
        return task(task.Settings(**told), scorer.tokenizer)
    words = tuple(settings.words)
    for sample in samples:
        if words and str(sample.gold) not in words:
            raise MeristemError(
                f"{sample.place}: the label {str(sample.gold)!r} has no word{did_you_mean(str(sample.gold), words)}"
            )
    if words:
        return task(task.Settings(problem="single", labels=words, **told), scorer.tokenizer)
    learned = task.learn(task.Settings(**told), samples)
    if learned.problem != "single":
        what = "numbers" if learned.problem == "regression" else "several labels"
        raise MeristemError(f"a prompt chooses one label, and these samples have {what}")
    return task(learned, scorer.tokenizer)


def _calibrated(scores: Sequence[Floats], scorer: Scorer, asked: Sequence[Sequence[Prompt]]) -> list[Floats]:
    """log p − log of the mean probability after prompts about nothing: those that serve for all, or a sample's own."""
    flat = scorer([prompt for some in asked for prompt in some]).logprobs
    each = len(asked[0])
    means = [
        np.log(np.mean([np.exp(_normal(row)) for row in flat[start : start + each]], 0))
        for start in range(0, len(flat), each)
    ]
    return [_normal(row) - (means[number] if len(means) > 1 else means[0]) for number, row in enumerate(scores)]


def _normal(logprobs: Floats) -> Floats:
    """Log-probabilities among the answers alone."""
    return logprobs - float(np.logaddexp.reduce(logprobs))


# ------------------------------------------------------------ what is read


@dataclass(frozen=True, kw_only=True)
class Scores:
    """For each prompt the log-probability of each of its answers, and how many of its examples did not fit."""

    logprobs: list[Floats]
    gone: list[int]
    """One more than there are examples where the question itself did not fit."""

    def notices(self, shots: int, room: int) -> tuple[str, ...]:
        """What did not fit, in words."""
        said, of = [], f"of {len(self.gone):,}"
        if fewer := sum(number > 0 for number in self.gone if shots):
            mean = sum(min(number, shots) for number in self.gone) / len(self.gone)
            said.append(
                f"{fewer:,} {of} prompts are longer than the model ({room} tokens) and leave out examples, "
                f"{mean:.1f} of {shots} on the average"
            )
        if cut := sum(number > shots for number in self.gone):
            said.append(f"{cut:,} {of} questions are longer than the model ({room} tokens) and lost their beginning")
        return tuple(said)


class Scorer:
    """A model that says how likely answers are."""

    def __init__(self, model: Model, tokenizer: Tokenizer, settings: PromptSettings) -> None:
        self.model, self.tokenizer, self.settings = model, tokenizer, settings
        self.way: Way = way_for(model, "score")
        self.room = model.backbone.length if self.way == "causal" else Frame.of(model, tokenizer).room

    def __call__(self, prompts: Sequence[Prompt]) -> Scores:
        """All answers to all prompts, rows of like lengths read together."""
        rows: list[Ints] = []
        since: list[int] = []
        sizes: list[int] = []
        gone: list[int] = []
        words: list[list[bytes]] = []
        for prompt, encodings in zip(prompts, self._encoded(prompts), strict=True):
            spans = self._spans(prompt, encodings)
            start, left = self._fits(prompt, encodings, spans)
            gone.append(left)
            for answer, encoding, (first, stop) in zip(prompt.answers, encodings, spans, strict=True):
                rows.append(encoding.ids[start:].astype(np.int64))
                words.append(written_words(self._text(prompt, answer), encoding.offsets[start:]))
                since.append(first - start)
                sizes.append(stop - first)
        found = judged(self.model, self.tokenizer, rows, since, way=self.way, words=words)
        each = [one.logprobs[:size].sum() for one, size in zip(found, sizes, strict=True)]
        sums = np.array(each) / (np.array(sizes) if self.settings.per_token else 1)
        ends = np.cumsum([len(prompt.answers) for prompt in prompts])[:-1]
        return Scores(logprobs=list(np.split(sums, ends)), gone=gone)

    def _text(self, prompt: Prompt, answer: str) -> str:
        """A prompt with an answer; only a model that hides the answer's tokens reads what stands behind it."""
        return prompt.text(self.settings.between, answer, after=self.way in ("masked", "generator"))

    def _encoded(self, prompts: Sequence[Prompt]) -> list[list[Encoding]]:
        """Every prompt with each of its answers."""
        texts = [self._text(prompt, answer) for prompt in prompts for answer in prompt.answers]
        encodings = iter(self.tokenizer.encode_many(texts))
        return [[next(encodings) for _ in prompt.answers] for prompt in prompts]

    def _spans(self, prompt: Prompt, encodings: Sequence[Encoding]) -> list[tuple[int, int]]:
        """The tokens of each answer with the white space before it, which some words carry and others follow."""
        text = prompt.text(self.settings.between)
        at, spans = len(text.rstrip()), []
        for answer, one in zip(prompt.answers, encodings, strict=True):
            first = int(np.count_nonzero(one.offsets[:, 1] <= at))
            stop = int(np.count_nonzero(one.offsets[:, 0] < len(text) + len(answer)))
            if stop <= first or not answer.strip():
                raise MeristemError(f"the answer {answer!r} has no tokens in this model's vocabulary; use another word")
            spans.append((first, stop))
        return spans

    def _fits(self, prompt: Prompt, encodings: Sequence[Encoding], spans: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """The first token that is read, whichever the answer, and how many of the first examples go for that.

        A question that is too long by itself loses its beginning.
        """
        longest = max(len(one.ids) for one in encodings)
        edges = np.cumsum([0, *(len(example) + len(self.settings.between) for example in prompt.examples)])
        starts = np.searchsorted(encodings[0].offsets[:, 0], edges).tolist()
        for number, start in enumerate(starts):
            if longest - start <= self.room:
                return start, number
        return min(longest - self.room, *(first for first, _ in spans)), len(starts)

    def tell_apart(self, words: Sequence[str]) -> None:
        """Refuse two words that are the same tokens here."""
        seen: dict[tuple[int, ...], str] = {}
        for word, found in zip(words, self.tokenizer.encode_many([f" {word}" for word in words]), strict=True):
            ids = tuple(found.ids.tolist())
            if ids in seen:
                raise MeristemError(
                    f"words: {seen[ids]!r} and {word!r} are the same tokens in this model's vocabulary; use other words"
                )
            seen[ids] = word
