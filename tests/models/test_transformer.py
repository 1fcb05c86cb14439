from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BartConfig, BartForConditionalGeneration, T5Config, T5ForConditionalGeneration

from meristem.config.errors import MeristemError
from meristem.interfaces.backbone import Head, Model
from meristem.models.transformer import Transformer, TransformerSettings

WORDS, WIDTH, HEADS, INNER, LENGTH = 61, 32, 4, 80, 20
Close = Callable[[Tensor, Tensor], None]
Randomise = Callable[[nn.Module], None]
Pairs = dict[str, list[str]]

BART = {
    "norm_position": "post",
    "position_encoding": "learned",
    "activation": "gelu",
    "scale_embeddings": False,
    "embedding_norm": True,
}
T5 = {
    "norm_position": "pre",
    "position_encoding": "none",
    "norm": "rms",
    "norm_epsilon": 1e-6,
    "bias": False,
    "relative_buckets": 8,
    "relative_max_distance": 12,
    "scale_embeddings": False,
    "scale_attention": False,
    "scale_output": True,
}
T5_1_1 = {**T5, "activation": "geglu", "scale_output": False, "tie_embeddings": False}
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "bart": BART,
    "t5": T5,
    "t5-1.1": T5_1_1,
    "rotary": {
        "position_encoding": "rotary",
        "norm_position": "pre",
        "kv_heads": 2,
        "attention_window": 3,
        "attention_window_every": 2,
    },
}


def ours(dtype: torch.dtype, **settings: Any) -> Model:
    plain = {
        "layers": 3,
        "decoder_layers": 2,
        "hidden_size": WIDTH,
        "heads": HEADS,
        "ffn_size": INNER,
        "max_length": LENGTH,
    }
    transformer_settings = TransformerSettings.model_validate({**plain, **settings})
    return Model(Transformer(transformer_settings, WORDS), {"seq2seq": Head("vocabulary")}).to(dtype)


@pytest.fixture(params=["even", "padded", "single"])
def sides(request: pytest.FixtureRequest) -> dict[str, Tensor]:
    """Source and target of odd lengths, with and without padding on both sides."""
    generator = torch.Generator().manual_seed(3)
    source, target = (1, 1) if request.param == "single" else (13, 9)
    inputs = {
        "source": torch.randint(5, WORDS, (3, source), generator=generator),
        "tokens": torch.randint(5, WORDS, (3, target), generator=generator),
    }
    if request.param == "padded":
        inputs["source_present"] = torch.arange(13) < torch.tensor([[13], [7], [1]])
        inputs["present"] = torch.arange(9) < torch.tensor([[4], [9], [1]])
    return inputs


def copied(our_model: nn.Module, other: nn.Module, same_name: Callable[[str], list[str]]) -> Pairs:
    """Fill our model with theirs; every one of their parameters must have a place."""
    named = dict(other.named_parameters())
    pairs = {name: same_name(name) for name, _ in our_model.named_parameters()}
    with torch.no_grad():
        for name, parameter in our_model.named_parameters():
            parameter.copy_(joined(named, pairs[name], parameter))
    assert {f for pair in pairs.values() for f in pair} == set(named)
    return pairs


def joined(named: dict[str, Tensor], names: list[str], like: Tensor) -> Tensor:
    """Their tensors as one of ours; BART's positions begin at 2, and its first two are never used."""
    concatenated = torch.cat([named[name] for name in names])
    return concatenated[len(concatenated) - len(like) :]


def agree(our_model: nn.Module, other: nn.Module, pairs: Pairs, close: Close) -> None:
    their_gradients = {name: parameter.grad for name, parameter in other.named_parameters()}
    for name, parameter in our_model.named_parameters():
        assert parameter.grad is not None, name
        close(parameter.grad, joined(their_gradients, pairs[name], parameter))  # type: ignore[arg-type]  # all have one


def compare(our_model: Model, theirs: Tensor, inputs: dict[str, Tensor], close: Close) -> None:
    """Logits agree wherever there is a target; both sides then have gradients of the same sum."""
    hidden = our_model.backbone(**inputs)
    logits = our_model.heads["seq2seq"](hidden.last_hidden_state)
    present_tokens = inputs.get("present", torch.ones_like(inputs["tokens"], dtype=torch.bool))
    close(logits[present_tokens], theirs[present_tokens])
    weight = (
        torch.randn(logits[present_tokens].shape, dtype=logits.dtype, generator=torch.Generator().manual_seed(1)) / 50
    )
    (logits[present_tokens] * weight).sum().backward()
    (theirs[present_tokens] * weight).sum().backward()


