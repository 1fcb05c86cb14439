from __future__ import annotations

from typing import Literal

import pytest
from pydantic import Field, ValidationError

from meristem.config.errors import MeristemError, RecipeError, did_you_mean
from meristem.config.settings import Settings
from meristem.config.validation import build_settings
from meristem.dataset.dataset_view import DATASET_VIEWS
from meristem.interfaces.backbone import MODEL_FAMILIES
from meristem.interfaces.objective import OBJECTIVES


class Lamp(Settings):
    """A lamp."""

    power: float = Field(40.0, gt=0)
    """How bright."""
    colour: Literal["warm", "cold"] = "warm"
    """Which white."""


def test_settings_are_frozen_and_know_their_help() -> None:
    lamp = Lamp(power="3e1")  # type: ignore[arg-type]  # as YAML reads it
    assert lamp.power == 30.0
    assert Lamp.model_fields["power"].description == "How bright."
    with pytest.raises(ValidationError):
        lamp.power = 5.0  # type: ignore[misc]  # that is the point


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"powr": 3}, "lamp.powr: unknown setting, did you mean power?"),
        ({"zzz": 3}, "lamp.zzz: unknown setting; known: colour, power"),
        ({"power": -1}, "lamp.power: Input should be greater than 0 (got -1)"),
        ({"colour": "blue"}, "lamp.colour: Input should be 'warm' or 'cold' (got 'blue')"),
        ([1], "lamp: expected a mapping of settings, got [1]"),
        ({"power": "x", "colour": 3}, "lamp.colour: Input should be 'warm' or 'cold' (got 3)"),
    ],
)
def test_findings_are_sentences(value: object, message: str) -> None:
    with pytest.raises(RecipeError) as error:
        build_settings(Lamp, value, "lamp")
    assert message in str(error.value).splitlines()


def test_every_finding_has_a_line() -> None:
    with pytest.raises(RecipeError) as error:
        build_settings(Lamp, {"power": "x", "colour": 3, "size": 1}, "lamp")
    assert len(str(error.value).splitlines()) == 3


def test_the_nearest_name_or_all_of_them() -> None:
    assert did_you_mean("brt", ["bert", "gpt2"]) == ", did you mean bert?"
    assert did_you_mean("xyz", ["gpt2", "bert"]) == "; known: bert, gpt2"


def test_a_room_is_listed_without_what_is_private() -> None:
    assert {"mlm", "clm", "nsp"} <= set(OBJECTIVES)
    assert "_words" not in OBJECTIVES


def test_what_a_file_is_named_after_is_found_in_it() -> None:
    assert OBJECTIVES["mlm"].__name__ == "MLMObjective"
    assert MODEL_FAMILIES["gpt2"].__name__ == "GPT2"
    assert DATASET_VIEWS["windows"].__name__ == "WindowsView"


def test_what_is_not_there_is_refused_with_a_hint() -> None:
    with pytest.raises(MeristemError, match=r"no objective 'mml', did you mean mlm\?"):
        OBJECTIVES["mml"]
    with pytest.raises(RecipeError, match="no objective '_words'"):
        OBJECTIVES["_words"]
