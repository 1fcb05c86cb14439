"""Attention records: means, rollout, JSON, and error messages."""

from __future__ import annotations

import json

import numpy as np
import pytest

from meristem.config.errors import MeristemError
from meristem.drawing.attention_record import AttentionRecord, AttentionWeights

FIRST = np.array([[1.0, 0.0], [0.5, 0.5]], np.float32)
SECOND = np.array([[1.0, 0.0], [0.25, 0.75]], np.float32)
LABELS = ("the", "cat")


def build_weights(*layers: np.ndarray, keys: tuple[str, ...] = LABELS, rolls: bool = True) -> AttentionWeights:
    """Layers of one head."""
    return AttentionWeights(queries=LABELS, keys=keys, weights=np.stack(layers)[:, None], supports_rollout=rolls)


def test_rollout_by_hand() -> None:
    # 0.5 A + 0.5 I: the first layer leaves the cat with 3/4 of itself, the second takes 1/8 of the one below it
    expected = np.array([[1.0, 0.0], [0.125 + 0.875 * 0.25, 0.875 * 0.75]])
    np.testing.assert_allclose(build_weights(FIRST, SECOND).rollout(), expected, atol=1e-7)
    heads = AttentionWeights(
        queries=LABELS, keys=LABELS, weights=np.stack([np.stack([FIRST, SECOND])]), supports_rollout=True
    )
    np.testing.assert_allclose(heads.rollout(), 0.25 * (FIRST + SECOND) + 0.5 * np.eye(2), atol=1e-7)


def test_rollout_leaves_memory_as_it_is() -> None:
    before = np.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]], np.float32)
    rollout = build_weights(before, before, keys=("old", *LABELS)).rollout()
    np.testing.assert_allclose(
        rollout, [[0.25 + 0.75 * 0.25, 0.75 * 0.75, 0.0], [0.25 + 0.75 * 0.25, 0.0, 0.75 * 0.75]]
    )
    np.testing.assert_allclose(rollout.sum(-1), 1.0)


def test_only_self_attention_supports_rollout() -> None:
    with pytest.raises(MeristemError, match="choose kind self or decoder"):
        build_weights(FIRST, rolls=False).rollout()


def test_heads_and_means_are_numbered_from_one() -> None:
    attention_weights = AttentionWeights(
        queries=LABELS, keys=LABELS, weights=np.stack([[FIRST, SECOND], [SECOND, SECOND]])
    )
    assert (attention_weights.layers, attention_weights.heads) == (2, 2)
    np.testing.assert_array_equal(attention_weights.head(1, 2), SECOND)
    np.testing.assert_array_equal(attention_weights.mean(1), (FIRST + SECOND) / 2)
    np.testing.assert_allclose(attention_weights.mean(), (FIRST + 3 * SECOND) / 4)
    for call, message in (
        (lambda: attention_weights.head(3, 1), "layer 3: there are 2, numbered from 1"),
        (lambda: attention_weights.head(1, 0), "head 0: there are 2, numbered from 1"),
        (lambda: attention_weights.mean(-1), "layer -1: there are 2, numbered from 1"),
        (lambda: build_weights(FIRST).head(1, 2), "head 2: there is 1, numbered from 1"),
    ):
        with pytest.raises(MeristemError, match=message):
            call()


def test_numbers_for_a_file() -> None:
    thirds = np.array([[1 / 3, 2 / 3], [1.0, 0.0]], np.float32)
    attention_record = AttentionRecord(
        text="the 猫",
        run="x",
        kinds={"cross": build_weights(thirds), "self": build_weights(FIRST)},
        target="a",
        order=(1, 0),
    )
    plain = json.loads(json.dumps(attention_record.to_dict()))
    assert plain["kinds"]["cross"]["weights"] == [[[[0.3333, 0.6667], [1.0, 0.0]]]]
    assert plain["kinds"]["cross"]["queries"] == ["the", "cat"]
    assert (plain["run"], plain["text"], plain["target"], plain["order"]) == ("x", "the 猫", "a", [1, 0])
    assert list(attention_record.to_dict("self")["kinds"]) == ["self"]
    assert attention_record.select_kind()[0] == "cross"  # the first is the most telling
    with pytest.raises(MeristemError, match="kind decoder: this model has no such attention; it has cross, self"):
        attention_record.to_dict("decoder")
