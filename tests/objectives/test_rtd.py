from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from meristem.blocks.transformer.electra_generator import ElectraGenerator
from meristem.config.errors import MeristemError
from meristem.dataset.dataset_view import DATASET_VIEWS
from meristem.dataset.feed import Feed
from meristem.dataset.token_dataset import TokenDataset
from meristem.evaluation.held_out_loss import evaluate_held_out
from meristem.inputs.batch import Batch, Row, collate
from meristem.interfaces.backbone import Model
from meristem.learning.learner import Learner
from meristem.metrics.roc_auc import roc_auc
from meristem.models.electra import Electra, ElectraSettings
from meristem.objectives.rtd import RTDObjective, RTDObjectiveSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng

Make, Run = Callable[..., Any], Callable[..., Any]
LENGTH = 24


def model_for(objective: RTDObjective, tokenizer: Tokenizer, **settings: Any) -> Model:
    torch.manual_seed(0)
    small = {
        "layers": 2,
        "hidden_size": 32,
        "heads": 4,
        "embedding_size": 16,
        "max_length": LENGTH,
        "init_std": 0.3,
        **settings,
    }
    return Model(Electra(ElectraSettings(**small), tokenizer.vocab_size), objective.heads)


def generator_of(model: Model) -> ElectraGenerator:
    generator = model.heads["generator"]
    assert isinstance(generator, ElectraGenerator)
    return generator


def feed_for(objective: RTDObjective, tokenizer: Tokenizer, store: TokenDataset) -> Feed:
    view = DATASET_VIEWS["windows"](store.split("train"), tokenizer, LENGTH, frame=True)
    return Feed(
        view=view,
        objective=objective,
        seed=1,
        batch_size=8,
        micro_batch_size=8,
        pad_values={"tokens": tokenizer.pad or 0},
    )


def original(batch: Batch) -> torch.Tensor:
    """The tokens as they were before any was hidden."""
    targets, tokens = batch.targets["generator"], batch.inputs["tokens"]
    return tokens.flatten().index_copy(0, targets["at"], targets["values"])


@pytest.fixture(scope="module")
def objective(make: Make) -> RTDObjective:
    return make("rtd")  # type: ignore[no-any-return]


# ---------------------------------------------------------------- what is hidden


def test_all_selected_tokens_are_masked_and_no_others(
    objective: RTDObjective, prepared: Run, tokenizer: Tokenizer
) -> None:
    uniforms = []
    for before, (after,) in prepared(objective, epochs=4):
        targets, special = after.targets["generator"], before.metadata["special"]
        tokens, masked_ids = before.inputs["tokens"], after.inputs["tokens"]
        assert len(targets["at"]) == max(1, round(0.15 * (~special).sum()))
        assert np.array_equal(tokens[targets["at"]], targets["values"])
        assert (masked_ids[targets["at"]] == tokenizer.mask).all()
        assert np.array_equal(np.delete(tokens, targets["at"]), np.delete(masked_ids, targets["at"]))
        assert not special[targets["at"]].any()
        assert np.array_equal(after.targets["rtd"]["at"], np.arange(len(tokens)))  # special ones are judged too
        uniforms.append(targets["uniform"])
    all_uniforms = np.concatenate(uniforms)
    assert len(all_uniforms) > 2000
    assert 0 <= all_uniforms.min() <= all_uniforms.max() < 1
    counts = np.histogram(all_uniforms, 20, (0, 1))[0]
    assert (
        (counts - len(all_uniforms) / 20) ** 2 / (len(all_uniforms) / 20)
    ).sum() < 51  # 19 degrees: the 99.99th percentile


@pytest.mark.parametrize("unit", ["word", "span"])
def test_units_are_those_of_masked_words(make: Make, prepared: Run, tokenizer: Tokenizer, unit: str) -> None:
    for before, (after,) in prepared(make("rtd", unit=unit)):
        tokens, positions = before.inputs["tokens"], after.targets["generator"]["at"]
        following = [p for p in positions + 1 if p < len(tokens) and p not in positions]
        assert tokenizer.word_start_mask[tokens[following]].all()


def test_masking_is_new_each_epoch_and_reproducible(objective: RTDObjective, prepared: Run) -> None:
    def masked_positions(**options: Any) -> list[bytes]:
        return [
            after.targets["generator"]["uniform"].tobytes() + after.inputs["tokens"].tobytes()
            for _, (after,) in prepared(objective, **options)
        ]

    first, second = np.array_split(np.array(masked_positions(epochs=2), dtype=object), 2)
    assert (first != second).mean() > 0.95
    assert list(first) == masked_positions()


