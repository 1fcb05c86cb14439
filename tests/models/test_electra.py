from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from meristem.blocks.transformer.electra_generator import ElectraGenerator
from meristem.config.errors import RecipeError
from meristem.interfaces.backbone import Head, Model
from meristem.models.electra import Electra, ElectraSettings
from meristem.models.modern import Modern, ModernSettings

WORDS, QUARTER = 61, Head("generator", (("divide", 4),))
Close = Callable[[Tensor, Tensor], None]
Randomised = Callable[[nn.Module], None]
LAYER = (
    ("attention.output", "attention.output.dense"),
    ("attention_norm", "attention.output.LayerNorm"),
    ("feed_forward.widen", "intermediate.dense"),
    ("feed_forward.narrow", "output.dense"),
    ("feed_forward_norm", "output.LayerNorm"),
)
EMBED = {
    "tokens.": "electra.embeddings.word_embeddings.",
    "positions.": "electra.embeddings.position_embeddings.",
    "segments.": "electra.embeddings.token_type_embeddings.",
    "norm.": "electra.embeddings.LayerNorm.",
}


def theirs(kind: type[nn.Module], dtype: torch.dtype, divide: int = 1, embedding: int = 24) -> nn.Module:
    config = ElectraConfig(
        vocab_size=WORDS,
        embedding_size=embedding,
        hidden_size=32 // divide,
        num_hidden_layers=3,
        num_attention_heads=4 // divide,
        intermediate_size=80 // divide,
        max_position_embeddings=20,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return kind(config).to(dtype)


def ours(dtype: torch.dtype, embedding: int = 24) -> Model:
    settings = ElectraSettings(layers=3, hidden_size=32, heads=4, ffn_size=80, max_length=20, embedding_size=embedding)
    return Model(Electra(settings, WORDS), {"generator": QUARTER, "rtd": Head("token_score")}).to(dtype)


def same_name(name: str) -> list[str]:
    """Where transformers keeps what one of our tensors holds, for either net; three for the fused projection."""
    name = name.removeprefix("backbone.").removeprefix("heads.generator.").removeprefix("body.")
    layer = name.removeprefix("stack.layers.").split(".", 1)
    if len(layer) == 2 and layer[0].isdigit():
        layer_prefix, rest = f"electra.encoder.layer.{layer[0]}.", layer[1]
        if rest.startswith("attention.project"):
            return [
                f"{layer_prefix}attention.self.{part}.{rest.rsplit('.', 1)[1]}" for part in ("query", "key", "value")
            ]
        return next(
            [layer_prefix + their_name + rest.removeprefix(our_name)]
            for our_name, their_name in LAYER
            if rest.startswith(our_name + ".")
        )
    fixed = {
        **{f"embed.{our_name}": their_name for our_name, their_name in EMBED.items()},
        "project.": "electra.embeddings_project.",
        "words.transform.dense.": "generator_predictions.dense.",
        "words.transform.norm.": "generator_predictions.LayerNorm.",
        "words.bias": "generator_lm_head.bias",
        "heads.rtd.dense.": "discriminator_predictions.dense.",
        "heads.rtd.score.": "discriminator_predictions.dense_prediction.",
    }
    return next(
        [their_name + name.removeprefix(our_name)]
        for our_name, their_name in fixed.items()
        if name.startswith(our_name)
    )


def names_of(our_model: Model, net: str) -> dict[str, list[str]]:
    """Our names of one net and theirs; the embeddings are both nets'."""
    others = "heads.generator." if net == "discriminator" else "heads.rtd."
    our_names = {name for name, _ in our_model.named_parameters() if not name.startswith(others)}
    if net == "generator":
        our_names = {name for name in our_names if name.startswith(("backbone.embed.", "heads.generator."))}
    return {name: same_name(name) for name in our_names}


def copy(our_model: Model, other: nn.Module, net: str) -> dict[str, list[str]]:
    """Fill one of our nets with theirs; the map of names whose gradients must then agree."""
    named, pairs = dict(other.named_parameters()), names_of(our_model, net)
    assert {f for pair in pairs.values() for f in pair} == set(named)
    with torch.no_grad():
        for name, parameter in our_model.named_parameters():
            if name in pairs:
                parameter.copy_(torch.cat([named[f] for f in pairs[name]]))
    return pairs


def gradient(module: nn.Module, their_names: list[str]) -> Tensor:
    named = dict(module.named_parameters())
    return torch.cat([named[f].grad for f in their_names])  # type: ignore[misc]  # every one has a gradient


def generator_of(model: Model) -> ElectraGenerator:
    generator = model.heads["generator"]
    assert isinstance(generator, ElectraGenerator)
    return generator


@pytest.mark.parametrize("embedding", [24, 32], ids=["narrower", "as wide"])
def test_the_same_discriminator_as_transformers(
    dtype: torch.dtype, close: Close, ragged: tuple[Tensor, Tensor], randomised: Randomised, embedding: int
) -> None:
    tokens, present = ragged
    segments = (torch.arange(13)[None] > torch.tensor([[6], [3], [0]])).long()
    other, our_model = theirs(ElectraForPreTraining, dtype, embedding=embedding), ours(dtype, embedding)
    randomised(other)
    pairs = copy(our_model, other, "discriminator")
    replaced = torch.randint(2, tokens.shape)
    out = other(input_ids=tokens, token_type_ids=segments, attention_mask=present.long(), labels=replaced)
    scores = our_model.heads["rtd"](
        our_model.backbone(tokens=tokens, segments=segments, present=present).last_hidden_state
    )
    close(scores[present], out.logits[present])
    nn.functional.binary_cross_entropy_with_logits(scores[present], replaced[present].to(dtype)).backward()
    out.loss.backward()
    for name, pair in pairs.items():
        close(our_model.get_parameter(name).grad, gradient(other, pair))


@pytest.mark.parametrize("embedding", [24, 8], ids=["narrower", "as wide"])
def test_the_same_generator_as_transformers(
    dtype: torch.dtype, close: Close, ragged: tuple[Tensor, Tensor], randomised: Randomised, embedding: int
) -> None:
    """A quarter of the width, heads and inner width; `as wide`: embeddings that need no projection."""
    tokens, present = ragged
    other, our_model = theirs(ElectraForMaskedLM, dtype, 4, embedding), ours(dtype, embedding)
    randomised(other)
    pairs = copy(our_model, other, "generator")
    hidden = present & (torch.arange(13) % 3 == 0)
    out = other(input_ids=tokens, attention_mask=present.long(), labels=tokens.masked_fill(~hidden, -100))
    masked_positions = hidden.flatten().nonzero()[:, 0]
    generator = generator_of(our_model)
    every = generator.words(generator.body(tokens=tokens, present=present).last_hidden_state)
    close(every[present], out.logits[present])
    guessed = generator(tokens=tokens, present=present, output_positions=masked_positions)
    loss = generator.words.compute_loss(guessed.select(masked_positions), tokens.flatten()[masked_positions])
    close(loss.total / len(masked_positions), out.loss)
    (loss.total / len(masked_positions)).backward()
    out.loss.backward()
    for name, pair in pairs.items():
        close(our_model.get_parameter(name).grad, gradient(other, pair))


def test_generator_and_discriminator_train_shared_embeddings(
    dtype: torch.dtype, close: Close, randomised: Randomised
) -> None:
    """The gradients of transformers' two nets, summed where a tensor is both's."""
    small, large, our_model = theirs(ElectraForMaskedLM, dtype, 4), theirs(ElectraForPreTraining, dtype), ours(dtype)
    randomised(small)
    randomised(large)
    with torch.no_grad():
        for their_name in EMBED.values():
            for kind in ("weight", "bias"):
                if their_name + kind in dict(large.named_parameters()):
                    small.get_parameter(their_name + kind).copy_(large.get_parameter(their_name + kind))
    guesses, judges = copy(our_model, small, "generator"), copy(our_model, large, "discriminator")
    masked, replaced_ids, labels = torch.randint(5, WORDS, (3, 2, 11)).unbind()  # their padding's row never learns
    replaced = torch.randint(2, (2, 11))
    words, discriminator_loss = (
        small(input_ids=masked, labels=labels).loss,
        large(input_ids=replaced_ids, labels=replaced).loss,
    )
    (words + 50 * discriminator_loss).backward()
    generator = generator_of(our_model)
    guessed = (
        generator.words.compute_loss(
            generator.body(tokens=masked).last_hidden_state.flatten(0, 1), labels.flatten()
        ).total
        / 22
    )
    scores = our_model.heads["rtd"](our_model.backbone(tokens=replaced_ids).last_hidden_state)
    discriminator_loss_ours = nn.functional.binary_cross_entropy_with_logits(scores, replaced.to(dtype))
    (guessed + 50 * discriminator_loss_ours).backward()
    for name, parameter in our_model.named_parameters():
        sides = [gradient(net, pairs[name]) for net, pairs in ((small, guesses), (large, judges)) if name in pairs]
        assert len(sides) == (2 if name.startswith("backbone.embed.") else 1)
        close(parameter.grad, torch.stack(sides).sum(0))


def test_the_generator_uses_the_models_own_embeddings() -> None:
    our_model = ours(torch.float32)
    assert isinstance(our_model.backbone, Electra)
    generator = generator_of(our_model)
    assert generator.body.embed is our_model.backbone.embed
    assert generator.words.weight is our_model.backbone.embedding().weight
    our_model.double()
    assert generator.words.weight is our_model.backbone.embedding().weight


def test_electra_small_has_its_published_parameters() -> None:
    """13.5 M: transformers' default configuration is the published small discriminator."""
    with torch.device("meta"):
        model = Model(Electra(ElectraSettings(), 30_522), {"generator": QUARTER, "rtd": Head("token_score")})
        published = ElectraForPreTraining(ElectraConfig())
    assert sum(p.numel() for p in model.backbone.parameters()) == 13_483_008
    own_parameters = [p for name, p in model.named_parameters() if not name.startswith("heads.generator.")]
    assert sum(p.numel() for p in own_parameters) == sum(p.numel() for p in published.parameters()) == 13_549_057


def test_a_generator_is_a_fraction_of_any_bidirectional_stack() -> None:
    model = Modern(ModernSettings(layers=2, hidden_size=48, heads=6, kv_heads=3, ffn_size=60, max_length=8), WORDS)
    small = model.build_head("generator", divide=3)
    assert isinstance(small, ElectraGenerator)
    s = small.body.stack.settings
    assert (s.layers, s.hidden_size, s.heads, s.kv_heads, s.ffn_size) == (2, 16, 2, 2, 20)
    assert small.words(
        small(tokens=torch.tensor([[1, 2, 3]]), output_positions=torch.tensor([2])).last_hidden_state
    ).shape == (
        1,
        WORDS,
    )


def test_a_generator_of_fractional_width_is_refused() -> None:
    model = Electra(ElectraSettings(layers=1, hidden_size=32, heads=4, max_length=8), WORDS)
    with pytest.raises(
        RecipeError, match="1/3 of a hidden size of 32 is not an integer; choose 1/1 or 1/2 or 1/4 or 1/8"
    ):
        model.build_head("generator", divide=3)
    rotary = Modern(ModernSettings(layers=1, hidden_size=8, heads=1, max_length=8), WORDS)
    with pytest.raises(RecipeError, match="1 channels per head, and rotary positions need an even number"):
        rotary.build_head("generator", divide=8)
