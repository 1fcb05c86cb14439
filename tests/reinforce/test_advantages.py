"""Advantages: RLOO, GRPO, learned and no baseline."""

from __future__ import annotations

import numpy as np
import pytest

from meristem.reinforce.advantages import advantages

RETURNS = np.array([1.0, 2.0, 6.0, -1.0, 0.0, 4.0])


def test_leave_one_out_compares_with_the_others_of_the_prompt() -> None:
    values = advantages("rloo", RETURNS, 3)
    assert values.tolist() == pytest.approx([1 - 4, 2 - 3.5, 6 - 1.5, -1 - 2, 0 - 1.5, 4 + 0.5])
    assert values.reshape(2, 3).sum(1) == pytest.approx([0, 0])


def test_grpo_measures_in_deviations_of_the_prompt_and_survives_equal_texts() -> None:
    values = advantages("grpo", RETURNS, 3).reshape(2, 3)
    assert values.mean(1) == pytest.approx([0, 0], abs=1e-9) and values.std(1) == pytest.approx([1, 1], abs=1e-5)
    assert not advantages("grpo", np.full(4, 2.5), 4).any()


def test_learned_and_none() -> None:
    assert advantages("learned", RETURNS, 3, np.full(6, 0.5)).tolist() == (RETURNS - 0.5).tolist()
    assert advantages("none", RETURNS, 3).tolist() == RETURNS.tolist()
