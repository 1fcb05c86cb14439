from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from meristem.config.errors import MeristemError
from meristem.generation.incremental_decoder import DecodeSession
from meristem.interfaces.backbone import Head, Model
from meristem.models.captioner import Captioner, CaptionerSettings
from meristem.models.transformer import Transformer, TransformerSettings

WORDS, SIDE = 61, 12
LOOKS: dict[str, dict[str, Any]] = {
    "patches": {},
    "learned": {"image_position_encoding": "learned", "position_encoding": "learned", "embedding_norm": True},
    "convolutions": {"image_stem": "convolutions", "norm_position": "pre"},
    "rotary": {"position_encoding": "rotary", "max_length": 7},  # fewer tokens than a picture has places
}


def build_model(**settings: Any) -> Model:
    torch.manual_seed(0)
    plain = {
        "layers": 2,
        "hidden_size": 16,
        "heads": 2,
        "max_length": 20,
        "image_size": SIDE,
        "patch_size": 4,
        "init_std": 0.3,
    }
    model = Model(Captioner(CaptionerSettings.model_validate({**plain, **settings}), WORDS), HEAD)
    return model.double().eval()


HEAD = {"seq2seq": Head("vocabulary")}


@pytest.fixture(params=LOOKS)
def model(request: pytest.FixtureRequest) -> Model:
    return build_model(**LOOKS[request.param])


def pictures(number: int = 2, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (number, SIDE, SIDE, 3), dtype=torch.uint8, generator=generator)


def test_patches_are_a_strided_convolution() -> None:
    """Dosovitskiy et al.'s linear map of a patch is a convolution whose stride is its width."""
    model = build_model().backbone
    cut = model.look.cut
    convolution = nn.Conv2d(3, 16, 4, stride=4).double()
    with torch.no_grad():
        convolution.weight.copy_(cut.project.weight.view(16, 4, 4, 3).permute(0, 3, 1, 2))
        convolution.bias.copy_(cut.project.bias)  # type: ignore[union-attr]
    image = pictures().double() / 127.5 - 1
    expected = convolution(image.permute(0, 3, 1, 2)).flatten(2).transpose(1, 2)
    torch.testing.assert_close(cut(image), expected, atol=1e-12, rtol=0)
    patch_positions = model.look.positions()
    rows, columns = model.look.positions.rows.weight, model.look.positions.columns.weight
    torch.testing.assert_close(
        patch_positions[5], rows[1] + columns[2]
    )  # place 5 of a 3 × 3 grid: second row, third column
    torch.testing.assert_close(model.look(pictures()), expected + patch_positions)


def test_the_decoder_is_the_transformers() -> None:
    """Given the same encoder states, picture or text makes no difference to what is written."""
    model = build_model().backbone
    other = Transformer(TransformerSettings(layers=2, hidden_size=16, heads=2, max_length=20), WORDS).double().eval()
    other.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("look")})
    source, tokens = torch.randint(5, WORDS, (2, 7)), torch.randint(5, WORDS, (2, 5))
    present = torch.arange(7) < torch.tensor([[7], [3]])
    inputs = {"source": source, "tokens": tokens, "source_present": present}
    assert torch.equal(model(**inputs).last_hidden_state, other(**inputs).last_hidden_state)


