from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining

from meristem.config.errors import MeristemError
from meristem.interfaces.backbone import Head, Model
from meristem.models.bert import Bert, BertSettings

WORDS = 61
Close = Callable[[Tensor, Tensor], None]


def theirs(kind: type[nn.Module], dtype: torch.dtype) -> nn.Module:
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=80,
        max_position_embeddings=20,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return kind(config).to(dtype)


def ours(dtype: torch.dtype) -> Model:
    settings = BertSettings(layers=3, hidden_size=32, heads=4, ffn_size=80, max_length=20)
    heads = {"mlm": Head("vocabulary"), "nsp": Head("pooled", (("classes", 2),))}
    return Model(Bert(settings, WORDS), heads).to(dtype)


def same_name(name: str) -> list[str]:
    """Where transformers keeps what one of our tensors holds; three for the fused projection."""
    layer = name.removeprefix("backbone.stack.layers.").split(".", 1)
    if len(layer) == 2 and layer[0].isdigit():
        layer_prefix, rest = f"bert.encoder.layer.{layer[0]}.", layer[1]
        if rest.startswith("attention.project"):
            return [
                f"{layer_prefix}attention.self.{part}.{rest.rsplit('.', 1)[1]}" for part in ("query", "key", "value")
            ]
        for our_name, their_name in (
            ("attention.output", "attention.output.dense"),
            ("attention_norm", "attention.output.LayerNorm"),
            ("feed_forward.widen", "intermediate.dense"),
            ("feed_forward.narrow", "output.dense"),
            ("feed_forward_norm", "output.LayerNorm"),
        ):
            if rest.startswith(our_name + "."):
                return [layer_prefix + their_name + rest.removeprefix(our_name)]
    fixed = {
        "backbone.embed.tokens.": "bert.embeddings.word_embeddings.",
        "backbone.embed.positions.": "bert.embeddings.position_embeddings.",
        "backbone.embed.segments.": "bert.embeddings.token_type_embeddings.",
        "backbone.embed.norm.": "bert.embeddings.LayerNorm.",
        "heads.mlm.transform.dense.": "cls.predictions.transform.dense.",
        "heads.mlm.transform.norm.": "cls.predictions.transform.LayerNorm.",
        "heads.mlm.": "cls.predictions.",
        "heads.nsp.dense.": "bert.pooler.dense.",
        "heads.nsp.score.": "cls.seq_relationship.",
    }
    return next(
        [their_fixed_name + name.removeprefix(fixed_name)]
        for fixed_name, their_fixed_name in fixed.items()
        if name.startswith(fixed_name)
    )


def copy(our_model: nn.Module, other: nn.Module) -> dict[str, list[str]]:
    """Fill our model with theirs; the map of names whose gradients must then agree."""
    named = dict(other.named_parameters())
    pairs = {name: same_name(name) for name, _ in our_model.named_parameters()}
    pairs = {name: pair for name, pair in pairs.items() if all(f in named for f in pair)}
    with torch.no_grad():
        for name, parameter in our_model.named_parameters():
            if name in pairs:
                parameter.copy_(torch.cat([named[f] for f in pairs[name]]))
    assert {f for pair in pairs.values() for f in pair} == set(named)
    return pairs


def agree(our_model: nn.Module, other: nn.Module, pairs: dict[str, list[str]], close: Close) -> None:
    our_parameters, their_parameters = dict(our_model.named_parameters()), dict(other.named_parameters())
    for name, pair in pairs.items():
        close(our_parameters[name].grad, torch.cat([their_parameters[f].grad for f in pair]))


def test_the_same_as_transformers_pretraining(
    dtype: torch.dtype, close: Close, ragged: tuple[Tensor, Tensor], randomised: Callable[[nn.Module], None]
) -> None:
    tokens, present = ragged
    segments = (torch.arange(13)[None] > torch.tensor([[6], [3], [0]])).long()
    other, our_model = theirs(BertForPreTraining, dtype), ours(dtype)
    randomised(other)
    pairs = copy(our_model, other)
    assert len(pairs) == len(list(our_model.parameters()))
    out = other(input_ids=tokens, token_type_ids=segments, attention_mask=present.long())
    hidden = our_model.backbone(tokens=tokens, segments=segments, present=present)
    words, follows = (
        our_model.heads["mlm"](hidden.last_hidden_state),
        our_model.heads["nsp"](hidden.last_hidden_state[:, 0]),
    )
    close(words[present], out.prediction_logits[present])
    close(follows, out.seq_relationship_logits)
    weight = torch.randn(words[present].shape, dtype=dtype) / 50
    ((words[present] * weight).sum() + follows[:, 0].sum()).backward()
    ((out.prediction_logits[present] * weight).sum() + out.seq_relationship_logits[:, 0].sum()).backward()
    agree(our_model, other, pairs, close)


@pytest.mark.parametrize("length", [1, 2, 5, 13])
def test_the_same_masked_loss_and_gradients(
    dtype: torch.dtype, close: Close, length: int, randomised: Callable[[nn.Module], None]
) -> None:
    other, our_model = theirs(BertForMaskedLM, dtype), ours(dtype)
    randomised(other)
    pairs = copy(our_model, other)
    tokens = torch.randint(5, WORDS, (4, length))
    labels = torch.where(torch.arange(4 * length).view(4, length) % 3 == 0, tokens, -100)
    out = other(input_ids=tokens, labels=labels)
    masked_positions = (labels.flatten() != -100).nonzero()[:, 0]
    hidden = our_model.backbone(tokens=tokens)
    loss = our_model.heads["mlm"].compute_loss(hidden.select(masked_positions), labels.flatten()[masked_positions])
    close(loss.total / len(masked_positions), out.loss)
    (loss.total / len(masked_positions)).backward()
    out.loss.backward()
    agree(our_model, other, pairs, close)


def test_bert_base_has_the_papers_parameters() -> None:
    """110 M: the published checkpoint holds 109,482,240 in body and pooler."""
    with torch.device("meta"):
        model = Model(
            Bert(BertSettings(), 30_522), {"mlm": Head("vocabulary"), "nsp": Head("pooled", (("classes", 2),))}
        )
    body = sum(p.numel() for p in model.backbone.parameters())
    pooler = sum(p.numel() for p in model.heads["nsp"].dense.parameters())
    assert body + pooler == 109_482_240
    assert sum(p.numel() for p in model.parameters()) == 110_106_428


def test_segments_can_be_left_out() -> None:
    model = Bert(BertSettings(layers=1, hidden_size=8, heads=2, max_length=8, segments=0), WORDS)
    assert model.embed.segments is None
    assert model(tokens=torch.tensor([[1, 2]])).last_hidden_state.shape == (1, 2, 8)


def test_pre_norm_stacks_normalise_at_the_end_instead() -> None:
    settings = BertSettings(
        layers=1,
        hidden_size=8,
        heads=2,
        max_length=8,
        norm_position="pre",
        position_encoding="rotary",
        output_init="zero",
    )
    model = Bert(settings, WORDS)
    assert model.embed.norm is None
    last = model(tokens=torch.tensor([[1, 2, 3]])).last_hidden_state
    torch.testing.assert_close(last.mean(-1), torch.zeros(1, 3), atol=1e-6, rtol=0)


def test_an_unknown_head_is_refused() -> None:
    with pytest.raises(MeristemError, match="bert family has no head 'spans'; it has vocabulary, pooled"):
        Bert(BertSettings(layers=1, hidden_size=8, heads=2, max_length=8), WORDS).build_head("spans")
