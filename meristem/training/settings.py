"""What the loop can be told."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from meristem.dependences import Dependences, when
from meristem.settings import Settings

BUDGETS = ("steps", "epochs", "tokens", "flops", "minutes")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def _interval(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(r"\d+|\d+(\.\d+)?(s|m|h)|\d+(\.\d+)?epochs?", value):
        raise ValueError("expected steps (500), time (30s, 10m, 2h) or epochs (1epoch)")
    return int(value) if isinstance(value, str) and value.isdigit() else value


def _interval_or_none(value: Any) -> Any:
    return OFF if isinstance(value, str) and value.lower() == OFF else _interval(value)


def _steps_or_epochs(value: Any) -> Any:
    if isinstance(value, str) and seconds(value) is not None:
        raise ValueError("expected steps (10) or epochs (0.5epoch)")
    found = _interval(value)
    if isinstance(found, int) and found < 1:
        raise ValueError("Input should be greater than or equal to 1")
    return found


OFF = "none"
"""An interval that never comes."""
Interval = Annotated[int | str, BeforeValidator(_interval)]
OptionalInterval = Annotated[int | str, BeforeValidator(_interval_or_none)]
StepInterval = Annotated[int | str, BeforeValidator(_steps_or_epochs)]


class TrainSettings(Settings):
    """One budget, one batch, one optimizer, and when to look and save."""

    needs: ClassVar[Dependences] = {
        "matrix_rate": (when("optimizer", "muon"),),
        "momentum": (when("optimizer", "muon"),),
        "decay": (when("schedule", "constant_then_decay"),),
        "floor": (when("schedule", "cosine", "linear", "inverse_sqrt", "constant_then_decay"),),
    }

    exclusive: ClassVar[tuple[str, ...]] = BUDGETS
    known_as: ClassVar[dict[str, str]] = {
        "batch_size": "train.batch_tokens in pretraining (tokens of a step), train.batch_samples for tasks and rewards"
    }

    steps: int | None = Field(None, ge=1)
    """Budget: optimizer steps."""
    epochs: float | None = Field(None, gt=0)
    """Budget: passes over the training text."""
    tokens: float | None = Field(None, gt=0)
    """Budget: tokens of text the model reads, source and target, every row, padding left out."""
    flops: float | None = Field(None, gt=0)
    """Budget: floating-point operations of the model."""
    minutes: float | None = Field(None, gt=0)
    """Budget: minutes of training on this machine; turned into steps once its speed was measured."""

    batch_tokens: int = Field(4096, ge=1, le=1 << 28)
    """Pretraining: tokens of text in one optimizer step, counted as `tokens` counts them, over all processes."""
    batch_samples: int = Field(32, ge=1, le=1 << 24)
    """Fine-tuning: samples in one optimizer step; they differ in length, and `batch_tokens` is not read."""
    micro_tokens: int | None = Field(None, ge=1)
    """Tokens in one forward pass at the most; gradients are accumulated over several."""
    rate: float = Field(1e-3, gt=0)
    """Peak learning rate."""
    matrix_rate: float | None = Field(None, gt=0)
    """Muon: the peak rate of matrices; four times `rate` unless set."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """adamw, or muon for the matrices inside the backbone with adamw for the rest."""
    schedule: Literal["cosine", "linear", "inverse_sqrt", "constant_then_decay", "constant"] = "cosine"
    """How the rate falls after the warm-up."""
    warmup: float = Field(0.05, ge=0)
    """Warm-up: a share of the steps (below 1) or a number of steps."""
    decay: float = Field(0.2, gt=0, le=1)
    """constant_then_decay: the share of the steps in which the rate falls."""
    floor: float = Field(0.0, ge=0, le=1)
    """Where the rate ends, as a share of its peak."""
    layer_decay: float = Field(1.0, gt=0, le=1)
    """How much the rate falls with every layer from the top: heads 1, the top layer this, the next its square, …"""
    weight_decay: float = Field(0.01, ge=0)
    """Decoupled weight decay; norms and biases have none."""
    betas: tuple[float, float] = (0.9, 0.98)
    """AdamW's averages."""
    epsilon: float = Field(1e-8, gt=0)
    """What keeps AdamW from dividing by zero."""
    momentum: float = Field(0.95, ge=0, lt=1)
    """Muon's momentum."""
    clip: float | None = Field(1.0, gt=0)
    """Gradient norm above which gradients are scaled down; none switches it off."""

    seed: int = Field(0, ge=0)
    """Everything random follows from it."""
    device: str = "auto"
    """cpu, cuda, mps, … or auto: the accelerator torch finds, else the cpu."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """bfloat16 uses autocast; auto takes it where the accelerator has it."""
    threads: int | None = Field(None, ge=1, le=1024)
    """CPU threads; torch's choice unless set."""
    workers: int | None = Field(None, ge=0, le=256)
    """Processes that make batches ahead; on a cpu 0 is best, on an accelerator 2 unless set."""
    compile: bool = False
    """torch.compile the backbone: a minute of waiting, then faster steps."""
    recompute: bool = False
    """Gradient checkpointing: activations are computed again instead of kept."""
    shard: bool = False
    """With several processes: each holds a part of every weight, gradient and optimizer state (FSDP2), not a copy."""
    timeout: float = Field(600.0, gt=0)
    """With several processes: seconds after which one that says nothing counts as lost."""

    evaluate_every: OptionalInterval | None = None
    """Steps (500), time (10m), epochs (1epoch), or none; a tenth of the run unless set, less often in a short one."""
    evaluate_tokens: int = Field(65_536, ge=1)
    """Validation tokens read at each evaluation, always the same ones; fewer in a short run unless set otherwise."""
    save_every: OptionalInterval = "5m"
    """Steps, time or epochs between checkpoints; none saves only the best and the last."""
    keep: int = Field(2, ge=1)
    """Checkpoints kept, besides the best."""
    patience: int | None = Field(None, ge=1)
    """Early stopping: evaluations without a better one."""
    keep_best: bool | None = None
    """Whether a finished run is its best checkpoint on validation; tasks and runs with patience are, unless set."""
    log_every: StepInterval = 10
    """Steps (10) or epochs (0.5epoch) between lines of metrics.jsonl; the first step has one, and every ten seconds."""
    single_task_baselines: bool = False
    """After a mix: train each of its tasks alone for as many steps as it had, and report what each gained or lost."""
    bad_steps: int = Field(5, ge=1)
    """Non-finite steps in a row that stop the run."""

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        given = [name for name in BUDGETS if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"a run has one budget, not {' and '.join(given)}")
        if self.patience is not None and self.evaluate_every == OFF:
            raise ValueError("patience: it counts evaluations, and evaluate_every=none makes none")
        return self

    @property
    def budget(self) -> tuple[str, float]:
        """The one budget; three minutes unless a recipe says otherwise."""
        for name in BUDGETS:
            if (value := getattr(self, name)) is not None:
                return name, float(value)
        return "minutes", 3.0


