"""Inference in bfloat16 and with int8 weights: how close it is to float32, what stays float32, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_runs import tiny_run
from torch import nn

import meristem
from meristem.blocks.int8_linear import Int8Linear, int8_features
from meristem.config.errors import MeristemError
from meristem.generation.incremental_decoder import DecodeSession
from meristem.interfaces.backbone import MODEL_FAMILIES, Head, Model
from meristem.learning import inference_options
from meristem.learning.inference_options import set_inference_options
from meristem.learning.quantization import quantize_model
from meristem.serving.model_registry import load_run_to_serve

VOCABULARY = 97
needs_int8 = pytest.mark.skipif(not int8_features(), reason="this processor has no int8 instructions")
TEXTS = [f"{name} walked to the {place}." for name in ("Ada", "Tom", "Mia") for place in ("garden", "house", "river")]


def build_model(family: str, head: str) -> Model:
    torch.manual_seed(3)
    cls = MODEL_FAMILIES[family]
    settings: dict[str, float] = {"layers": 2, "hidden_size": 64, "max_length": 32}
    if family not in ("rnn", "mamba"):
        settings |= {"heads": 4, "init_std": 0.2}
    return Model(cls(cls.Settings.model_validate(settings), VOCABULARY), {head: Head("vocabulary")}).eval()


@pytest.fixture(scope="module")
def gpt2_run() -> Path:
    return tiny_run("gpt2-mini")


@needs_int8
@pytest.mark.parametrize("num_inputs", [64, 85])  # torch's kernel for few rows takes multiples of 16 only
def test_an_int8_layer_is_close_and_each_row_depends_on_itself_alone(num_inputs: int) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(num_inputs, 48)
    x = torch.randn(33, num_inputs) * torch.logspace(-3, 3, 33)[:, None]
    layer = Int8Linear(linear.weight, linear.bias)
    with torch.inference_mode():
        expected = linear(x) - linear.bias
        for product in (layer, layer.multiply_few_rows):
            error = (product(x) - linear.bias - expected).norm(dim=1) / expected.norm(dim=1)
            assert error[10:].max() < 0.02  # smaller rows vanish beside the bias
            assert torch.equal(product(x)[7], product(x[7:8])[0])
        assert layer(x.view(3, 11, -1)).shape == (3, 11, 48)
        assert layer(x[:0].view(2, 0, num_inputs)).shape == (2, 0, 48)
        assert layer(torch.full((1, num_inputs), torch.nan)).isnan().all()
        assert torch.equal(layer(torch.zeros(1, num_inputs))[0], linear.bias)


@needs_int8
@pytest.mark.parametrize("family", ["gpt2", "modern", "transformer_xl", "mamba"])
def test_int8_decoding_is_close_to_the_full_forward_pass(family: str) -> None:
    model, tokens = build_model(family, "clm"), torch.arange(24).view(2, 12) % VOCABULARY
    with torch.inference_mode():
        expected = model.heads["clm"](model.backbone(tokens=tokens, causal=True).last_hidden_state[:, -1])
        quantize_model(model)
        assert any(isinstance(module, Int8Linear) for module in model.backbone.modules())
        session = DecodeSession(model, tokens[:, :-1], capacity=16)
        session.decode_step(tokens[:, -1])
        alone = DecodeSession(model, tokens[1:, :-1], capacity=16)
        alone.decode_step(tokens[1:, -1])
    similarity = torch.cosine_similarity(session.logits, expected)
    assert similarity.min() > 0.995
    torch.testing.assert_close(alone.logits[0], session.logits[1], atol=1e-3, rtol=1e-3)


@needs_int8
def test_options_that_cannot_work_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MeristemError, match="cannot be combined"):
        set_inference_options(build_model("gpt2", "clm"), "bfloat16", "int8")
    with pytest.raises(MeristemError, match="RNN is recurrent"):
        quantize_model(build_model("rnn", "clm"))
    model = build_model("gpt2", "clm")
    quantize_model(model)
    with pytest.raises(MeristemError, match="cannot be trained"):
        model.backbone(tokens=torch.arange(4)[None], causal=True)
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    with pytest.raises(MeristemError, match="avx512_vnni"):
        quantize_model(build_model("gpt2", "clm"))


def test_auto_takes_bfloat16_only_for_models_and_processors_that_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    def min_tokens(features: list[str], speedup: float) -> int | None:
        monkeypatch.setattr(inference_options, "bfloat16_features", lambda: features)
        monkeypatch.setattr(inference_options, "product_speedup", lambda hidden_size: speedup)
        model = build_model("gpt2", "clm")
        assert (set_inference_options(model, "auto") is None) == (model.bfloat16_min_tokens is None)
        return model.bfloat16_min_tokens

    assert min_tokens(["avx512_bf16"], 2.3) is None  # the model is small
    monkeypatch.setattr(inference_options, "MIN_HIDDEN_SIZE", 1)
    assert min_tokens(["avx512_bf16"], 2.3) == inference_options.MIN_TOKENS
    assert min_tokens(["avx512_bf16"], 1.1) is None
    assert min_tokens([], 2.3) is None


@pytest.mark.parametrize(
    "options", [{"precision": "bfloat16"}, pytest.param({"quantize": "int8"}, marks=needs_int8)], ids=str
)
def test_a_loaded_run_answers_nearly_as_in_float32(gpt2_run: Path, options: dict[str, str]) -> None:
    plain, other = meristem.load(gpt2_run, precision="float32"), meristem.load(gpt2_run, **options)  # type: ignore[arg-type]
    assert plain.loaded_run.notices == ()
    assert options.get("quantize", "bfloat16") in other.loaded_run.notices[-1]
    vectors = [loaded.embed(TEXTS) for loaded in (plain, other)]
    assert vectors[1].dtype == torch.float32
    assert not torch.equal(*vectors)
    assert torch.cosine_similarity(*vectors).min() > 0.999
    scores = [loaded.score(TEXTS) for loaded in (plain, other)]
    for first, second in zip(*scores, strict=True):
        assert second.logprob != first.logprob
        assert second.logprob == pytest.approx(first.logprob, abs=0.02 * first.tokens)
    losses = [loaded.evaluate(limit=20)["metrics"]["loss"] for loaded in (plain, other)]
    assert losses[1] == pytest.approx(losses[0], abs=0.01)


def test_generation_is_float32_in_every_precision(gpt2_run: Path) -> None:
    plain, other = (meristem.load(gpt2_run, precision=name) for name in ("float32", "bfloat16"))
    texts = [loaded.generate(TEXTS[:3], greedy=True, max_tokens=8) for loaded in (plain, other)]
    assert texts[0] == texts[1]


def test_a_server_takes_float32_unless_told(gpt2_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference_options, "MIN_HIDDEN_SIZE", 1)
    monkeypatch.setattr(inference_options, "bfloat16_features", lambda: ["avx512_bf16"])
    monkeypatch.setattr(inference_options, "product_speedup", lambda hidden_size: 2.0)

    auto, chosen = (
        load_run_to_serve(gpt2_run, allow_nonfinite=False, precision=name)  # type: ignore[arg-type]
        for name in ("auto", "bfloat16")
    )
    assert auto.learner.model.bfloat16_min_tokens is None
    assert chosen.learner.model.bfloat16_min_tokens == 0
