"""The policy objective: texts are written, judged, and made likelier by how much they beat what was expected (SPEC D).

Return of a text: R = reward − β · Σ log π/π₀ − α · Σ log π / tokens, π₀ being the model it started as. The gradient is
that of Σ A · log π with A = R − baseline; with several updates on one collection the ratio to what wrote it is clipped.
"""

# N tokens written, B texts

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from meristem.batch import Batch, Draws, Head, Hidden, Model, Objective, Outcome, Row, State, collate
from meristem.blocks.chosen import chosen
from meristem.blocks.leash import Leash
from meristem.blocks.vocabulary import VocabularyHead
from meristem.errors import MeristemError
from meristem.generation.rolling import Uniforms, Way
from meristem.generation.write import unwanted
from meristem.learning.assemble import fill_of
from meristem.randomness import Draw
from meristem.reinforce.advantages import advantages
from meristem.reinforce.collecting import Collection, Floats, Judges, collect, pairs_apart
from meristem.reinforce.prompt_inputs import attempt_of, inputs_of, layout_of
from meristem.reinforce.reward import Attempt
from meristem.reinforce.settings import PolicySettings
from meristem.reinforce.trying import Tried, tried
from meristem.task import Piece, Sample
from meristem.tokenizers.tokenizer import Tokenizer

SHOWN = 3
FIRST = 5
"""Steps that tell how varied texts are before they are rewarded much."""


