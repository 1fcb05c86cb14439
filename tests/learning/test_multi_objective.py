from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
import torch
from cases import SOURCE, Case, real

from meristem.config.errors import RecipeError
from meristem.config.settings import Settings
from meristem.dataset.token_dataset import TokenDataset
from meristem.inputs.batch import Batch, RngFactory, Row
from meristem.interfaces.backbone import Head, Hidden, Model
from meristem.interfaces.objective import Objective, Outcome, ViewSpec
from meristem.learning.multi_objective import MultiObjective
from meristem.objectives.clm import CLMObjective, CLMObjectiveSettings
from meristem.objectives.mlm import MLMObjective, MLMObjectiveSettings
from meristem.objectives.nsp import NSPObjective, NSPObjectiveSettings
from meristem.objectives.rtd import RTDObjective, RTDObjectiveSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng


class SeveralSettings(Settings):
    """Nothing to choose."""


class Several(Objective):
    """Three rows of one sample, and a head like no other's."""

    Settings = SeveralSettings

    name, requires = "several", frozenset({"bidirectional"})
    heads = {"several": Head("pooled", (("classes", 2),))}
    loss_weights = {"several": 1.0}
    max_rows_per_sample = 3

    def __init__(self, settings: Any, tokenizer: Any) -> None:
        pass

    def prepare(self, row: Row, draw: RngFactory) -> list[Row]:
        """The row three times."""
        return [row] * 3

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """Nothing to learn."""
        return Outcome(loss_sums={"several": hidden.last_hidden_state.sum() * 0.0})


def part(kind: type[Any], tokenizer: Tokenizer, **settings: Any) -> Any:
    return kind(
        {
            MLMObjective: MLMObjectiveSettings,
            NSPObjective: NSPObjectiveSettings,
            CLMObjective: CLMObjectiveSettings,
            RTDObjective: RTDObjectiveSettings,
        }[kind](**settings),
        tokenizer,
    )


def test_bert_is_two_terms_on_the_pairs_view(tokenizer: Tokenizer) -> None:
    multi_objective = MultiObjective([part(MLMObjective, tokenizer, weight=2), part(NSPObjective, tokenizer)])
    assert multi_objective.name == "mlm+nsp"
    assert multi_objective.view.kind == "pairs"
    assert multi_objective.requires == {"bidirectional"}
    assert multi_objective.loss_weights == {"mlm": 2.0, "nsp": 1.0}
    assert set(multi_objective.heads) == {"mlm", "nsp"}


def test_objectives_draw_as_they_would_alone(tokenizer: Tokenizer, store: TokenDataset) -> None:
    """A part's masking follows from its own name, not from who else is there or in which order."""
    _, feed, _ = real(Case(["mlm", "nsp"], "bert"), tokenizer, store)
    mlm, nsp = part(MLMObjective, tokenizer), part(NSPObjective, tokenizer)
    for order in ([mlm, nsp], [nsp, mlm]):
        draw = SampleRng(0, 0, 3)
        (row,) = MultiObjective(order).prepare(feed.view.row(3, draw), draw)
        single = mlm.prepare(feed.view.row(3, draw), draw)
        assert row.targets["mlm"]["at"].tolist() == single.targets["mlm"]["at"].tolist()
        assert row.targets.keys() == {"mlm", "nsp"}


def test_each_objective_keeps_its_own_denominator_and_the_backbone_runs_once(
    tokenizer: Tokenizer, store: TokenDataset
) -> None:
    learner, feed, _ = real(Case([{"name": "mlm", "weight": 3.0}, "nsp"], "bert"), tokenizer, store)
    batch, runs = feed.batch(0, 0), []
    learner.model.backbone.register_forward_hook(lambda *_: runs.append(1))
    outcome = learner(SOURCE, batch, {"mlm": 100, "nsp": 8})
    assert len(runs) == 1
    assert batch.target_counts["nsp"] == 8 < batch.target_counts["mlm"]
    expected = 3 * outcome.loss_sums["mlm"] / 100 + outcome.loss_sums["nsp"] / 8
    torch.testing.assert_close(outcome.loss, expected)
    assert "nsp.accuracy" in outcome.metrics


def test_an_objective_with_a_generator_combines_with_another(tokenizer: Tokenizer, store: TokenDataset) -> None:
    """Replaced tokens are found in sentence pairs, segments and all, while the first position judges the pair."""
    learner, feed, _ = real(Case(["rtd", "nsp"], "electra"), tokenizer, store)
    batch, calls = feed.batch(0, 0), []
    learner.model.heads["generator"].register_forward_pre_hook(
        lambda _m, _a, inputs: calls.append(set(inputs)), with_kwargs=True
    )
    with torch.no_grad():
        outcome = learner.eval()(SOURCE, batch, batch.target_counts)
    assert len(calls) == 1
    assert "segments" in calls[0]
    assert outcome.loss_sums.keys() == {"rtd", "generator", "nsp"}
    assert outcome.score_histograms.keys() == {"rtd.auc"}


def test_rows_multiply(tokenizer: Tokenizer) -> None:
    multi_objective = MultiObjective(
        [
            part(MLMObjective, tokenizer, exhaustive_masking=True),
            with_view(Several(None, tokenizer), part(MLMObjective, tokenizer).view),
        ]
    )
    assert multi_objective.max_rows_per_sample == 7 * 3


