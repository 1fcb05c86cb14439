"""Robustness of a run: predict its samples clean and under each perturbation, and compare.

1. Predict the clean samples: metrics, calibration.
2. For each perturbation and severity: perturb every sample by (seed, sample), predict those that changed, and compare
   with the clean answers to the same samples.
3. Predict hostile requests, and the cases of a file of behaviour tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import RecipeError
from meristem.drawing.html_page import current_timestamp
from meristem.evaluation.labelled_evaluation import load_evaluation_samples
from meristem.evaluation.run_tasks import run_tasks, select_task
from meristem.evaluation.task_predictions import evaluate_predictions, predict
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.labelled.perturb_samples import check_sample_type, obstacle, perturb_sample
from meristem.labelled.perturbation import Perturbation, build_perturbation, check_perturbation_names
from meristem.learning.learner import Learner
from meristem.metrics.calibration_error import coverage_curve, expected_calibration_error, reliability_bins
from meristem.trust.robustness.behaviour_tests import read_behaviour_tests, run_behaviour_tests
from meristem.trust.robustness.hostile_requests import run_hostile_requests
from meristem.trust.robustness.metric_drop import ResampledMetric, metric_drop, resample_metric
from meristem.trust.robustness.robustness_report import CalibrationCurve, FlippedExample, NoiseResult, RobustnessReport
from meristem.trust.robustness.scored_answers import SampleAnswers, score_answers
from meristem.utils.optional_packages import PackageMissingError
from meristem.utils.randomness import generator

DEFAULT_SEVERITIES = (0.1, 0.3)
MAX_EXAMPLES = 5
"""Flipped samples kept per perturbation and severity."""
TAGGED_TYPES = ("words", "command")
"""Sample types whose tags move with their words, so that their golds stay right."""
Log = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class RobustnessOptions:
    """What is measured."""

    severities: Sequence[float] = DEFAULT_SEVERITIES
    """Shares of the words that are changed."""
    only: Sequence[str] = ()
    """Names of perturbations; all if empty."""
    seed: int = 0
    limit: int | None = None
    """Maximum number of samples, the first ones."""
    dictionary: Path | None = None
    """Dictionary of code switching."""
    tests: Path | None = None
    """File of behaviour tests."""

    def check(self) -> tuple[str, ...]:
        """The names of the perturbations; raises for impossible values."""
        if not self.severities or any(not 0 < severity <= 1 for severity in self.severities):
            raise RecipeError("--severity: give numbers above 0 up to 1, such as 0.1,0.3")
        if self.limit is not None and self.limit < 1:
            raise RecipeError("--limit: give a number of samples of at least 1")
        return check_perturbation_names(self.only, "--only")


@dataclass(frozen=True, kw_only=True)
class PredictedSamples:
    """Samples with the predictions for them and their answers."""

    samples: Sequence[Sample]
    predictions: Sequence[Any]
    answers: Sequence[SampleAnswers]


def measure_robustness(
    loaded_run: LoadedRun,
    *,
    data: str | None = None,
    columns: Mapping[str, Any] | None = None,
    task: str | None = None,
    options: RobustnessOptions | None = None,
    log: Log = lambda message: None,
) -> RobustnessReport:
    """The robustness report of a run on labelled data, by default on its own held-out samples."""
    options = options or RobustnessOptions()
    names = options.check()
    chosen_task = select_task(run_tasks(loaded_run), loaded_run, task)
    check_sample_type(chosen_task.sample_type, chosen_task.name)
    cases = read_behaviour_tests(options.tests, chosen_task) if options.tests is not None else []
    notices: list[str] = []
    samples, _, data_name = load_evaluation_samples(loaded_run, chosen_task, data, columns or {}, notices)
    samples = samples[: options.limit]
    learner = loaded_run.learner
    log(f"{len(samples):,} clean samples")
    clean = predict_samples(learner, chosen_task, samples)
    evaluation = evaluate_predictions(chosen_task, clean.predictions, samples)
    results, noisy_answers = _measure_noise(learner, chosen_task, clean, names, options, log)
    return RobustnessReport(
        run=str(loaded_run.run.path),
        step=loaded_run.step,
        task=chosen_task.name,
        data=data_name,
        num_samples=len(samples),
        seed=options.seed,
        metric=main_metric(chosen_task, evaluation.metrics),
        clean=evaluation.metrics,
        clean_interval=evaluation.intervals.get(main_metric(chosen_task, evaluation.metrics)),
        results=results,
        calibration=_calibration(clean.answers),
        noisy_calibration=_calibration(noisy_answers),
        hostile_requests=run_hostile_requests(learner, chosen_task),
        behaviour_tests=run_behaviour_tests(learner, chosen_task, cases),
        notices=[*notices, *chosen_task.metrics.unseen_labels(samples)],
        date=current_timestamp(),
    )


def main_metric(task: Task, metrics: Mapping[str, float]) -> str:
    """The task's main metric; the first one where the task selects by its loss."""
    return task.metric if task.metric in metrics else next(iter(metrics))


def predict_samples(learner: Learner, task: Task, samples: Sequence[Sample]) -> PredictedSamples:
    """The samples with their predictions."""
    predictions = predict(learner, samples, task=task).predictions
    return PredictedSamples(samples=samples, predictions=predictions, answers=score_answers(task, predictions, samples))


