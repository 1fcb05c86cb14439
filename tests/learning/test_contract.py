"""What every objective promises, on a backbone that suits it; and every backbone with one objective."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from cases import (
    POLICIES,
    REAL,
    REST,
    ROWS,
    SOURCE,
    TASKS,
    Case,
    bits,
    families,
    gradients,
    policy,
    real,
    remembers,
    resume,
    save,
    stepper_of,
    steps,
    task,
)
from torch import Tensor, nn

from meristem.dataset.feed import Feed
from meristem.dataset.token_dataset import TokenDataset
from meristem.inputs.batch import Row
from meristem.learning.learner import Learner
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.settings import TrainSettings
from meristem.utils.randomness import SampleRng

COVER = [*REAL, *POLICIES, *TASKS]
EVERYTHING = [*COVER, *REST]
FIXED = {"nsp", "span", "policy"}  # every sample makes the same number of predictions, by their nature
READER, WRITER = (".enter_source.", ".segments.", "backbone.encoder."), (".enter_target.", "backbone.decoder.")
HALVES = {"caption": READER[:2], "clm": (*READER, ".cross"), "mlm": WRITER, "nsp": WRITER, "rtd": WRITER}
"""What an objective leaves idle of a multitask model: the half it does not use."""
LONGER = {"rtd": 300}  # steps: its target moves until the generator, four times narrower, knows the batch too
HELD = Case(
    [
        {"name": "mlm", "label_smoothing": 0.1, "l1_logits": 0.2, "l1_hidden_states": 0.3},
        {"name": "nsp", "weight": 0.5},
    ],
    "bert",
)
ADAPTIVE = Case([{"name": "hybrid", "adaptive_masking": True, "initial_mask_rate": 0.4}], "modern")
EXHAUSTIVE = Case([{"name": "mlm", "exhaustive_masking": True, "mask_rate": 0.3}], "modern")


def build_case(
    case: Case | str, tokenizer: Tokenizer, store: TokenDataset, **options: Any
) -> tuple[Learner, Feed, TrainSettings]:
    build = real if isinstance(case, Case) else task if case in TASKS else policy
    return build(case, tokenizer, store, **options)  # type: ignore[operator]  # each takes its own kind


def name_of(case: Case | str) -> str:
    return str(case).partition("@")[0]


def idle(case: Case | str) -> tuple[str, ...]:
    """Parts of the names of parameters that this objective does not use on this family."""
    name, _, family = str(case).partition("@")
    look_prefixes = () if name == "caption" else ("backbone.look.",)  # what reads texts looks at no picture
    query = ("backbone.query",) if family == "xlnet" and name != "plm" else ()  # where the query stream starts
    return (*look_prefixes, *query, *(HALVES.get(name, ()) if family == "multitask" else ()))


@pytest.mark.parametrize("case", [c for c in EVERYTHING if c != "policy"], ids=str)
def test_one_batch_can_be_overfitted(case: Case | str, tokenizer: Tokenizer, store: TokenDataset) -> None:
    rate = 1e-2 if isinstance(case, str) else 5e-3
    learner, feed, settings = build_case(
        case, tokenizer, store, learning_rate=rate, schedule="constant", weight_decay=0.0
    )
    stepper = stepper_of(learner, settings)
    batch = [feed.batch(0, 0)]
    number = LONGER.get(name_of(case), 80)
    first = loss = float(stepper.train_step(0, number, SOURCE, batch).loss)
    for step in range(1, number):
        if loss < 0.1 * first:
            break  # the rate is constant: further steps would prove nothing more
        loss = float(stepper.train_step(step, number, SOURCE, batch).loss)
    assert loss < 0.1 * first


@pytest.mark.parametrize("case", COVER, ids=str)
def test_golden_first_losses(case: Case | str, tokenizer: Tokenizer, store: TokenDataset, golden: Path) -> None:
    """A refactoring gives the same numbers, or says why not; MERISTEM_GOLDEN=write adds those of new cases."""
    learner, feed, settings = build_case(case, tokenizer, store)
    losses = [float(step_result.loss) for step_result in steps(stepper_of(learner, settings), feed, range(3))]
    payload = json.loads((golden / "losses.json").read_text())
    if str(case) not in payload and os.environ.get("MERISTEM_GOLDEN") == "write":
        (golden / "losses.json").write_text(json.dumps({**payload, str(case): losses}, indent=1, sort_keys=True) + "\n")
        pytest.skip("written")
    expected = pytest.approx(payload[str(case)], rel=1e-5, abs=1e-6)  # praise and blame of a policy cancel
    assert losses == expected


@pytest.mark.parametrize("case", [*EVERYTHING, HELD, EXHAUSTIVE], ids=str)
def test_one_pass_of_eight_rows_or_eight_of_one(case: Case | str, tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, full_feed, _ = build_case(case, tokenizer, store, ragged=True)
    _, single, _ = build_case(case, tokenizer, store, ragged=True, micro=1)
    learner.double().train()
    batched, accumulated = (gradients(learner, feed) for feed in (full_feed, single))
    every = {name for name, _ in learner.named_parameters()}
    assert every - batched.keys() == {name for name in every if any(part in name for part in idle(case))}
    assert single.micro_steps == ROWS
    counts = {tuple(single.batch(0, micro).target_counts.values()) for micro in range(ROWS)}
    assert len(counts) > 1 or name_of(case) in FIXED or remembers(case)
    for name, gradient in batched.items():
        torch.testing.assert_close(accumulated[name], gradient, atol=1e-10, rtol=1e-9, msg=name)


@pytest.mark.parametrize("case", COVER, ids=str)
def test_a_billion_samples_later_a_batch_comes_as_soon(
    case: Case | str, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    _, feed, _ = build_case(case, tokenizer, store)
    durations = []
    for sample in (0, 10**9):
        start = time.perf_counter()
        batch = feed.batch(sample // feed.batch_size, 0)
        durations.append(time.perf_counter() - start)
        assert batch.sample_ids[0] == sample // feed.batch_size * feed.batch_size
    assert durations[1] < durations[0] + 2


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("case", [*EVERYTHING, pytest.param(ADAPTIVE, id="adaptive")], ids=str)
def test_stopped_and_resumed_is_never_stopped(
    case: Case | str, optimizer: str, tokenizer: Tokenizer, store: TokenDataset, tmp_path: Path
) -> None:
    options = {"dropout": 0.1, "optimizer": optimizer, "micro": 4}
    learner, feed, settings = build_case(case, tokenizer, store, **options)
    uninterrupted = stepper_of(learner, settings)
    losses = [float(t.loss) for t in steps(uninterrupted, feed, range(6))]
    first = stepper_of(build_case(case, tokenizer, store, **options)[0], settings)
    losses_before = [float(t.loss) for t in steps(first, feed, range(3))]
    save(tmp_path / "run", first, feed, settings, 3)
    torch.manual_seed(999)
    learner, feed, settings = build_case(case, tokenizer, store, **options)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(1.0)  # nothing of the fresh model may survive
    second = stepper_of(learner, settings)
    assert resume(tmp_path / "run", second, feed).step == 3
    losses_after = [float(t.loss) for t in steps(second, feed, range(3, 6))]
    assert losses_before + losses_after == losses
    expected_bits, other = bits(uninterrupted), bits(second)
    assert expected_bits.keys() == other.keys()
    assert [name for name in expected_bits if not torch.equal(expected_bits[name], other[name])] == []
    matrices = any(isinstance(module, nn.Linear) for module in learner.model.backbone.modules())
    assert any(name.startswith("optimizer/1") for name in expected_bits) == (optimizer == "muon" and matrices)
    assert any(name.startswith("memory") for name in expected_bits) == remembers(case)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_optimizer_variants_resume_exactly(
    optimizer: str, tokenizer: Tokenizer, store: TokenDataset, tmp_path: Path
) -> None:
    muon = {"muon_normalize": True, "newton_schulz_steps": 3} if optimizer == "muon" else {}
    decay = {"weight_decay": 0.2, "weight_decay_schedule": "linear", "cautious_weight_decay": True}
    options = {"optimizer": optimizer, **muon, **decay}
    case = Case("mlm", "bert")
    learner, feed, settings = build_case(case, tokenizer, store, **options)
    uninterrupted = stepper_of(learner, settings)
    steps(uninterrupted, feed, range(6))
    first = stepper_of(build_case(case, tokenizer, store, **options)[0], settings)
    steps(first, feed, range(3))
    save(tmp_path / "run", first, feed, settings, 3)
    second = stepper_of(build_case(case, tokenizer, store, **options)[0], settings)
    resume(tmp_path / "run", second, feed)
    steps(second, feed, range(3, 6))
    expected_bits, other = bits(uninterrupted), bits(second)
    assert [name for name in expected_bits if not torch.equal(expected_bits[name], other[name])] == []
    plain = stepper_of(build_case(case, tokenizer, store, optimizer=optimizer)[0], settings)
    assert any(name.endswith("row_mean_sq") for name in expected_bits) == (optimizer == "muon")
    assert plain.optimizers[0].param_groups[0]["weight_decay"] != second.optimizers[0].param_groups[0]["weight_decay"]


@pytest.mark.parametrize("case", [case for case in COVER if remembers(case)], ids=str)
def test_memory_is_the_same_in_one_pass_or_eight(case: Case | str, tokenizer: Tokenizer, store: TokenDataset) -> None:
    full_case, single = (build_case(case, tokenizer, store, micro=micro) for micro in (ROWS, 1))
    steppers = [stepper_of(learner.double(), settings, plain=True) for learner, _, settings in (full_case, single)]
    for stepper, (_, feed, _) in zip(steppers, (full_case, single), strict=True):
        steps(stepper, feed, range(3))
    for key, batched in steppers[0].memory[SOURCE, 0].items():
        accumulated = torch.cat([steppers[1].memory[SOURCE, micro][key] for micro in range(ROWS)])
        torch.testing.assert_close(accumulated, batched, atol=1e-10, rtol=1e-10)
    for parameter, other in zip(steppers[0].learner.parameters(), steppers[1].learner.parameters(), strict=True):
        torch.testing.assert_close(parameter, other, atol=1e-10, rtol=1e-10)


# ---------------------------------------------------------------- nothing may be seen that must be predicted


def looked_up(learner: Learner, inputs: dict[str, Tensor], *, causal: bool | None) -> tuple[Tensor, Tensor]:
    """Logits, and the vectors the input's tokens were looked up as, ready to hold a gradient."""
    model, embedded = learner.model.eval(), []

    def hold(module: Any, arguments: Any, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[0]

    handle = model.backbone.embedding().register_forward_hook(hold)
    try:
        hidden = model.backbone(**inputs) if causal is None else model.backbone(causal=causal, **inputs)
    finally:
        handle.remove()
    (head,) = (h for name, h in model.heads.items() if name in ("mlm", "clm"))
    return head(hidden.last_hidden_state), embedded[0]


@pytest.mark.parametrize("family", families("bidirectional"))
def test_masked_tokens_are_nowhere_in_the_input(family: str, tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, feed, _ = real(Case("mlm", family), tokenizer, store)
    objective, draw = feed.objective, SampleRng(3, 0, 5)
    row = feed.view.row(5, draw)
    hidden = objective.prepare(row, draw)
    assert isinstance(hidden, Row)
    positions, masked_ids = hidden.targets["mlm"]["at"], hidden.inputs["tokens"]
    masked = [position for position in positions if masked_ids[position] == tokenizer.mask]
    assert masked
    for position in masked:
        other = Row(
            inputs={**row.inputs, "tokens": row.inputs["tokens"].copy()}, metadata=row.metadata, sample_id=row.sample_id
        )
        other.inputs["tokens"][position] = 5 if row.inputs["tokens"][position] != 5 else 6
        prepared = objective.prepare(other, draw)
        assert isinstance(prepared, Row)
        assert (prepared.inputs["tokens"] == masked_ids).all()
        assert (prepared.targets["mlm"]["values"] != hidden.targets["mlm"]["values"]).sum() == 1
        logits, vectors = looked_up(learner, {"tokens": torch.from_numpy(masked_ids)[None]}, causal=None)
        right = int(row.inputs["tokens"][position])
        (grad,) = torch.autograd.grad(F.log_softmax(logits[0, position], -1)[right], vectors)
        table = torch.zeros(tokenizer.vocab_size).index_add_(0, torch.from_numpy(masked_ids), grad[0].abs().sum(-1))
        assert right in masked_ids or table[right] == 0


@pytest.mark.parametrize("fate", ["random", "kept"])
def test_kept_and_random_tokens_are_visible(fate: str, tokenizer: Tokenizer, store: TokenDataset) -> None:
    shares = {"mask_replace_prob": 0.0, "random_replace_prob": 1.0 if fate == "random" else 0.0}
    learner, feed, _ = real(Case([{"name": "mlm", **shares}], "bert"), tokenizer, store)
    batch = feed.batch(0, 0)
    assert (batch.inputs["tokens"] != tokenizer.mask).all()
    position = int(batch.targets["mlm"]["at"][0])
    logits, vectors = looked_up(learner, {"tokens": batch.inputs["tokens"][:1]}, causal=None)
    (grad,) = torch.autograd.grad(logits[0, position].logsumexp(0), vectors)
    assert grad[0, position].abs().max() > 0
    changed = batch.inputs["tokens"][:1].clone()
    changed[0, position] = 5 if changed[0, position] != 5 else 6
    assert not torch.equal(looked_up(learner, {"tokens": changed}, causal=None)[0][0, position], logits[0, position])


@pytest.mark.parametrize("family", families("causal"))
def test_no_later_token_is_seen(family: str, tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, feed, _ = real(Case("clm", family), tokenizer, store)
    with torch.no_grad():  # zero-initialised projections would hide a leak
        for parameter in learner.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    batch = feed.batch(0, 0)
    tokens, targets = batch.inputs["tokens"], batch.targets["clm"]
    assert torch.equal(
        tokens.flatten()[targets["at"]][1:23], targets["values"][:22]
    )  # what is predicted is read one step later
    logits, vectors = looked_up(learner, batch.inputs, causal=True)
    for position in (0, 7, 22):
        (grad,) = torch.autograd.grad(logits[:, position].logsumexp(-1).sum(), vectors, retain_graph=True)
        assert grad[:, position + 1 :].abs().max() == 0
        assert (grad[:, : position + 1].abs().amax((0, 2)) > 0).all()
        changed = tokens.clone()
        changed[:, position + 1 :] = (changed[:, position + 1 :] + 1) % tokenizer.vocab_size
        changed_logits = looked_up(learner, {**batch.inputs, "tokens": changed}, causal=True)[0]
        assert torch.equal(changed_logits[:, : position + 1], logits[:, : position + 1])


@pytest.mark.parametrize("family", families("causal"))
def test_objectives_select_causal_attention_themselves(family: str, tokenizer: Tokenizer, store: TokenDataset) -> None:
    """The same through `encode`, which is what training calls."""
    learner, feed, _ = real(Case("clm", family), tokenizer, store)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    batch = feed.batch(0, 0)
    before = feed.objective.encode(learner.model.eval(), batch).last_hidden_state
    batch.inputs["tokens"][:, 10:] = 5
    after = feed.objective.encode(learner.model, batch).last_hidden_state
    assert torch.equal(before[:, :10], after[:, :10])
    assert not torch.equal(before[:, 10:], after[:, 10:])
