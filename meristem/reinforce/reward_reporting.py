"""Reports of a finished reward run: report.html, report.json and the rewards section of the model card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meristem.checkpoint import disk
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.config.recipe import ReinforceRecipe
from meristem.data.images import load_named_image
from meristem.drawing.html_page import current_timestamp
from meristem.drawing.reward_report import (
    BeforeAfterMetric,
    BestOfResult,
    JudgeResult,
    Preference,
    RewardReport,
    RewardStepMetrics,
    ScoredText,
    TextComparison,
    format_number,
    step_metrics,
    summarize,
    to_json,
)
from meristem.drawing.reward_report_html import render_reward_report
from meristem.drawing.thumbnails import THUMBNAIL_SIZE, png_data_uri
from meristem.drawing.training_curves import read_metrics
from meristem.metrics import text_drift
from meristem.metrics.bootstrap import confidence_intervals
from meristem.metrics.distinct_ngrams import distinct_metrics
from meristem.metrics.paired_bootstrap import MIN_PAIRS, paired_difference
from meristem.metrics.reward_hacking import detect_reward_hacking
from meristem.metrics.text_drift import DRIFT_DESCRIPTIONS, DriftMetrics, GeneratedTexts, measure_drift
from meristem.metrics.win_rate import compute_win_rate
from meristem.reinforce.combined_reward import CombinedReward
from meristem.reinforce.policy_evaluation import PolicyEvaluation
from meristem.reinforce.reward_base import PromptCompletion

BEST_OF = (1, 2, 4, 8)
MAX_PAIRS = 16
DRIFT_METRICS = ("length", "unended", "repeated4", "copied5", "alike", "duplicates")
"""Text-drift metrics that are shown in the table."""

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class PolicyTexts:
    """Completions of one model: all of each prompt, and the judges' scores of the first of each."""

    evaluation: PolicyEvaluation
    judge_scores: Mapping[str, FloatArray]

    @property
    def first_completions(self) -> Sequence[PromptCompletion]:
        """The first completion of each prompt."""
        return self.evaluation.completions[:: BEST_OF[-1]]

    @property
    def first_rewards(self) -> FloatArray:
        """[prompts] the total reward of each first completion."""
        return self.evaluation.reward[:: BEST_OF[-1]]

    @property
    def first_parts(self) -> dict[str, FloatArray]:
        """[prompts] the value of each first completion, by reward."""
        return {name: values[:: BEST_OF[-1]] for name, values in self.evaluation.parts.items()}

    @property
    def first_scores(self) -> dict[str, FloatArray]:
        """[prompts] all scores of each first completion, by display name."""
        parts = {f"reward: {name}": values for name, values in self.first_parts.items()}
        judges = {f"judge: {name}": values for name, values in self.judge_scores.items()}
        return {"reward": self.first_rewards, **parts, **judges}

    @cached_property
    def first_texts(self) -> GeneratedTexts:
        """The first completions, for the metrics on texts."""
        return GeneratedTexts(
            prompts=[completion.prompt_label for completion in self.first_completions],
            texts=[completion.text for completion in self.first_completions],
            references=[completion.references for completion in self.first_completions],
            ended=[completion.ended for completion in self.first_completions],
        )

    def best_of_n_reward(self, count: int) -> float:
        """The mean over prompts of the best reward among the first `count` completions."""
        groups = self.evaluation.reward.reshape(-1, BEST_OF[-1])[:, :count]
        return float(groups.max(1).mean())

    def scored_text(self, index: int, judge: str | None) -> ScoredText:
        """The first completion of a prompt with its scores."""
        completion = self.first_completions[index]
        return ScoredText(
            text=completion.text,
            reward=float(self.first_rewards[index]),
            parts={name: float(values[index]) for name, values in self.first_parts.items()},
            judge=float(self.judge_scores[judge][index]) if judge is not None else None,
            ended=completion.ended,
        )


def judge_texts(evaluation: PolicyEvaluation, judge: CombinedReward | None) -> PolicyTexts:
    """Completions with the scores of judges that the model was not trained on."""
    scores = {} if judge is None else judge.score(evaluation.completions[:: BEST_OF[-1]]).parts
    return PolicyTexts(evaluation, scores)


