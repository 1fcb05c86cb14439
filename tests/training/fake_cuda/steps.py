"""Two training steps of every objective on every family on a fake CUDA device, run by `test_fake_accelerator.py` in a
process of its own. pytest -p no:xdist tests/training/fake_cuda/steps.py runs it alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[2] / "learning")]

from cases import REAL, REST, ROWS, SOURCE, TASKS, Case, batches, real, task
from device import CUDA, TransferLog, compile_device, load_device, move_to_fake_cuda

from meristem.dataset.token_dataset import TokenDataset
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.optim.param_groups import build_optimizers
from meristem.training.precision import Precision
from meristem.training.step import Stepper

MICRO_STEPS = 2
PASS_SYNCS = {"elmo": 2}
"""Host synchronizations of a forward pass: ELMo's distinct words, and the longest of them."""
PACKED = {"rnn": "source_present"}
"""Masks that are left out, as if no row were padded: packing sequences reads their lengths, which fake ones lack."""


@pytest.fixture(scope="module", autouse=True)
def _device(tmp_path_factory: pytest.TempPathFactory) -> None:
    load_device(compile_device(tmp_path_factory.mktemp("device")))


@pytest.mark.parametrize("precision", [pytest.param("float32", marks=pytest.mark.slow), "bfloat16"])
@pytest.mark.parametrize("case", [*REAL, *TASKS, *REST], ids=str)
def test_steps_stay_on_the_device(
    case: Case | str, precision: Precision, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    family = "bert" if isinstance(case, str) else case.family
    build = task if isinstance(case, str) else real
    micro_rows = ROWS // MICRO_STEPS
    learner, feed, settings = build(case, tokenizer, store, micro=micro_rows, dropout=0.1, ragged=True)  # type: ignore[arg-type]  # each its kind of case
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    move_to_fake_cuda(learner, mode)
    optimizers = build_optimizers(learner.model, settings)
    stepper = Stepper(
        learner=learner.train(), optimizers=optimizers, settings=settings, device=CUDA, precision=precision
    )
    with mode, TransferLog() as transfers:
        for step in range(2):  # the second with memory and optimizer state
            micro_batches = [batch.to(CUDA) for batch in batches(feed, step)]
            for batch in micro_batches:
                batch.inputs.pop(PACKED.get(family, ""), None)
            transfers.uploads.clear()
            transfers.syncs.clear()
            result = stepper.train_step(step, 6, SOURCE, micro_batches)
            expected_syncs = 1 + len(micro_batches) * PASS_SYNCS.get(family, 0)
            assert sum(transfers.syncs.values()) == expected_syncs, dict(transfers.syncs)
            assert not transfers.uploads
    assert result.is_finite and result.loss.device.type == "cpu"
    states = [tensor for optimizer in optimizers for state in optimizer.state.values() for tensor in state.values()]
    assert {tensor.device for tensor in states} == {CUDA}
    assert {tensor.dtype for tensor in (*states, *learner.parameters())} == {torch.float32}
