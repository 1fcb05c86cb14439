"""Arithmetic of federated strategies: means, FedAdam, clipping, masks that cancel, shares, and the ε that is spent."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from meristem.config.errors import RecipeError
from meristem.trust.federated.aggregation import ServerOptimizer, clip_update, update_norm, weighted_mean
from meristem.trust.federated.masking import (
    add_masks,
    decode_fixed_point,
    encode_fixed_point,
    join_shares,
    mask_like,
    pair_sign,
    split_secret,
)
from meristem.trust.federated.participation import choose_clients, client_seed, drops_out
from meristem.trust.federated.settings import FederatedPrivacySettings, FederatedSettings
from meristem.trust.federated.update_privacy import (
    check_budget,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_noise,
    load_noise_key,
    spent_epsilon,
)


def federated(**values: object) -> FederatedSettings:
    """Settings with these values."""
    return FederatedSettings.model_validate(values)


def random_update(seed: int) -> dict[str, torch.Tensor]:
    """Two tensors of unequal sizes."""
    draw = torch.Generator().manual_seed(seed)
    return {"a": torch.randn(5, 3, generator=draw), "b": torch.randn(7, generator=draw)}


def test_fedavg_is_the_mean_weighted_by_tokens() -> None:
    updates = [(random_update(seed), weight) for seed, weight in ((0, 100.0), (1, 250.0), (2, 7.0))]
    mean = weighted_mean(updates)
    for name in ("a", "b"):
        reference = np.average(
            np.stack([update[name].double().numpy() for update, _ in updates]), axis=0, weights=[100.0, 250.0, 7.0]
        )
        np.testing.assert_allclose(mean[name].numpy(), reference, rtol=1e-13)
    weights = random_update(9)
    new = ServerOptimizer(settings=federated(strategy="fedavg")).step(weights, mean)
    torch.testing.assert_close(new["a"], (weights["a"].double() + mean["a"]).float(), rtol=0, atol=0)


def test_fedadam_follows_its_paper() -> None:
    settings = federated(strategy="fedadam", server_learning_rate=0.1, server_betas=[0.8, 0.95], server_epsilon=1e-2)
    optimizer, weights = ServerOptimizer(settings=settings), random_update(9)
    reference = {name: tensor.double().numpy() for name, tensor in weights.items()}
    first = {name: np.zeros_like(value) for name, value in reference.items()}
    second = {name: np.zeros_like(value) for name, value in reference.items()}
    for step in range(6):
        mean = weighted_mean([(random_update(step), 1.0)])
        weights = optimizer.step(weights, mean)
        for name, value in mean.items():
            update = value.numpy()
            first[name] = 0.8 * first[name] + 0.2 * update
            second[name] = 0.95 * second[name] + 0.05 * update**2
            reference[name] = reference[name] + 0.1 * first[name] / (np.sqrt(second[name]) + 1e-2)
    for name, tensor in weights.items():
        np.testing.assert_allclose(tensor.numpy(), reference[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bound", [0.01, 1.0, 4.9, 50.0])
def test_a_clipped_update_is_no_longer_than_the_bound(bound: float) -> None:
    update = random_update(3)
    clipped = clip_update(update, bound)
    assert update_norm(clipped) <= bound
    if update_norm(update) <= bound:
        torch.testing.assert_close(clipped["a"], update["a"], rtol=0, atol=0)
    else:
        assert update_norm(clipped) == pytest.approx(bound, rel=1e-5)
        cosine = sum(float((clipped[name] * update[name]).sum()) for name in update) / (bound * update_norm(update))
        assert cosine == pytest.approx(1, rel=1e-5)


# ------------------------------------------------------------ masks


def test_masks_of_all_clients_cancel_and_one_alone_hides_the_update() -> None:
    names = ["anna", "ben", "cleo", "dora"]
    updates = {name: random_update(number) for number, name in enumerate(names)}
    seeds = {frozenset(pair): repr(sorted(pair)).encode() for pair in combinations(names, 2)}
    total = None
    for name in names:
        encoded = encode_fixed_point(updates[name], 2.0)
        masks = [
            (mask_like(encoded, seeds[frozenset((name, other))]), pair_sign(name, other))
            for other in names
            if other != name
        ]
        masked = add_masks(encoded, masks)
        assert (masked["a"] != encoded["a"]).all()
        total = masked if total is None else add_masks(total, [(masked, 1)])
    assert total is not None
    mean = decode_fixed_point(total, 8.0)
    reference = weighted_mean([(update, 2.0) for update in updates.values()])
    for name in reference:
        torch.testing.assert_close(mean[name], reference[name], rtol=0, atol=2.0**-32)


def test_a_mask_is_uniform_over_all_64_bits() -> None:
    mask = mask_like({"a": torch.zeros(1 << 15)}, b"seed")["a"].numpy().view(np.uint64)
    for bit in range(64):
        share = float(((mask >> np.uint64(bit)) & np.uint64(1)).mean())
        assert abs(share - 0.5) < 5 * 0.5 / math.sqrt(len(mask))
    assert len(np.unique(mask)) == len(mask)


def test_any_threshold_of_shares_gives_the_secret_and_fewer_do_not() -> None:
    secret = bytes(range(32))
    shares = dict(enumerate(split_secret(secret, 3, 5), 1))
    for chosen in combinations(shares, 3):
        assert join_shares({number: shares[number] for number in chosen}) == secret
    assert join_shares(shares) == secret
    for chosen in combinations(shares, 2):
        assert join_shares({number: shares[number] for number in chosen}) != secret
    with pytest.raises(ValueError, match="at least as many"):
        split_secret(secret, 6, 5)


# ------------------------------------------------------------ privacy


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 4.0])
def test_delta_is_the_hockey_stick_divergence_of_two_gaussians(mu: float, epsilon: float) -> None:
    def excess(x: float) -> float:
        return max(0.0, stats.norm.pdf(x, mu) - math.exp(epsilon) * stats.norm.pdf(x))

    start = mu / 2 + epsilon / mu  # where the two densities meet
    reference = integrate.quad(excess, start, start + 40, epsabs=1e-14)[0]
    assert gaussian_delta(mu, epsilon) == pytest.approx(reference, rel=1e-6, abs=1e-13)


def test_epsilon_of_a_run_is_that_of_one_mechanism_with_less_noise() -> None:
    privacy = FederatedPrivacySettings.model_validate({"noise_multiplier": 4.0, "delta": 1e-6})
    for rounds in (1, 7, 400):
        epsilon = spent_epsilon(rounds, privacy)
        assert gaussian_delta(math.sqrt(rounds) / 4.0, epsilon) == pytest.approx(1e-6, rel=1e-6)
    assert spent_epsilon(0, privacy) == 0
    assert gaussian_epsilon(1e-7, 1e-3) == 0


def test_a_run_that_would_spend_more_than_its_budget_is_refused_with_the_noise_that_is_needed() -> None:
    settings = federated(rounds=50, privacy={"noise_multiplier": 1.0, "epsilon": 3.0})
    with pytest.raises(RecipeError, match=r"noise_multiplier=([\d.]+)") as error:
        check_budget(settings)
    needed = float(str(error.value).split("noise_multiplier=")[2].split(",")[0])
    enough = federated(rounds=50, privacy={"noise_multiplier": needed, "epsilon": 3.0})
    spent = check_budget(enough)
    assert spent is not None
    assert 2.9 < spent <= 3.0


def test_noise_is_gaussian_secret_and_repeatable(tmp_path: Path) -> None:
    key = load_noise_key(tmp_path / "keys" / "server")
    assert key == load_noise_key(tmp_path / "keys" / "server")
    assert key != load_noise_key(tmp_path / "keys" / "other")
    assert (tmp_path / "keys" / "server").stat().st_mode & 0o077 == 0
    like = {"a": torch.zeros(200, 100)}
    first, again, later = (gaussian_noise(like, 0.3, key=key, round_number=number)["a"] for number in (4, 4, 5))
    assert torch.equal(first, again)
    assert stats.kstest(first.flatten().numpy() / 0.3, "norm").pvalue > 1e-6
    assert abs(np.corrcoef(first.flatten().numpy(), later.flatten().numpy())[0, 1]) < 5 / math.sqrt(20_000)


# ------------------------------------------------------------ participation


def test_clients_drop_out_as_often_as_asked_and_come_back() -> None:
    names = [f"c{number}" for number in range(20)]
    away = np.array(
        [[drops_out(name, seed=1, round_number=number, probability=0.3) for number in range(300)] for name in names]
    )
    assert abs(away.mean() - 0.3) < 5 * math.sqrt(0.21 / away.size)
    assert (~away[:, 1:] & away[:, :-1]).any(axis=1).all()  # each comes back
    assert not drops_out("c0", seed=1, round_number=0, probability=0.0)


def test_a_share_of_the_clients_is_asked_all_of_them_in_turn() -> None:
    names = [f"c{number}" for number in range(10)]
    asked = [choose_clients(names, seed=0, round_number=number, fraction=0.3, at_least=2) for number in range(60)]
    assert {len(chosen) for chosen in asked} == {3}
    assert {name for chosen in asked for name in chosen} == set(names)
    assert choose_clients(names[::-1], seed=0, round_number=5, fraction=0.3, at_least=2) == asked[5]
    assert len({client_seed(0, name) for name in names}) == len(names)
