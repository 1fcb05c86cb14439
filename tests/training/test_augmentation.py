"""data.augment: a function of (seed, epoch, sample), exact when resumed, off by default, refused where it cannot be."""

from __future__ import annotations

import pytest
import torch
from finetune_factory import FinetuneFactory, finetune_factory  # noqa: F401  # fixture

from meristem.config.errors import MeristemError, RecipeError
from meristem.finetune.augmentation import augmenting_perturbations, check_augmentation
from meristem.labelled.settings import AugmentSettings, DataSettings

NOISE = {"data.augment": {"perturbations": ["keyboard_typos"], "share": 0.8, "severity": 1.0}}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


def test_noise_is_repeated_exactly_and_a_resumed_run_is_the_same(finetune_factory: FinetuneFactory) -> None:  # noqa: F811
    factory = finetune_factory
    factory.learn(NOISE, run="whole")
    factory.learn(NOISE, run="again")
    assert factory.losses("whole") == factory.losses("again")
    factory.learn({**NOISE, "train.steps": 3, "train.save_every": 3}, run="part")
    factory.learn({**NOISE, "train.save_every": 3}, run="part")
    assert same(factory.weights("whole"), factory.weights("part"))
    factory.learn(run="clean")
    assert factory.losses("clean") != factory.losses("whole")


def test_the_settings_and_what_is_refused() -> None:
    assert DataSettings.model_validate({}).augment is None
    assert DataSettings.model_validate({"augment": True}).augment == AugmentSettings.model_validate({})
    settings = AugmentSettings.model_validate({})
    assert not any(item.label_risk for item in augmenting_perturbations(settings, "text"))
    with pytest.raises(ValueError, match="no perturbation 'typos'"):
        AugmentSettings.model_validate({"perturbations": ["typos"]})
    word_order = AugmentSettings.model_validate({"perturbations": ["word_order"]})
    with pytest.raises(RecipeError, match="word_order cannot be used for this task: the answer would not stand"):
        augmenting_perturbations(word_order, "span")
    with pytest.raises(MeristemError, match="task translation: its samples cannot be perturbed"):
        check_augmentation(settings, "source_target", "translation")
