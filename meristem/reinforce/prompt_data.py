"""Training data of a reward run: prompts by split, rewards, independent judges and the reference model."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.config.recipe import Recipe, ReinforceRecipe
from meristem.data.images import is_builtin_image
from meristem.dataset.feed import Feed
from meristem.drawing.reward_report import ScoredText, step_metrics
from meristem.drawing.reward_report_terminal import LiveRewards, reward_report_tables
from meristem.evaluation.evaluation_report import describe_model
from meristem.evaluation.held_out_loss import SEED, eval_mode
from meristem.interfaces.backbone import Model
from meristem.interfaces.objective import Objective
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.learning.learner import Learner
from meristem.reinforce.combined_reward import CombinedReward
from meristem.reinforce.objectives.policy import PolicyObjective
from meristem.reinforce.policy_evaluation import PolicyEvaluation, evaluate_policy
from meristem.reinforce.reward_reporting import (
    BEST_OF,
    build_reward_report,
    judge_texts,
    reward_card_lines,
    write_reward_report,
)
from meristem.training.data.sample_pieces import SampleData
from meristem.training.data.training_data import EvaluateFn, MetricsCallback
from meristem.training.run_logger import RunLogger, format_duration
from meristem.utils.shell_quoting import shell_path

MAX_SHOWN_PROMPTS = 3


@dataclass(frozen=True, kw_only=True)
class PromptData(SampleData):
    """Prompts by split, with the rewards, the judges and the reference model (the run's starting weights)."""

    recipe: ReinforceRecipe
    policy: PolicyObjective
    """Encodes prompts and generates for them; the objective that the run trains is a separate instance."""
    rewards: CombinedReward
    judge: CombinedReward | None
    """Rewards used only for evaluation, never for training; None where the recipe names none."""
    reference: Model
    start_digest: str
    """Digest of the weights that the run started from."""
    task: str | None = None
    """The task that the starting run was fine-tuned on, if any."""

    @property
    def shard_keys(self) -> Mapping[str, str]:
        """The digest of the starting weights, so that resuming with other ones is refused."""
        return {"start": self.start_digest}

    def make_pieces(self, samples: Sequence[Sample]) -> list[SamplePiece]:
        """The prompts as the policy encodes them."""
        return self.policy.encode_samples(samples)

    @property
    def extra_tokens(self) -> int:
        """Tokens generated for a prompt, at most."""
        return self.policy.layout.max_target_tokens

    def build_feeds(
        self, recipe: Recipe, objectives: Mapping[str, Objective], *, split: str, seed: int
    ) -> dict[str, Feed]:
        """Prompts bucketed by length; also attaches the rewards and the reference model to the objective."""
        objective: Any = next(iter(objectives.values()))
        objective.attach(self.rewards, self.reference)
        return super().build_feeds(recipe, objectives, split=split, seed=seed)

    def evaluate_policy(self, model: Model, split: str, *, num_generations: int = 1) -> PolicyEvaluation:
        """Generate for the first prompts of a split and score the completions with the rewards."""
        pieces = self.pieces(split)[: self.policy.settings.eval_prompts]
        with eval_mode(model):
            return evaluate_policy(self.policy, model, self.rewards, pieces, num_generations=num_generations, seed=SEED)

    def build_evaluator(
        self, recipe: Recipe, learner: Learner, split: str, log: Callable[[str], None]
    ) -> EvaluateFn | None:
        """Reward, KL and diversity of one completion per prompt; every evaluation uses the same random numbers."""
        if not self.samples.get(split):
            return None
        policy: Any = next(iter(learner.objectives.values()))
        self.policy.attach(self.rewards, self.reference)

        def evaluate() -> dict[str, float]:
            evaluation = self.evaluate_policy(learner.model, split)
            metrics = evaluation.mean_metrics()
            if self.judge is not None:
                judge_scores = self.judge.score(evaluation.completions).parts
                metrics |= {f"judge.{name}": float(values.mean()) for name, values in judge_scores.items()}
            kl_excess = (
                max(0.0, metrics["kl"] / policy.settings.kl.target - 1) if policy.settings.kl.coefficient else 0.0
            )
            return {"leashed": metrics["reward"] - kl_excess * float(evaluation.reward.std()), **metrics}

        return evaluate

    @property
    def selection_metric(self) -> str:
        """The mean reward minus its standard deviation times the relative excess of the KL over its target."""
        return "leashed"

    def describe_data(self) -> list[str]:
        """Number of prompts, the rewards, and the first prompts as they are encoded."""
        sizes = ", ".join(f"{len(samples):,} {split}" for split, samples in self.samples.items())
        names = ", ".join(f"{reward.name} × {reward.weight:g}" for reward in self.recipe.rewards)
        examples = [f"  {_format_prompt(piece)}" for piece in self.pieces("train")[:MAX_SHOWN_PROMPTS]]
        return [f"{sizes} prompts", f"Rewards: {names}", *self.notices, "First prompts:", *examples]

    def preview_samples(self, feed: Feed, ids: Sequence[int]) -> list[str]:
        """Location and beginning of each prompt."""
        pieces = [feed.batch_at(number, 1).metadata[0]["piece"] for number in ids]
        return [f"{piece.features['attempt'].location} {_format_prompt(piece)}"[:120] for piece in pieces]

    def example_commands(self, run_path: str, model: Model) -> list[str]:
        """A command that uses the first training prompt."""
        first_prompt = self.pieces("train")[0].features["attempt"]
        if first_prompt.picture:
            command = "predict" if self.task is not None else "generate"
            file = "picture.png" if is_builtin_image(first_prompt.picture) else shlex.quote(first_prompt.picture)
            return [f"meristem {command} {run_path} --image {file}"]
        prompt = shlex.quote(first_prompt.prompt)
        if self.policy.settings.use_delimiter:
            return [f"meristem predict {run_path} {prompt}"]
        return [f"meristem generate {run_path} --prompt {prompt} --count 3"]

    def build_metrics_callback(self, learner: Learner, logger: RunLogger, total: int) -> MetricsCallback:
        """A live table of rewards and the newest completions, shown below the progress bar."""
        policy: Any = next(iter(learner.objectives.values()))
        kl_settings = policy.settings.kl
        kl_target = kl_settings.target if kl_settings.coefficient else None
        live_view = LiveRewards(logger.console, logger.log, total=total, kl_target=kl_target)
        logger.show_below(live_view)

        def on_metrics(step: int, means: Mapping[str, float], seconds_left: float) -> None:
            newest_texts = [
                (completion.prompt_label, ScoredText(text=completion.text, reward=reward))
                for completion, reward in policy.latest_samples
            ]
            live_view.update(step_metrics(step, means), samples=newest_texts, time_left=format_duration(seconds_left))

        return on_metrics

    def write_reports(self, run: RunFolder, learner: Learner, logger: RunLogger) -> list[str]:
        """Write a report on held-out prompts that compares the reference model with the trained one."""
        split = next((name for name in ("test", "validation") if self.samples.get(name)), None)
        if split is None:
            return []
        self.policy.attach(self.rewards, self.reference)
        before, after = (
            judge_texts(self.evaluate_policy(model, split, num_generations=BEST_OF[-1]), self.judge)
            for model in (self.reference, learner.model)
        )
        report = build_reward_report(
            run,
            self.recipe,
            before,
            after,
            model=describe_model(self.recipe, learner),
            split=split,
            sources=self.source_lines(),
            commands=self.example_commands(shell_path(run.path), learner.model),
        )
        write_reward_report(report, run.path)
        logger.log_tables(reward_report_tables(report))
        logger.log(f"Report: {run.path / 'report.html'}")
        return reward_card_lines(report)

    def source_lines(self) -> list[str]:
        """The prompt files and the rewards."""
        files = [f"{split}: {len(samples):,} prompts" for split, samples in self.samples.items()]
        return [*files, *(f"reward {reward.name}, weight {reward.weight:g}" for reward in self.recipe.rewards)]


def _format_prompt(piece: SamplePiece) -> str:
    completion = piece.features["attempt"]
    reference_note = f"  ({len(completion.references)} references)" if completion.references else ""
    return f"{completion.prompt_label[:200]} → …{reference_note}"


def refuse_changed_start(saved_keys: Mapping[str, str], start_digest: str, path: str) -> None:
    """Refuse to resume a run whose starting weights have changed: the KL would refer to another model."""
    if saved_keys.get("start", start_digest) != start_digest:
        raise MeristemError(
            f"from: the weights of {path} have changed since this run started; use --fresh to start over"
        )
