"""Settings of reward training: rewards; sampling, baseline, KL control and early stopping of the policy."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from meristem.config.conditions import SettingConditions, when
from meristem.config.settings import Settings
from meristem.objectives.settings import ObjectiveSettings

Baseline = Literal["rloo", "grpo", "learned", "none"]


class KLSettings(Settings):
    """KL control: how far the policy may move from the reference model, in nats per completion."""

    renamed: ClassVar[dict[str, str]] = {"adapt": "adaptation_rate", "runaway": "max_ratio"}

    needs: ClassVar[SettingConditions] = {
        "target": (when("coefficient", above=0) | when("max_ratio"),),
        "adaptation_rate": (when("coefficient", above=0),),
    }

    target: float = Field(8.0, gt=0)
    """Target of KL(π‖π₀), the mean per completion."""
    coefficient: float = Field(0.05, ge=0)
    """Initial β, in standard deviations of the reward per nat; 0 turns KL control off."""
    adaptation_rate: float = Field(0.1, ge=0, le=1)
    """How quickly β follows the KL to its target; 0 keeps β constant."""
    max_ratio: float | None = Field(4.0, gt=1)
    """The run stops when the KL stays above this multiple of its target; none never stops it."""


class PolicySettings(ObjectiveSettings):
    """How completions are sampled, compared and kept close to the reference model."""

    renamed: ClassVar[dict[str, str]] = {
        "alarm": "stop_patience",
        "begin": "start_ids",
        "clip": "clip_range",
        "collapse": "min_distinct2_ratio",
        "count": "num_generations",
        "entropy": "entropy_coefficient",
        "framed": "use_delimiter",
        "length": "max_length",
        "max_tokens": "max_new_tokens",
        "per": "loss_aggregation",
        "picture": "image_size",
        "prompts": "eval_prompts",
        "supervised": "supervised_weight",
        "unfinished": "missing_eos_penalty",
        "updates": "updates_per_rollout",
        "way": "generation_mode",
        "whiten": "whiten_rewards",
    }
    foreign_names: ClassVar[dict[str, str]] = {
        "epsilon": "clip_range",
        "num_ppo_epochs": "updates_per_rollout",
        "beta": "kl.coefficient",
    }

    needs: ClassVar[SettingConditions] = {
        "image_size": (when("generation_mode", None, "image"),),
        "clip_range": (when("updates_per_rollout", above=1),),
        "stop_patience": (when("min_distinct2_ratio") | when("kl.max_ratio"),),
    }

    name: Literal["policy"] = "policy"
    """The objective's name."""
    generation_mode: Literal["causal", "encoder_decoder", "image"] | None = None
    """What a completion is generated from: a text to continue, a source, an image; by data and model unless set."""
    use_delimiter: bool = False
    """Causal: prompt, delimiter and completion in one sequence, as in fine-tuning; detected automatically."""
    start_ids: tuple[int, ...] | None = None
    """Token ids that completions start after; as the model was trained unless set."""
    image_size: int | None = Field(None, ge=4)
    """Image size in pixels (height and width); the model's unless set."""
    max_length: int | None = Field(None, ge=4)
    """Tokens of prompt and completion together (encoder-decoder: of each); the model's length unless set."""
    num_generations: int = Field(4, ge=1)
    """Completions per prompt."""
    max_new_tokens: int = Field(512, ge=1)
    """Tokens of a completion, at most."""
    temperature: float = Field(1.0, gt=0)
    """Sampling temperature; below 1 favors likely tokens. The policy is the distribution at this temperature."""
    baseline: Baseline = "rloo"
    """Baseline of the advantages: rloo, grpo, learned (a value head), or none."""
    updates_per_rollout: int = Field(1, ge=1)
    """Optimizer updates per batch of rollouts; more than one is PPO."""
    clip_range: float = Field(0.2, gt=0)
    """With several updates: PPO's clipping range of the probability ratio (ε in Schulman et al. 2017)."""
    loss_aggregation: Literal["text", "token"] = "text"
    """Whether the loss averages over completions or over tokens."""
    whiten_rewards: bool = True
    """Normalize rewards by running estimates of their mean and standard deviation."""
    entropy_coefficient: float = Field(0.0, ge=0)
    """α: entropy bonus per nat and token, against completions that are all alike."""
    supervised_weight: float = Field(0.0, ge=0)
    """Weight of the cross-entropy on a prompt's first reference, added to the policy loss."""
    missing_eos_penalty: float = Field(0.0, ge=0)
    """Penalty for a completion that is cut off at max_new_tokens, in units of the total reward."""
    kl: KLSettings = Field(default_factory=lambda: KLSettings.model_validate({}))
    """KL control."""
    min_distinct2_ratio: float | None = Field(0.4, gt=0, lt=1)
    """The run stops when distinct-2 stays below this share of its initial value; none never stops it."""
    stop_patience: int = Field(10, ge=1)
    """Consecutive steps that the KL or diversity limit must be exceeded before the run stops."""
    prompt_words: int | None = Field(None, ge=1)
    """Only the first so many words of a text are the prompt; the rest is its reference."""
    eval_prompts: int = Field(64, ge=2)
    """Validation prompts per evaluation."""

    @model_validator(mode="after")
    def _check_group_size(self) -> Self:
        if self.baseline in ("rloo", "grpo") and self.num_generations < 2:
            raise ValueError(
                f"num_generations: {self.baseline} compares the completions of a prompt, so it needs at least 2"
            )
        return self

    @property
    def required_mode(self) -> str | None:
        """The mode in which the policy uses the backbone."""
        return self.generation_mode


class RewardSettings(Settings):
    """Settings that every reward has."""

    name: str
    """The reward's name."""
    weight: float = Field(1.0, allow_inf_nan=False)
    """Weight in the sum of rewards; a negative one penalizes."""
    title: str | None = None
    """Name under which its values are shown; the reward's name unless set."""
