"""Training in bfloat16: which runs use it, what stays float32, exact resuming, and the precision kept on resume."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import SOURCE, Case, batches, bits, real, stepper_of, steps
from rich.console import Console
from torch import Tensor, nn

from meristem import api
from meristem.config.recipe import resolve_recipe
from meristem.dataset.token_dataset import TokenDataset
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training import budget, precision
from meristem.training.precision import Precision, choose_precision

CPU = torch.device("cpu")
CASES = [
    Case(["mlm", "nsp"], "bert"), Case("clm", "gpt2"), Case("clm", "modern"), Case("plm", "xlnet"),
    Case("clm", "transformer_xl"), Case("rtd", "electra"), Case("denoising", "transformer"), Case("bilm", "elmo"),
]  # fmt: skip
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")


def weights(learner: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten().clone() for parameter in learner.parameters()])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_losses_and_gradients_are_close_to_those_of_float32(
    case: Case, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    losses, gradients = [], []
    for name in PRECISIONS:
        learner, feed, settings = real(case, tokenizer, store, max_grad_norm=None)
        before = weights(learner)
        step = stepper_of(learner, settings, plain=True, precision=name).train_step(0, 10, SOURCE, batches(feed, 0))
        assert {parameter.dtype for parameter in learner.parameters()} == {torch.float32}
        losses.append(float(step.loss))
        gradients.append(weights(learner) - before)
    assert losses[1] == pytest.approx(losses[0], rel=2e-2)
    assert losses[1] != losses[0]
    assert torch.cosine_similarity(*gradients, dim=0) > 0.98


def test_activations_stay_bfloat16_between_products(tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, feed, settings = real(Case("clm", "gpt2"), tokenizer, store)
    dtypes: set[torch.dtype] = set()
    for module in learner.model.backbone.stack.modules():
        if isinstance(module, nn.Linear | nn.LayerNorm):
            module.register_forward_hook(lambda _, inputs, output: dtypes.update({inputs[0].dtype, output.dtype}))
    stepper_of(learner, settings, precision="bfloat16").train_step(0, 10, SOURCE, batches(feed, 0))
    assert dtypes == {torch.bfloat16}


def test_it_learns(tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, feed, settings = real(CASES[0], tokenizer, store, learning_rate=5e-3, schedule="constant")
    stepper, same_batches = stepper_of(learner, settings, precision="bfloat16"), batches(feed, 0)
    losses = [float(stepper.train_step(step, 30, SOURCE, same_batches).loss) for step in range(30)]
    assert losses[-1] < 0.5 * losses[0]


def test_micro_batches_accumulate_to_the_gradient_of_the_whole(tokenizer: Tokenizer, store: TokenDataset) -> None:
    gradients = []
    for micro in (8, 2):
        learner, feed, settings = real(CASES[1], tokenizer, store, micro=micro, max_grad_norm=None)
        before = weights(learner)
        stepper_of(learner, settings, plain=True, precision="bfloat16").train_step(0, 10, SOURCE, batches(feed, 0))
        gradients.append(weights(learner) - before)
    torch.testing.assert_close(*gradients, rtol=0.02, atol=0.02 * float(gradients[0].abs().max()))


def test_steps_are_repeated_bit_for_bit(tokenizer: Tokenizer, store: TokenDataset) -> None:
    results = []
    for _ in range(2):
        learner, feed, settings = real(CASES[3], tokenizer, store, optimizer="muon")
        stepper = stepper_of(learner, settings, precision="bfloat16")
        steps(stepper, feed, range(3))
        results.append({name: tensor.clone() for name, tensor in bits(stepper).items()})
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


# ------------------------------------------------------------ the choice


def choose(monkeypatch: pytest.MonkeyPatch, features: list[str], speedup: float, **recipe: Any) -> str:
    monkeypatch.setattr(precision, "bfloat16_features", lambda: features)
    monkeypatch.setattr(precision, "product_speedup", lambda hidden_size: speedup)
    resolved = resolve_recipe("test", {"model": {"family": "bert", "hidden_size": 128, "heads": 2}, **recipe})
    backbone: Any = nn.Module()
    backbone.hidden_size, backbone.gains_from_bfloat16 = resolved.model.hidden_size, resolved.model.family != "rnn"
    chosen_precision = choose_precision(resolved, CPU, backbone)
    explicit = replace(resolved, train=resolved.train.model_copy(update={"precision": "bfloat16"}))
    assert choose_precision(explicit, CPU, backbone) == "bfloat16"  # a setting decides first
    return chosen_precision


def test_the_processor_and_the_model_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    small, recurrent = {"family": "bert", "hidden_size": 64, "heads": 2}, {"family": "rnn", "hidden_size": 128}
    assert choose(monkeypatch, ["avx512_bf16"], 2.0, objective="mlm") == "bfloat16"
    assert choose(monkeypatch, [], 2.0, objective="mlm") == "float32"
    assert choose(monkeypatch, ["avx512_bf16"], 1.1, objective="mlm") == "float32"
    assert choose(monkeypatch, ["avx512_bf16"], 2.0, objective="mlm", model=small) == "float32"
    assert choose(monkeypatch, ["avx512_bf16"], 2.0, objective="seq2seq", model=recurrent) == "float32"
    assert choose(monkeypatch, ["amx_bf16"], 2.0, policy={}, rewards=["repetition"]) == "float32"


# ------------------------------------------------------------ runs

SMALL = ["model.layers=1", "model.hidden_size=16", "model.heads=2", "model.max_length=16", "tokenizer.vocab_size=300",
         "corpus.limit=60", "train.batch_tokens=64", "train.evaluate_tokens=64", "train.evaluate_every=2",
         "objective=mlm"]  # fmt: skip


def pretrain(out: Path, steps: int) -> str:
    overrides = [*SMALL, f"train.steps={steps}", "train.warmup=0", "train.schedule=constant"]
    api.pretrain("bert-mini", overrides, source="builtin:microworld-en", out=out, console=Console(quiet=True))
    return (out / "log.txt").read_text()


def test_a_resumed_run_keeps_its_precision_and_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "PEAK_SIZE", 64)
    monkeypatch.setattr(precision, "MIN_HIDDEN_SIZE", 1)
    monkeypatch.setattr(precision, "product_speedup", lambda hidden_size: 2.0)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    assert "Training in bfloat16 (avx512_bf16)" in pretrain(tmp_path / "whole", 4)
    pretrain(tmp_path / "parts", 2)
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)  # another processor
    log = pretrain(tmp_path / "parts", 4)
    assert "Resuming in bfloat16, as the run started (this machine would use float32)" in log
    expected_weights, parts = (api.load(tmp_path / name).model.state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(expected_weights[name], parts[name]) for name in expected_weights)
