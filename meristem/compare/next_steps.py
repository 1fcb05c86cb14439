"""What to do after a comparison: which arm to take, and which difference more seeds would decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from meristem.compare.statistics import MIN_SEEDS

if TYPE_CHECKING:
    from meristem.compare.comparison_report import ComparisonReport

MAX_SEEDS_ADVISED = 20
"""A difference that takes more seeds is called too small to decide by."""
Both = tuple[str, str]
"""A text in English and in Chinese."""


def next_steps(report: ComparisonReport) -> list[Both]:
    """What to do next, most important first; nothing while a check fails, as each failed check says what to do."""
    if report.problems:
        return []
    verdicts = verdicts_of_arms(report)
    seeds = report.settings.seeds
    steps = list(_choices(report, verdicts))
    if not any(verdicts.values()):
        steps.append((
            "These arms share no measure: add labelled files (--tasks) or minimal pairs (--pairs). What has been "
            "trained is kept.",
            "这些方案没有共同的指标：请加入带标注的文件（--tasks）或最小对（--pairs）。"
            "已训练的运行会保留。",
        ))  # fmt: skip
    if any("not decided" in of_arm for of_arm in verdicts.values()) and seeds < MIN_SEEDS:
        steps.append((
            f"{_count(seeds, 'seed')} cannot decide anything: at least {MIN_SEEDS} can (--seeds {MIN_SEEDS}, seeds: "
            f"{MIN_SEEDS} in a file). What has been trained is kept.",
            f"{seeds} 个种子无法得出结论：至少用 {MIN_SEEDS} 个（--seeds {MIN_SEEDS}，"
            f"或在文件中写 seeds: {MIN_SEEDS}）。已训练的运行会保留。",
        ))  # fmt: skip
    steps += _more_seeds(report)
    if report.costs:
        amount = f"{report.settings.budget.amount:.3g} {report.settings.budget.kind}"
        steps.append((
            f"All this is said of runs of {amount}. Before a long run, repeat the comparison of the arms that are left "
            "with several times the budget and another --out.",
            f"以上结论只适用于每次运行 {amount} 的预算。长时间训练之前，"
            "请用数倍预算和另一个 --out 重新比较剩下的方案。",
        ))  # fmt: skip
    return steps


def verdicts_of_arms(report: ComparisonReport) -> dict[str, dict[str, list[str]]]:
    """Arm → verdict → the measures that have it, against the first arm."""
    verdicts: dict[str, dict[str, list[str]]] = {arm: {} for arm in report.settings.arms}
    for of_measure in report.measures:
        for result in of_measure.arms:
            if result.comparison is not None:
                verdicts[result.arm].setdefault(result.comparison.verdict, []).append(of_measure.measure.name)
    return verdicts


def _choices(report: ComparisonReport, verdicts: Mapping[str, Mapping[str, list[str]]]) -> Iterator[Both]:
    """Which arm to take."""
    first, *others = report.settings.arms
    better = [arm for arm in others if "better" in verdicts[arm] and "worse" not in verdicts[arm]]
    mixed = [arm for arm in others if {"better", "worse"} <= verdicts[arm].keys()]
    worse = [arm for arm in others if "worse" in verdicts[arm] and "better" not in verdicts[arm]]
    if better:
        several = len(better) > 1
        yield (
            f"Take {_either(better)}: better than {first} in some measures and worse in none"
            + ("; between these, look at means and time below." if several else "."),
            f"选用 {'、'.join(better)}：在一些指标上优于 {first}，没有更差的指标"
            + ("；在这些方案之间，请看下面的均值和时间。" if several else "。"),
        )
    for arm in mixed:
        gains, losses = ", ".join(verdicts[arm]["better"]), ", ".join(verdicts[arm]["worse"])
        yield (
            f"{arm} is better in {gains} and worse in {losses}: choose by the one that your use needs.",
            f"{arm} 在 {gains} 上更好，在 {losses} 上更差：按你的用途取舍。",
        )
    if worse and not better and not mixed:
        yield (
            f"Leave out {_either(worse, 'and')}: worse than {first}.",
            f"不必再考虑 {'、'.join(worse)}：不如 {first}。",
        )
    if (
        not (better or mixed or worse)
        and report.costs
        and any("cannot be told apart" in of for of in verdicts.values())
    ):
        fastest = min(report.costs, key=lambda arm: report.costs[arm]["minutes"])
        yield (
            f"With {_count(report.settings.seeds, 'seed')} of this budget it does not matter which arm you take; "
            f"{fastest} took the least time.",
            f"在这个预算和 {report.settings.seeds} 个种子下，选哪个方案都一样；{fastest} 用时最少。",
        )


def _more_seeds(report: ComparisonReport) -> Iterator[Both]:
    """The difference that the fewest further seeds would decide."""
    needed = [
        (result.comparison.seeds_needed, of_measure.measure.name, result.arm)
        for of_measure in report.measures
        for result in of_measure.arms
        if result.comparison is not None
        and result.comparison.verdict == "cannot be told apart"
        and result.comparison.seeds_needed is not None
        and report.settings.seeds < result.comparison.seeds_needed <= MAX_SEEDS_ADVISED
    ]
    if not needed:
        return
    seeds, measure, arm = min(needed)
    added = (seeds - report.settings.seeds) * len(report.costs)
    minutes = (seeds - report.settings.seeds) * sum(cost["minutes"] for cost in report.costs.values())
    yield (
        f"{arm} may differ in {measure}: {seeds} seeds would show a difference as large as the measured one in four of "
        f"five cases. They add {added} runs, about {max(1, round(minutes))} minutes of one core, and their tasks.",
        f"{arm} 在 {measure} 上可能有差别：若真实差别与测得的一样大，{seeds} 个种子有八成把握显示出来；"
        f"需要再做 {added} 次预训练，单核约 {max(1, round(minutes))} 分钟，另加微调。",
    )


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def _either(names: list[str], word: str = "or") -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"
