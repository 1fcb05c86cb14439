from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import nn

from meristem.blocks.heads.sampled_softmax import log_expected_count, sampled_softmax_loss
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.dataset.token_dataset import TokenDataset
from meristem.inputs.batch import Row, collate
from meristem.inputs.char_ids import token_char_ids
from meristem.interfaces.backbone import Hidden, Model
from meristem.models.elmo import ELMo, ELMoSettings
from meristem.objectives.bilm import BiLMObjectiveSettings, sample_log_uniform
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

SMALL = ELMoSettings(layers=2, hidden_size=12, cell_size=16, char_filters=((1, 8), (2, 8)), char_embedding_size=4)


def test_both_directions_predict_every_token_once(
    make: Callable[..., Any], prepared: Callable[..., Any], store: TokenDataset
) -> None:
    stream = store.split("train")
    rows = [after for _, (after,) in prepared(make("bilm"), max_length=20)]
    for term in ("forward", "backward"):
        predicted_ids = np.concatenate([row.targets[term]["values"] for row in rows[:-1]])
        assert np.array_equal(predicted_ids, stream.tokens(0, len(predicted_ids)))  # the last row may overlap
        assert np.array_equal(rows[-1].targets[term]["values"], stream.tokens(len(stream) - 18, len(stream)))


def test_each_direction_predicts_what_it_has_not_seen(make: Callable[..., Any], prepared: Callable[..., Any]) -> None:
    """Forwards a position predicts the token after it, backwards the one before it; the frame is never predicted."""
    for before, (after,) in prepared(make("bilm"), max_length=20):
        tokens = before.inputs["tokens"]
        for term, step in (("forward", 1), ("backward", -1)):
            targets = after.targets[term]
            assert np.array_equal(targets["values"], tokens[targets["at"] + step])
            predicted = targets["at"] + step
            assert predicted.min() == 1 and predicted.max() == len(tokens) - 2 and len(set(predicted)) == len(predicted)


def test_without_special_tokens_the_ends_are_predicted_too(make: Callable[..., Any], tokenizer: Tokenizer) -> None:
    objective = make("bilm")
    objective.num_prefix = objective.num_suffix = 0
    prepared = objective.prepare(Row(inputs={"tokens": np.array([5, 6, 7])}), SampleRng(0, 0, 0))
    assert {k: v.tolist() for k, v in prepared.targets["forward"].items()} == {"at": [0, 1], "values": [6, 7]}
    assert {k: v.tolist() for k, v in prepared.targets["backward"].items()} == {"at": [1, 2], "values": [5, 6]}


@pytest.fixture
def batch_of(make: Callable[..., Any], prepared: Callable[..., Any], tokenizer: Tokenizer) -> Callable[..., Any]:
    """A model, an objective and a batch of three rows with letters, the last one shorter."""

    def make_batch(**settings: Any) -> Any:
        torch.manual_seed(0)
        objective = make("bilm", **settings)
        model = Model(ELMo(SMALL, tokenizer.vocab_size), objective.heads)
        rows = []
        for (before, _), size in zip(prepared(objective, max_length=20), (20, 20, 13), strict=False):
            tokens = before.inputs["tokens"][:size]
            words = [tokenizer.id_to_token(token).encode() for token in tokens.tolist()]
            row = Row(
                inputs={"tokens": tokens, "characters": token_char_ids(tokens, words, tokenizer)},
                metadata={},
                sample_id=0,
            )
            rows.append(objective.prepare(row, SampleRng(0, 0, len(rows))))
        return model, objective, collate(rows, objective, {"tokens": 0})

    return make_batch


