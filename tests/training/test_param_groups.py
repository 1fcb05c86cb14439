"""Optimizers and parameter groups: weight decay, Muon and AdamW, frozen and tied parameters."""

from __future__ import annotations

import torch
from cases import Case, real

from meristem.dataset.token_dataset import TokenDataset
from meristem.interfaces.backbone import Model
from meristem.models.modern import Modern, ModernSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.optim.muon import Muon
from meristem.training.optim.param_groups import build_optimizers, muon_split_sizes, parameter_names, set_lr_factor
from meristem.training.settings import TrainSettings
from meristem.training.train_state import DECLARED_SPLIT, SHAPE_SPLIT


def model_of(tokenizer: Tokenizer, store: TokenDataset) -> Model:
    return real(Case(["mlm", "nsp"], "bert"), tokenizer, store)[0].model


def test_norms_and_biases_do_not_decay(tokenizer: Tokenizer, store: TokenDataset) -> None:
    model = model_of(tokenizer, store)
    names = parameter_names(model)
    (adamw,) = build_optimizers(model, TrainSettings(weight_decay=0.3))
    decay = {names[p]: group["weight_decay"] for group in adamw.param_groups for p in group["params"]}
    assert set(decay) == set(names.values())
    assert all(value == (0.0 if name.endswith("bias") or "norm" in name else 0.3) for name, value in decay.items())
    assert adamw.param_groups[0]["fused"]


def test_muon_moves_the_backbones_matrices_and_adamw_the_rest(tokenizer: Tokenizer, store: TokenDataset) -> None:
    model = model_of(tokenizer, store)
    names = parameter_names(model)
    adamw, muon = build_optimizers(model, TrainSettings(optimizer="muon"))
    assert isinstance(muon, Muon)
    theirs = [{names[p] for group in optimizer.param_groups for p in group["params"]} for optimizer in (adamw, muon)]
    assert theirs[0] | theirs[1] == set(names.values())
    assert not theirs[0] & theirs[1]
    assert theirs[1] == {n for n in names.values() if "stack.layers" in n and n.endswith("weight") and "norm" not in n}


def test_what_is_frozen_is_not_moved(tokenizer: Tokenizer, store: TokenDataset) -> None:
    model = model_of(tokenizer, store)
    model.backbone.requires_grad_(False)
    optimizers = build_optimizers(model, TrainSettings(optimizer="muon"))
    assert {id(p) for optimizer in optimizers for g in optimizer.param_groups for p in g["params"]} == {
        id(p) for p in model.parameters() if p.requires_grad
    }


def test_rates_are_set_from_their_peak(tokenizer: Tokenizer, store: TokenDataset) -> None:
    optimizers = build_optimizers(
        model_of(tokenizer, store), TrainSettings(optimizer="muon", learning_rate=0.02, muon_learning_rate=0.05)
    )
    for share in (0.5, 0.1, 1.0):
        set_lr_factor(optimizers, share)
        assert [{group["lr"] for group in optimizer.param_groups} for optimizer in optimizers] == [
            {0.02 * share},
            {0.05 * share},
        ]


def test_matrices_have_four_times_the_learning_rate_unless_set(tokenizer: Tokenizer, store: TokenDataset) -> None:
    _, muon = build_optimizers(model_of(tokenizer, store), TrainSettings(optimizer="muon", learning_rate=0.02))
    assert {group["lr"] for group in muon.param_groups} == {0.08}


def test_a_tied_parameter_has_one_name() -> None:
    tied = torch.nn.Linear(3, 3, bias=False)
    module_list = torch.nn.ModuleList([tied, tied])
    assert list(parameter_names(module_list).values()) == ["0.weight"]


def test_muon_moves_a_generators_matrices_too(tokenizer: Tokenizer, store: TokenDataset) -> None:
    model = real(Case("rtd", "electra"), tokenizer, store)[0].model
    names = parameter_names(model)
    adamw, muon = build_optimizers(model, TrainSettings(optimizer="muon"))
    moved, rest = (
        {names[p] for group in optimizer.param_groups for p in group["params"]} for optimizer in (muon, adamw)
    )
    assert {n for n in names.values() if "layers" in n and n.endswith("weight") and "norm" not in n} <= moved
    assert {"backbone.project.weight", "heads.generator.body.project.weight"} <= moved
    assert {"backbone.embed.tokens.weight", "heads.generator.words.transform.dense.weight"} <= rest
    assert moved | rest == set(names.values())


def test_modules_declare_how_muon_splits_their_fused_matrices() -> None:
    """Queries, keys, values and gates are matrices of their own; a wide feed-forward matrix is one."""
    settings = ModernSettings(layers=1, hidden_size=32, heads=4, kv_heads=2, ffn_size=64, max_length=8)
    model = Model(Modern(settings, 50), {})
    names = parameter_names(model)
    sizes = {names[p].removeprefix("backbone."): part for p, part in muon_split_sizes(model, DECLARED_SPLIT).items()}
    assert sizes == {
        "stack.layers.0.attention.project.weight": (32, 16, 16),
        "stack.layers.0.feed_forward.widen.weight": (64, 64),
    }
    by_shape = {names[p].removeprefix("backbone."): part for p, part in muon_split_sizes(model, SHAPE_SPLIT).items()}
    assert by_shape["stack.layers.0.attention.project.weight"] == (32, 32)  # two query heads with the keys and values
    assert by_shape["stack.layers.0.feed_forward.widen.weight"] == (32,) * 4


def test_a_four_times_wide_matrix_is_not_cut(tokenizer: Tokenizer, store: TokenDataset) -> None:
    model = model_of(tokenizer, store)
    sizes = {parameter_names(model)[p]: part for p, part in muon_split_sizes(model, DECLARED_SPLIT).items()}
    assert sizes["backbone.stack.layers.1.feed_forward.widen.weight"] == (128,)
    assert sizes["backbone.stack.layers.1.attention.project.weight"] == (32, 32, 32)
    for case, suffix in (
        (Case("seq2seq", "transformer"), "cross.source"),
        (Case("clm", "transformer_xl"), "key_value"),
    ):
        other = real(case, tokenizer, store)[0].model
        sizes = {parameter_names(other)[p]: part for p, part in muon_split_sizes(other, DECLARED_SPLIT).items()}
        assert {part for name, part in sizes.items() if name.endswith(f"{suffix}.weight")} == {(32, 32)}
