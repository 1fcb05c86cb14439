"""What writes from a source sees of its target: only what it has written (seq2seq, denoising, caption)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from cases import SOURCE, Case, families, real
from torch import Tensor

from meristem.dataset.feed import Feed
from meristem.dataset.token_dataset import TokenDataset
from meristem.inputs.batch import Batch, Row, collate
from meristem.learning.learner import Learner
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

READS = [Case(name, family) for name in ("seq2seq", "denoising") for family in families("encoder_decoder")]
CASES = [*READS, *(Case("caption", family) for family in families("image"))]


def loud(case: Case, tokenizer: Tokenizer, store: TokenDataset) -> tuple[Learner, Feed]:
    """A learner whose weights are all large enough to show a leak."""
    learner, feed, _ = real(case, tokenizer, store)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return learner.eval(), feed


def logits(learner: Learner, batch: Batch) -> Tensor:
    hidden = learner.objectives[SOURCE].encode(learner.model, batch)
    return learner.model.heads["seq2seq"](hidden.last_hidden_state)  # type: ignore[no-any-return]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_later_target_tokens_change_nothing_before(case: Case, tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, feed = loud(case, tokenizer, store)
    batch = feed.batch(0, 0)
    tokens, targets = batch.inputs["tokens"], batch.targets[learner.objectives[SOURCE].name]
    width = tokens.shape[1]
    first = int(batch.target_counts[feed.objective.name] > 0) and int((targets["at"] < width).sum())
    assert torch.equal(tokens[0, 1:first], targets["values"][: first - 1])  # what is predicted is read one step later
    before = logits(learner, batch)
    for position in (0, 5, 11):
        batch.inputs["tokens"] = torch.cat(
            [tokens[:, : position + 1], (tokens[:, position + 1 :] + 7) % tokenizer.vocab_size], 1
        )
        after = logits(learner, batch)
        assert torch.equal(after[:, : position + 1], before[:, : position + 1])
        assert not torch.equal(after[:, position + 1], before[:, position + 1])


@pytest.mark.parametrize("case", [case for case in READS if case.family != "rnn"], ids=str)
def test_no_gradient_reaches_later_target_tokens(case: Case, tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, feed = loud(case, tokenizer, store)
    batch = feed.batch(0, 0)
    embedded: list[Tensor] = []

    def hold(module: Any, arguments: Any, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1]

    handle = learner.model.backbone.embedding().register_forward_hook(hold)
    logits_before = logits(learner, batch)
    handle.remove()
    sizes = [batch.inputs[name].shape[1] for name in ("source", "tokens")]
    assert sizes[0] != sizes[1]
    for position in (0, 4, 9):
        grads = torch.autograd.grad(logits_before[:, position].logsumexp(-1).sum(), embedded, retain_graph=True)
        gradient = torch.cat(grads, 1)  # the source's vectors, then the target's, in one look or two
        assert gradient.shape[1] == sum(sizes)
        source, target = gradient.split(sizes, 1)
        assert target[:, position + 1 :].abs().max() == 0
        assert (target[:, position].abs().amax(-1) > 0).all()
        present = batch.inputs.get("source_present", torch.ones(source.shape[:2], dtype=torch.bool))
        assert source[~present].abs().sum() == 0
        assert (source[present].abs().amax(-1) > 0).float().mean() > 0.9


@pytest.mark.parametrize("case", READS, ids=str)
def test_padding_changes_nothing(case: Case, tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, feed = loud(case, tokenizer, store)
    rows = []
    for number, (source_length, target_length) in enumerate([(4, 9), (7, 5), (12, 12)]):
        row = feed.objective.prepare(feed.view.row(number, SampleRng(0, 0, number)), SampleRng(0, 0, number))
        assert isinstance(row, Row)
        cut = {"source": row.inputs["source"][:source_length], "tokens": row.inputs["tokens"][:target_length]}
        targets = {key: value[:target_length] for key, value in row.targets[feed.objective.name].items()}
        rows.append(Row(inputs=cut, targets={feed.objective.name: targets}, sample_id=number))
    batched = logits(learner, collate(rows, feed.objective, feed.pad_values))
    for number, row in enumerate(rows):
        single = logits(learner, collate([row], feed.objective, feed.pad_values))[0]
        torch.testing.assert_close(batched[number, : len(single)], single, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("noise", ["infill", "mask", "delete"])
def test_removed_tokens_are_nowhere_in_the_source(noise: str, tokenizer: Tokenizer, store: TokenDataset) -> None:
    """Another token in a hidden place gives the same source, and the same logits up to where it is predicted."""
    settings = {"permute_rate": 0.0, "infill_rate": 0.0, f"{noise}_rate": 0.3}
    case = Case([{"name": "denoising", **settings}], "transformer")
    learner, feed = loud(case, tokenizer, store)
    draw = SampleRng(3, 0, 2)
    row = feed.view.row(2, draw)
    text = row.inputs["tokens"]

    def prepared(tokens: np.ndarray[Any, Any]) -> Row:
        prepared_again = feed.objective.prepare(
            Row(inputs={"tokens": tokens}, metadata=row.metadata, sample_id=2), draw
        )
        assert isinstance(prepared_again, Row)
        return prepared_again

    prepared_row = prepared(text)
    before = logits(learner, collate([prepared_row], feed.objective, feed.pad_values))
    hidden = 0
    for position in np.flatnonzero(~row.metadata["special"]):
        other = text.copy()
        other[position] = 5 if text[position] != 5 else 6
        changed = prepared(other)
        if not np.array_equal(changed.inputs["source"], prepared_row.inputs["source"]):
            continue  # the token is shown
        hidden += 1
        assert (changed.targets["denoising"]["values"] != prepared_row.targets["denoising"]["values"]).sum() == 1
        after = logits(learner, collate([changed], feed.objective, feed.pad_values))
        assert torch.equal(after[0, : position + 1], before[0, : position + 1])
    free = int((~row.metadata["special"]).sum())
    assert hidden in (int(0.3 * free), int(0.3 * free) + 1)