def build_reward_report(
    run: RunFolder,
    recipe: ReinforceRecipe,
    before: PolicyTexts,
    after: PolicyTexts,
    *,
    model: str,
    split: str,
    sources: Sequence[str],
    commands: Sequence[str],
) -> RewardReport:
    """The report of a finished run: metrics, comparisons before and after, examples and warnings."""
    lines = read_metrics(run.metrics_path)
    drift_values = measure_drift(before.first_texts, after.first_texts)
    kl_settings, num_prompts = recipe.policy.kl, len(before.first_completions)
    kl, target = float(after.evaluation.kl.mean()), kl_settings.target if kl_settings.coefficient else None
    reward_pairs = before.first_rewards, after.first_rewards
    judge_name = next(iter(after.judge_scores), None)
    judge_pair = (before.judge_scores[judge_name], after.judge_scores[judge_name]) if judge_name is not None else None
    return RewardReport(
        name=run.path.name,
        date=current_timestamp(),
        model=model,
        split=split,
        prompts=num_prompts,
        settings=_settings_rows(recipe),
        stopped=next((str(line.get("why", "")) for line in reversed(lines) if line["kind"] == "stopped"), ""),
        kl=kl,
        kl_target=target,
        train=_metric_moments(lines, "train"),
        validation=_metric_moments(lines, "evaluation"),
        before=tuple(map(float, reward_pairs[0])),
        after=tuple(map(float, reward_pairs[1])),
        judges=_judge_rows(before, after),
        best_of=tuple(
            BestOfResult(count=count, start=before.best_of_n_reward(count), trained=after.best_of_n_reward(count))
            for count in BEST_OF
        ),
        numbers=_comparison_rows(before, after, drift_values),
        pairs=tuple(_text_pair(before, after, index, judge_name) for index in range(min(MAX_PAIRS, num_prompts))),
        warnings=tuple(
            detect_reward_hacking(
                drift_values,
                float(reward_pairs[0].mean()),
                float(reward_pairs[1].mean()),
                None if judge_pair is None else float(judge_pair[0].mean()),
                None if judge_pair is None else float(judge_pair[1].mean()),
                kl,
                target,
                margin=0.0 if judge_pair is None else _chance_margin(*judge_pair),
                reward_margin=_chance_margin(*reward_pairs),
            )
        ),
        sources=tuple(sources),
        recipe=recipe.to_dict(),
        commands=tuple(commands),
    )


def write_reward_report(report: RewardReport, folder: Path) -> None:
    """Write report.html and report.json."""
    disk.atomic_write(folder / "report.html", [render_reward_report(report).encode("utf-8", "replace")])
    disk.atomic_write(folder / "report.json", [to_json(report).encode()])


def reward_card_lines(report: RewardReport) -> list[str]:
    """The rewards section of a model card: metrics before and after, warnings."""
    lines = ["## Rewards", "", summarize(report), "", "| measure | before | after |", "| --- | --- | --- |"]
    lines += [f"| {row.name} | {format_number(row.before)} | {format_number(row.after)} |" for row in report.numbers]
    if report.warnings:
        lines += ["", "Warnings:", "", *(f"- {row.sentence}" for row in report.warnings)]
    return [*lines, "", "`report.html` has curves and texts before and after.", ""]


def _settings_rows(recipe: ReinforceRecipe) -> dict[str, str]:
    policy, kl_settings = recipe.policy, recipe.policy.kl
    kl_phrase = f"{kl_settings.target:g} nats per text, from β = {kl_settings.coefficient:g}"
    return {
        "rewards": ", ".join(f"{reward.name} × {reward.weight:g}" for reward in recipe.rewards),
        "texts for a prompt": f"{policy.num_generations}, of at most {policy.max_new_tokens} tokens",
        "compared with": policy.baseline,
        "leash": kl_phrase if kl_settings.coefficient else "off",
        "updates on a collection": str(policy.updates_per_rollout),
    }