def test_without_a_generator_tokens_are_replaced_at_random(make: Make, prepared: Run, tokenizer: Tokenizer) -> None:
    objective, ordinary, replaced, num_replaceable = make("rtd", generator_size="none"), 0, 0, 0
    frequencies = np.zeros(tokenizer.vocab_size)
    for before, (after,) in prepared(objective, epochs=8):
        tokens, corrupted_ids, label = before.inputs["tokens"], after.inputs["tokens"], after.targets["rtd"]["values"]
        assert np.array_equal(label, tokens != corrupted_ids)
        assert set(after.targets) == {"rtd"}
        special = before.metadata["special"]
        assert not label[special].any()
        frequencies += np.bincount(corrupted_ids[label], minlength=tokenizer.vocab_size)
        ordinary, replaced = ordinary + int((~special).sum()), replaced + int(label.sum())
        num_replaceable += max(1, round(0.15 * int((~special).sum())))
    assert frequencies[tokenizer.special_mask].sum() == 0
    lucky = 1 / (~tokenizer.special_mask).sum()  # a random token is now and then the right one, and counts as original
    assert replaced / num_replaceable == pytest.approx(1 - lucky, abs=0.01)
    assert replaced < num_replaceable
    ordinary_frequencies = frequencies[~tokenizer.special_mask]
    assert ordinary_frequencies.min() > 0


def test_a_row_without_ordinary_tokens_replaces_nothing(make: Make) -> None:
    row = Row(inputs={"tokens": np.array([2, 3])}, metadata={"special": np.array([True, True])})
    for generator in ("1/4", "none"):
        after = make("rtd", generator_size=generator).prepare(row, SampleRng(0, 0, 0))
        assert np.array_equal(after.inputs["tokens"], [2, 3])
        assert np.array_equal(after.targets["rtd"]["at"], [0, 1])


# ---------------------------------------------------------------- what is drawn and judged


