from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from meristem.batch import Batch, Model, Row, collate
from meristem.blocks.generator import Generator
from meristem.errors import MeristemError
from meristem.evaluation.held_out import held_out
from meristem.learning.feed import Feed
from meristem.learning.learner import Learner
from meristem.metrics.ranking import area
from meristem.models.electra import Electra, ElectraSettings
from meristem.objectives.rtd import RTD, RTDSettings
from meristem.randomness import Draw
from meristem.settings import find
from meristem.store.store import Store
from meristem.tokenizers.tokenizer import Tokenizer

Make, Run = Callable[..., Any], Callable[..., Any]
LENGTH = 24


def model_for(objective: RTD, tokenizer: Tokenizer, **settings: Any) -> Model:
    torch.manual_seed(0)
    small = {"layers": 2, "width": 32, "heads": 4, "embedding": 16, "length": LENGTH, "initial": 0.3, **settings}
    return Model(Electra(ElectraSettings(**small), tokenizer.size), objective.heads)


def generator_of(model: Model) -> Generator:
    made = model.heads["generator"]
    assert isinstance(made, Generator)
    return made


def feed_for(objective: RTD, tokenizer: Tokenizer, store: Store) -> Feed:
    view = find("store.views", "windows")(store.split("train"), tokenizer, LENGTH, frame=True)
    return Feed(view=view, objective=objective, seed=1, rows=8, micro=8, fill={"tokens": tokenizer.pad or 0})


def original(batch: Batch) -> torch.Tensor:
    """The tokens as they were before any was hidden."""
    goal, tokens = batch.goals["generator"], batch.inputs["tokens"]
    return tokens.flatten().index_copy(0, goal["at"], goal["values"])


@pytest.fixture(scope="module")
def objective(make: Make) -> RTD:
    return make("rtd")  # type: ignore[no-any-return]


# ---------------------------------------------------------------- what is hidden


def test_all_that_is_chosen_is_masked_and_no_more(objective: RTD, prepared: Run, tokenizer: Tokenizer) -> None:
    uniforms = []
    for before, (after,) in prepared(objective, epochs=4):
        goal, special = after.goals["generator"], before.notes["special"]
        tokens, shown = before.inputs["tokens"], after.inputs["tokens"]
        assert len(goal["at"]) == max(1, round(0.15 * (~special).sum()))
        assert np.array_equal(tokens[goal["at"]], goal["values"])
        assert (shown[goal["at"]] == tokenizer.mask).all()
        assert np.array_equal(np.delete(tokens, goal["at"]), np.delete(shown, goal["at"]))
        assert not special[goal["at"]].any()
        assert np.array_equal(after.goals["rtd"]["at"], np.arange(len(tokens)))  # special ones are judged too
        uniforms.append(goal["uniform"])
    drawn = np.concatenate(uniforms)
    assert len(drawn) > 2000
    assert 0 <= drawn.min() <= drawn.max() < 1
    counts = np.histogram(drawn, 20, (0, 1))[0]
    assert ((counts - len(drawn) / 20) ** 2 / (len(drawn) / 20)).sum() < 51  # 19 degrees: the 99.99th percentile


@pytest.mark.parametrize("unit", ["word", "span"])
def test_units_are_those_of_masked_words(make: Make, prepared: Run, tokenizer: Tokenizer, unit: str) -> None:
    for before, (after,) in prepared(make("rtd", unit=unit)):
        tokens, at = before.inputs["tokens"], after.goals["generator"]["at"]
        following = [p for p in at + 1 if p < len(tokens) and p not in at]
        assert tokenizer.starts_word[tokens[following]].all()


def test_hiding_is_new_each_epoch_and_the_same_each_time(objective: RTD, prepared: Run) -> None:
    def chosen(**options: Any) -> list[bytes]:
        return [after.goals["generator"]["uniform"].tobytes() + after.inputs["tokens"].tobytes()
                for _, (after,) in prepared(objective, **options)]

    first, second = np.array_split(np.array(chosen(epochs=2), dtype=object), 2)
    assert (first != second).mean() > 0.95
    assert list(first) == chosen()