def seconds(interval: Interval) -> float | None:
    """The interval as time, if it is one."""
    if interval == OFF:
        return math.inf
    if isinstance(interval, str) and interval[-1] in _UNITS and "epoch" not in interval:
        return float(interval[:-1]) * _UNITS[interval[-1]]
    return None


def steps(interval: Interval, steps_per_epoch: float) -> int | None:
    """The interval as steps, if it is not a time."""
    if isinstance(interval, int):
        return max(1, interval)
    if interval == OFF:
        return None
    if "epoch" in interval:
        return max(1, round(float(interval.split("epoch")[0]) * steps_per_epoch))
    return None


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str | int | float) else value


class LoraSettings(Settings):
    """Low-rank parts that learn in place of the weights they are added to (Hu et al. 2021)."""

    rank: int = Field(8, ge=1)
    """Rows of the low-rank part; more can change more."""
    alpha: float = Field(16.0, gt=0)
    """What is added is scaled by alpha / rank."""
    layers: Annotated[tuple[str, ...], BeforeValidator(_listed)] = Field(("attention",), min_length=1)
    """Which linear maps of the backbone: attention, all, or patterns that their names are searched for."""

    @field_validator("layers")
    @classmethod
    def _patterns(cls, layers: tuple[str, ...]) -> tuple[str, ...]:
        for one in layers:
            try:
                re.compile(one)
            except re.error as error:
                raise ValueError(f"{one!r} is no pattern: {error}") from None
        return layers