def test_the_loss_is_plain_cross_entropy_of_each_half(batch_of: Callable[..., Any]) -> None:
    model, objective, batch = batch_of()
    hidden = objective.encode(model, batch)
    outcome = objective.loss(model, hidden, batch)
    assert outcome.state == {} and batch.target_counts == {"forward": 18 + 18 + 11, "backward": 18 + 18 + 11}
    assert objective.loss_weights == {"forward": 0.5, "backward": 0.5}
    head = model.heads["bilm"]
    for term, half in (
        ("forward", hidden.last_hidden_state[..., :12]),
        ("backward", hidden.last_hidden_state[..., 12:]),
    ):
        targets = batch.targets[term]
        logits = head(half.reshape(-1, 12)[targets["at"]])
        torch.testing.assert_close(outcome.loss_sums[term], F.cross_entropy(logits, targets["values"], reduction="sum"))


def test_what_is_predicted_changes_no_logit_of_its_prediction(
    batch_of: Callable[..., Any], tokenizer: Tokenizer
) -> None:
    model, objective, batch = batch_of()
    model.eval()
    before = objective.encode(model, batch).last_hidden_state.reshape(-1, 24)
    for term, half, step in (("forward", slice(0, 12), 1), ("backward", slice(12, 24), -1)):
        for position in batch.targets[term]["at"][[0, 9, 17, 30, -1]].tolist():
            row, column = divmod(position + step, 20)
            characters = batch.inputs["characters"].clone()
            characters[row, column, 1:3] = 99
            after = model.backbone(**{**batch.inputs, "characters": characters}).last_hidden_state.reshape(-1, 24)
            assert torch.equal(after[position, half], before[position, half])
            other = slice(12, 24) if step == 1 else slice(0, 12)
            assert not torch.equal(after[position, other], before[position, other])


def test_evaluation_returns_ranks_and_is_exact(batch_of: Callable[..., Any]) -> None:
    model, objective, batch = batch_of(sampled_softmax=7)
    exact = batch_of()[1]
    model.eval()
    with torch.no_grad():
        hidden = objective.encode(model, batch)
        loss, expected = objective.loss(model, hidden, batch), exact.loss(model, hidden, batch)
    assert loss.loss_sums == expected.loss_sums
    assert loss.metrics.keys() == {f"{term}.top{n}" for term in ("forward", "backward") for n in (1, 5)}
    assert all(0 <= total <= number == 47 for total, number in loss.metrics.values())


def test_smoothing_and_penalties_apply_in_training_only(batch_of: Callable[..., Any]) -> None:
    model, plain, batch = batch_of()
    regularized = batch_of(label_smoothing=0.2, l1_logits=0.3)[1]
    hidden = plain.encode(model, batch)
    for term in ("forward", "backward"):
        in_training = [
            objective.loss(model.train(), hidden, batch).loss_sums[term] for objective in (plain, regularized)
        ]
        in_evaluation = [
            objective.loss(model.eval(), hidden, batch).loss_sums[term] for objective in (plain, regularized)
        ]
        assert in_training[1] > in_training[0] + 0.01
        assert in_evaluation[0] == in_evaluation[1] == in_training[0]


def test_hidden_states_can_have_an_l1_penalty(batch_of: Callable[..., Any]) -> None:
    model, objective, batch = batch_of(l1_hidden_states=0.3)
    hidden = objective.encode(model, batch)
    outcome = objective.loss(model, hidden, batch)
    assert batch.target_counts["bilm.states"] == 53 and objective.loss_weights["bilm.states"] == 0.3
    expected = sum(hidden.last_hidden_state[row, :size].abs().mean(-1).sum() for row, size in enumerate((20, 20, 13)))
    torch.testing.assert_close(outcome.loss_sums["bilm.states"], expected)


# ---------------------------------------------------------------- rivals drawn by rank


def test_negatives_are_sampled_by_rank() -> None:
    """Chi-square over 50 words against log((w + 2) / (w + 1)) / log(V + 1): 99.99 % of right draws stay below 95."""
    number, size = 200_000, 50
    sample_counts = np.bincount(sample_log_uniform(np.random.default_rng(0), number, size), minlength=size)
    share = np.log((np.arange(size) + 2) / (np.arange(size) + 1)) / np.log(size + 1)
    assert share.sum() == pytest.approx(1)
    assert ((sample_counts - number * share) ** 2 / (number * share)).sum() < 95
    torch.testing.assert_close(
        log_expected_count(torch.arange(size), number, size), torch.from_numpy(np.log(number * share))
    )


