"""The page of what is not supported: the combinations that it lists are refused, and what it offers instead is not."""

from __future__ import annotations

import re

import pytest
from documented_commands import ROOT

from meristem.config.errors import RecipeError
from meristem.recipe_resolution import resolve_pretrain_recipe
from meristem.training.privacy.privacy_checks import refuse_shared_samples

PAGE = (ROOT / "docs/not-supported.md").read_text(encoding="utf-8")
TABLE = PAGE.split("| settings | why | instead |")[1].split("\n\n")[0]
ROWS = re.findall(r"^\| `([a-z][^`]*=[^`]*)` \| (.+?) \| (.+?) \|$", TABLE, re.MULTILINE)


def settings_words(text: str) -> list[str]:
    """The settings of a cell: a space separates them, except inside brackets."""
    return re.split(r" (?=[a-z_.]+=)", text)


def resolve(words: list[str]) -> None:
    """Resolve a recipe and check what is checked before training."""
    recipe = resolve_pretrain_recipe("bert-mini", ["train.steps=100", *words], "builtin:microworld-en")
    refuse_shared_samples(recipe)


def test_the_rows_of_the_table_are_read() -> None:
    assert len(ROWS) == TABLE.strip().count("\n") >= 6


@pytest.mark.parametrize(("settings", "why", "instead"), ROWS, ids=[row[0] for row in ROWS])
def test_what_the_page_excludes_is_refused(settings: str, why: str, instead: str) -> None:
    words = settings_words(settings)
    with pytest.raises(RecipeError) as refusal:
        resolve(words)
    names = {word.partition("=")[0].split(".")[1] if "." in word else word.partition("=")[2] for word in words}
    assert any(name.strip("[]").split(",")[-1] in str(refusal.value) for name in names), str(refusal.value)
    for alternative in re.findall(r"`(objective=[^`]+)`", instead):
        resolve([words[0], alternative])


def test_each_setting_alone_is_accepted() -> None:
    for settings, _, _ in ROWS:
        for word in settings_words(settings):
            if word.partition("=")[0] not in ("train.muon_normalize", "objective"):
                resolve(["objective=mlm", word])
