"""Data settings as given on the command line."""

from __future__ import annotations

from meristem.api import resolve_task_recipe


def test_columns_by_number_and_lists() -> None:
    typed = ["data.train=a.tsv", "data.text=6", "data.label=5", "data.choices=[one,2]"]
    data = resolve_task_recipe("classification", typed).data
    assert (data.text, data.label, data.choices) == ("6", "5", ("one", "2"))
    assert resolve_task_recipe("classification", ["data.train=a.tsv", "data.choices=options"]).data.choices == (
        "options",
    )


def test_sources_may_be_several() -> None:
    assert resolve_task_recipe("classification", ["data.train=[a.tsv,b.tsv]"]).data.train == ("a.tsv", "b.tsv")