def test_without_a_generator_tokens_are_replaced_at_random(make: Make, prepared: Run, tokenizer: Tokenizer) -> None:
    objective, ordinary, replaced, chosen = make("rtd", generator="none"), 0, 0, 0
    seen = np.zeros(tokenizer.size)
    for before, (after,) in prepared(objective, epochs=8):
        tokens, shown, label = before.inputs["tokens"], after.inputs["tokens"], after.goals["rtd"]["values"]
        assert np.array_equal(label, tokens != shown)
        assert set(after.goals) == {"rtd"}
        special = before.notes["special"]
        assert not label[special].any()
        seen += np.bincount(shown[label], minlength=tokenizer.size)
        ordinary, replaced = ordinary + int((~special).sum()), replaced + int(label.sum())
        chosen += max(1, round(0.15 * int((~special).sum())))
    assert seen[tokenizer.specials].sum() == 0
    lucky = 1 / (~tokenizer.specials).sum()  # a random token is now and then the right one, and counts as original
    assert replaced / chosen == pytest.approx(1 - lucky, abs=0.01)
    assert replaced < chosen
    usual = seen[~tokenizer.specials]
    assert usual.min() > 0


def test_a_row_without_ordinary_tokens_replaces_nothing(make: Make) -> None:
    row = Row(inputs={"tokens": np.array([2, 3])}, notes={"special": np.array([True, True])})
    for generator in ("1/4", "none"):
        after = make("rtd", generator=generator).prepare(row, Draw(0, 0, 0))
        assert np.array_equal(after.inputs["tokens"], [2, 3])
        assert np.array_equal(after.goals["rtd"]["at"], [0, 1])


# ---------------------------------------------------------------- what is drawn and judged


def test_the_model_reads_the_drawn_words_and_nothing_else_changes(objective: RTD, tokenizer: Tokenizer,
                                                                  store: Store) -> None:
    model, batch = model_for(objective, tokenizer), feed_for(objective, tokenizer, store).batch(0, 0)
    read: list[torch.Tensor] = []
    model.backbone.register_forward_pre_hook(lambda _m, _a, inputs: read.append(inputs["tokens"]), with_kwargs=True)
    hidden = objective.encode(model, batch)
    goal, before = batch.goals["generator"], original(batch)
    logits = generator_of(model).words(generator_of(model).body(**batch.inputs).last).flatten(0, 1)[goal["at"]].double()
    running = logits.softmax(-1).cumsum(-1)
    expected = torch.searchsorted(running, goal["uniform"][:, None].double(), right=True)[:, 0]
    assert torch.equal(read[0].flatten()[goal["at"]], expected)
    others = torch.ones(before.numel(), dtype=torch.bool).index_fill(0, goal["at"], False)
    assert torch.equal(read[0].flatten()[others], before[others])
    assert torch.equal(hidden.extra["replaced"], read[0].flatten() != before)
    assert 0 < int(hidden.extra["replaced"].sum()) < len(goal["at"])  # some draws were right, and count as original


def test_words_are_drawn_as_often_as_the_generator_thinks(objective: RTD, tokenizer: Tokenizer, store: Store) -> None:
    model, batch = model_for(objective, tokenizer), feed_for(objective, tokenizer, store).at(0, 1)
    place, number = batch.goals["generator"]["at"][:1], 100_000
    with torch.no_grad():
        state = generator_of(model)(**batch.inputs, wanted=place).last
        uniform = torch.rand(number, generator=torch.Generator().manual_seed(0))
        targets = torch.zeros(number, dtype=torch.long)
        drawn = generator_of(model).words.judge(state.expand(number, -1), targets, uniform_N=uniform).drawn_N
        expected = generator_of(model).words(state)[0].double().softmax(-1) * number
    assert drawn is not None
    found, many = drawn.bincount(minlength=tokenizer.size), expected > 5
    assert int(many.sum()) > 20
    degrees = int(many.sum())
    assert float(((found - expected)[many] ** 2 / expected[many]).sum()) < degrees + 5 * (2 * degrees) ** 0.5