# ---------------------------------------------------------------- torch.nn.Transformer


class Reference(nn.Module):
    """torch's Transformer between one table of words and itself, as the paper has it."""

    def __init__(self, pre: bool) -> None:
        super().__init__()
        shape = {"d_model": WIDTH, "nhead": HEADS, "dim_feedforward": INNER, "dropout": 0.0, "batch_first": True}
        self.words = nn.Embedding(WORDS, WIDTH)
        last = [nn.LayerNorm(WIDTH) if pre else None for _ in range(2)]
        encoder = nn.TransformerEncoderLayer(**shape, norm_first=pre)
        decoder = nn.TransformerDecoderLayer(**shape, norm_first=pre)
        self.encoder = nn.TransformerEncoder(encoder, 3, norm=last[0], enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(decoder, 2, norm=last[1])

    def forward(
        self, source: Tensor, tokens: Tensor, source_present: Tensor | None = None, present: Tensor | None = None
    ) -> Tensor:
        unseen = None if source_present is None else ~source_present
        encoded = self.encoder(self.placed(source), src_key_padding_mask=unseen)
        later = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).triu(1)
        decoded = self.decoder(self.placed(tokens), encoded, tgt_mask=later, memory_key_padding_mask=unseen)
        return decoded @ self.words.weight.t()

    def placed(self, tokens: Tensor) -> Tensor:
        """E·√d + PE(pos, 2i) = sin(pos/10000^(2i/d)), PE(pos, 2i+1) = cos of the same (§3.4, §3.5)."""
        position = torch.arange(tokens.shape[1])[:, None]
        channel = torch.arange(WIDTH)[None]
        angle = position / 10_000 ** ((channel - channel % 2).double() / WIDTH)
        table = torch.where(channel % 2 == 0, angle.sin(), angle.cos()).float()  # as a run has it
        return self.words(tokens) * WIDTH**0.5 + table.to(self.words.weight.dtype)


def torch_name(name: str) -> list[str]:
    if name == "backbone.tokens.weight":
        return ["words.weight"]
    name = name.removeprefix("backbone.").replace("final_norm", "norm")
    second = "norm3" if name.startswith("decoder") else "norm2"
    for our_name, their_name in (
        ("attention.project.", "self_attn.in_proj_"),
        ("attention.output", "self_attn.out_proj"),
        ("cross.output", "multihead_attn.out_proj"),
        ("cross_norm", "norm2"),
        ("feed_forward_norm", second),
        ("attention_norm", "norm1"),
        ("feed_forward.widen", "linear1"),
        ("feed_forward.narrow", "linear2"),
    ):
        name = name.replace(our_name, their_name)
    return [name]


@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_the_same_as_torchs_own(
    norm_position: str, dtype: torch.dtype, close: Close, sides: dict[str, Tensor], randomised: Randomise
) -> None:
    other, our_model = Reference(norm_position == "pre").to(dtype), ours(dtype, norm_position=norm_position)
    randomised(other)
    named, pairs = dict(other.named_parameters()), {}
    with torch.no_grad():
        for name, parameter in our_model.named_parameters():
            if "cross.query" in name or "cross.source" in name:  # theirs are one matrix, ours two
                joint_weight = named[
                    torch_name(name.split("cross.")[0])[0] + "multihead_attn.in_proj_" + name.split(".")[-1]
                ]
                parameter.copy_(joint_weight[:WIDTH] if "query" in name else joint_weight[WIDTH:])
            else:
                pairs[name] = torch_name(name)
                parameter.copy_(named[pairs[name][0]])
    compare(our_model, other(**sides), sides, close)
    for name, parameter in our_model.named_parameters():
        if name in pairs:
            close(parameter.grad, named[pairs[name][0]].grad)
    for number in range(2):
        cross = our_model.backbone.decoder.layers[number].cross
        for kind in ("weight", "bias"):
            joint_gradient = torch.cat([getattr(cross.query, kind).grad, getattr(cross.source, kind).grad])
            close(joint_gradient, named[f"decoder.layers.{number}.multihead_attn.in_proj_{kind}"].grad)


