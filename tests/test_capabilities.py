"""docs/families.md tells what each family can be asked: every cell is tried here, and every empty one has a reason."""

from __future__ import annotations

import pytest
from capabilities import QUICK, SLOW, TASKS, VERBS, on_page, tried
from tiny_runs import FAMILIES


def test_the_page_has_every_cell() -> None:
    assert set(on_page()) == {(recipe, column) for recipe in FAMILIES for column in (*VERBS, *TASKS)}


@pytest.mark.parametrize("recipe", FAMILIES)
def test_cells_tell_what_happens(recipe: str) -> None:
    page = on_page()
    outcomes = {column: tried(recipe, column) for column in QUICK}
    assert outcomes == {column: page[recipe, column] for column in QUICK}


@pytest.mark.slow
@pytest.mark.usefixtures("small_peak")
@pytest.mark.parametrize("column", SLOW)
@pytest.mark.parametrize("recipe", FAMILIES)
def test_cells_that_take_longer(recipe: str, column: str) -> None:
    assert tried(recipe, column) == on_page()[recipe, column]
