"""Page of a comparison: table, quality against time, curves, few labels, differences; in English and Chinese."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from meristem.compare.cells import measure_name
from meristem.compare.next_steps import Both, next_steps, verdicts_of_arms
from meristem.compare.statistics import PairedComparison
from meristem.compare.validity import CHINESE_CHECKS, Problem
from meristem.drawing.html_page import current_timestamp, render_page
from meristem.drawing.svg_charts import ChartLine, Point, line_chart, ticks

if TYPE_CHECKING:
    from meristem.compare.comparison_report import ArmResult, ComparisonReport, MeasureResult

NUM_COLORS = 8
"""Colours of comparison.css; further arms repeat them."""
Language = Literal["en", "zh"]

HEADINGS: tuple[Both, ...] = (
    ("arm", "方案"),
    ("verdict", "结论"),
    ("difference [95 % interval]", "差值 [95 % 区间]"),
    ("mean (lowest–highest seed)", "均值（各种子最低–最高）"),
)
COST_HEADINGS: tuple[Both, ...] = (
    ("arm", "方案"),
    ("steps", "步数"),
    ("tokens", "词元"),
    ("FLOPs", "FLOPs"),
    ("minutes", "分钟"),
    ("tokens/s", "词元/秒"),
    ("memory", "内存"),
)
BASELINE: Both = ("reference", "基准")
NOT_COMPARED: Both = ("not compared", "不作比较")
CURVE_AXES: Mapping[str, Both] = {
    "steps": ("steps", "步数"),
    "tokens": ("tokens", "词元"),
    "flops": ("FLOPs", "FLOPs"),
    "minutes": ("minutes", "分钟"),
}


def render_comparison(report: ComparisonReport, language: Language = "en") -> str:
    """The report as one HTML file without scripts; it opens in `language` and has a switch to the other."""
    arms = list(report.settings.arms)
    return render_page(
        "comparison_report.html",
        title="Comparison",
        date=current_timestamp(),
        stylesheets=("charts.css", "comparison.css"),
        report=report,
        opens_in=language,
        summary=summary_sentences(report),
        problems=[_problem_texts(problem) for problem in report.problems],
        next_steps=next_steps(report),
        headings=HEADINGS,
        groups=_groups(report),
        quality=[chart for measure in report.measures if (chart := _quality_chart(report, measure))],
        few_labels=_few_label_charts(report),
        curves=_curve_charts(report),
        cost_headings=COST_HEADINGS,
        cost_rows=report.cost_rows(),
        colors={arm: arm_class(arms, arm) for arm in arms},
    )


def arm_class(arms: Sequence[str], arm: str) -> str:
    """The CSS class of an arm's colour."""
    return f"arm{arms.index(arm) % NUM_COLORS}"


def summary_sentences(report: ComparisonReport) -> Both:
    """What the comparison says, in one sentence."""
    if report.problems:
        checks = list(dict.fromkeys(problem.check for problem in report.problems))
        chinese = "、".join(CHINESE_CHECKS[check][0] for check in checks)
        return (
            f"Not valid: {', '.join(checks)}. The numbers below prove nothing until this is mended.",
            f"无效：{chinese}。修正之前，下列数字不能说明任何问题。",
        )
    first = next(iter(report.settings.arms))
    decided = [texts for arm, names in verdicts_of_arms(report).items() if (texts := _decided(arm, names)) is not None]
    return (
        f"Against {first}: {'; '.join(english for english, _ in decided) or 'no arm can be told apart'}.",
        f"与 {first} 相比：{'；'.join(chinese for _, chinese in decided) or '没有可以区分的方案'}。",
    )


def _decided(arm: str, names: Mapping[str, list[str]]) -> Both | None:
    """The measures in which an arm is better or worse than the first; `names` holds those of each verdict."""
    measures_by_verdict = [(verdict, names[verdict]) for verdict in ("better", "worse") if verdict in names]
    if not measures_by_verdict:
        return None
    english = " and ".join(f"{verdict} in {', '.join(measures)}" for verdict, measures in measures_by_verdict)
    chinese = "，".join(
        f"{'、'.join(of)} {'更好' if verdict == 'better' else '更差'}" for verdict, of in measures_by_verdict
    )
    return f"{arm} is {english}", f"{arm} 的 {chinese}"


def verdict_texts(comparison: PairedComparison | None) -> Both:
    """The verdict in words, with the seeds that it would take."""
    if comparison is None:
        return "", ""
    needed, seeds = comparison.seeds_needed, comparison.seeds
    if comparison.verdict == "cannot be told apart" and comparison.mean_difference == 0:
        return "cannot be told apart (the same)", "无法区分（相同）"
    match comparison.verdict:
        case "cannot be told apart":
            english = f"{needed} seeds would be needed" if needed else "more than 1,000 seeds"
            chinese = f"需要 {needed} 个种子" if needed else "需要 1,000 个以上种子"
            return f"cannot be told apart ({english})", f"无法区分（{chinese}）"
        case "not decided":
            return f"not decided ({seeds} of at least 3 seeds)", f"未定（至少 3 个种子，现有 {seeds} 个）"
        case "better":
            return "better", "更好"
        case _:
            return "worse", "更差"


def _problem_texts(problem: Problem) -> dict[str, Any]:
    """Check and remedy in both languages; the measured values as they are."""
    check, remedy = CHINESE_CHECKS[problem.check]
    return {"check": (problem.check, check), "message": problem.message, "remedy": (problem.remedy, remedy)}


