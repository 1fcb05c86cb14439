"""data.augment: a function of (seed, epoch, sample), exact when resumed, off by default, refused where it cannot be."""

from __future__ import annotations

import pytest
import torch
from finetune_factory import FinetuneFactory, finetune_factory  # noqa: F401  # fixture

from meristem.config.errors import MeristemError, RecipeError
from meristem.finetune.augmentation import add_noise, augmenting_perturbations, check_augmentation, noisy_samples
from meristem.interfaces.sample import Sample
from meristem.labelled.settings import AugmentSettings, DataSettings
from meristem.utils.randomness import generator

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


def test_several_perturbations_change_more_words() -> None:
    text = " ".join(f"Word{number} another, simple" for number in range(20))
    sample = Sample(inputs={"text": text}, gold="1")

    def changed(**settings: object) -> float:
        noise = AugmentSettings.model_validate({"share": 1.0, "severity": 0.3, **settings})
        perturbations = augmenting_perturbations(noise, "text")
        texts = [
            str(add_noise(sample, "text", perturbations, noise, generator(0, "test", 0, index)).inputs["text"])
            for index in range(40)
        ]
        return sum(len(set(text.split()) - set(item.split())) for item in texts) / len(texts)

    assert changed(max_perturbations=6) > 1.3 * changed(max_perturbations=1)


def test_a_tokenizer_of_ones_own_sees_the_noise() -> None:
    samples = [Sample(inputs={"text": "cape paces space"}, gold="1") for _ in range(20)]
    noise = AugmentSettings.model_validate({"perturbations": ["lookalike_characters"], "share": 0.5, "severity": 1.0})
    noisy = list(noisy_samples(samples, "text", noise))
    assert 4 <= len(noisy) <= 16
    assert all(not str(item.inputs["text"]).isascii() for item in noisy)
    assert [item.inputs for item in noisy_samples(samples, "text", noise)] == [item.inputs for item in noisy]
