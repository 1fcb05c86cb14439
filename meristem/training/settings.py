"""Settings of training (`train`), initial weights and freezing (`from`), LoRA, and hyperparameter grids (`grid`)."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from meristem.config.conditions import SettingConditions, when
from meristem.config.name_choice import NameChoice
from meristem.config.registry import ComponentKind
from meristem.config.settings import Settings
from meristem.training.privacy.settings import PrivacySettings

BUDGETS = ("steps", "epochs", "tokens", "flops", "minutes")
BATCH_SIZE_ADVICE = (
    "use train.batch_tokens in pretraining (tokens of a step), train.batch_samples for tasks and rewards"
)
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def _parse_interval(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(r"\d+|\d+(\.\d+)?(s|m|h)|\d+(\.\d+)?epochs?", value):
        raise ValueError("expected steps (500), time (30s, 10m, 2h) or epochs (1epoch)")
    return int(value) if isinstance(value, str) and value.isdigit() else value


def _parse_optional_interval(value: Any) -> Any:
    return NEVER if isinstance(value, str) and value.lower() == NEVER else _parse_interval(value)


def _parse_step_interval(value: Any) -> Any:
    interval = NEVER if value == NEVER else _parse_interval(value)
    if isinstance(interval, str) and interval_seconds(interval) is not None:
        raise ValueError("expected steps (10) or epochs (0.5epoch)")
    if isinstance(interval, int) and interval < 1:
        raise ValueError("Input should be greater than or equal to 1")
    return interval


NEVER = "none"
"""An interval that never passes."""
Interval = Annotated[int | str, BeforeValidator(_parse_interval)]
OptionalInterval = Annotated[int | str, BeforeValidator(_parse_optional_interval)]
StepInterval = Annotated[int | str, BeforeValidator(_parse_step_interval)]


class TrainSettings(Settings):
    """Budget, batch size, optimizer, learning rate, devices, evaluation and checkpoints."""

    renamed: ClassVar[dict[str, str]] = {
        "bad_steps": "max_nonfinite_steps",
        "clip": "max_grad_norm",
        "decay": "decay_fraction",
        "floor": "min_lr_ratio",
        "keep": "keep_checkpoints",
        "keep_best": "load_best_at_end",
        "layer_decay": "layer_lr_decay",
        "matrix_rate": "muon_learning_rate",
        "micro_tokens": "micro_batch_tokens",
        "momentum": "muon_momentum",
        "rate": "learning_rate",
        "recompute": "gradient_checkpointing",
        "shard": "fsdp",
        "timeout": "distributed_timeout",
        "workers": "dataloader_workers",
    }

    added = frozenset(
        {
            "trackers",
            "tracker_project",
            "weight_decay_schedule",
            "cautious_weight_decay",
            "newton_schulz_steps",
            "muon_normalize",
            "ema_decay",
            "batch_ramp",
            "batch_ramp_start",
            "length_ramp",
            "length_ramp_parts",
            "privacy",
        }
    )

    needs: ClassVar[SettingConditions] = {
        "weight_decay_schedule": (when("weight_decay"),),
        "cautious_weight_decay": (when("weight_decay"),),
        "newton_schulz_steps": (when("optimizer", "muon"),),
        "muon_normalize": (when("optimizer", "muon"),),
        "batch_ramp_start": (when("batch_ramp"),),
        "length_ramp_parts": (when("length_ramp"),),
        "muon_learning_rate": (when("optimizer", "muon"),),
        "muon_momentum": (when("optimizer", "muon"),),
        "decay_fraction": (when("schedule", "constant_then_decay"),),
        "min_lr_ratio": (when("schedule", "cosine", "linear", "inverse_sqrt", "constant_then_decay"),),
    }

    exclusive: ClassVar[tuple[str, ...]] = BUDGETS
    foreign_names: ClassVar[dict[str, str]] = {
        "lr": "learning_rate",
        "peak_lr": "learning_rate",
        "max_lr": "learning_rate",
        "num_train_epochs": "epochs",
        "num_epochs": "epochs",
        "max_epochs": "epochs",
        "max_steps": "steps",
        "num_train_steps": "steps",
        "train_steps": "steps",
        "batch_size": BATCH_SIZE_ADVICE,
        "train_batch_size": BATCH_SIZE_ADVICE,
        "per_device_train_batch_size": BATCH_SIZE_ADVICE,
        "gradient_accumulation_steps": "a batch above train.micro_batch_tokens is accumulated over forward passes",
        "warmup_ratio": "warmup",
        "warmup_steps": "warmup",
        "num_warmup_steps": "warmup",
        "grad_clip": "max_grad_norm",
        "gradient_clip_val": "max_grad_norm",
        "clip_grad_norm": "max_grad_norm",
        "save_steps": "save_every",
        "eval_steps": "evaluate_every",
        "logging_steps": "log_every",
        "report_to": "trackers",
        "track": "trackers",
        "lr_scheduler_type": "schedule",
        "lr_scheduler": "schedule",
        "scheduler": "schedule",
        "bf16": "precision=bfloat16",
        "fp16": "precision=bfloat16",
        "min_lr": "train.min_lr_ratio is the final learning rate as a share of its peak",
        "adam_beta1": "train.betas=[0.9,0.98] sets both moments of AdamW",
        "adam_beta2": "train.betas=[0.9,0.98] sets both moments of AdamW",
        "adam_epsilon": "epsilon",
        "optim": "optimizer",
        "dataloader_num_workers": "dataloader_workers",
        "num_workers": "dataloader_workers",
        "save_total_limit": "keep_checkpoints",
        "load_best_model_at_end": "load_best_at_end",
        "early_stopping_patience": "patience",
        "torch_compile": "compile",
        "random_seed": "seed",
        "activation_checkpointing": "gradient_checkpointing",
        "ema": "ema_decay=0.999",
        "use_ema": "ema_decay=0.999",
    }

    steps: int | None = Field(None, ge=1)
    """Budget: optimizer steps."""
    epochs: float | None = Field(None, gt=0)
    """Budget: passes over the training data."""
    tokens: float | None = Field(None, gt=0)
    """Budget: tokens the model reads, source and target, without padding."""
    flops: float | None = Field(None, gt=0)
    """Budget: floating-point operations (FLOPs) of the model."""
    minutes: float | None = Field(None, gt=0)
    """Budget: minutes of training on this machine, converted to steps at the speed that is measured."""

    batch_tokens: int = Field(4096, ge=1, le=1 << 28)
    """Pretraining: tokens in one optimizer step over all processes, without padding."""
    batch_ramp: float = Field(0.0, ge=0)
    """Batch-size ramp: a share of the steps (below 1) or a number of steps, in which the batch grows linearly."""
    batch_ramp_start: float = Field(0.25, gt=0, lt=1)
    """Batch-size ramp: the first batch as a share of `batch_tokens`."""
    length_ramp: float = Field(0.0, ge=0)
    """Sequence-length ramp: a share of the steps (below 1) or a number of steps, in which rows are cut into parts."""
    length_ramp_parts: Literal[2, 4, 8, 16] = 4
    """Sequence-length ramp: parts that a row is cut into at first, each a row of its own; halved in equal stages."""
    batch_samples: int = Field(32, ge=1, le=1 << 24)
    """Fine-tuning and rewards: samples in one optimizer step over all processes."""
    micro_batch_tokens: int | None = Field(None, ge=1)
    """Maximum tokens in one forward pass; a larger batch uses gradient accumulation."""
    learning_rate: float = Field(1e-3, gt=0)
    """Peak learning rate."""
    muon_learning_rate: float | None = Field(None, gt=0)
    """Muon: peak learning rate of matrices; four times `learning_rate` unless set."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """adamw; or muon for the matrices of the backbone and adamw for the rest."""
    schedule: Literal["cosine", "linear", "inverse_sqrt", "constant_then_decay", "constant"] = "cosine"
    """Learning-rate schedule after the warm-up."""
    warmup: float = Field(0.05, ge=0)
    """Learning-rate warm-up: a share of the steps (below 1) or a number of steps."""
    decay_fraction: float = Field(0.2, gt=0, le=1)
    """constant_then_decay: share of the steps in which the learning rate falls."""
    min_lr_ratio: float = Field(0.0, ge=0, le=1)
    """Final learning rate as a share of its peak."""
    layer_lr_decay: float = Field(1.0, gt=0, le=1)
    """Layer-wise learning-rate decay: factor per layer from the top (heads 1, top layer this, the next its square)."""
    weight_decay: float = Field(0.01, ge=0)
    """Decoupled weight decay; not applied to norms and biases."""
    weight_decay_schedule: Literal["constant", "linear"] = "constant"
    """Weight decay during the run: constant (but for the learning rate it is multiplied by), or linear to zero."""
    cautious_weight_decay: bool = False
    """Decay only weights that the update moves towards zero as well (Chen et al. 2025)."""
    betas: tuple[float, float] = (0.9, 0.98)
    """AdamW: decay rates of the two moment estimates."""
    epsilon: float = Field(1e-8, gt=0)
    """AdamW: term added to the denominator for numerical stability."""
    muon_momentum: float = Field(0.95, ge=0, lt=1)
    """Muon: momentum."""
    newton_schulz_steps: int = Field(5, ge=1, le=20)
    """Muon: Newton–Schulz iterations of an update; fewer are faster and less exact."""
    muon_normalize: bool = False
    """Muon: divide each row of an update by its running root mean square (NorMuon, Li et al. 2025)."""
    ema_decay: float | None = Field(None, gt=0, lt=1)
    """Evaluate, save and finish with an exponential moving average of the weights that decays by this (0.999)."""
    max_grad_norm: float | None = Field(1.0, gt=0)
    """Gradient clipping: maximum norm of all gradients; none switches it off."""

    privacy: PrivacySettings | None = None
    """Differentially private training, for instance `{epsilon: 8}`; replaces gradient clipping by `max_grad_norm`."""
    seed: int = Field(0, ge=0)
    """Random seed of everything: initialization, order of samples, masking, dropout, sampling."""
    device: str = "auto"
    """cpu, cuda, mps, …; auto is the accelerator if there is one, else the CPU."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Matrix products; auto is bfloat16 where CUDA or the CPU (AVX512-BF16, AMX) multiplies it faster, else float32."""
    threads: int | None = Field(None, ge=1, le=1024)
    """CPU threads; torch's default unless set."""
    dataloader_workers: int | None = Field(None, ge=0, le=256)
    """Processes that prepare batches in advance; 0 on a CPU and 2 on an accelerator unless set."""
    compile: bool | Literal["auto"] = "auto"
    """torch.compile each layer of the backbone; auto does so on CPUs where measuring shows that the run repays it."""
    gradient_checkpointing: bool = False
    """Gradient checkpointing: recompute activations in the backward pass instead of storing them."""
    fsdp: bool = False
    """With several processes: shard weights, gradients and optimizer state (FSDP2) instead of copying them (DDP)."""
    distributed_timeout: float = Field(600.0, gt=0)
    """With several processes: seconds after which an unresponsive one counts as lost."""

    evaluate_every: OptionalInterval | None = None
    """Interval between evaluations: steps (500), time (10m), epochs (1epoch) or none; a tenth of the run unless set."""
    evaluate_tokens: int = Field(65_536, ge=1)
    """Validation tokens of each evaluation, always the same ones; fewer in a short run unless set."""
    save_every: OptionalInterval = "5m"
    """Interval between checkpoints: steps, time or epochs; none saves only the best and the last."""
    keep_checkpoints: int = Field(2, ge=1)
    """Number of checkpoints to keep besides the best."""
    patience: int | None = Field(None, ge=1)
    """Early stopping: stop after this many evaluations without improvement."""
    load_best_at_end: bool | None = None
    """Finish with the checkpoint of the best validation, not the last; on for tasks and with patience unless set."""
    log_every: StepInterval = 10
    """Interval of training metrics: steps (10) or epochs (0.5epoch); also after step 1 and every ten seconds."""
    trackers: tuple[Annotated[str, NameChoice("tracker", ComponentKind.TRACKER.names)], ...] = ("tensorboard",)
    """Where metrics are sent: tensorboard, wandb, trackio, swanlab, mlflow, trackers of plugins, or nowhere ([])."""
    tracker_project: str = Field("meristem", min_length=1)
    """Project of the run in wandb, trackio and swanlab, and its experiment in mlflow."""
    single_task_baselines: bool = False
    """After a mix: train each of its tasks alone for as many steps as it had, and compare the results."""
    max_nonfinite_steps: int = Field(5, ge=1)
    """Stop after this many consecutive steps whose loss or gradient is not finite."""

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        budgets = [name for name in BUDGETS if getattr(self, name) is not None]
        if len(budgets) > 1:
            raise ValueError(f"a run has one budget, not {' and '.join(budgets)}")
        if self.muon_normalize and self.fsdp:
            raise ValueError("muon_normalize: the statistics of rows are not sharded; leave out fsdp")
        if self.ema_decay is not None and self.fsdp:
            raise ValueError("ema_decay: averaged weights are not sharded; leave out fsdp")
        if self.patience is not None and self.evaluate_every == NEVER:
            raise ValueError("patience: early stopping needs evaluations, and evaluate_every=none switches them off")
        if self.privacy is not None:
            self._check_privacy()
        return self

    def _check_privacy(self) -> None:
        """Raise on settings with which the guarantee of private training would not hold."""
        if self.budget[0] == "minutes":
            raise ValueError(
                "privacy: the noise is found for a known number of steps, and a budget in minutes has none; "
                "set train.steps or train.epochs"
            )
        if self.fsdp:
            raise ValueError("privacy: norms of gradients need all weights in every process; leave out fsdp")
        if self.batch_ramp or self.length_ramp:
            raise ValueError("privacy: every step samples at the same rate; leave out batch_ramp and length_ramp")
        if self.precision == "bfloat16":
            raise ValueError(
                "privacy: in bfloat16 the norm that is clipped would not be that of the gradient that is added; "
                "leave out precision"
            )
        if self.compile is True:
            raise ValueError("privacy: per-sample gradients are computed by layers as they are; leave out compile")

    @property
    def budget(self) -> tuple[str, float]:
        """Kind and value of the budget; three minutes unless set."""
        for name in BUDGETS:
            if (value := getattr(self, name)) is not None:
                return name, float(value)
        return "minutes", 3.0


