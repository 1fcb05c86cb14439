"""Train state: JSON round trip, metric windows, and validation of state.json."""

from __future__ import annotations

import json

import pytest

from meristem.config.errors import MeristemError
from meristem.training.train_state import DECLARED_SPLIT, SHAPE_SPLIT, TrainState


def test_a_train_state_survives_json() -> None:
    train_state = TrainState(
        step=7,
        total=9,
        budget="9 steps",
        tokens=10**15,
        flops=1.5e18,
        seconds=2.25,
        best=0.1 + 0.2,
        best_step=5,
        flops_per_token={"clm": 1e9 / 3},
    )
    train_state.add_to_window({"loss": (1 / 3, 1.0), "top1": (3.0, 7.0)})
    restored = TrainState.from_dict(json.loads(json.dumps(train_state.to_dict())))
    assert restored == train_state
    assert restored.window["loss"] == (1 / 3, 1.0)


def test_windows_are_means_of_everything_since_the_last_line() -> None:
    train_state = TrainState()
    train_state.add_to_window({"loss": (2.0, 1.0), "top1": (1.0, 10.0)})
    train_state.add_to_window({"loss": (4.0, 1.0), "top1": (5.0, 30.0), "empty": (0.0, 0.0)})
    assert train_state.pop_means() == {"loss": 3.0, "top1": 0.15}
    assert train_state.pop_means() == {}


def test_counters_of_another_version_are_ignored() -> None:
    assert TrainState.from_dict({**TrainState(step=3).to_dict(), "moons": 2}) == TrainState(step=3)


def test_a_run_of_an_older_version_keeps_splitting_matrices_by_shape() -> None:
    older = TrainState.from_dict({"step": 3})
    assert older.muon_split == SHAPE_SPLIT
    assert older.precision == ""
    assert TrainState.from_dict(older.to_dict()).muon_split == SHAPE_SPLIT
    assert TrainState().muon_split == DECLARED_SPLIT


@pytest.mark.parametrize("name", ["muon_split", "precision", "planned_total", "replans"])
def test_a_state_that_lacks_some_of_the_newer_entries_was_changed(name: str) -> None:
    saved = TrainState(step=3).to_dict()
    del saved[name]
    with pytest.raises(MeristemError, match=f"state.json: {name} has an invalid value"):
        TrainState.from_dict(saved)


@pytest.mark.parametrize("precision", ["", "float16"])
def test_a_precision_that_no_run_has_was_changed(precision: str) -> None:
    with pytest.raises(MeristemError, match=r"state\.json: precision"):
        TrainState.from_dict({**TrainState(step=3).to_dict(), "precision": precision})


@pytest.mark.parametrize("change", [
    {"step": -1}, {"step": True}, {"step": 2**63}, {"seconds": -0.5}, {"flops": "many"}, {"best": []}, {"window": []},
    {"window": {"loss": [1.0]}}, {"window": {"loss": [1.0, True]}}, {"tokens": 1.5}, {"seconds": float("inf")},
    {"flops_per_token": []}, {"flops_per_token": {"clm": -1.0}}, {"flops_per_token": {"clm": "many"}},
    {"muon_split": "guessed"}, {"muon_split": 1},
])  # fmt: skip
def test_a_state_that_no_run_wrote_is_refused(change: dict[str, object]) -> None:
    plain = {**TrainState(step=4, total=9).to_dict(), **change}
    with pytest.raises(MeristemError, match=f"state.json: {next(iter(change))} has an invalid value"):
        TrainState.from_dict(plain)


def test_a_state_of_another_step_is_refused() -> None:
    with pytest.raises(MeristemError, match=r"state.json is of step 4 and its checkpoint of step 6"):
        TrainState.from_dict(TrainState(step=4, total=9).to_dict(), step=6)
    assert TrainState.from_dict(TrainState(step=4, best=-2.5).to_dict(), step=4).best == -2.5
