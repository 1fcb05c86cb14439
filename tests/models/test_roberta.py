from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import RobertaConfig, RobertaForMaskedLM

from meristem.interfaces.backbone import Head, Model
from meristem.models.roberta import Roberta, RobertaSettings

WORDS, OFFSET = 61, 2  # transformers counts positions from pad + 1 = 2
NAMES = {
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.widen": "intermediate.dense",
    "feed_forward.narrow": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}


def build_both(dtype: torch.dtype) -> tuple[Model, nn.Module]:
    config = RobertaConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=80,
        max_position_embeddings=20 + OFFSET,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=1,
    )
    settings = RobertaSettings(layers=2, hidden_size=32, heads=4, ffn_size=80, max_length=20)
    return Model(Roberta(settings, WORDS), {"mlm": Head("vocabulary")}).to(dtype), RobertaForMaskedLM(config).to(dtype)


def paired(our_model: nn.Module, other: nn.Module) -> dict[str, Callable[[Callable[[str], Tensor]], Tensor]]:
    """Our name → how it is made of theirs; the one type embedding is folded into the positions."""
    getters: dict[str, Callable[[Callable[[str], Tensor]], Tensor]] = {}
    for number in range(2):
        our_prefix, their_prefix = f"backbone.stack.layers.{number}.", f"roberta.encoder.layer.{number}."
        for kind in ("weight", "bias"):
            three = [f"{their_prefix}attention.self.{part}.{kind}" for part in ("query", "key", "value")]
            getters[f"{our_prefix}attention.project.{kind}"] = lambda their_tensor, three=three: torch.cat(
                [their_tensor(name) for name in three]
            )
            for ours, theirs in NAMES.items():
                getters[f"{our_prefix}{ours}.{kind}"] = lambda their_tensor, name=f"{their_prefix}{theirs}.{kind}": (
                    their_tensor(name)
                )
    for kind in ("weight", "bias"):
        getters[f"backbone.embed.norm.{kind}"] = lambda their_tensor, kind=kind: their_tensor(
            f"roberta.embeddings.LayerNorm.{kind}"
        )
        getters[f"heads.mlm.transform.dense.{kind}"] = lambda their_tensor, kind=kind: their_tensor(
            f"lm_head.dense.{kind}"
        )
        getters[f"heads.mlm.transform.norm.{kind}"] = lambda their_tensor, kind=kind: their_tensor(
            f"lm_head.layer_norm.{kind}"
        )
    getters["backbone.embed.tokens.weight"] = lambda their_tensor: their_tensor(
        "roberta.embeddings.word_embeddings.weight"
    )
    getters["heads.mlm.bias"] = lambda their_tensor: their_tensor("lm_head.bias")
    return getters


def test_the_same_as_transformers(
    dtype: torch.dtype,
    close: Callable[[Tensor, Tensor], None],
    ragged: tuple[Tensor, Tensor],
    randomised: Callable[[nn.Module], None],
) -> None:
    tokens, present = ragged
    our_model, other = build_both(dtype)
    randomised(other)
    named, pairs = dict(other.named_parameters()), paired(our_model, other)
    with torch.no_grad():
        for name, parameter in our_model.named_parameters():
            if name in pairs:
                parameter.copy_(pairs[name](named.__getitem__))
        folded = (
            named["roberta.embeddings.position_embeddings.weight"][OFFSET:]
            + named["roberta.embeddings.token_type_embeddings.weight"]
        )
        our_model.backbone.embed.positions.weight.copy_(folded)
    assert set(pairs) | {"backbone.embed.positions.weight"} == {name for name, _ in our_model.named_parameters()}
    theirs = other(input_ids=tokens, attention_mask=present.long()).logits[present]
    ours = our_model.heads["mlm"](our_model.backbone(tokens=tokens, present=present).last_hidden_state[present])
    close(ours, theirs)
    weight = torch.randn(ours.shape, dtype=dtype) / 50
    (ours * weight).sum().backward()
    (theirs * weight).sum().backward()
    our_parameters = dict(our_model.named_parameters())
    for name, pair in pairs.items():
        our_gradient, expected = our_parameters[name].grad, pair(lambda theirs: named[theirs].grad)
        if name == "backbone.embed.tokens.weight":  # transformers' table has no gradient at its padding row
            our_gradient = our_gradient[2:]
            expected = expected[2:]
        close(our_gradient, expected)
    close(
        our_parameters["backbone.embed.positions.weight"].grad,
        named["roberta.embeddings.position_embeddings.weight"].grad[OFFSET:],
    )


def test_roberta_base_has_its_parameters() -> None:
    """The published 124.6 M, less one type embedding and two unused positions."""
    with torch.device("meta"):
        model = Model(Roberta(RobertaSettings(), 50_265), {"mlm": Head("vocabulary")})
    assert sum(p.numel() for p in model.parameters()) == 124_697_433 - 768 - 2 * 768