def test_every_pixel_is_seen_and_no_later_word(model: Model) -> None:
    image, tokens = pictures().double() / 255, torch.randint(5, WORDS, (2, 6))
    image.requires_grad_()
    embedded: list[Tensor] = []

    def hold(module: Any, arguments: Any, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[0]

    handle = model.backbone.embedding().register_forward_hook(hold)
    logits = model.heads["seq2seq"](model.backbone(image=image, tokens=tokens).last_hidden_state)
    handle.remove()
    pixels, words = torch.autograd.grad(logits[:, 2].logsumexp(-1).sum(), [image, embedded[0]])
    assert (pixels.abs().amax(-1) > 0).all()
    assert words[:, 3:].abs().max() == 0
    assert (words[:, :3].abs().amax((0, 2)) > 0).all()


def test_uint8_images_equal_floats_from_0_to_1(model: Model) -> None:
    image, tokens = pictures(), torch.randint(5, WORDS, (2, 6))
    as_bytes, as_numbers = (
        model.backbone(image=i, tokens=tokens).last_hidden_state for i in (image, image.double() / 255)
    )
    torch.testing.assert_close(as_bytes, as_numbers, atol=1e-12, rtol=0)


def test_attention_over_the_image_is_returned(model: Model) -> None:
    image, tokens = pictures(), torch.randint(5, WORDS, (2, 6))
    plain, with_attention = (
        model.backbone(image=image, tokens=tokens, want=requested) for requested in ((), ("attention",))
    )
    torch.testing.assert_close(with_attention.last_hidden_state, plain.last_hidden_state, atol=1e-12, rtol=0)
    assert [w.shape for w in with_attention.attention] == [(2, 2, 6, 9)] * 2
    torch.testing.assert_close(with_attention.attention[0].sum(-1), torch.ones(2, 2, 6, dtype=torch.float64))
    assert with_attention.encoder_hidden_state is not None
    assert with_attention.encoder_hidden_state.shape == (2, 9, 16)


def test_incremental_decoding_equals_one_pass(model: Model) -> None:
    image, tokens = pictures(3), torch.randint(5, WORDS, (3, 7))
    with torch.no_grad():
        full_logits = model.heads["seq2seq"](model.backbone(image=image, tokens=tokens).last_hidden_state)
    session = DecodeSession(model, tokens[:, :1], capacity=3, image=image)
    for index in range(1, 7):
        torch.testing.assert_close(session.logits, full_logits[:, index - 1], atol=1e-9, rtol=0)
        session.decode_step(tokens[:, index])
    session.select_rows(torch.tensor([2, 0]))
    torch.testing.assert_close(session.logits, full_logits[[2, 0], -1], atol=1e-9, rtol=0)


def test_images_can_be_memorized() -> None:
    """Eight pictures, eight captions: only the pictures tell which is which."""
    torch.manual_seed(0)
    model = build_model(init_std=0.05, max_length=8).train()
    image, tokens = pictures(8), torch.full((8, 1), 2)
    target = torch.arange(8) + 5
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(100):
        loss = model.heads["seq2seq"].compute_loss(
            model.backbone(image=image, tokens=tokens).last_hidden_state[:, 0], target
        )
        loss.total.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.total.detach()))
    assert losses[-1] < 0.05 * losses[0]


def test_every_parameter_used_gets_a_gradient(model: Model) -> None:
    image, source, tokens = pictures(), torch.randint(5, WORDS, (2, 7)), torch.randint(5, WORDS, (2, 5))
    for inputs in ({"image": image}, {"source": source}):
        model.heads["seq2seq"](model.backbone(tokens=tokens, **inputs).last_hidden_state).square().sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patch_size": 5}, "patch_size: 5 pixels do not divide an image of 12"),
        ({"patch_size": 6, "image_stem": "convolutions"}, r"must be a power of two \(2, 4, 8, …\), not 6"),
        ({"patch_size": 1, "image_stem": "convolutions"}, "must be a power of two"),
    ],
)
def test_grids_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        build_model(**settings)


def test_wrong_image_sizes_and_two_sources_are_refused(model: Model) -> None:
    tokens = torch.ones(1, 2, dtype=torch.long)
    with pytest.raises(MeristemError, match=r"takes images of 12×12×3, not 8×12×3; resize them, or"):
        model.backbone(image=torch.zeros(1, 8, 12, 3), tokens=tokens)
    for inputs in ({}, {"image": pictures(1), "source": tokens}):
        with pytest.raises(MeristemError, match=r"either an image \(image\) or a text \(source\), not both"):
            model.backbone(tokens=tokens, **inputs)
        with pytest.raises(MeristemError, match=r"either an image \(image\) or a text \(source\), not both"):
            model.backbone.encode(**inputs)
