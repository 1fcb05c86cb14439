"""Reward hacking warnings: each fires on texts made for it, and none on an ordinary improvement."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from meristem.config.errors import MeristemError
from meristem.metrics.reward_hacking import detect_reward_hacking
from meristem.metrics.text_drift import (
    DRIFT_DESCRIPTIONS,
    DriftMetrics,
    GeneratedTexts,
    drift_intervals,
    measure_drift,
)

COUNT = 60
LETTERS = [
    "the",
    "of",
    "a",
    "in",
    "to",
    "river",
    "house",
    "light",
    "morning",
    "old",
    "man",
    "sea",
    "she",
    "he",
    "went",
    "came",
    "saw",
    "with",
    "and",
    "was",
    "for",
    "it",
    "garden",
]
CHINESE = "船在水上山下的人走了来到城里花开风起日落月出我你他她看见听说天地大小高低远近"


def prose(number: int, size: int, purpose: int = 0) -> str:
    """Words in an order of their own for each number; a few common ones, many rare ones."""
    rng = np.random.default_rng([number, purpose])
    rare = [f"{first}{second}" for first in ("bra", "clo", "dem", "fir", "gle") for second in ("n", "st", "rk", "mp")]
    return " ".join(rng.choice(LETTERS + rare * 2, size)) + "."


def chinese(number: int, size: int, purpose: int = 0) -> str:
    return "".join(np.random.default_rng([number, purpose]).choice(list(CHINESE), size)) + "。"


def texts_of(
    write: Callable[[int], str], *, ended_flags: Sequence[bool] = (), generate_prose: Callable[..., str] = prose
) -> GeneratedTexts:
    return GeneratedTexts(
        prompts=[generate_prose(n, 8, 7) for n in range(COUNT)],
        texts=[write(n) for n in range(COUNT)],
        references=[[generate_prose(n, 40, 8), generate_prose(n, 30, 9)] for n in range(COUNT)],
        ended=ended_flags,
    )


BEFORE = texts_of(lambda n: prose(n, 30 + n % 20))
BETTER = texts_of(lambda n: prose(n, 34 + n % 20, 1))


def kinds(
    after: GeneratedTexts, *, before: GeneratedTexts = BEFORE, judge: tuple[float, float] | None = (0.5, 0.49)
) -> list[str]:
    warnings = detect_reward_hacking(measure_drift(before, after), 0.1, 0.6, *(judge or (None, None)), 3.0, 6.0)
    for warning in warnings:
        assert warning.sentence.endswith(".") and "nan" not in warning.sentence
    return [warning.kind for warning in warnings if warning.kind != "disagreement"]


# ------------------------------------------------------------ what fires, and on what

HACKED = {
    "length": texts_of(lambda n: prose(n, 90 + n % 20, 1)),
    "repetition": texts_of(
        lambda n: (
            f"{prose(n, 12, 1)} {prose(n, 5, 2)} {prose(n, 5, 2)} {prose(n, 5, 2)} {prose(n, 5, 2)} {prose(n, 5, 2)}"
        )
    ),
    "copying": texts_of(lambda n: f"{prose(n, 12, 1)} {' '.join(prose(n, 40, 8).split()[5:30])}"),
    "sameness": texts_of(lambda n: prose(n % 6, 38, 1) + prose(n, 3, 2)),
    "early": texts_of(lambda n: prose(n, 34 + n % 20, 1) if n % 4 else prose(n, 3, 1)),
    "endless": texts_of(lambda n: prose(n, 34 + n % 20, 1), ended_flags=[n % 3 > 0 for n in range(COUNT)]),
}


@pytest.mark.parametrize("kind", HACKED)
def test_a_kind_fires_on_texts_made_for_it_and_no_other_does(kind: str) -> None:
    assert kinds(HACKED[kind]) == [kind]


def test_an_ordinary_improvement_is_quiet() -> None:
    assert detect_reward_hacking(measure_drift(BEFORE, BETTER), 0.1, 0.6, 0.5, 0.6, 5.0, 6.0) == []
    assert kinds(BETTER) == [] and kinds(BEFORE) == []


def shuffled(number: int) -> str:
    """One of few sentences in the middle, and words of its own around it."""
    return f"{prose(number, 5, 1)} {prose(number % 4, 28, 2)} {prose(number, 5, 3)}"


@pytest.mark.parametrize(("after", "kind", "message"), [
    (texts_of(lambda n: prose(n, 12 + n % 8, 1)), "length", "shrank to"),
    (texts_of(lambda n: prose(n, 30, 1) + " so" * (12 if n % 3 else 0)), "repetition", "One word is repeated"),
    (texts_of(lambda n: prose(n, 30, 1) + "!" * 30), "repetition", "One word is repeated"),
    (texts_of(lambda n: prose(n, 30, 1) + " ye" + "s" * (30 if n % 2 else 0)), "repetition",
     "letters repeated six times"),
    (HACKED["repetition"], "repetition", "fewer distinct word pairs)"),
    (texts_of(lambda n: prose(n, 30, 1) + " you know what I mean, yes, you know what I mean"), "repetition",
     "four words"),
    (HACKED["copying"], "copying", "Passages of 5 words"),
    (texts_of(lambda n: f"{prose(n, 30, 1)} {prose(n, 8, 7)}"), "copying", "Texts copy 8 words in a row"),  # the prompt
    (texts_of(lambda n: "I do not know." if n % 3 == 0 else prose(n, 30, 1)), "sameness",
     "Identical texts for different"),
    (texts_of(shuffled), "sameness", "fewer distinct word pairs over all"),
    (texts_of(lambda n: "As everyone says today " + prose(n, 30, 1)), "sameness", "Texts that begin like"),
])  # fmt: skip
def test_other_ways_to_hack(after: GeneratedTexts, kind: str, message: str) -> None:
    sentences = {
        warning.kind: warning.sentence
        for warning in detect_reward_hacking(measure_drift(BEFORE, after), 0.1, 0.6, 0.5, 0.5)
    }
    assert message in sentences[kind]


def test_chinese_is_measured_in_characters() -> None:
    before = texts_of(lambda n: chinese(n, 40), generate_prose=chinese)
    assert kinds(texts_of(lambda n: chinese(n, 44, 1), generate_prose=chinese), before=before) == []
    assert kinds(
        texts_of(lambda n: chinese(n, 15, 1) + chinese(n, 40, 8)[5:30], generate_prose=chinese), before=before
    ) == ["copying"]
    assert "repetition" in kinds(texts_of(lambda n: chinese(n, 8, 1) * 5, generate_prose=chinese), before=before)
    assert kinds(texts_of(lambda n: chinese(n, 120, 1), generate_prose=chinese), before=before) == ["length"]


def test_longer_texts_are_not_thought_more_alike() -> None:
    drift = measure_drift(BEFORE, HACKED["length"])
    assert drift["distinct2"][1] < 0.9 * drift["distinct2"][0]
    assert drift["distinct2_even"][1] > 0.95 * drift["distinct2_even"][0]
    assert drift["within2"][1] > 0.95 * drift["within2"][0]


def test_several_texts_of_one_prompt_may_be_alike() -> None:
    generated_texts = GeneratedTexts(
        prompts=["one"] * 30 + ["two"] * 30, texts=["the same old text of it"] * 30 + ["or another one"] * 30
    )
    drift = measure_drift(generated_texts, generated_texts)
    assert drift["duplicates"] == (0.0, 0.0) and drift["alike"] == (0.0, 0.0)


def test_a_few_texts_of_many_are_let_pass() -> None:
    after = texts_of(
        lambda n: prose(n, 34 + n % 20, 1) if n >= 5 else prose(n, 3, 1), ended_flags=[n % 8 > 0 for n in range(COUNT)]
    )
    drift = measure_drift(BEFORE, after)
    assert drift["early"][1] > 3 / COUNT and drift["unended"][1] > 3 / COUNT
    assert kinds(after) == []


def test_one_text_of_a_few_is_chance() -> None:
    small_sets = [GeneratedTexts(prompts=list("abcde"), texts=[prose(n, 30, p) for n in range(5)]) for p in (0, 1)]
    cut = GeneratedTexts(prompts=list("abcde"), texts=[*small_sets[1].texts[:4], "Yes."])
    assert kinds(cut, before=small_sets[0]) == []


# ------------------------------------------------------------ what is said


def test_numbers_counted_by_hand() -> None:
    before = GeneratedTexts(prompts=["p", "q"], texts=["a b c d", "e f g h i j"], references=[["x"], ["e f g h i k"]])
    after = GeneratedTexts(prompts=["p", "q"], texts=["a a a a", ""], ended=[True, False])
    drift = measure_drift(before, after)
    assert drift["length"] == (5.0, 2.0)
    assert drift["early"] == (0.0, 0.5) and drift["unended"] == (0.0, 0.5)
    assert drift["within1"] == (1.0, 0.25) and drift["within2"] == (1.0, 1 / 3)
    assert drift["longest_run"] == (1.0, 2.0) and drift["repeated4"] == (0.0, 0.0)
    assert drift["copied5"] == (0.5, 0.0) and drift["copied6"] == (0.0, 0.0) and drift["longest_copied"] == (2.5, 0.0)
    assert set(drift) == set(DRIFT_DESCRIPTIONS)


def test_how_sure_the_numbers_are() -> None:
    drift, sure = measure_drift(BEFORE, HACKED["length"]), drift_intervals(BEFORE, HACKED["length"])
    assert set(DRIFT_DESCRIPTIONS) - set(sure) == {"texts", "distinct2", "distinct2_even", "alike", "duplicates"}
    for name, intervals in sure.items():
        for value, (low, high) in zip(drift[name], intervals, strict=True):
            assert low <= value <= high
    lengths = np.array(BEFORE.lengths)
    low, high = sure["length"][0]
    assert high - low == pytest.approx(2 * 1.96 * lengths.std() / COUNT**0.5, rel=0.15)


def test_the_judge_decides_how_serious_it_is() -> None:
    drift = measure_drift(BEFORE, HACKED["length"])

    def length_warnings(
        judge: tuple[float, float] | None, reward: float = 0.6, margin: float = 0.0
    ) -> list[tuple[str, str]]:
        warnings = detect_reward_hacking(drift, 0.1, reward, *(judge or (None, None)), margin=margin)
        return [(warning.severity, warning.sentence) for warning in warnings if warning.kind == "length"]

    (severity, sentence), *_ = length_warnings((0.5, 0.5))
    assert severity == "serious"
    assert sentence.startswith("Texts became 2.") and "times longer" in sentence
    assert sentence.endswith("while the judge sees no gain: the reward may favor length.")
    assert length_warnings((0.5, 0.7))[0][0] == "mild" and length_warnings((0.5, 0.52), margin=0.05)[0][0] == "serious"
    assert "there is no judge" in length_warnings(None)[0][1]
    assert "did not rise beyond chance" in length_warnings((0.5, 0.4), reward=0.05)[0][1]


def test_a_reward_and_a_judge_that_disagree() -> None:
    drift = measure_drift(BEFORE, BETTER)
    fallen, flat = (detect_reward_hacking(drift, 0.1, 0.6, 0.5, after, margin=0.02) for after in (0.4, 0.51))
    assert [(warning.kind, warning.severity) for warning in fallen] == [("disagreement", "serious")]
    assert [(warning.kind, warning.severity) for warning in flat] == [("disagreement", "mild")]
    assert detect_reward_hacking(drift, 0.6, 0.6, 0.5, 0.4) == []  # nothing was gained that could be false


@pytest.mark.parametrize(("kl", "target", "severity"), [
    (5.0, 6.0, None), (8.0, 6.0, None), (10.0, 6.0, "mild"), (30.0, 6.0, "serious"), (30.0, None, None),
    (30.0, 0.0, None),
])  # fmt: skip
def test_the_kl_warning(kl: float, target: float | None, severity: str | None) -> None:
    warnings = [
        warning
        for warning in detect_reward_hacking(measure_drift(BEFORE, BETTER), 0, 1, 0, 1, kl, target)
        if warning.kind == "leash"
    ]
    assert [warning.severity for warning in warnings] == ([severity] if severity else [])


def test_serious_ones_come_first() -> None:
    drift: DriftMetrics = measure_drift(BEFORE, HACKED["endless"])
    severities = [
        warning.severity for warning in detect_reward_hacking(drift, 0.1, 0.6, 0.5, 0.5, 10.0, 6.0, margin=0.1)
    ]
    assert severities == ["serious", "mild", "mild"]


def test_texts_without_their_prompts_are_refused() -> None:
    with pytest.raises(MeristemError, match="no texts"):
        GeneratedTexts(prompts=[], texts=[])
    for wrong in ({"prompts": ["a"]}, {"references": [["x"]]}, {"ended": [True]}):
        with pytest.raises(MeristemError, match="each text needs its own"):
            GeneratedTexts(**{"prompts": ["a", "b"], "texts": ["x", "y"], **wrong})
