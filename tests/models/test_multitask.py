"""One model for text and pictures: which half reads what, and that nothing leaks where it must not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.generation.incremental_decoder import DecodeSession
from meristem.interfaces.backbone import Head, Model
from meristem.models.bert import Bert, BertSettings
from meristem.models.captioner import Captioner, CaptionerSettings
from meristem.models.multitask import Multitask, MultitaskSettings

WORDS, SIDE = 61, 12
ENCODER = {"layers": 2, "hidden_size": 16, "heads": 2, "max_length": 20, "init_std": 0.3}
SMALL = {**ENCODER, "image_size": SIDE, "patch_size": 4}
SHAPES: dict[str, dict[str, Any]] = {
    "post": {},
    "pre": {"norm_position": "pre", "embedding_norm": False, "position_encoding": "rotary", "output_transform": False},
    "relative": {"position_encoding": "none", "relative_buckets": 8, "norm": "rms", "bias": False, "segments": 0},
    "scaled": {"position_encoding": "sinusoidal", "scale_embeddings": True, "decoder_layers": 1},
}
HEADS = {
    "mlm": Head("vocabulary"),
    "nsp": Head("pooled", (("classes", 2),)),
    "clm": Head("vocabulary"),
    "seq2seq": Head("vocabulary"),
    "rtd": Head("token_score"),
}


def build_model(heads: dict[str, Head] = HEADS, **settings: Any) -> Model:
    torch.manual_seed(0)
    model = Model(Multitask(MultitaskSettings.model_validate({**SMALL, **settings}), WORDS), heads)
    return model.double().eval()


@pytest.fixture(params=SHAPES)
def model(request: pytest.FixtureRequest) -> Model:
    return build_model(**SHAPES[request.param])


def tokens(rows: int = 2, size: int = 7, seed: int = 0) -> Tensor:
    return torch.randint(5, WORDS, (rows, size), generator=torch.Generator().manual_seed(seed))


def pictures(number: int = 2) -> Tensor:
    return torch.randint(256, (number, SIDE, SIDE, 3), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)


INPUTS: dict[str, dict[str, Any]] = {
    "mlm": {"tokens": tokens()},
    "nsp": {"tokens": tokens(), "segments": torch.tensor([[0] * 3 + [1] * 4] * 2)},
    "clm": {"tokens": tokens(), "causal": True},
    "seq2seq": {"tokens": tokens(), "source": tokens(size=5, seed=3)},
    "caption": {"tokens": tokens(), "image": pictures()},
    "rtd": {"tokens": tokens()},
}
"""What each objective has the backbone read."""


def gradients(model: Model, position: int, **inputs: Any) -> Tensor:
    """[T] How much a change of each token's vector changes the state at one position."""
    embedded: list[Tensor] = []

    def hold(module: Any, arguments: Any, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1]

    handle = model.backbone.embedding().register_forward_hook(hold)
    last = model.backbone(**inputs).last_hidden_state
    handle.remove()
    (gradient,) = torch.autograd.grad((last[:, position] * torch.arange(1.0, 17.0)).sum(), embedded)
    return gradient.abs().amax((0, 2))


def test_the_encoder_alone_sees_both_sides(model: Model) -> None:
    assert (gradients(model, 3, **INPUTS["mlm"]) > 0).all()


def test_the_decoder_alone_sees_no_later_token(model: Model) -> None:
    gradient = gradients(model, 3, **INPUTS["clm"])
    assert (gradient[:4] > 0).all() and (gradient[4:] == 0).all()


@pytest.mark.parametrize("name", ["seq2seq", "caption"])
def test_a_target_sees_its_source_and_no_later_token(name: str, model: Model) -> None:
    inputs = INPUTS[name]
    gradient = gradients(model, 3, **inputs)
    source, target = (gradient[:5], gradient[5:]) if name == "seq2seq" else (gradient[:0], gradient)
    assert (source > 0).all() and (target[:4] > 0).all() and (target[4:] == 0).all()
    image = pictures() // 2
    other = {**inputs, "source": tokens(size=5, seed=9)} if name == "seq2seq" else {**inputs, "image": image}
    assert not torch.allclose(model.backbone(**inputs).last_hidden_state, model.backbone(**other).last_hidden_state)


def test_the_decoder_alone_leaves_cross_attention_out(model: Model) -> None:
    before = model.backbone(**INPUTS["clm"]).last_hidden_state
    with torch.no_grad():
        for name, parameter in model.backbone.named_parameters():
            if ".cross" in name or name.startswith(("encoder.", "look.", "enter_source.", "segments.")):
                parameter.add_(1.0)
    assert torch.equal(model.backbone(**INPUTS["clm"]).last_hidden_state, before)
    assert not torch.allclose(model.backbone(**INPUTS["mlm"]).last_hidden_state, before)


