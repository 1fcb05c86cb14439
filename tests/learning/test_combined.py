from __future__ import annotations

from typing import Any

import pytest
import torch
from cases import SOURCE, Case, real

from meristem.batch import Batch, Draws, Head, Hidden, Model, Objective, Outcome, Row, View
from meristem.errors import RecipeError
from meristem.learning.combined import Combined
from meristem.objectives.clm import CLM, CLMSettings
from meristem.objectives.mlm import MLM, MLMSettings
from meristem.objectives.nsp import NSP, NSPSettings
from meristem.objectives.rtd import RTD, RTDSettings
from meristem.randomness import Draw
from meristem.settings import Settings
from meristem.store.store import Store
from meristem.tokenizers.tokenizer import Tokenizer


class SeveralSettings(Settings):
    """Nothing to choose."""


class Several(Objective):
    """Three rows of one sample, and a head like no other's."""

    Settings = SeveralSettings

    name, needs = "several", frozenset({"bidirectional"})
    heads = {"several": Head("pooled", (("classes", 2),))}
    weights = {"several": 1.0}
    rows_per_sample = 3

    def __init__(self, settings: Any, tokenizer: Any) -> None:
        pass

    def prepare(self, row: Row, draw: Draws) -> list[Row]:
        """The row three times."""
        return [row] * 3

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Nothing to learn."""
        return Outcome(sums={"several": hidden.last.sum() * 0.0})


def part(kind: type[Any], tokenizer: Tokenizer, **settings: Any) -> Any:
    return kind({MLM: MLMSettings, NSP: NSPSettings, CLM: CLMSettings, RTD: RTDSettings}[kind](**settings), tokenizer)


def test_bert_is_two_terms_on_the_pairs_view(tokenizer: Tokenizer) -> None:
    both = Combined([part(MLM, tokenizer, weight=2), part(NSP, tokenizer)])
    assert both.name == "mlm+nsp"
    assert both.view.kind == "pairs"
    assert both.needs == {"bidirectional"}
    assert both.weights == {"mlm": 2.0, "nsp": 1.0}
    assert set(both.heads) == {"mlm", "nsp"}


def test_parts_draw_as_they_would_alone(tokenizer: Tokenizer, store: Store) -> None:
    """A part's masking follows from its own name, not from who else is there or in which order."""
    _, feed, _ = real(Case(["mlm", "nsp"], "bert"), tokenizer, store)
    mlm, nsp = part(MLM, tokenizer), part(NSP, tokenizer)
    for order in ([mlm, nsp], [nsp, mlm]):
        draw = Draw(0, 0, 3)
        (row,) = Combined(order).prepare(feed.view.row(3, draw), draw)
        alone = mlm.prepare(feed.view.row(3, draw), draw)
        assert row.goals["mlm"]["at"].tolist() == alone.goals["mlm"]["at"].tolist()
        assert row.goals.keys() == {"mlm", "nsp"}


def test_each_part_keeps_its_own_denominator_and_the_backbone_runs_once(tokenizer: Tokenizer, store: Store) -> None:
    learner, feed, _ = real(Case([{"name": "mlm", "weight": 3.0}, "nsp"], "bert"), tokenizer, store)
    batch, runs = feed.batch(0, 0), []
    learner.model.backbone.register_forward_hook(lambda *_: runs.append(1))
    outcome = learner(SOURCE, batch, {"mlm": 100, "nsp": 8})
    assert len(runs) == 1
    assert batch.counts["nsp"] == 8 < batch.counts["mlm"]
    expected = 3 * outcome.sums["mlm"] / 100 + outcome.sums["nsp"] / 8
    torch.testing.assert_close(outcome.loss, expected)
    assert "nsp.accuracy" in outcome.metrics


def test_a_part_with_a_second_net_reads_its_own_rows_beside_another(tokenizer: Tokenizer, store: Store) -> None:
    """Replaced tokens are found in sentence pairs, segments and all, while the first position judges the pair."""
    learner, feed, _ = real(Case(["rtd", "nsp"], "electra"), tokenizer, store)
    batch, seen = feed.batch(0, 0), []
    learner.model.heads["generator"].register_forward_pre_hook(
        lambda _m, _a, inputs: seen.append(set(inputs)), with_kwargs=True
    )
    with torch.no_grad():
        outcome = learner(SOURCE, batch, batch.counts)
    assert len(seen) == 1
    assert "segments" in seen[0]
    assert outcome.sums.keys() == {"rtd", "generator", "nsp"}
    assert outcome.scored.keys() == {"rtd.auc"}


def test_rows_multiply(tokenizer: Tokenizer) -> None:
    both = Combined(
        [part(MLM, tokenizer, exhaustive=True), with_view(Several(None, tokenizer), part(MLM, tokenizer).view)]
    )
    assert both.rows_per_sample == 7 * 3


def test_what_cannot_stand_on_one_encoding_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(RecipeError, match=r"mlm \+ clm want different views of the text; use mix"):
        Combined([part(MLM, tokenizer), part(CLM, tokenizer)])
    with pytest.raises(RecipeError, match=r"nsp \+ several want different views"):
        Combined([part(NSP, tokenizer), with_view(Several(None, tokenizer), View("lanes"))])

    class Elsewhere(Several):
        axis = "slots"

    with pytest.raises(RecipeError, match=r"mlm\+several cannot be summed on one encoding \(differing axis\)"):
        Combined([part(MLM, tokenizer), with_view(Elsewhere(None, tokenizer), part(MLM, tokenizer).view)])


def with_view(objective: Any, view: View) -> Any:
    objective.view = view
    return objective


def test_a_head_declared_in_two_ways_is_refused(tokenizer: Tokenizer) -> None:
    class Other(Several):
        heads = {"mlm": Head("pooled", (("classes", 2),))}

    with pytest.raises(RecipeError, match="head 'mlm' is declared in two ways"):
        Combined([part(MLM, tokenizer), with_view(Other(None, tokenizer), part(MLM, tokenizer).view)])


def test_two_parts_that_encode_in_their_own_way_are_refused(tokenizer: Tokenizer, store: Store) -> None:
    learner, feed, _ = real(Case("mlm", "bert"), tokenizer, store)

    class Another(RTD):
        name = "another"

    both = Combined([part(RTD, tokenizer), Another(RTDSettings(), tokenizer)])
    with pytest.raises(RecipeError, match="rtd and another both encode in their own way; use mix"):
        both.encode(learner.model, feed.batch(0, 0))


def test_the_one_way_of_its_own_encodes_for_all(tokenizer: Tokenizer) -> None:
    class Plain(Several):
        pass

    class Own(Several):
        name = "own"

        def encode(self, model: Any, batch: Any, state: Any = None) -> Any:
            return "its own way"

    assert Combined([Plain(None, tokenizer), Own(None, tokenizer)]).encode(None, None) == "its own way"  # type: ignore[arg-type]
