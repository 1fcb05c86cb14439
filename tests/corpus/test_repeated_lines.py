"""Counting repeated lines (Misra-Gries)."""

from collections import Counter

import pytest

from meristem.corpus.report import repeated_lines as module
from meristem.corpus.report.repeated_lines import candidate_lines, prune_counts

COOKIES = "We use cookies to give you the best experience."
CHINESE = "版权所有，未经许可不得转载，违者必究，特此声明。"


def test_long_lines_count_once_each() -> None:
    text = "\n".join(["short", COOKIES, f"  {COOKIES}  ", CHINESE, "春眠不觉晓，处处闻啼鸟", "a" * 500])
    assert candidate_lines(text) == {COOKIES, CHINESE, "a" * 200}


def test_fifteen_ideographs_are_a_line_and_fifteen_letters_are_none() -> None:
    assert candidate_lines("字" * 15) == {"字" * 15}
    assert candidate_lines("é" * 39) == set()
    assert candidate_lines("字" * 14 + "ab") == set()


@pytest.mark.parametrize("parts", [1, 4])
def test_frequent_lines_are_never_lost(monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    monkeypatch.setattr(module, "MAX_LINES", 50)
    true: Counter[str] = Counter()
    counted = [Counter[str]() for _ in range(parts)]
    for document in range(3000):
        lines = {f"only here {document}"} | {f"often {n}" for n in (3, 5, 10) if document % n == 0}
        true.update(lines)
        counted[document % parts].update(lines)
        counted[document % parts] = prune_counts(counted[document % parts])
        assert len(counted[document % parts]) <= 100 + 4
    merged_counts: Counter[str] = Counter()
    for line_counts in counted:
        merged_counts.update(line_counts)
        merged_counts = prune_counts(merged_counts)
    error = true.total() / 50
    for line, count in true.items():
        assert count - error <= merged_counts[line] <= count
    assert {line for line, _ in merged_counts.most_common(3)} == {"often 3", "often 5", "often 10"}


def test_few_lines_are_counted_exactly() -> None:
    counts = Counter({f"line {n}": 1 for n in range(1000)})
    assert prune_counts(counts) is counts