def interval_seconds(interval: Interval) -> float | None:
    """The interval in seconds; None if it is in steps or epochs."""
    if interval == NEVER:
        return math.inf
    if isinstance(interval, str) and interval[-1] in _UNIT_SECONDS and "epoch" not in interval:
        return float(interval[:-1]) * _UNIT_SECONDS[interval[-1]]
    return None


def interval_steps(interval: Interval, steps_per_epoch: float) -> int | None:
    """The interval in steps; None if it is a time."""
    if isinstance(interval, int):
        return max(1, interval)
    if interval == NEVER:
        return None
    if "epoch" in interval:
        return max(1, round(float(interval.split("epoch")[0]) * steps_per_epoch))
    return None


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str | int | float) else value


class LoraSettings(Settings):
    """LoRA: low-rank matrices that are trained instead of the weights they are added to (Hu et al. 2021)."""

    renamed: ClassVar[dict[str, str]] = {
        "layers": "target_modules",
    }
    foreign_names: ClassVar[dict[str, str]] = {
        "r": "rank",
        "lora_r": "rank",
        "lora_alpha": "alpha",
    }

    rank: int = Field(8, ge=1)
    """Rank of the LoRA matrices."""
    alpha: float = Field(16.0, gt=0)
    """The LoRA product is scaled by alpha / rank."""
    target_modules: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = Field(("attention",), min_length=1)
    """Linear layers of the backbone that get LoRA: attention, all, or regular expressions searched in their names."""

    @field_validator("target_modules")
    @classmethod
    def _check_patterns(cls, layers: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in layers:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a valid regular expression: {error}") from None
        return layers


class StartSettings(Settings):
    """Initial weights and freezing; `from: RUN` is short for `from: {path: RUN}`, `from: scratch` for no path."""

    renamed: ClassVar[dict[str, str]] = {
        "frozen": "embeddings_only_steps",
        "learns": "train",
        "take": "load",
        "thaw": "unfreeze_every",
        "vectors": "word_vectors",
    }
    foreign_names: ClassVar[dict[str, str]] = {
        "model_name_or_path": "path",
        "pretrained": "path",
        "checkpoint": "path",
        "init_from": "path",
    }

    needs: ClassVar[SettingConditions] = {
        "recipe": (when("path", None),),
        "load": (when("path") | when("recipe"),),
        "tokenizer": (when("path") | when("recipe"),),
    }

    path: str | None = None
    """Run whose weights are loaded; none trains from scratch."""
    recipe: str | None = None
    """Rewards: a recipe that is trained first, beside this run, if no path is given."""
    load: Literal["all", "encoder", "embeddings", "nothing"] = "all"
    """Weights to load: all, encoder (no heads), embeddings (of shared tokens), nothing (only shape and tokenizer)."""
    train: Literal["all", "head", "embeddings"] = "all"
    """Fine-tuning: weights that are trained: all, only the head, or the head and the embeddings."""
    tokenizer: Literal["keep", "own"] = "keep"
    """Keep the tokenizer of that run, or train a new one (own); embeddings of shared tokens are copied."""
    embeddings_only_steps: int = Field(0, ge=0)
    """Number of first steps in which only the embeddings are trained."""
    unfreeze_every: Interval | None = None
    """Gradual unfreezing: heads first, then one more layer from the top every N steps (500) or epochs (1epoch)."""
    lora: LoraSettings | None = None
    """LoRA: train low-rank matrices and freeze the weights they are added to."""
    word_vectors: str | None = None
    """Word vectors that initialize the embeddings: a word2vec file (text or binary) or a GloVe text file."""

    @field_validator("path")
    @classmethod
    def _parse_scratch(cls, path: str | None) -> str | None:
        return None if path in ("scratch", "none") else path

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.unfreeze_every is not None and interval_seconds(self.unfreeze_every) is not None:
            raise ValueError(
                "unfreeze_every: layers are unfrozen after steps (500) or epochs (1epoch), not after a time"
            )
        if self.unfreeze_every is not None and (self.embeddings_only_steps or self.train != "all"):
            raise ValueError(
                "unfreeze_every: it already sets what is trained when; leave out embeddings_only_steps and train"
            )
        if self.embeddings_only_steps and (self.train != "all" or self.lora is not None):
            raise ValueError(
                "embeddings_only_steps: only the embeddings are trained in the first steps; leave out train and lora"
            )
        if self.lora is not None and self.train == "head":
            raise ValueError("lora: it trains matrices inside the backbone, which train=head freezes; leave one out")
        return self


class GridSettings(Settings):
    """Hyperparameter grid for fine-tuning: every combination with several seeds; the best on validation is used."""

    renamed: ClassVar[dict[str, str]] = {
        "rate": "learning_rate",
    }

    learning_rate: Annotated[tuple[float, ...], BeforeValidator(_as_list)] = ()
    """Peak learning rates."""
    epochs: Annotated[tuple[float, ...], BeforeValidator(_as_list)] = ()
    """Budgets in passes over the training data."""
    seeds: int = Field(1, ge=1)
    """Runs per combination, with seeds from train.seed upwards."""

    @field_validator("learning_rate", "epochs")
    @classmethod
    def _check_values(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if any(value <= 0 for value in values):
            raise ValueError("expected numbers above 0")
        if len(set(values)) < len(values):
            raise ValueError("a value is listed twice")
        return values

    @property
    def has_several_runs(self) -> bool:
        """Whether there is more than one run to train."""
        return bool(self.learning_rate or self.epochs) or self.seeds > 1