def test_the_sampled_loss_is_its_formula() -> None:
    torch.manual_seed(0)
    head = VocabularyHead(nn.Embedding(30, 6), bias=True)
    nn.init.normal_(head.bias)
    states, positions = torch.randn(2, 5, 6, requires_grad=True), torch.tensor([0, 3, 4, 6, 9])
    targets, negatives = torch.tensor([2, 7, 2, 0, 5]), torch.tensor([[2, 3, 3, 9], [5, 1, 0, 0]])
    expected = torch.zeros(())
    for position, target in zip(positions.tolist(), targets.tolist(), strict=True):
        row, logits = position // 5, head(states.reshape(-1, 6)[position])
        share = torch.tensor([np.log((w + 2) / (w + 1)) / np.log(31) for w in range(30)], dtype=torch.float32)
        corrected = logits - (4 * share).log()
        corrected = torch.where(torch.arange(30) == target, logits, corrected)  # the right word is always there
        rivals = [word for word in negatives[row].tolist() if word != target]
        expected = expected - F.log_softmax(corrected[[target, *rivals]], 0)[0]
    sampled_loss = sampled_softmax_loss(head, states, positions, targets, negatives)
    torch.testing.assert_close(sampled_loss, expected)
    parameters = [states, head.weight, head.bias]
    for actual, other in zip(
        torch.autograd.grad(sampled_loss, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(actual, other)


def test_many_negatives_approach_the_exact_loss() -> None:
    """The odds are corrected for: against 20,000 draws of 40 words the loss is the exact one within 1 %."""
    torch.manual_seed(0)
    head = VocabularyHead(nn.Embedding(40, 8), bias=True)
    states, targets = torch.randn(1, 6, 8), torch.randint(40, (6,))
    head.requires_grad_(False)
    negatives = torch.from_numpy(sample_log_uniform(np.random.default_rng(1), 20_000, 40))[None]
    exact = head.compute_loss(states[0], targets).total
    assert float(sampled_softmax_loss(head, states, torch.arange(6), targets, negatives)) == pytest.approx(
        float(exact), rel=0.01
    )


def test_each_row_is_trained_against_its_own_negatives(batch_of: Callable[..., Any]) -> None:
    model, objective, batch = batch_of(sampled_softmax=7)
    targets = batch.targets["forward"]
    assert targets["rivals"].shape == (21,) and len(targets["at"]) == 47 and "rivals" not in batch.targets["backward"]
    hidden = objective.encode(model, batch)
    outcome = objective.loss(model.train(), hidden, batch)
    rows = [Hidden(last_hidden_state=hidden.last_hidden_state[row : row + 1]) for row in range(3)]
    for term, half in (("forward", slice(0, 12)), ("backward", slice(12, 24))):
        total = 0.0
        for row, row_hidden in enumerate(rows):
            in_row = (batch.targets[term]["at"] // 20) == row
            row_positions, values = batch.targets[term]["at"][in_row] - 20 * row, batch.targets[term]["values"][in_row]
            negatives = targets["rivals"].view(3, 7)[row : row + 1]
            total += sampled_softmax_loss(
                model.heads["bilm"], row_hidden.last_hidden_state[..., half], row_positions, values, negatives
            )
        torch.testing.assert_close(outcome.loss_sums[term], total)
    outcome.loss_sums["backward"].backward()
    assert model.heads["bilm"].weight.grad.any(1).sum() < 25 + 21


def test_refusals(make: Callable[..., Any]) -> None:
    with pytest.raises(
        ValidationError, match="sampled_softmax: label_smoothing and l1_logits need the logits of all tokens"
    ):
        BiLMObjectiveSettings(sampled_softmax=5, label_smoothing=0.1)
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        BiLMObjectiveSettings(sampled_softmax=-1)