def test_a_draw_that_is_right_is_labelled_original(objective: RTD, tokenizer: Tokenizer, store: Store) -> None:
    """A generator sure of one word: wherever that word stood, nothing was replaced."""
    model, batch = model_for(objective, tokenizer), feed_for(objective, tokenizer, store).batch(0, 0)
    goal = batch.goals["generator"]
    word = int(goal["values"].mode().values)
    bias = generator_of(model).words.bias
    assert bias is not None
    with torch.no_grad():
        bias[word] = 1e4
    replaced = objective.encode(model, batch).extra["replaced"]
    assert torch.equal(replaced[goal["at"]], goal["values"] != word)
    assert not replaced[goal["at"]].all()
    assert int(replaced.sum()) == int((goal["values"] != word).sum())


def test_no_gradient_passes_through_the_draws(objective: RTD, tokenizer: Tokenizer, store: Store) -> None:
    model, batch = model_for(objective, tokenizer), feed_for(objective, tokenizer, store).batch(0, 0)
    outcome = objective.loss(model, objective.encode(model, batch), batch)
    small = {name: p for name, p in model.named_parameters() if name.startswith("heads.generator.")}
    large = {name: p for name, p in model.named_parameters() if name.startswith(("backbone.stack", "heads.rtd"))}
    found = torch.autograd.grad(outcome.sums["rtd"], small.values(), retain_graph=True, allow_unused=True)
    assert all(gradient is None for gradient in found)
    guessed = torch.autograd.grad(outcome.sums["generator"], large.values(), retain_graph=True, allow_unused=True)
    assert all(gradient is None for gradient in guessed)
    own = torch.autograd.grad(outcome.sums["generator"], small.values(), retain_graph=True)
    assert all(gradient.abs().max() > 0 for gradient in own)
    both = [torch.autograd.grad(total, model.backbone.embedding().weight, retain_graph=True)[0]
            for total in outcome.sums.values()]
    assert all(gradient.abs().max() > 0 for gradient in both)


def test_what_was_hidden_is_nowhere_in_the_input(objective: RTD, prepared: Run) -> None:
    """Another word behind a mask leaves what both nets may read, and the uniforms, as they were."""
    for number, (before, (after,)) in enumerate(prepared(objective)):
        at = after.goals["generator"]["at"]
        tokens = before.inputs["tokens"].copy()
        tokens[at] = np.where(tokens[at] == 5, 6, 5)
        again = objective.prepare(Row(inputs={"tokens": tokens}, notes=before.notes), Draw(0, 0, number))
        assert np.array_equal(again.inputs["tokens"], after.inputs["tokens"])
        assert np.array_equal(again.goals["generator"]["uniform"], after.goals["generator"]["uniform"])
        assert (again.goals["generator"]["values"] != after.goals["generator"]["values"]).all()


@pytest.mark.parametrize("generator", ["1/4", "none"])
def test_padding_is_never_judged(make: Make, tokenizer: Tokenizer, store: Store, generator: str) -> None:
    objective = make("rtd", generator=generator)
    feed = feed_for(objective, tokenizer, store)
    rows = []
    for number, keep in enumerate((24, 13, 5)):
        row = feed.view.row(number, Draw(1, 0, number))
        cut = Row(inputs={"tokens": row.inputs["tokens"][:keep]}, notes={"special": row.notes["special"][:keep]})
        rows.append(objective.prepare(cut, Draw(1, 0, number)))
    batch = collate(rows, objective, feed.fill)
    assert batch.counts["rtd"] == 24 + 13 + 5
    model = model_for(objective, tokenizer).double().eval()
    whole = objective.loss(model, objective.encode(model, batch), batch)
    apart = []
    for row in rows:
        one = collate([row], objective, feed.fill)
        apart.append(objective.loss(model, objective.encode(model, one), one))
    for term, total in whole.sums.items():
        torch.testing.assert_close(total, torch.stack([each.sums[term] for each in apart]).sum())
    batch.inputs["tokens"][~batch.inputs["present"]] = 7
    again = objective.loss(model, objective.encode(model, batch), batch)
    torch.testing.assert_close(again.sums, whole.sums)


# ---------------------------------------------------------------- what is counted