# ---------------------------------------------------------------- BART


def bart_name(name: str) -> list[str]:
    if name == "backbone.tokens.weight":
        return ["model.shared.weight"]
    name = name.replace("backbone.", "model.")
    for our_name, their_name in (
        ("enter_source.positions", "encoder.embed_positions"),
        ("enter_target.positions", "decoder.embed_positions"),
        ("enter_source.norm", "encoder.layernorm_embedding"),
        ("enter_target.norm", "decoder.layernorm_embedding"),
        ("attention_norm", "self_attn_layer_norm"),
        ("cross_norm", "encoder_attn_layer_norm"),
        ("feed_forward_norm", "final_layer_norm"),
        ("feed_forward.widen", "fc1"),
        ("feed_forward.narrow", "fc2"),
        ("cross.output", "encoder_attn.out_proj"),
        ("cross.query", "encoder_attn.q_proj"),
        ("attention.output", "self_attn.out_proj"),
    ):
        name = name.replace(our_name, their_name)
    for our_name, their_name, parts in (
        ("attention.project", "self_attn", "qkv"),
        ("cross.source", "encoder_attn", "kv"),
    ):
        if our_name in name:
            return [name.replace(our_name, f"{their_name}.{part}_proj") for part in parts]
    return [name]


def test_the_same_as_bart(dtype: torch.dtype, close: Close, sides: dict[str, Tensor], randomised: Randomise) -> None:
    config = BartConfig(
        vocab_size=WORDS,
        d_model=WIDTH,
        encoder_layers=3,
        decoder_layers=2,
        dropout=0.0,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=INNER,
        decoder_ffn_dim=INNER,
        max_position_embeddings=LENGTH,
        attn_implementation="sdpa",
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=2,
        forced_eos_token_id=None,
    )
    other, our_model = BartForConditionalGeneration(config).to(dtype), ours(dtype, **BART)
    randomised(other)
    pairs = copied(our_model, other, bart_name)
    compare(our_model, theirs(other, sides), sides, close)
    agree(our_model, other, pairs, close)


def theirs(model: nn.Module, sides: dict[str, Tensor]) -> Tensor:
    """Logits as transformers' encoder-decoders give them."""
    masks = {"attention_mask": sides.get("source_present"), "decoder_attention_mask": sides.get("present")}
    return model(
        input_ids=sides["source"],
        decoder_input_ids=sides["tokens"],
        use_cache=False,  # type: ignore[no-any-return]
        **{name: mask.long() for name, mask in masks.items() if mask is not None},
    ).logits


# ---------------------------------------------------------------- T5


def t5_name(name: str) -> list[str]:
    fixed = {"backbone.tokens.weight": "shared.weight", "heads.seq2seq.weight": "lm_head.weight"}
    if name in fixed:
        return [fixed[name]]
    side = "encoder" if ".encoder." in name else "decoder"
    name = name.removeprefix("backbone.").replace("layers", "block")
    feed = 1 if side == "encoder" else 2
    for our_name, their_name in (
        ("final_norm", "final_layer_norm"),
        ("attention_norm", "layer.0.layer_norm"),
        ("cross_norm", "layer.1.layer_norm"),
        ("feed_forward_norm", f"layer.{feed}.layer_norm"),
        ("feed_forward.narrow", f"layer.{feed}.DenseReluDense.wo"),
        ("cross.output", "layer.1.EncDecAttention.o"),
        ("cross.query", "layer.1.EncDecAttention.q"),
        ("attention.output", "layer.0.SelfAttention.o"),
        ("relative.table", "block.0.layer.0.SelfAttention.relative_attention_bias"),
    ):
        name = name.replace(our_name, their_name)
    for our_name, their_name, parts in (
        ("attention.project", "layer.0.SelfAttention", "qkv"),
        ("cross.source", "layer.1.EncDecAttention", "kv"),
    ):
        if our_name in name:
            return [name.replace(our_name, f"{their_name}.{part}") for part in parts]
    return [name]


def t5_names(name: str, gated: bool) -> list[str]:
    (first, *other_names) = t5_name(name)
    if "feed_forward.widen" not in first:
        return [first, *other_names]
    feed = 1 if first.startswith("encoder") else 2
    inner = first.replace("feed_forward.widen", f"layer.{feed}.DenseReluDense.wi")
    return [inner.replace("wi.", f"wi_{part}.") for part in (0, 1)] if gated else [inner]