def test_the_model_gets_the_sampled_tokens_and_nothing_else_changes(
    objective: RTDObjective, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    model, batch = model_for(objective, tokenizer), feed_for(objective, tokenizer, store).batch(0, 0)
    discriminator_inputs: list[torch.Tensor] = []
    model.backbone.register_forward_pre_hook(
        lambda _m, _a, inputs: discriminator_inputs.append(inputs["tokens"]), with_kwargs=True
    )
    hidden = objective.encode(model, batch)
    targets, before = batch.targets["generator"], original(batch)
    logits = (
        generator_of(model)
        .words(generator_of(model).body(**batch.inputs).last_hidden_state)
        .flatten(0, 1)[targets["at"]]
        .double()
    )
    running = logits.softmax(-1).cumsum(-1)
    expected = torch.searchsorted(running, targets["uniform"][:, None].double(), right=True)[:, 0]
    assert torch.equal(discriminator_inputs[0].flatten()[targets["at"]], expected)
    others = torch.ones(before.numel(), dtype=torch.bool).index_fill(0, targets["at"], False)
    assert torch.equal(discriminator_inputs[0].flatten()[others], before[others])
    assert torch.equal(hidden.extra["replaced"], discriminator_inputs[0].flatten() != before)
    assert 0 < int(hidden.extra["replaced"].sum()) < len(targets["at"])  # some draws were right, and count as original


def test_tokens_are_sampled_from_the_generators_distribution(
    objective: RTDObjective, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    model, batch = model_for(objective, tokenizer), feed_for(objective, tokenizer, store).batch_at(0, 1)
    masked_position, number = batch.targets["generator"]["at"][:1], 100_000
    with torch.no_grad():
        state = generator_of(model)(**batch.inputs, output_positions=masked_position).last_hidden_state
        uniform = torch.rand(number, generator=torch.Generator().manual_seed(0))
        targets = torch.zeros(number, dtype=torch.long)
        sampled_ids = (
            generator_of(model).words.compute_loss(state.expand(number, -1), targets, uniform_N=uniform).sampled_ids_N
        )
        expected = generator_of(model).words(state)[0].double().softmax(-1) * number
    assert sampled_ids is not None
    counts, frequent = sampled_ids.bincount(minlength=tokenizer.vocab_size), expected > 5
    assert int(frequent.sum()) > 20
    degrees = int(frequent.sum())
    assert float(((counts - expected)[frequent] ** 2 / expected[frequent]).sum()) < degrees + 5 * (2 * degrees) ** 0.5


def test_a_sample_equal_to_the_original_is_labelled_original(
    objective: RTDObjective, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    """A generator sure of one word: wherever that word stood, nothing was replaced."""
    model, batch = model_for(objective, tokenizer), feed_for(objective, tokenizer, store).batch(0, 0)
    targets = batch.targets["generator"]
    word = int(targets["values"].mode().values)
    bias = generator_of(model).words.bias
    assert bias is not None
    with torch.no_grad():
        bias[word] = 1e4
    replaced = objective.encode(model, batch).extra["replaced"]
    assert torch.equal(replaced[targets["at"]], targets["values"] != word)
    assert not replaced[targets["at"]].all()
    assert int(replaced.sum()) == int((targets["values"] != word).sum())


def test_no_gradient_passes_through_the_samples(
    objective: RTDObjective, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    model, batch = model_for(objective, tokenizer), feed_for(objective, tokenizer, store).batch(0, 0)
    outcome = objective.loss(model, objective.encode(model, batch), batch)
    small = {name: p for name, p in model.named_parameters() if name.startswith("heads.generator.")}
    large = {name: p for name, p in model.named_parameters() if name.startswith(("backbone.stack", "heads.rtd"))}
    gradients = torch.autograd.grad(outcome.loss_sums["rtd"], small.values(), retain_graph=True, allow_unused=True)
    assert all(gradient is None for gradient in gradients)
    guessed = torch.autograd.grad(outcome.loss_sums["generator"], large.values(), retain_graph=True, allow_unused=True)
    assert all(gradient is None for gradient in guessed)
    grads = torch.autograd.grad(outcome.loss_sums["generator"], small.values(), retain_graph=True)
    assert all(gradient.abs().max() > 0 for gradient in grads)
    embedding_gradients = [
        torch.autograd.grad(total, model.backbone.embedding().weight, retain_graph=True)[0]
        for total in outcome.loss_sums.values()
    ]
    assert all(gradient.abs().max() > 0 for gradient in embedding_gradients)


def test_masked_tokens_are_nowhere_in_the_input(objective: RTDObjective, prepared: Run) -> None:
    """Another word behind a mask leaves what both nets may read, and the uniforms, as they were."""
    for number, (before, (after,)) in enumerate(prepared(objective)):
        positions = after.targets["generator"]["at"]
        tokens = before.inputs["tokens"].copy()
        tokens[positions] = np.where(tokens[positions] == 5, 6, 5)
        prepared_row = objective.prepare(
            Row(inputs={"tokens": tokens}, metadata=before.metadata), SampleRng(0, 0, number)
        )
        assert np.array_equal(prepared_row.inputs["tokens"], after.inputs["tokens"])
        assert np.array_equal(prepared_row.targets["generator"]["uniform"], after.targets["generator"]["uniform"])
        assert (prepared_row.targets["generator"]["values"] != after.targets["generator"]["values"]).all()


@pytest.mark.parametrize("generator", ["1/4", "none"])
def test_padding_has_no_loss(make: Make, tokenizer: Tokenizer, store: TokenDataset, generator: str) -> None:
    objective = make("rtd", generator_size=generator)
    feed = feed_for(objective, tokenizer, store)
    rows = []
    for number, keep in enumerate((24, 13, 5)):
        row = feed.view.row(number, SampleRng(1, 0, number))
        cut = Row(inputs={"tokens": row.inputs["tokens"][:keep]}, metadata={"special": row.metadata["special"][:keep]})
        rows.append(objective.prepare(cut, SampleRng(1, 0, number)))
    batch = collate(rows, objective, feed.pad_values)
    assert batch.target_counts["rtd"] == 24 + 13 + 5
    model = model_for(objective, tokenizer).double().eval()
    loss = objective.loss(model, objective.encode(model, batch), batch)
    single_losses = []
    for row in rows:
        single_batch = collate([row], objective, feed.pad_values)
        single_losses.append(objective.loss(model, objective.encode(model, single_batch), single_batch))
    for term, total in loss.loss_sums.items():
        torch.testing.assert_close(
            total, torch.stack([single_loss.loss_sums[term] for single_loss in single_losses]).sum()
        )
    batch.inputs["tokens"][~batch.inputs["present"]] = 7
    losses = objective.loss(model, objective.encode(model, batch), batch)
    torch.testing.assert_close(losses.loss_sums, loss.loss_sums)


# ---------------------------------------------------------------- what is counted


def test_an_evaluation_runs_the_generator_once_and_ranks_all_scores(
    objective: RTDObjective, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    model, feed = model_for(objective, tokenizer), feed_for(objective, tokenizer, store)
    calls: list[int] = []
    generator_of(model).register_forward_hook(lambda *_: calls.append(1))
    metrics = evaluate_held_out(Learner(model, {"main": objective}), "main", feed, max_rows=40).metrics()
    assert len(calls) == 5
    scores, labels, right, num_masked = [], [], 0, 0
    with torch.no_grad():
        for first in range(0, 40, 8):
            batch = feed.batch_at(first, 8)
            hidden = objective.encode(model.eval(), batch)
            scores.append(model.heads["rtd"](hidden.last_hidden_state).flatten())
            labels.append(hidden.extra["replaced"])
            right += int((hidden.extra["generator_loss"].ranks_N == 0).sum())
            num_masked += batch.target_counts["generator"]
    score, label = torch.cat(scores), torch.cat(labels)
    pairs = score[label][:, None] - score[~label][None]
    assert metrics["rtd.auc"] == pytest.approx(float((pairs > 0).double().mean()), abs=1e-3)
    assert metrics["rtd.replaced"] == pytest.approx(float(label.double().mean()))
    assert metrics["rtd.accuracy"] == pytest.approx(float(((score > 0) == label).double().mean()))
    assert metrics["generator.top1"] == pytest.approx(right / num_masked)
    assert metrics["loss"] == pytest.approx(metrics["generator"] + 50 * metrics["rtd"])


def test_score_histograms_exist_only_in_evaluation(
    objective: RTDObjective, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    model, batch = model_for(objective, tokenizer), feed_for(objective, tokenizer, store).batch(0, 0)
    learning = objective.loss(model, objective.encode(model, batch), batch)
    assert not learning.score_histograms
    assert set(learning.metrics) == {"rtd.accuracy", "rtd.replaced"}
    resting = objective.loss(model.eval(), objective.encode(model, batch), batch)
    assert int(resting.score_histograms["rtd.auc"].sum()) == batch.target_counts["rtd"]
    assert 0 <= roc_auc(resting.score_histograms["rtd.auc"]) <= 1


def test_the_generators_last_layer_runs_at_masked_positions_alone(
    objective: RTDObjective, tokenizer: Tokenizer, store: TokenDataset
) -> None:
    model, batch = model_for(objective, tokenizer), feed_for(objective, tokenizer, store).batch(0, 0)
    shapes: list[torch.Size] = []
    last = generator_of(model).body.stack.layers[-1]
    last.feed_forward.register_forward_hook(lambda _m, _i, out: shapes.append(out.shape))
    objective.encode(model, batch)
    assert shapes == [torch.Size([batch.target_counts["generator"], 8])]


# ---------------------------------------------------------------- what is refused


def test_weights_follow_the_settings(make: Make) -> None:
    assert make("rtd").loss_weights == {"generator": 1.0, "rtd": 50.0}
    assert make("rtd", weight=0.5, discriminator_weight=10).loss_weights == {"generator": 0.5, "rtd": 5.0}
    assert make("rtd", generator_size="none").loss_weights == {"rtd": 1.0}
    assert set(make("rtd", generator_size="none").heads) == {"rtd"}
    assert dict(make("rtd", generator_size="1/3").heads["generator"].sizes) == {"divide": 3}


@pytest.mark.parametrize("generator", ["2/3", "1/0", "0.25", "half", "1/", ""])
def test_what_is_no_fraction_is_refused(generator: str) -> None:
    with pytest.raises(ValidationError, match=r"a fraction of the model's hidden size \(1/2, 1/4, …\), or none"):
        RTDObjectiveSettings(generator_size=generator)


def test_a_generator_needs_a_mask(tokenizer: Tokenizer) -> None:
    class Maskless:
        mask = None
        special_mask, word_start_mask = tokenizer.special_mask, tokenizer.word_start_mask

    maskless: Any = Maskless()
    with pytest.raises(MeristemError, match=r"no mask token.*objective\.generator_size=none"):
        RTDObjective(RTDObjectiveSettings(), maskless)
    assert RTDObjective(RTDObjectiveSettings(generator_size="none"), maskless).loss_weights == {"rtd": 1.0}