class StartSettings(Settings):
    """`from: RUN` is short for `from: {path: RUN}`, and `from: scratch` for no path at all."""

    needs: ClassVar[Dependences] = {
        "recipe": (when("path", None),),
        "take": (when("path") | when("recipe"),),
        "tokenizer": (when("path") | when("recipe"),),
    }

    path: str | None = None
    """A run whose weights are taken; none starts from nothing."""
    recipe: str | None = None
    """Rewards: a recipe whose run is trained first where no path is given, beside this run."""
    take: Literal["all", "encoder", "embeddings", "nothing"] = "all"
    """all; encoder (no heads); embeddings (of tokens both know); or nothing but the shape and the tokenizer."""
    learns: Literal["all", "head", "embeddings"] = "all"
    """Fine-tuning: which weights move besides the task's own: all, none, or only the embeddings."""
    tokenizer: Literal["keep", "own"] = "keep"
    """Keep the tokenizer of the run that is gone on from, or make this recipe's own (shared tokens are copied)."""
    frozen: int = Field(0, ge=0)
    """For this many first steps only the embeddings learn."""
    thaw: Interval | None = None
    """Gradual unfreezing: heads first, then after every so many steps (500) or epochs (1epoch) one layer more."""
    lora: LoraSettings | None = None
    """Low-rank parts learn, and the weights they are added to stay as they are."""
    vectors: str | None = None
    """Word vectors that initialise the embeddings: a word2vec file (text or binary) or a GloVe text file."""

    @field_validator("path")
    @classmethod
    def _scratch(cls, path: str | None) -> str | None:
        return None if path in ("scratch", "none") else path

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.thaw is not None and seconds(self.thaw) is not None:
            raise ValueError("thaw: layers thaw after steps (500) or epochs (1epoch), never after a time")
        if self.thaw is not None and (self.frozen or self.learns != "all"):
            raise ValueError("thaw: it says what learns when; leave out frozen and learns")
        if self.frozen and (self.learns != "all" or self.lora is not None):
            raise ValueError("frozen: in its first steps only the embeddings learn; leave out learns and lora")
        if self.lora is not None and self.learns == "head":
            raise ValueError("lora: its parts lie inside the backbone, which learns=head freezes; leave one out")
        return self


class GridSettings(Settings):
    """Fine-tuning with every combination of these, each several times; the best on validation data is kept."""

    rate: Annotated[tuple[float, ...], BeforeValidator(_listed)] = ()
    """Peak learning rates to try."""
    epochs: Annotated[tuple[float, ...], BeforeValidator(_listed)] = ()
    """Budgets to try, in passes over the training data."""
    seeds: int = Field(1, ge=1)
    """How often each combination is trained, with seeds from train.seed upwards."""

    @field_validator("rate", "epochs")
    @classmethod
    def _sound(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if any(value <= 0 for value in values):
            raise ValueError("expected numbers above 0")
        if len(set(values)) < len(values):
            raise ValueError("one of them stands there twice")
        return values

    @property
    def wanted(self) -> bool:
        """Whether there is more than one run to make."""
        return bool(self.rate or self.epochs) or self.seeds > 1