def doubled(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers' T5 rounds norms and softmax to single precision whatever its weights are; here it does not."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child).__name__ == "T5LayerNorm":
                exact = nn.RMSNorm(WIDTH, eps=child.variance_epsilon)
                exact.weight = child.weight
                setattr(module, name, exact)
    monkeypatch.setattr(Tensor, "float", lambda self: self)


@pytest.mark.parametrize("version", ["t5", "t5-1.1"])
def test_the_same_as_t5(
    version: str,
    dtype: torch.dtype,
    close: Close,
    sides: dict[str, Tensor],
    randomised: Randomise,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gated = version == "t5-1.1"
    config = T5Config(
        vocab_size=WORDS,
        d_model=WIDTH,
        d_kv=WIDTH // HEADS,
        d_ff=INNER,
        num_layers=3,
        num_decoder_layers=2,
        num_heads=HEADS,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=12,
        dropout_rate=0.0,
        decoder_start_token_id=0,
        feed_forward_proj="gated-gelu" if gated else "relu",
    )
    other, our_model = T5ForConditionalGeneration(config).to(dtype), ours(dtype, **SHAPES[version])
    if gated:  # transformers ties the two whatever it is told; here they are taken apart by hand
        other.lm_head.weight = nn.Parameter(torch.empty(WORDS, WIDTH, dtype=dtype))
        other.config.scale_decoder_outputs = False
    randomised(other)
    pairs = copied(our_model, other, lambda name: t5_names(name, gated))
    with monkeypatch.context() as patch:
        if dtype == torch.float64:
            doubled(other, patch)
        expected = theirs(other, sides)
    compare(our_model, expected, sides, close)
    agree(our_model, other, pairs, close)


# ---------------------------------------------------------------- behaviour


@pytest.mark.parametrize("shape", SHAPES)
def test_the_target_sees_its_past_and_the_whole_source(shape: str) -> None:
    torch.manual_seed(0)
    model = ours(torch.float64, **SHAPES[shape], init_std=0.3).eval()
    source, tokens = torch.randint(5, WORDS, (2, 7)), torch.randint(5, WORDS, (2, 9))
    embedded: list[Tensor] = []

    def hold(module: Any, arguments: Any, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[0]

    handle = model.backbone.embedding().register_forward_hook(hold)
    logits = model.heads["seq2seq"](model.backbone(source=source, tokens=tokens).last_hidden_state)
    handle.remove()
    for position in (0, 4, 8):
        (grad,) = torch.autograd.grad(logits[:, position].logsumexp(-1).sum(), embedded[0], retain_graph=True)
        assert grad[:, 7 + position + 1 :].abs().sum() == 0
        assert (grad[:, : 7 + position + 1].abs().amax((0, 2)) > 0)[[0, 6, 7 + position]].all()
        changed = tokens.clone()
        changed[:, position + 1 :] = 3
        changed_logits = model.heads["seq2seq"](model.backbone(source=source, tokens=changed).last_hidden_state)
        assert torch.equal(changed_logits[:, : position + 1], logits[:, : position + 1])


@pytest.mark.parametrize("shape", SHAPES)
def test_padding_changes_nothing_on_either_side(shape: str) -> None:
    torch.manual_seed(0)
    model = ours(torch.float64, **SHAPES[shape], init_std=0.3).eval()
    source, tokens = torch.randint(5, WORDS, (1, 7)), torch.randint(5, WORDS, (1, 5))
    unpadded = model.backbone(source=source, tokens=tokens)
    padding = torch.randint(5, WORDS, (1, 4))
    padded = model.backbone(
        source=torch.cat([source, padding], 1),
        tokens=torch.cat([tokens, padding], 1),
        source_present=torch.arange(11)[None] < 7,
        present=torch.arange(9)[None] < 5,
    )
    torch.testing.assert_close(padded.last_hidden_state[:, :5], unpadded.last_hidden_state, atol=1e-12, rtol=0)
    assert unpadded.encoder_hidden_state is not None
    assert padded.encoder_hidden_state is not None
    torch.testing.assert_close(padded.encoder_hidden_state[:, :7], unpadded.encoder_hidden_state, atol=1e-12, rtol=0)


@pytest.mark.parametrize("shape", SHAPES)
def test_attention_is_returned_on_request(shape: str) -> None:
    model = ours(torch.float64, **SHAPES[shape]).eval()
    source, tokens = torch.randint(5, WORDS, (2, 7)), torch.randint(5, WORDS, (2, 5))
    present = torch.arange(7) < torch.tensor([[7], [3]])
    inputs = {"source": source, "tokens": tokens, "source_present": present}
    plain, with_attention = model.backbone(**inputs), model.backbone(**inputs, want=("attention", "layers"))
    assert (plain.attention, plain.extra, plain.layers) == ((), {}, ())
    torch.testing.assert_close(with_attention.last_hidden_state, plain.last_hidden_state, atol=1e-12, rtol=0)
    assert [w.shape for w in with_attention.attention] == [(2, HEADS, 5, 7)] * 2
    assert [w.shape for w in with_attention.extra["encoder_attention"]] == [(2, HEADS, 7, 7)] * 3
    assert [w.shape for w in with_attention.extra["decoder_attention"]] == [(2, HEADS, 5, 5)] * 2
    assert len(with_attention.layers) == 3
    assert len(with_attention.extra["encoder_layers"]) == 4
    for weights in with_attention.attention:
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, HEADS, 5, dtype=torch.float64))
        assert weights[1, :, :, 3:].abs().max() == 0
    assert all((w.triu(1) == 0).all() for w in with_attention.extra["decoder_attention"])


def parameters(vocabulary: int, **settings: Any) -> int:
    with torch.device("meta"):
        transformer_settings = TransformerSettings.model_validate(settings)
        model = Model(Transformer(transformer_settings, vocabulary), {"seq2seq": Head("vocabulary")})
    return sum(p.numel() for p in model.parameters())


def test_as_many_parameters_as_published() -> None:
    assert parameters(37_000) == 63_082_496  # the paper's table says 65 M, with a vocabulary a little larger
    bart = {**BART, "layers": 6, "hidden_size": 768, "heads": 12, "max_length": 1024}
    assert parameters(50_265, **bart) == 139_420_416 - 4 * 768  # theirs keep two unused positions on each side
    t5 = {**T5, "relative_buckets": 32, "relative_max_distance": 128}
    assert parameters(32_128, **t5) == 60_506_624
    gated = {
        **t5,
        "activation": "geglu",
        "tie_embeddings": False,
        "scale_output": False,
        "ffn_size": 1024,
        "layers": 8,
        "heads": 8,
    }
    assert (
        parameters(32_128, **gated)
        == 2 * 32_128 * 512 + 8 * (4 + 6) * 512**2 + 8 * (8 + 6) * 512**2 + (8 * 2 + 8 * 3 + 2) * 512 + 2 * 32 * 8
    )


def test_scaled_embeddings_have_unit_size() -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerSettings(layers=1, hidden_size=256), 1000)
    scaled_embeddings = model.tokens.weight * model.enter_source.scale
    assert float(scaled_embeddings.detach().std()) == pytest.approx(1.0, rel=0.02)
    other = Transformer(
        TransformerSettings(layers=1, hidden_size=256, scale_embeddings=False, embedding_init_std=0.5), 1000
    )
    assert float(other.tokens.weight.detach().std()) == pytest.approx(0.5, rel=0.02)


def test_unscaled_scores_start_as_large_as_scaled_ones() -> None:
    source, tokens = torch.randint(5, WORDS, (2, 7)), torch.randint(5, WORDS, (2, 5))
    outputs = []
    for scaled in (True, False):
        torch.manual_seed(0)
        model = ours(torch.float64, **{**T5, "scale_attention": scaled, "kv_heads": 2}, init_std=0.3)
        outputs.append(model.backbone(source=source, tokens=tokens, want=("attention",)))
    for actual, other in zip(
        *((f.last_hidden_state, *f.attention, *f.extra["encoder_attention"]) for f in outputs), strict=True
    ):
        torch.testing.assert_close(actual, other, atol=1e-6, rtol=0)


def test_an_unknown_head_is_refused() -> None:
    with pytest.raises(MeristemError, match="transformer family has no head 'spans'; it has vocabulary, pooled"):
        ours(torch.float32).backbone.build_head("spans")
    assert ours(torch.float32).backbone.build_head("pooled", classes=3)(torch.zeros(2, WIDTH)).shape == (2, 3)
