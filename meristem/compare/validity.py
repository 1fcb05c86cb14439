"""Validity checks of a comparison: what makes its numbers prove nothing, each with what to do about it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from meristem.compare.comparison_settings import BudgetSettings
from meristem.compare.item_scores import ItemScores
from meristem.compare.measures import RunMeasures
from meristem.compare.split_statistics import SplitStatistics

BUDGET_TOLERANCE = 0.01
MIN_BUDGET_SHARE = 0.9
"""A run that used less of its budget was cut short; a run ends with a whole step, so that short ones miss a little."""
UNIFORM_SHARE = 0.98
"""A loss above this share of log(vocabulary size) is that of guessing."""
MIN_ROC_AUC = 0.51
"""A discriminator whose area under the ROC curve is smaller guesses."""
MAX_DIVERGENCE_RATIO = 3.0
"""Unigram divergence of validation from training text, relative to that of halves of the training text."""
MIN_DIVERGENCE = 0.02
"""Nats; a smaller divergence is never a bad split."""
MAX_LEAK_SHARE = 0.01
"""Of validation windows, or of words of labelled test samples, that are in the training data too."""
CHINESE_CHECKS = {
    "unfinished runs": ("未完成的运行", "排除所示原因后再次运行同一命令；日志在 cells 文件夹里"),
    "unequal budget": ("预算不相等", "增大预算或减小批次，使各方案用量相等（运行总以完整的一步结束）"),
    "cut short": ("提前结束", "在日志中查看早停（train.patience）和跳过的步"),
    "diverged": ("发散", "降低学习率 train.learning_rate，或在文件中用 learning_rates 调整"),
    "first evaluation is the best": ("首次评估即最佳", "运行过拟合或学习率不当：提供更多文本，或调整学习率"),
    "uniform loss": ("均匀损失", "运行有误或过短：增大预算，或查看日志"),
    "n-gram anchor": ("n-gram 基准", "不优于 n-gram 计数的模型学得太少：增大预算"),
    "validation text differs": (
        "验证文本不同",
        "让各部分文档都可抽为验证文本：每个来源一个文件，或设置 corpus.validation",
    ),
    "leak between splits": ("划分间泄漏", "去除重复：corpus.near_dedup=true；带标注数据则从一个文件中删去相同样本"),
}
"""Check → its name and its remedy in Chinese."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why a comparison, or some of its arms, cannot be trusted."""

    check: str
    arms: tuple[str, ...]
    """The arms concerned; empty for the data of all."""
    message: str
    remedy: str


def find_problems(
    budget: BudgetSettings,
    runs: Mapping[str, Sequence[RunMeasures]],
    missing: Mapping[str, int],
    errors: Mapping[str, str],
    statistics: Mapping[str, SplitStatistics],
    tuned: Mapping[str, Sequence[tuple[str, RunMeasures, ItemScores | None]]],
) -> list[Problem]:
    """All problems: arm → finished pretraining runs, number of unfinished runs, why one of them failed, statistics of
    its splits, and its tasks (name, measures, scores of test samples)."""
    return [
        *_unfinished(missing, errors),
        *_unequal_budgets(budget, runs),
        *(problem for arm, measures in runs.items() for problem in _arm_problems(arm, measures, statistics.get(arm))),
        *_split_problems(statistics),
        *(problem for arm, measures in tuned.items() for problem in _broken_tasks(arm, measures)),
        *_task_leaks(tuned),
    ]


def _unfinished(missing: Mapping[str, int], errors: Mapping[str, str]) -> Iterator[Problem]:
    for arm, count in missing.items():
        if count:
            reason = f" ({errors[arm]})" if arm in errors else ""
            yield Problem(
                check="unfinished runs", arms=(arm,),
                message=f"{arm}: {count} run{'' if count == 1 else 's'} not finished{reason}",
                remedy="mend what is named and run the same command again; logs are in the folder cells",
            )  # fmt: skip


def _unequal_budgets(budget: BudgetSettings, runs: Mapping[str, Sequence[RunMeasures]]) -> Iterator[Problem]:
    """Arms whose runs used another amount of what should be equal."""
    used = {arm: [measures.used[budget.kind] for measures in of_arm] for arm, of_arm in runs.items() if of_arm}
    amounts = [amount for of_arm in used.values() for amount in of_arm]
    if amounts and min(amounts) < (1 - BUDGET_TOLERANCE) * max(amounts):
        listed = ", ".join(f"{arm} {np.mean(of_arm):.4g}" for arm, of_arm in used.items())
        yield Problem(
            check="unequal budget", arms=tuple(used),
            message=f"{budget.kind} used differ by more than 1 %: {listed}",
            remedy=f"hold {budget.kind} equal with a larger budget or smaller batches (a run ends with a whole step)",
        )  # fmt: skip
    for arm, of_arm in used.items():
        if min(of_arm) < MIN_BUDGET_SHARE * budget.amount:
            yield Problem(
                check="cut short", arms=(arm,),
                message=f"{arm} used {min(of_arm):.4g} of {budget.amount:.4g} {budget.kind}",
                remedy="look for early stopping (train.patience) and skipped steps in its log",
            )  # fmt: skip


