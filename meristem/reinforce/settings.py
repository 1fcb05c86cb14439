"""What writing for rewards can be told."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from meristem.dependences import Dependences, when
from meristem.reinforce.advantages import Baseline
from meristem.settings import Settings


class LeashSettings(Settings):
    """How far a model may go from where it started, in nats per text."""

    needs: ClassVar[Dependences] = {
        "target": (when("coefficient", above=0) | when("runaway"),),
        "adapt": (when("coefficient", above=0),),
    }

    target: float = Field(8.0, gt=0)
    """The distance that is aimed at: KL(π‖π₀) of a text on the average."""
    coefficient: float = Field(0.05, ge=0)
    """β at the start, in deviations of the reward for each nat; 0 takes the leash off."""
    adapt: float = Field(0.1, ge=0, le=1)
    """How quickly β follows the distance to its target; 0 keeps it as it is."""
    runaway: float | None = Field(4.0, gt=1)
    """The run stops when the distance stays above so many times its target; none never does."""


class PolicySettings(Settings):
    """How texts are written, compared and held near the start."""

    needs: ClassVar[Dependences] = {
        "picture": (when("way", None, "image"),),
        "clip": (when("updates", above=1),),
        "alarm": (when("collapse") | when("kl.runaway"),),
    }

    name: Literal["policy"] = "policy"
    """The objective's name."""
    way: Literal["causal", "encoder_decoder", "image"] | None = None
    """What texts are written from: a text they continue, a source, a picture; by data and model unless set."""
    framed: bool = False
    """Causal: prompt and text in one line with a delimiter between them, as a task was taught; found out by itself."""
    begin: tuple[int, ...] | None = None
    """Tokens that texts begin after; as the model was trained unless set."""
    picture: int | None = Field(None, ge=4)
    """Pixels of a picture's side; the model's unless set."""
    length: int | None = Field(None, ge=4)
    """Tokens of prompt and text together (encoder-decoder: of each); the model's length unless set."""
    count: int = Field(4, ge=1)
    """Texts written for each prompt."""
    max_tokens: int = Field(512, ge=1)
    """Nothing is written, and so nothing rewarded, past so many tokens."""
    temperature: float = Field(1.0, gt=0)
    """Below 1 likely tokens are drawn more often; what is learned is the distribution at this temperature."""
    baseline: Baseline = "rloo"
    """What a return is compared with: rloo, grpo, learned (a value head), or none."""
    updates: int = Field(1, ge=1)
    """Optimizer updates on one collection of texts; more than one is PPO."""
    clip: float = Field(0.2, gt=0)
    """With several updates, how far the probability of a token may move in one step (ε in Schulman et al. 2017)."""
    per: Literal["text", "token"] = "text"
    """Whether each text or each token counts the same."""
    whiten: bool = True
    """Rewards in units of their own deviation around their mean, both followed as the run goes."""
    entropy: float = Field(0.0, ge=0)
    """α: a bonus for surprise, per nat and token, against texts that are all alike."""
    supervised: float = Field(0.0, ge=0)
    """Weight of the ordinary loss on a prompt's first reference, learned beside the rewards."""
    unfinished: float = Field(0.0, ge=0)
    """What a text loses that did not end before max_tokens, in units of the total reward."""
    kl: LeashSettings = Field(default_factory=lambda: LeashSettings.model_validate({}))
    """The leash."""
    collapse: float | None = Field(0.4, gt=0, lt=1)
    """The run stops when texts have less than this share of their first variety (distinct-2); none never does."""
    alarm: int = Field(10, ge=1)
    """Steps in a row that a runaway or a collapse must last."""
    prompt_words: int | None = Field(None, ge=1)
    """Of a text only so many first words are the prompt, and the rest is its reference."""
    prompts: int = Field(64, ge=2)
    """Validation prompts that are written for at an evaluation."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.baseline in ("rloo", "grpo") and self.count < 2:
            raise ValueError(f"count: {self.baseline} compares the texts of a prompt, so each needs at least 2")
        return self