def test_documents_in_one_row_stay_apart(model: Model) -> None:
    documents = torch.tensor([[0, 0, 0, 1, 1, 1, 1]] * 2)
    for name in ("mlm", "clm"):
        separated = model.backbone(**INPUTS[name], documents=documents).last_hidden_state[:, :3]
        hidden = model.backbone(**{**INPUTS[name], "tokens": tokens()[:, :3]}).last_hidden_state
        torch.testing.assert_close(separated, hidden, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", HEADS | {"caption": None})
def test_every_objective_trains_the_shared_embedding(name: str, model: Model) -> None:
    head = model.heads["seq2seq" if name == "caption" else name]
    model.zero_grad()
    states = model.backbone(**INPUTS[name]).last_hidden_state
    output = head(states[:, 0]) if name == "nsp" else head(states)
    output.square().mean().backward()
    gradient = model.backbone.embedding().weight.grad
    assert gradient is not None and gradient[INPUTS[name]["tokens"][0]].abs().amax(1).min() > 0
    tables = [h.weight for h in model.heads.values() if hasattr(h, "bias") and hasattr(h, "weight")]
    assert all(table is model.backbone.embedding().weight for table in tables)


def test_only_output_positions_are_computed(model: Model) -> None:
    full, output_positions = model.backbone(**INPUTS["mlm"]), torch.tensor([1, 5, 9])
    selected = model.backbone(**INPUTS["mlm"], output_positions=output_positions)
    assert selected.last_hidden_state.shape == (3, 16)
    torch.testing.assert_close(selected.select(output_positions), full.select(output_positions), atol=1e-12, rtol=0)


def test_the_decoder_alone_decodes_incrementally(model: Model) -> None:
    """Rows of differing lengths, and more tokens than there was room for."""
    input_ids = tokens(3, 15)
    with torch.no_grad():
        full_logits = model.heads["clm"](model.backbone(tokens=input_ids, causal=True).last_hidden_state)
    decoder_only = Model(model.backbone, {})
    decoder_only.heads["clm"] = model.heads["clm"]
    session = DecodeSession(decoder_only, input_ids[:, :4], torch.tensor([4, 2, 3]), capacity=5)
    sizes = torch.tensor([4, 2, 3])
    for _ in range(10):
        rows = torch.arange(len(sizes))
        torch.testing.assert_close(session.logits, full_logits[rows, sizes - 1], atol=1e-9, rtol=0)
        session.decode_step(input_ids[rows, sizes])
        sizes = sizes + 1
    session.select_rows(torch.tensor([2, 0]))
    torch.testing.assert_close(session.logits, full_logits[[2, 0], sizes[[2, 0]] - 1], atol=1e-9, rtol=0)


@pytest.mark.parametrize("shape", [{}, {"norm_position": "pre", "position_encoding": "rotary"}])
def test_the_encoder_is_berts(shape: dict[str, Any]) -> None:
    """The same weights under their new names give BERT's states, with segments and padding."""
    bert = Bert(BertSettings.model_validate({**ENCODER, **shape}), WORDS).double().eval()
    our_backbone = build_model(embedding_norm=not shape, **shape).backbone
    weights = {f"backbone.{name}": value for name, value in bert.state_dict().items()}
    for theirs, ours in Multitask.encoder_prefixes.items():
        weights = {ours + k.removeprefix(theirs) if k.startswith(theirs) else k: v for k, v in weights.items()}
    state_dict = our_backbone.load_state_dict(
        {k.removeprefix("backbone."): v for k, v in weights.items()}, strict=False
    )
    assert not state_dict.unexpected_keys
    assert all(name.startswith(("decoder.", "look.", "enter_target.")) for name in state_dict.missing_keys)
    present = torch.arange(7) < torch.tensor([[7], [4]])
    inputs = {**INPUTS["nsp"], "present": present}
    torch.testing.assert_close(
        our_backbone(**inputs).last_hidden_state[present], bert(**inputs).last_hidden_state[present], atol=1e-12, rtol=0
    )


def test_images_are_encoded_as_by_a_captioner() -> None:
    shape = SHAPES["relative"]
    captioner = Captioner(
        CaptionerSettings.model_validate({**SMALL, "activation": "gelu", "norm_position": "post", "norm_epsilon": 1e-12,
                                          "scale_embeddings": False, "embedding_norm": True,
                                          **{k: v for k, v in shape.items() if k != "segments"}}), WORDS
    ).double().eval()  # fmt: skip
    our_backbone = build_model(**shape).backbone
    captioner.load_state_dict(our_backbone.state_dict())
    for name in ("caption", "seq2seq"):
        assert torch.equal(our_backbone(**INPUTS[name]).last_hidden_state, captioner(**INPUTS[name]).last_hidden_state)


@pytest.mark.parametrize(("name", "shape"), [("mlm", (2, 2, 7, 7)), ("clm", (2, 2, 7, 7)), ("seq2seq", (2, 2, 7, 5)),
                                             ("caption", (2, 2, 7, 9))])  # fmt: skip
def test_attention_is_returned(name: str, shape: tuple[int, ...]) -> None:
    model = build_model()
    plain, with_attention = (
        model.backbone(**INPUTS[name], want=requested) for requested in ((), ("attention", "layers"))
    )
    torch.testing.assert_close(with_attention.last_hidden_state, plain.last_hidden_state, atol=1e-12, rtol=0)
    assert [weights.shape for weights in with_attention.attention] == [shape] * 2
    torch.testing.assert_close(with_attention.attention[0].sum(-1), torch.ones(shape[:-1], dtype=torch.float64))
    assert len(with_attention.layers) == 3
    if name == "clm":
        assert with_attention.attention[0].triu(1).abs().max() == 0


def test_what_cannot_be_is_refused() -> None:
    model = build_model()
    with pytest.raises(MeristemError, match="not both"):
        model.backbone(tokens=tokens(), source=tokens(), image=pictures())
    with pytest.raises(MeristemError, match="multitask family has no head 'nothing'"):
        model.backbone.build_head("nothing")
    with pytest.raises(ValidationError, match="tie_embeddings"):
        MultitaskSettings.model_validate({"tie_embeddings": False})
