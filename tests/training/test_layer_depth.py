"""Layer depths and layer-wise learning-rate decay for every model family."""

from __future__ import annotations

import re

import pytest
from cases import NARROW, SMALL

from meristem.config.recipe import resolve_recipe
from meristem.interfaces.backbone import MODEL_FAMILIES, Model
from meristem.learning.build import build_learner
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.optim.layer_depth import layer_depths
from meristem.training.optim.muon import Muon
from meristem.training.optim.param_groups import build_optimizers, parameter_names
from meristem.training.settings import TrainSettings

OBJECTIVE = {
    "bert": "mlm", "roberta": "mlm", "modern": "mlm", "modernbert": "mlm", "electra": "rtd", "gpt": "clm",
    "gpt2": "clm", "transformer_xl": "clm", "xlnet": "plm", "elmo": "bilm", "transformer": "seq2seq", "rnn": "seq2seq",
    "captioner": "caption", "multitask": "seq2seq", "mamba": "clm",
}  # fmt: skip
TABLE: dict[str, dict[str, int]] = {
    "bert": {r"heads\.mlm\..*": 0, r"backbone\.stack\.layers\.2\..*": 1, r"backbone\.stack\.layers\.1\..*": 2,
             r"backbone\.stack\.layers\.0\..*": 3, r"backbone\.embed\..*": 4},
    "gpt2": {r"backbone\.stack\.(layers\.2|final_norm)\..*": 1, r"backbone\.stack\.layers\.1\..*": 2,
             r"backbone\.stack\.layers\.0\..*": 3, r"backbone\.embed\..*": 4},
    "transformer": {r"backbone\.(encoder|decoder)\.layers\.2\..*": 1, r"backbone\.(encoder|decoder)\.layers\.1\..*": 2,
                    r"backbone\.(encoder|decoder)\.layers\.0\..*": 3, r"backbone\.tokens\..*": 4},
    "elmo": {r"backbone\.layers\.2\..*": 1, r"backbone\.layers\.1\..*": 2, r"backbone\.layers\.0\..*": 3,
             r"backbone\.(characters|words)\..*": 4, r"heads\.bilm\..*": 0},
    "xlnet": {r"heads\.plm\..*": 0, r"backbone\.stack\.layers\.2\..*": 1, r"backbone\.stack\.layers\.1\..*": 2,
              r"backbone\.stack\.layers\.0\..*": 3, r"backbone\.(tokens\..*|query)": 4},
    "mamba": {r"backbone\.(layers\.2|final_norm)\..*": 1, r"backbone\.layers\.1\..*": 2,
              r"backbone\.layers\.0\..*": 3, r"backbone\.tokens\..*": 4},
    "rnn": {r"heads\..*": 0, r"backbone\.(encoder|decoder)\..*_l2(_reverse)?": 1,
            r"backbone\.decoder\.(join|look)\..*": 1, r"backbone\.(encoder|decoder)\..*_l1(_reverse)?": 2,
            r"backbone\.(encoder|decoder)\..*_l0(_reverse)?": 3, r"backbone\.words\..*": 4},
}  # fmt: skip
"""Three layers each: pattern of a name → how many times the factor counts."""


def model_of(family: str, tokenizer: Tokenizer) -> Model:
    model_settings = {"family": family, **SMALL.get(family, NARROW), "layers": 3, "max_length": 24}
    return build_learner(
        resolve_recipe("deep", {"model": model_settings, "objective": OBJECTIVE[family]}), tokenizer
    ).model


@pytest.mark.parametrize("family", TABLE)
def test_depths_are_those_of_the_table(family: str, tokenizer: Tokenizer) -> None:
    model = model_of(family, tokenizer)
    named = {name: layer_depths(model)[parameter] for parameter, name in parameter_names(model).items()}
    for name, depth in named.items():
        expected = [number for pattern, number in TABLE[family].items() if re.fullmatch(pattern, name)]
        assert expected == [depth], name
    pattern_matches = [any(re.fullmatch(pattern, name) for name in named) for pattern in TABLE[family]]
    assert all(pattern_matches), "a line of the table says nothing about this family"


@pytest.mark.parametrize("family", MODEL_FAMILIES)
def test_every_family_has_layers_between_its_heads_and_its_embeddings(family: str, tokenizer: Tokenizer) -> None:
    model = model_of(family, tokenizer)
    depths = layer_depths(model)
    assert set(depths) == set(model.parameters())
    assert {1, 2, 3, 4} <= set(depths.values()) <= {0, 1, 2, 3, 4}
    assert depths[model.backbone.embedding().weight] == 4  # type: ignore[index]  # a parameter


@pytest.mark.parametrize("family", ["bert", "gpt2", "transformer", "elmo", "xlnet"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_rates_fall_by_the_factor(family: str, optimizer: str, tokenizer: Tokenizer) -> None:
    model = model_of(family, tokenizer)
    settings = TrainSettings(layer_lr_decay=0.5, learning_rate=0.01, optimizer=optimizer, weight_decay=0.1)  # type: ignore[arg-type]  # one of two words
    depths, grouped_parameters = layer_depths(model), set()
    for group_optimizer in build_optimizers(model, settings):
        peak = 0.04 if isinstance(group_optimizer, Muon) else 0.01
        for group in group_optimizer.param_groups:
            for parameter in group["params"]:
                grouped_parameters.add(parameter)
                assert group["lr"] == group["peak"] == pytest.approx(peak * 0.5 ** depths[parameter])
                assert group["weight_decay"] == (0.1 if parameter.ndim >= 2 else 0.0)
    assert grouped_parameters == set(model.parameters())


def test_without_decay_the_groups_are_two(tokenizer: Tokenizer) -> None:
    (adamw,) = build_optimizers(model_of("bert", tokenizer), TrainSettings())
    assert [group["weight_decay"] for group in adamw.param_groups] == [0.01, 0.0]