def test_an_evaluation_runs_the_generator_once_and_ranks_all_scores(objective: RTD, tokenizer: Tokenizer,
                                                                    store: Store) -> None:
    model, feed = model_for(objective, tokenizer), feed_for(objective, tokenizer, store)
    calls: list[int] = []
    generator_of(model).register_forward_hook(lambda *_: calls.append(1))
    found = held_out(Learner(model, {"main": objective}), "main", feed, rows=40).metrics()
    assert len(calls) == 5
    scores, labels, right, chosen = [], [], 0, 0
    with torch.no_grad():
        for first in range(0, 40, 8):
            batch = feed.at(first, 8)
            hidden = objective.encode(model.eval(), batch)
            scores.append(model.heads["rtd"](hidden.last).flatten())
            labels.append(hidden.extra["replaced"])
            right += int((hidden.extra["judged"].rank_N == 0).sum())
            chosen += batch.counts["generator"]
    score, label = torch.cat(scores), torch.cat(labels)
    pairs = score[label][:, None] - score[~label][None]
    assert found["rtd.auc"] == pytest.approx(float((pairs > 0).double().mean()), abs=1e-3)
    assert found["rtd.replaced"] == pytest.approx(float(label.double().mean()))
    assert found["rtd.accuracy"] == pytest.approx(float(((score > 0) == label).double().mean()))
    assert found["generator.top1"] == pytest.approx(right / chosen)
    assert found["loss"] == pytest.approx(found["generator"] + 50 * found["rtd"])


def test_scores_are_spread_only_where_nothing_is_learned(objective: RTD, tokenizer: Tokenizer, store: Store) -> None:
    model, batch = model_for(objective, tokenizer), feed_for(objective, tokenizer, store).batch(0, 0)
    learning = objective.loss(model, objective.encode(model, batch), batch)
    assert not learning.scored
    assert set(learning.metrics) == {"rtd.accuracy", "rtd.replaced"}
    with torch.no_grad():
        resting = objective.loss(model, objective.encode(model, batch), batch)
    assert int(resting.scored["rtd.auc"].sum()) == batch.counts["rtd"]
    assert 0 <= area(resting.scored["rtd.auc"]) <= 1


def test_the_generators_last_layer_runs_at_masked_positions_alone(objective: RTD, tokenizer: Tokenizer,
                                                                  store: Store) -> None:
    model, batch = model_for(objective, tokenizer), feed_for(objective, tokenizer, store).batch(0, 0)
    shapes: list[torch.Size] = []
    last = generator_of(model).body.stack.layers[-1]
    last.feed_forward.register_forward_hook(lambda _m, _i, out: shapes.append(out.shape))
    objective.encode(model, batch)
    assert shapes == [torch.Size([batch.counts["generator"], 8])]


# ---------------------------------------------------------------- what is refused


def test_weights_follow_the_settings(make: Make) -> None:
    assert make("rtd").weights == {"generator": 1.0, "rtd": 50.0}
    assert make("rtd", weight=0.5, detection_weight=10).weights == {"generator": 0.5, "rtd": 5.0}
    assert make("rtd", generator="none").weights == {"rtd": 1.0}
    assert set(make("rtd", generator="none").heads) == {"rtd"}
    assert dict(make("rtd", generator="1/3").heads["generator"].sizes) == {"divide": 3}


@pytest.mark.parametrize("generator", ["2/3", "1/0", "0.25", "half", "1/", ""])
def test_what_is_no_fraction_is_refused(generator: str) -> None:
    with pytest.raises(ValidationError, match="a generator is 1/2, 1/4, … of the model, or none"):
        RTDSettings(generator=generator)


def test_a_generator_needs_a_mask(tokenizer: Tokenizer) -> None:
    class Maskless:
        mask = None
        specials, starts_word = tokenizer.specials, tokenizer.starts_word

    maskless: Any = Maskless()
    with pytest.raises(MeristemError, match=r"no mask token.*objective\.generator=none"):
        RTD(RTDSettings(), maskless)
    assert RTD(RTDSettings(generator="none"), maskless).weights == {"rtd": 1.0}