class Policy(Objective):
    """Σ A · log π(text | prompt)."""

    Settings = PolicySettings
    name = "policy"
    needs = frozenset()

    def __init__(self, settings: PolicySettings, tokenizer: Tokenizer) -> None:
        self.settings, self.tokenizer, self.fill = settings, tokenizer, fill_of(tokenizer)
        self.laid = layout_of(settings, tokenizer)
        self.begin_ids = self.laid.objective.begin_ids
        self.source_kinds = self.laid.objective.source_kinds
        (self.head,) = self.laid.objective.heads
        self.heads: Mapping[str, Head] = {self.head: Head("vocabulary"), "leash": Head("leash")}
        self.weights = {"policy": 1.0}
        if settings.baseline == "learned":
            self.heads = {**self.heads, "value": Head("tags", (("classes", 1),))}
            self.weights["value"] = 0.5
        if settings.supervised:
            self.weights["supervised"] = settings.supervised
        self.rows_per_sample = settings.count + bool(settings.supervised)
        self.updates = settings.updates
        self.rewards: Judges | None = None
        self.reference: Model | None = None
        self.newest: list[tuple[Attempt, float]] = []
        """Some of the texts that were written last, for whoever watches."""

    def attach(self, rewards: Judges, reference: Model) -> None:
        """What judges the texts, and the model it started as; neither is saved with it."""
        self.rewards, self.reference = rewards, reference.eval().requires_grad_(False)
        self.keeps_history = getattr(rewards, "keeps_history", False)

    def __deepcopy__(self, memo: dict[int, Any]) -> Policy:
        """Nothing in it changes, and its judges may be large."""
        return self

    # ------------------------------------------------------------ prompts

    def pieces(self, samples: Sequence[Sample]) -> list[Piece]:
        """Each prompt and its first reference, as far as they fit."""
        attempts = [attempt_of(sample, self.settings.prompt_words) for sample in samples]
        prompts = inputs_of(attempts, self.settings, self.tokenizer)
        golds = iter(self.tokenizer.ids_many([one.references[0] for one in attempts if one.references]))
        out = []
        for number, (one, ids) in enumerate(zip(attempts, prompts, strict=True)):
            target = next(golds).astype(np.int64) if one.references else None
            piece = self.laid.piece(number, ids, target)
            out.append(replace(piece, parts={**piece.parts, "attempt": one}))
        return out

    def prepare(self, row: Row, draw: Draws) -> Row:
        """The prompt, and the numbers that its texts will be drawn at."""
        piece, rng = row.notes["piece"], draw("policy")
        drawn = rng.random((self.settings.count, self.laid.most))
        seeds = rng.integers(0, 1 << 62, self.settings.count).tolist()
        start = self.laid.start(piece)
        inputs = {key: np.asarray(value) for key, value in start.inputs.items()}
        notes = {**row.notes, "uniforms": drawn, "seeds": seeds}
        return Row(inputs={**inputs, "tokens": np.array(start.prompt)}, notes=notes, sample=row.sample)

    # ------------------------------------------------------------ writing and judging

    def way(self, model: Model) -> Way:
        """How texts are drawn from this model."""
        end = self.tokenizer.end if self.laid.end is None else self.laid.end
        how: Literal["causal", "source"] = "causal" if self.settings.way == "causal" else "source"
        shut = tuple(unwanted(model, self.tokenizer, self.laid.end, how))
        return Way(most=self.laid.most, end=end, shut=shut, heat=self.settings.temperature)

    def collected(
        self, model: Model, pieces: Sequence[Piece], uniforms: Sequence[Uniforms], seeds: Sequence[Sequence[int]]
    ) -> Collection:
        """Texts of these prompts."""
        return collect(model, self.tokenizer, self.laid, self.way(model), pieces, uniforms, seeds)

    def read(self, found: Collection, samples: Sequence[int], more: Sequence[Row] = ()) -> Batch:
        """The texts behind their prompts, as rows whose tokens are predicted."""
        rows = []
        for piece, one, sample in zip(found.pieces, found.rolled, samples, strict=True):
            whole = replace(piece, parts={**piece.parts, "target": one.tokens})
            row = self.laid.row(Row(inputs={}, notes={"piece": whole}, sample=sample), Draw(0, 0, 0))
            goal = {**row.goals[self.laid.term], "old": one.logprobs}
            rows.append(replace(row, goals={"policy": goal}))
        return collate([*rows, *more], self, self.fill)

    def logprobs(self, model: Model, hidden: Hidden, goal: Mapping[str, Tensor]) -> Tensor:
        """[N] of the tokens that were written, under the distribution that texts are drawn from."""
        head = model.heads[self.head]
        assert isinstance(head, VocabularyHead)
        way = self.way(model)
        without = way.without(head.weight.shape[0] if head.plain else model.backbone.embedding().num_embeddings)
        return chosen(head, hidden.at(goal["at"]), goal["values"], without_V=without, heat=way.heat)

    def distances(self, batch: Batch, sizes: Sequence[int]) -> tuple[Floats, Floats]:
        """Per text Σ log π and Σ log π/π₀; one draw's estimate of the distance between the two."""
        assert self.reference is not None
        goal, ends = batch.goals["policy"], np.cumsum(sizes)[:-1]
        before = self.logprobs(self.reference, self.encode(self.reference, batch), goal)
        own, theirs = goal["old"].cpu().double().numpy(), before.cpu().double().numpy()
        surprise = np.array([part.sum() for part in np.split(own, ends)])
        return surprise, np.array([part.sum() for part in np.split(own - theirs, ends)])

    def explore(self, model: Model, batch: Batch, history: Any = None) -> Batch:
        """Write, judge, measure the distance, and say of each text how much it beat what was expected."""
        if self.rewards is None or self.reference is None:
            raise MeristemError("policy: nothing judges what is written; rewards belong to meristem reinforce")
        notes, count = batch.notes, self.settings.count
        pieces = [note["piece"] for note in notes]
        found = self.collected(model, pieces, [n["uniforms"] for n in notes], [n["seeds"] for n in notes])
        judges = self.rewards.with_history(history) if self.keeps_history else self.rewards
        verdict = judges.judge(found.attempts)
        shown = range(0, len(found.attempts), count)[:SHOWN]
        self.newest = [(found.attempts[at], float(verdict.total[at])) for at in shown]
        owner = [batch.ids[place] for place in batch.owner.tolist()]
        made = self.read(found, np.repeat(owner, count).tolist(), self._taught(pieces, owner)).to(model.device)
        if self.keeps_history:
            for note, seen in zip(made.notes, verdict.observations, strict=False):  # references learned too come last
                note["observations"] = seen
        sizes = [len(one.tokens) for one in found.rolled]
        surprise, distance = self.distances(made, sizes)
        cut = np.array([not one.ended for one in found.rolled], float)
        total = verdict.total - self.settings.unfinished * cut
        returns = self._returns(model, total, distance, surprise / np.maximum(1, sizes))
        first = made.goals["policy"]["at"][np.cumsum([0, *sizes[:-1]])]
        expected = self._expected(model, made, first)
        better = advantages(self.settings.baseline, returns, count, expected)
        told = {
            "reward": total,
            "_square": total**2,
            "kl": distance,
            "entropy": -surprise / np.maximum(1, sizes),
            "written": np.array(sizes, float),
            "ended": 1 - cut,
            "distinct2": np.full(len(sizes), pairs_apart(found.rolled)),
            "leash": np.full(len(sizes), self.coefficient(model)),
            "return": returns,
            **{f"reward.{name}": values for name, values in verdict.parts.items()},
        }
        device, kind = first.device, made.goals["policy"]["old"].dtype
        made.goals["policy"]["advantage"] = torch.tensor(np.repeat(better, sizes), dtype=kind, device=device)
        made.goals["text"] = {"at": first, **{k: torch.tensor(v, dtype=kind, device=device) for k, v in told.items()}}
        made.counts = self.count(made)
        return made

    def observations(self, batch: Batch) -> list[Any]:
        """What rewards with a history want to remember of the texts in an explored batch."""
        return [seen for note in batch.notes if (seen := note.get("observations"))]

    def remember(self, history: Any, observations: Sequence[Any]) -> Any:
        """The rewards' history after a step."""
        return history if self.rewards is None else self.rewards.remember(history, observations)

    def _taught(self, pieces: Sequence[Piece], owner: Sequence[int]) -> list[Row]:
        """Rows of references, where they are learned too."""
        rows = []
        for piece, sample in zip(pieces, owner, strict=True):
            if self.settings.supervised and piece.parts["target"] is not None:
                row = self.laid.row(Row(inputs={}, notes={"piece": piece}, sample=sample), Draw(0, 0, 0))
                rows.append(replace(row, goals={"supervised": row.goals[self.laid.term]}))
        return rows

    def _returns(self, model: Model, total: Floats, distance: Floats, surprise: Floats) -> Floats:
        s, leash = self.settings, self.leash(model)
        mean, spread = leash.scale if s.whiten else (0.0, 1.0)
        return (total - mean) / spread - self.coefficient(model) * distance - s.entropy * surprise

    def _expected(self, model: Model, batch: Batch, first: Tensor) -> Floats | None:
        """What the value head expected of each prompt."""
        if self.settings.baseline != "learned":
            return None
        found = model.heads["value"](self.encode(model, batch).at(first))[:, 0]
        return np.asarray(found.cpu().double().numpy())

    def leash(self, model: Model) -> Leash:
        """The numbers that adapt."""
        found = model.heads["leash"]
        assert isinstance(found, Leash)
        return found

    def coefficient(self, model: Model) -> float:
        """β now."""
        return self.settings.kl.coefficient * float(self.leash(model).price)

    def tried(self, model: Model, judges: Judges, pieces: Sequence[Piece], *, texts: int, seed: int) -> Tried:
        """What a model writes for these prompts, and what judges make of it."""
        return tried(self, model, judges, pieces, texts=texts, seed=seed)

    # ------------------------------------------------------------ learning

    def count(self, batch: Batch) -> dict[str, int]:
        """Texts or tokens, whichever count the same."""
        found = {term: len(goal["at"]) for term, goal in batch.goals.items()}
        texts = found.get("text", 0)
        counts = {"policy": texts if self.settings.per == "text" else found.get("policy", 0), "value": texts,
                  "supervised": found.get("supervised", 0)}  # fmt: skip
        return {term: counts[term] for term in self.weights}

    def encode(self, model: Model, batch: Batch, state: State | None = None) -> Hidden:
        """As the objective that the model learned to write with."""
        return self.laid.objective.encode(model, batch, state)

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """−Σ A · log π, its ratio to what wrote the texts clipped where they are learned from more than once."""
        goal, text = batch.goals["policy"], batch.goals["text"]
        better, now = goal["advantage"], self.logprobs(model, hidden, goal)
        ratio = (now - goal["old"]).exp()
        near = ratio.clamp(1 - self.settings.clip, 1 + self.settings.clip)
        gain = torch.minimum(ratio * better, near * better) if self.updates > 1 else now * better
        sums = {"policy": -gain.sum()}
        if "value" in self.weights:
            expected = model.heads["value"](hidden.at(text["at"]))[:, 0]
            sums["value"] = (expected - text["return"]).pow(2).sum()
        if "supervised" in batch.goals:
            head, right = model.heads[self.head], batch.goals["supervised"]
            assert isinstance(head, VocabularyHead)
            sums["supervised"] = head.judge(hidden.at(right["at"]), right["values"]).total
        every = now.new_tensor(float(len(text["at"])))
        metrics = {name: (value.sum(), every) for name, value in text.items() if name not in ("at", "return")}
        if self.updates > 1:
            clipped = (ratio.detach() - 1).abs() > self.settings.clip
            metrics["clipped"] = (clipped.sum(), now.new_tensor(float(clipped.numel())))
        return Outcome(sums=sums, metrics=metrics)

    def settle(self, model: Model, metrics: Mapping[str, tuple[Tensor, Tensor]]) -> str | None:
        """After a step that was taken: the leash and the scale follow what was seen; why the run should stop, if so."""
        s, leash = self.settings, self.leash(model)
        mean = {name: float(total) / max(1e-9, float(number)) for name, (total, number) in metrics.items()}
        leash.saw(mean["reward"], mean["_square"])
        if s.kl.adapt and s.kl.coefficient:
            leash.pull(mean["kl"], s.kl.target, s.kl.adapt)
        wild = s.kl.runaway is not None and mean["kl"] > s.kl.runaway * s.kl.target
        leash.wild.copy_((leash.wild + 1) * wild)
        dull = s.collapse is not None and leash.met(mean["distinct2"], FIRST) < s.collapse
        leash.dull.copy_((leash.dull + 1) * dull)
        if int(leash.wild) >= s.alarm:
            return (f"the texts ran away from where the model started: {mean['kl']:.1f} nats, and policy.kl.target is "
                    f"{s.kl.target:g}. A higher policy.kl.coefficient or a lower train.rate holds them")  # fmt: skip
        if int(leash.dull) >= s.alarm:
            return ("the texts have become alike: fewer than "
                    f"{s.collapse:.0%} of the pairs of words they began with. A higher policy.kl.coefficient, "
                    "policy.entropy or a reward for variety helps")  # fmt: skip
        return None