def perturb_all(
    samples: Sequence[Sample], sample_type: str, perturbation: Perturbation, name: str, severity: float, seed: int
) -> list[Sample]:
    """Each sample perturbed with random numbers of (seed, name, sample index); unchanged ones are the same objects."""
    return [
        perturb_sample(sample, sample_type, perturbation, severity, generator(seed, f"robustness {name}", 0, index))
        for index, sample in enumerate(samples)
    ]


def _measure_noise(
    learner: Learner, task: Task, clean: PredictedSamples, names: Sequence[str], options: RobustnessOptions, log: Log
) -> tuple[list[NoiseResult], list[SampleAnswers]]:
    """A result for each perturbation and severity, and the answers to all perturbed samples."""
    metrics = task.metrics.compute(clean.predictions, clean.samples)
    clean_metric = resample_metric(
        task.metrics.resampler(clean.predictions, clean.samples), main_metric(task, metrics), len(clean.samples)
    )
    results: list[NoiseResult] = []
    noisy_answers: list[SampleAnswers] = []
    for name in names:
        perturbation = build_perturbation(name, options.dictionary)
        for severity in options.severities:
            log(f"{name}, severity {severity:g}")
            noise = NoiseResult(
                perturbation=name,
                summary=perturbation.summary,
                severity=severity,
                label_risk="" if task.sample_type in TAGGED_TYPES else perturbation.label_risk,
            )
            try:
                noisy = _predict_noisy(learner, task, clean, perturbation, noise, options.seed)
            except PackageMissingError as error:
                if name in options.only:
                    raise
                results.append(replace(noise, skipped=str(error)))
                continue
            if isinstance(noisy, str):
                results.append(replace(noise, skipped=noisy))
                continue
            noisy_answers += noisy.answers
            results.append(_compare(task, clean, clean_metric, noisy, noise))
    return results, noisy_answers


def _predict_noisy(
    learner: Learner, task: Task, clean: PredictedSamples, perturbation: Perturbation, noise: NoiseResult, seed: int
) -> PredictedSamples | str:
    """The perturbed samples with predictions, made anew for those that changed; or why there are none."""
    if reason := obstacle(perturbation, task.sample_type):
        return reason
    samples = perturb_all(clean.samples, task.sample_type, perturbation, noise.perturbation, noise.severity, seed)
    changed = [index for index, (old, new) in enumerate(zip(clean.samples, samples, strict=True)) if old is not new]
    if not changed:
        return "it changes none of these samples"
    new = predict_samples(learner, task, [samples[index] for index in changed])
    predictions, answers = list(clean.predictions), list(clean.answers)
    for index, prediction, answer in zip(changed, new.predictions, new.answers, strict=True):
        predictions[index], answers[index] = prediction, answer
    return PredictedSamples(samples=samples, predictions=predictions, answers=answers)


def _compare(
    task: Task, clean: PredictedSamples, clean_metric: ResampledMetric, noisy: PredictedSamples, noise: NoiseResult
) -> NoiseResult:
    """Metrics, drop and flipped samples of one perturbation."""
    num_samples = len(clean.samples)
    evaluation = evaluate_predictions(task, noisy.predictions, noisy.samples)
    metric = main_metric(task, evaluation.metrics)
    noisy_metric = resample_metric(task.metrics.resampler(noisy.predictions, noisy.samples), metric, num_samples)
    drop = metric_drop(clean_metric, noisy_metric)
    more = [
        len(after.mistakes) - len(before.mistakes) for before, after in zip(clean.answers, noisy.answers, strict=True)
    ]
    newly_wrong = [index for index, difference in enumerate(more) if difference > 0]
    calibration = _calibration(noisy.answers)
    return replace(
        noise,
        changed=sum(old is not new for old, new in zip(clean.samples, noisy.samples, strict=True)) / num_samples,
        metrics=evaluation.metrics,
        interval=evaluation.intervals.get(metric),
        drop=drop.mean,
        drop_interval=(drop.low, drop.high),
        calibration_error=None if calibration is None else calibration.error,
        newly_wrong=len(newly_wrong),
        newly_right=sum(difference < 0 for difference in more),
        examples=[_example(task, clean, noisy, index) for index in newly_wrong[:MAX_EXAMPLES]],
    )


def _example(task: Task, clean: PredictedSamples, noisy: PredictedSamples, index: int) -> FlippedExample:
    """A sample with more mistakes than before; of a tagged one its most confident new mistake."""
    old_mistakes = {(mistake.gold, mistake.prediction) for mistake in clean.answers[index].mistakes}
    mistakes = noisy.answers[index].mistakes
    mistake = next((item for item in mistakes if (item.gold, item.prediction) not in old_mistakes), mistakes[0])
    is_tagged = task.sample_type in TAGGED_TYPES
    return FlippedExample(
        location=clean.samples[index].location,
        before=" | ".join(task.signature.texts(clean.samples[index].inputs)),
        after=mistake.input_text,
        gold=mistake.gold,
        clean_answer=mistake.gold if is_tagged else clean.answers[index].shown,
        noisy_answer=mistake.prediction,
        confidence=mistake.confidence,
    )


def _calibration(answers: Sequence[SampleAnswers]) -> CalibrationCurve | None:
    """CalibrationCurve over all answers that have a probability."""
    confidences = [confidence for item in answers for confidence in item.confidences]
    correct = [is_right for item in answers for is_right in item.correct]
    if not confidences:
        return None
    return CalibrationCurve(
        error=expected_calibration_error(confidences, correct),
        bins=reliability_bins(confidences, correct),
        coverage=coverage_curve(confidences, correct),
    )