def _arm_problems(arm: str, runs: Sequence[RunMeasures], statistics: SplitStatistics | None) -> Iterator[Problem]:
    losses = [measures.values["loss"] for measures in runs if "loss" in measures.values]
    if any(not math.isfinite(loss) for loss in losses) or any(_rose(measures) for measures in runs):
        yield Problem(
            check="diverged", arms=(arm,), message=f"{arm}: its validation loss rose or is not a number",
            remedy="lower its train.learning_rate, or tune it: learning_rates: [0.25, 0.5, 1] in a file",
        )  # fmt: skip
    if any(_stopped_learning_at_once(measures) for measures in runs):
        yield Problem(
            check="first evaluation is the best", arms=(arm,),
            message=f"{arm}: no later evaluation is better than its first",
            remedy="the run overfits or its learning rate is wrong: give it more text, or tune the learning rate",
        )  # fmt: skip
    if any(measures.values.get("rtd.auc", 1.0) < MIN_ROC_AUC for measures in runs):
        yield Problem(
            check="uniform loss", arms=(arm,), message=f"{arm}: it finds replaced tokens no better than by chance",
            remedy="the run is broken or far too short: raise the budget, or look at its log",
        )  # fmt: skip
    if statistics is None:
        return
    uniform = UNIFORM_SHARE * math.log(statistics.vocab_size)
    for measures in runs:
        if "perplexity" not in measures.values:
            continue
        loss = measures.values.get("mlm", measures.values["loss"])
        if loss >= uniform:
            yield Problem(
                check="uniform loss", arms=(arm,), message=f"{arm}: loss {loss:.3f} is that of guessing at random",
                remedy="the run is broken or far too short: raise the budget, or look at its log",
            )  # fmt: skip
            return
        anchor = statistics.bigram_loss if "bits_per_byte" in measures.values else statistics.unigram_loss
        if loss >= anchor:
            kind = "bigram" if "bits_per_byte" in measures.values else "unigram"
            yield Problem(
                check="n-gram anchor", arms=(arm,),
                message=f"{arm}: loss {loss:.3f} is not below {anchor:.3f}, that of a {kind} model of the same text",
                remedy="a model that does not beat counted n-grams has learned too little: raise the budget",
            )  # fmt: skip
            return


def _rose(measures: RunMeasures) -> bool:
    """Whether the last validation loss is clearly above the lowest."""
    losses = [point["loss"] for point in measures.curve]
    return len(losses) > 1 and (not math.isfinite(losses[-1]) or losses[-1] > 1.2 * min(losses))


def _stopped_learning_at_once(measures: RunMeasures) -> bool:
    losses = [point["loss"] for point in measures.curve]
    return len(losses) > 2 and min(losses) == losses[0]


def _split_problems(statistics: Mapping[str, SplitStatistics]) -> Iterator[Problem]:
    """Problems of the text itself, from the first arm whose tokens were examined."""
    for split in islice(statistics.values(), 1):
        if split.divergence > max(MIN_DIVERGENCE, MAX_DIVERGENCE_RATIO * split.half_divergence):
            yield Problem(
                check="validation text differs", arms=(),
                message=f"its unigrams diverge from the training text by {split.divergence:.3f} nats, halves of the "
                f"training text from each other by {split.half_divergence:.3f}",
                remedy="let documents of all parts be drawn for validation: one file per source, or corpus.validation",
            )  # fmt: skip
        if split.leak_share > MAX_LEAK_SHARE:
            yield Problem(
                check="leak between splits", arms=(),
                message=f"{split.leak_share:.1%} of the validation text stands in the training text too",
                remedy="remove near duplicates: corpus.near_dedup=true",
            )  # fmt: skip


def _broken_tasks(arm: str, tuned: Sequence[tuple[str, RunMeasures, ItemScores | None]]) -> Iterator[Problem]:
    """Fine-tuned runs whose loss is not a number."""
    names = [name for name, measures, _ in tuned if not math.isfinite(measures.values.get("loss", 0.0))]
    if names:
        listed = ", ".join(dict.fromkeys(names))
        yield Problem(
            check="diverged", arms=(arm,), message=f"{arm}: the loss of {listed} is not a number",
            remedy="lower train.learning_rate of its tasks (task_settings in a file)",
        )  # fmt: skip


def _task_leaks(tuned: Mapping[str, Sequence[tuple[str, RunMeasures, ItemScores | None]]]) -> Iterator[Problem]:
    """Labelled sets whose test samples are in their training data, each once."""
    shares = {name: items.leak_share for of_arm in tuned.values() for name, _, items in of_arm if items is not None}
    for name, share in shares.items():
        if share > MAX_LEAK_SHARE:
            yield Problem(
                check="leak between splits", arms=(),
                message=f"{share:.1%} of the words of {name}'s test samples are in training samples too",
                remedy="remove them from one of the files",
            )  # fmt: skip