def test_objectives_that_cannot_share_a_forward_pass_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(RecipeError, match=r"mlm \+ clm need different views of the text; use mix"):
        MultiObjective([part(MLMObjective, tokenizer), part(CLMObjective, tokenizer)])
    with pytest.raises(RecipeError, match=r"nsp \+ several need different views"):
        MultiObjective([part(NSPObjective, tokenizer), with_view(Several(None, tokenizer), ViewSpec("contiguous"))])

    class Elsewhere(Several):
        axis = "slots"

    with pytest.raises(RecipeError, match=r"mlm\+several cannot share one forward pass \(different axis\)"):
        MultiObjective(
            [part(MLMObjective, tokenizer), with_view(Elsewhere(None, tokenizer), part(MLMObjective, tokenizer).view)]
        )


def with_view(objective: Any, view: ViewSpec) -> Any:
    objective.view = view
    return objective


def test_a_head_declared_in_two_ways_is_refused(tokenizer: Tokenizer) -> None:
    class Other(Several):
        heads = {"mlm": Head("pooled", (("classes", 2),))}

    with pytest.raises(RecipeError, match="head 'mlm' is declared in two different ways"):
        MultiObjective(
            [part(MLMObjective, tokenizer), with_view(Other(None, tokenizer), part(MLMObjective, tokenizer).view)]
        )


def test_two_custom_encodes_are_refused(tokenizer: Tokenizer, store: TokenDataset) -> None:
    learner, feed, _ = real(Case("mlm", "bert"), tokenizer, store)

    class Another(RTDObjective):
        name = "another"

    multi_objective = MultiObjective([part(RTDObjective, tokenizer), Another(RTDObjectiveSettings(), tokenizer)])
    with pytest.raises(RecipeError, match="rtd and another each need a forward pass of their own; use mix"):
        multi_objective.encode(learner.model, feed.batch(0, 0))


def test_a_custom_encode_serves_all_objectives(tokenizer: Tokenizer) -> None:
    class Plain(Several):
        pass

    class Own(Several):
        name = "own"

        def encode(self, model: Any, batch: Any, state: Any = None) -> Any:
            return "its own way"

    assert MultiObjective([Plain(None, tokenizer), Own(None, tokenizer)]).encode(None, None) == "its own way"  # type: ignore[arg-type]


class Recording(Several):
    """Writes down which hooks are called with what; every declaration differs from the default."""

    keeps_history = True
    predicts_masked_next = True
    text_pooling = "last"
    updates_per_batch = 2
    memory_view = ViewSpec("lanes")
    axis = "slots"
    off_axis_inputs = frozenset({"elsewhere"})
    decoder_start_ids = (3,)
    source_kinds = frozenset({"text"})

    def __init__(self, name: str) -> None:
        self.name, self.calls = name, dict[str, tuple[Any, ...]]()
        self.heads = {name: Head("pooled", (("classes", 2),))}
        self.loss_weights = {name: 1.0}

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name.startswith("_") or not callable(value) or name == "Settings":
            return value

        def hook(*arguments: Any) -> Any:
            self.calls[name] = arguments
            return value(*arguments)

        return hook

    def observations(self, batch: Batch) -> list[Any]:
        """One observation."""
        return [f"seen by {self.name}"]

    def update_history(self, history: Any, observations: Any) -> Any:
        """All observations so far."""
        return [*(history or []), *observations]

    def after_step(self, model: Any, metrics: Any) -> str | None:
        """A reason to stop."""
        return f"{self.name} has enough"


HOOKS = [name for name, value in vars(Objective).items() if inspect.isfunction(value) and not name.startswith("_")]
DECLARATIONS = [name for name in Objective.__annotations__ if name != "Settings"]


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_of_an_objective_is_forwarded_to_all(hook: str, tokenizer: Tokenizer, store: TokenDataset) -> None:
    assert {"explore", "observations", "update_history", "after_step", "loss"} <= set(HOOKS)
    learner, feed, _ = real(Case("mlm", "bert"), tokenizer, store)
    batch, histories = feed.batch(0, 0), {"one": ["first"], "other": ["second"]}
    parts = [Recording("one"), Recording("other")]
    combined = MultiObjective(parts)
    hidden = combined.encode(learner.model, batch)
    arguments: dict[str, Any] = {
        "model": learner.model, "batch": batch, "history": histories, "hidden": hidden, "draw": SampleRng(0, 0, 0),
        "row": feed.view.row(0, SampleRng(0, 0, 0)), "observations": combined.observations(batch),
        "metrics": {}, "state": None,
    }  # fmt: skip
    for part in parts:
        part.calls.clear()
    result = getattr(combined, hook)(
        *(arguments[name] for name in inspect.signature(getattr(combined, hook)).parameters)
    )
    if hook == "encode":  # the backbone runs once, at the positions of all parts
        assert all("output_positions" in part.calls for part in parts)
        return
    for part in parts:
        assert hook in part.calls
        parameters = dict(
            zip(inspect.signature(getattr(Objective, hook)).parameters, (part, *part.calls[hook]), strict=True)
        )
        assert parameters.get("history", histories[part.name]) == histories[part.name]
    if hook == "update_history":
        assert result == {"one": ["first", "seen by one"], "other": ["second", "seen by other"]}
        assert json.loads(json.dumps(result)) == result
    if hook == "after_step":
        assert result == "one has enough; other has enough"


@pytest.mark.parametrize("declaration", DECLARATIONS)
def test_every_declaration_of_an_objective_is_combined(declaration: str) -> None:
    parts = [Recording("one"), Recording("other")]
    combined = getattr(MultiObjective(parts), declaration)
    declared = [getattr(part, declaration) for part in parts]
    match declaration:
        case "name":
            assert combined == "one+other"
        case "max_rows_per_sample":
            assert combined == 3 * 3
        case "heads" | "loss_weights":
            assert combined == {**declared[0], **declared[1]}
        case _:
            assert combined == declared[0] == declared[1]
            assert declaration in ("view", "requires") or combined != getattr(Objective, declaration)
