"""ModernBERT: which layers see how far, and gradients equal to those of transformers' model."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import transformers

from meristem.interfaces.backbone import Head, Model
from meristem.interop.families.modernbert import ModernBertModelType
from meristem.interop.weight_map import WeightRule
from meristem.models.modernbert import ModernBert, ModernBertSettings

SETTINGS = ModernBertSettings(
    layers=4, hidden_size=32, heads=4, ffn_size=48, max_length=32, attention_window=3, global_attention_every=3,
    init_std=0.3, output_init="normal",
)  # fmt: skip
VOCABULARY = 50


def build() -> Model:
    torch.manual_seed(3)
    model = Model(ModernBert(SETTINGS, VOCABULARY), {"mlm": Head("vocabulary")})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def test_the_first_and_every_third_layer_see_the_whole_text() -> None:
    model, tokens = build(), torch.arange(20)[None]
    weights = model.backbone(tokens=tokens, want=("attention",)).attention
    distance = (torch.arange(20)[:, None] - torch.arange(20)).abs()
    for index, layer in enumerate(weights):
        visible = layer[0].amin(0) > 0
        assert torch.equal(visible, torch.ones_like(visible) if index in (0, 3) else distance < 3)


def test_nothing_but_the_vocabulary_has_a_bias() -> None:
    assert [name for name, _ in build().named_parameters() if name.endswith("bias")] == ["heads.mlm.bias"]


def test_gradients_are_those_of_transformers() -> None:
    model = build()
    config = transformers.ModernBertConfig(
        **{**ModernBertModelType.config_from_settings(SETTINGS), "vocab_size": VOCABULARY},
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")),
    )
    other = transformers.ModernBertForMaskedLM(config)
    ours, theirs = dict(model.named_parameters()), dict(other.named_parameters())
    pairs = dict(_name_pairs(ours))
    with torch.no_grad():
        for our_name, their_name in pairs.items():
            theirs[their_name].copy_(ours[our_name])
    tokens, targets = torch.randint(0, VOCABULARY, (2, 3, 17), generator=torch.Generator().manual_seed(1))
    logits = model.heads["mlm"](model.backbone(tokens=tokens).last_hidden_state)
    _assert_close(logits, other(input_ids=tokens).logits, "logits")
    F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
    other(input_ids=tokens, labels=targets).loss.backward()
    assert pairs.keys() == ours.keys() and set(pairs.values()) == theirs.keys()
    for our_name, their_name in pairs.items():
        _assert_close(ours[our_name].grad, theirs[their_name].grad, f"{our_name}, {their_name}")


def _assert_close(actual: torch.Tensor | None, expected: torch.Tensor | None, name: str) -> None:
    """Equal within 1e-5 of the largest value."""
    assert actual is not None and expected is not None
    assert (actual - expected).abs().max() <= 1e-5 * expected.abs().max(), name


def _name_pairs(names: dict[str, torch.nn.Parameter]) -> list[tuple[str, str]]:
    """Our parameter → theirs, by the weight rules."""
    rules: tuple[WeightRule, ...] = ModernBertModelType.weight_rules(["mlm"])
    pairs = []
    for name in names:
        module, _, kind = name.rpartition(".")
        parts = module.split(".")
        number = next((part for part in parts if part.isdigit()), "")
        for rule in rules:
            if rule.ours.format(number) == module:
                pairs.append((name, f"{rule.their_names[0].format(number)}.{kind}"))
            elif rule.ours == name:
                pairs.append((name, rule.their_names[0]))
    return pairs
