from __future__ import annotations

import numpy as np
import pytest
import torch

from meristem.blocks.heads.kl_controller import MIN_COEFFICIENT_SCALE, REWARD_STATS_DECAY, AdaptiveKLController


def test_reward_statistics_weight_newer_steps_more() -> None:
    controller = AdaptiveKLController()
    assert controller.reward_mean_std == (0.0, 1.0)
    rng = np.random.default_rng(0)
    for _ in range(400):
        rewards = rng.normal(3.0, 2.0, 256)
        controller.update_reward_stats(float(rewards.mean()), float((rewards**2).mean()))
    mean, spread = controller.reward_mean_std
    assert mean == pytest.approx(3.0, abs=0.1) and spread == pytest.approx(2.0, abs=0.1)
    weights = REWARD_STATS_DECAY ** np.arange(3)[::-1]
    second_controller = AdaptiveKLController()
    for value in (1.0, 2.0, 6.0):
        second_controller.update_reward_stats(value, value**2)
    assert second_controller.reward_mean_std[0] == pytest.approx(float(weights @ [1.0, 2.0, 6.0] / weights.sum()))


def test_the_kl_coefficient_rises_above_the_target_and_falls_below() -> None:
    controller = AdaptiveKLController()
    controller.update_coefficient(30.0, 10.0, 0.5)
    assert float(controller.price) == pytest.approx(1.5)  # no more than the whole speed at once
    controller.update_coefficient(0.0, 10.0, 0.5)
    assert float(controller.price) == pytest.approx(1.5 * 0.9)  # and a fifth of it back
    for _ in range(100):
        controller.update_coefficient(0.0, 10.0, 0.5)
    assert float(controller.price) == MIN_COEFFICIENT_SCALE


def test_diversity_is_relative_to_the_first_steps() -> None:
    controller = AdaptiveKLController()
    assert [controller.diversity_ratio(value, 2) for value in (0.8, 0.6)] == [1.0, 1.0]
    assert controller.diversity_ratio(0.35, 2) == pytest.approx(0.5)


def test_the_kl_controller_is_in_the_state_dict() -> None:
    controller, other = AdaptiveKLController(), AdaptiveKLController()
    controller.update_reward_stats(1.5, 4.0)
    controller.update_coefficient(5.0, 1.0, 0.1)
    controller.diversity_ratio(0.7, 3)
    other.load_state_dict(controller.state_dict())
    assert other.reward_mean_std == controller.reward_mean_std and torch.equal(other.price, controller.price)
    assert torch.equal(other.variety, controller.variety)