def _groups(report: ComparisonReport) -> list[dict[str, Any]]:
    """For each measure, the rows of its arms, with the class of each verdict."""
    first = next(iter(report.settings.arms))
    return [
        {
            "name": f"{of_measure.measure.name} {'↓' if of_measure.measure.lower_is_better else '↑'}",
            "rows": [
                {
                    "arm": result.arm,
                    "verdict": _row_verdict(result, first),
                    "kind": "first"
                    if result.arm == first
                    else ""
                    if result.comparison is None
                    else result.comparison.verdict.partition(" ")[0],
                    "difference": format_difference(result.comparison),
                    "mean": result.format(),
                }
                for result in of_measure.arms
            ],
        }
        for of_measure in report.measures
    ]


def _row_verdict(result: ArmResult, first: str) -> Both:
    if result.arm == first:
        return BASELINE
    return NOT_COMPARED if result.comparison is None and result.values else verdict_texts(result.comparison)


def format_difference(comparison: PairedComparison | None) -> str:
    """The mean difference with its interval."""
    if comparison is None or comparison.mean_difference is None:
        return ""
    mean = f"{comparison.mean_difference:+.4g}"
    low_high = comparison.interval
    return mean if low_high is None else f"{mean} [{low_high[0]:+.4g}, {low_high[1]:+.4g}]"


def _quality_chart(report: ComparisonReport, result: MeasureResult) -> dict[str, Any] | None:
    """A measure over minutes of pretraining: the seeds and mean of each arm, and the front that none beats in both."""
    arms = list(report.settings.arms)
    means = {
        of_arm.arm: (report.costs[of_arm.arm]["minutes"], of_arm.mean, sorted(of_arm.values.values()))
        for of_arm in result.arms
        if of_arm.mean is not None and of_arm.arm in report.costs
    }
    if len(means) < 2 or result.measure.same_objective_only:
        return None
    sign = -1 if result.measure.lower_is_better else 1
    front = pareto_front({arm: (minutes, sign * mean) for arm, (minutes, mean, _) in means.items()})
    lines = [
        ChartLine(name="not beaten in both", css_class="front", points=[means[arm][:2] for arm in front]),
        *(
            ChartLine(name=arm, css_class=arm_class(arms, arm), points=[(minutes, value) for value in (*values, mean)],
                      markers=True)
            for arm, (minutes, mean, values) in means.items()
        ),
    ]  # fmt: skip
    arrow = "↓" if result.measure.lower_is_better else "↑"
    return {
        "name": f"{result.measure.name} {arrow}",
        "svg": line_chart(
            lines,
            label=f"{result.measure.name} over minutes",
            x_label="minutes · 分钟",
            x_ticks=_round_ticks([minutes for minutes, _, _ in means.values()]),
        ),
    }


def pareto_front(points: Mapping[str, Point]) -> list[str]:
    """The names whose quality no other reaches in as little time, from fast to slow; points are (time, quality)."""
    front: list[str] = []
    best = float("-inf")
    for name, (_, quality) in sorted(points.items(), key=lambda item: (item[1][0], -item[1][1])):
        if quality > best:
            front.append(name)
            best = quality
    return front


def _few_label_charts(report: ComparisonReport) -> list[dict[str, Any]]:
    """For each task with several numbers of labels, every arm's mean by that number."""
    arms, results = list(report.settings.arms), {result.measure.name: result for result in report.measures}
    charts = []
    for task in report.settings.tasks:
        numbers = [*task.labels, *((None,) if task.all_labels or not task.labels else ())]
        results_by_size = [
            (number, results[name]) for number in numbers if (name := measure_name(task, number)) in results
        ]
        if len(results_by_size) < 2:
            continue
        numbered = [
            (float(at), "all" if number is None else f"{number:,}") for at, (number, _) in enumerate(results_by_size)
        ]
        lines = [
            ChartLine(name=arm, css_class=arm_class(arms, arm), points=points, markers=True)
            for arm in arms
            if (points := [(float(at), of.mean) for at, (_, result) in enumerate(results_by_size) for of in result.arms
                           if of.arm == arm and of.mean is not None])
        ]  # fmt: skip
        name = measure_name(task, None)
        svg = line_chart(lines, label=f"{name} by number of labels", x_label="labels · 标注数", x_ticks=numbered)
        charts.append({"name": f"{name}, {results_by_size[0][1].measure.metric}", "svg": svg})
    return charts


def _curve_charts(report: ComparisonReport) -> list[dict[str, Any]]:
    """Validation loss of seed 0 over steps, tokens, FLOPs and minutes."""
    arms = list(report.settings.arms)
    charts = []
    for key, (english, chinese) in CURVE_AXES.items():
        lines = [
            ChartLine(
                name=arm,
                css_class=arm_class(arms, arm),
                points=[(point[key], point["loss"]) for point in points if key in point],
                markers=True,
            )
            for arm, points in report.curves.items()
        ]
        x_label = english if english == chinese else f"{english} · {chinese}"
        x_ticks = _round_ticks([x for line in lines for x, _ in line.points])
        if svg := line_chart(lines, label=f"validation loss over {english}", x_label=x_label, x_ticks=x_ticks):
            charts.append({"name": "", "svg": svg})
    return charts


def _round_ticks(values: Sequence[float]) -> list[tuple[float, str]]:
    """Ticks for an axis over these values; minutes may be fractions."""
    return ticks(min(values), max(values)) if values and max(values) > min(values) else []