def _metric_moments(lines: Sequence[Mapping[str, Any]], kind: str) -> tuple[RewardStepMetrics, ...]:
    return tuple(step_metrics(line["step"], line) for line in lines if line["kind"] == kind)


def _judge_rows(before: PolicyTexts, after: PolicyTexts) -> tuple[JudgeResult, ...]:
    """Judges that the model was not trained on first, then the rewards themselves."""
    pairs = [(name, before.judge_scores[name], values, True) for name, values in after.judge_scores.items()]
    pairs += [(name, before.first_parts[name], values, False) for name, values in after.first_parts.items()]
    return tuple(
        JudgeResult(name=name, won=compute_win_rate(old.tolist(), new.tolist()), independent=independent)
        for name, old, new, independent in pairs
    )


def _comparison_rows(
    before: PolicyTexts, after: PolicyTexts, drift_values: DriftMetrics
) -> tuple[BeforeAfterMetric, ...]:
    old_scores = before.first_scores
    rows = [_mean_comparison(name, old_scores[name], new, "higher") for name, new in after.first_scores.items()]
    distinct2 = [distinct_metrics(generated.first_texts.texts)["distinct2"] for generated in (before, after)]
    rows.append(
        BeforeAfterMetric(
            name="distinct-2", before=distinct2[0], after=distinct2[1], meaning=DRIFT_DESCRIPTIONS["distinct2"]
        )
    )
    old, new = (generated.evaluation.entropy[:: BEST_OF[-1]] for generated in (before, after))
    rows.append(_mean_comparison("surprise per token", old, new, ""))
    drift_intervals = text_drift.drift_intervals(before.first_texts, after.first_texts)
    for name in DRIFT_METRICS:
        (old_value, new_value), (low, high) = drift_values[name], drift_intervals.get(name, (None, None))
        rows.append(
            BeforeAfterMetric(
                name=name,
                before=old_value,
                after=new_value,
                before_interval=low,
                after_interval=high,
                meaning=DRIFT_DESCRIPTIONS[name],
            )
        )
    return tuple(rows)


def _mean_comparison(name: str, before: FloatArray, after: FloatArray, better: Any) -> BeforeAfterMetric:
    difference = paired_difference(before.tolist(), after.tolist())
    return BeforeAfterMetric(
        name=name,
        before=float(before.mean()),
        after=float(after.mean()),
        before_interval=_bootstrap_interval(before),
        after_interval=_bootstrap_interval(after),
        better=better,
        change_interval=(difference.low, difference.high) if difference.pairs >= MIN_PAIRS else None,
    )


def _bootstrap_interval(values: FloatArray) -> tuple[float, float]:
    return confidence_intervals(lambda indices: {"mean": float(values[indices].mean())}, len(values))["mean"]


def _chance_margin(before: FloatArray, after: FloatArray) -> float:
    """What a gain must exceed to be significant; infinite where there are too few prompts."""
    difference = paired_difference(before.tolist(), after.tolist())
    if difference.pairs < MIN_PAIRS:
        return float("inf")
    return max(difference.mean - difference.low, difference.high - difference.mean)


def _text_pair(before: PolicyTexts, after: PolicyTexts, index: int, judge: str | None) -> TextComparison:
    preferred: Preference = ""
    if judge is not None:
        before_score, after_score = before.judge_scores[judge][index], after.judge_scores[judge][index]
        preferred = "after" if after_score > before_score else "before" if after_score < before_score else "tie"
    completion = before.first_completions[index]
    return TextComparison(
        prompt=completion.prompt_label,
        before=before.scored_text(index, judge),
        after=after.scored_text(index, judge),
        preferred=preferred,
        references=completion.references,
        location=completion.location,
        picture=_thumbnail(completion.picture),
    )


def _thumbnail(image: str) -> str:
    """An image prompt as a data URI; empty where the prompt is a text or the file no longer exists."""
    try:
        return png_data_uri(load_named_image(image, THUMBNAIL_SIZE)) if image else ""
    except MeristemError:
        return ""
