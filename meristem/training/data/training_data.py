"""Training data interface for pretraining, fine-tuning and rewards; and creating the folder of a run."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from meristem.checkpoint import disk, provenance
from meristem.checkpoint.folder_layout import list_steps
from meristem.checkpoint.run_folder import RUN_FILES, RunFolder
from meristem.config.errors import MeristemError
from meristem.config.recipe import Recipe, recipe_yaml
from meristem.dataset.feed import Feed
from meristem.distributed.process_group import DistributedContext
from meristem.interfaces.backbone import Model
from meristem.interfaces.objective import Objective
from meristem.learning.learner import Learner
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.run_logger import RunLogger
from meristem.utils import untrusted_files

EvaluateFn = Callable[[], dict[str, float]]
MetricsCallback = Callable[[int, Mapping[str, float], float], None]
"""Called with the step, its metrics and the estimated seconds left, whenever training metrics are written."""

CREATING_MARKER = ".begun"
"""Marks a run folder that is being created, so that one killed meanwhile is not taken for someone else's folder."""


class TrainingData(ABC):
    """Data that a run trains on: tokenizer, batches, evaluation, and descriptions for the log and the model card."""

    tokenizer: Tokenizer
    distributed: DistributedContext
    """The processes that share the data."""

    @property
    def shard_keys(self) -> Mapping[str, str]:
        """Source → cache key of its shards, recorded so that a resumed run reads the same ones."""
        return {}

    @property
    def record_files(self) -> Mapping[str, str]:
        """Files that describe the data, written into the folder of a new run: name → content."""
        return {}

    @property
    @abstractmethod
    def num_tokens(self) -> int:
        """Number of training tokens."""

    @abstractmethod
    def build_feeds(
        self, recipe: Recipe, objectives: Mapping[str, Objective], *, split: str, seed: int
    ) -> dict[str, Feed]:
        """Source → feed of batches of a split; sources without that split are left out."""

    @abstractmethod
    def build_evaluator(
        self, recipe: Recipe, learner: Learner, split: str, log: Callable[[str], None]
    ) -> EvaluateFn | None:
        """A function that returns metrics on a split; None if there is too little data."""

    def tokens_per_step(self, feed: Feed) -> float:
        """Mean number of tokens in a step."""
        return feed.batch_size * feed.tokens_per_sample

    def evaluation_count(self, recipe: Recipe, planned_tokens: float) -> int:
        """Number of evaluations in a run of `planned_tokens` tokens without `train.evaluate_every`."""
        return 10

    @property
    def selection_metric(self) -> str:
        """Metric by which evaluations are compared: lower is better for `loss`, higher for any other."""
        return "loss"

    def selection_loss(self, metrics: Mapping[str, float]) -> float:
        """The selection metric with its sign set so that lower is better."""
        return selection_loss(self.selection_metric, metrics)

    def iter_texts(self) -> Iterator[str]:
        """Training texts, enough to estimate word frequencies."""
        return iter(())

    @abstractmethod
    def describe_data(self) -> list[str]:
        """Log lines about the data, its size first."""

    @abstractmethod
    def preview_samples(self, feed: Feed, ids: Sequence[int]) -> list[str]:
        """Beginnings of samples, for messages about them."""

    @abstractmethod
    def example_commands(self, run_path: str, model: Model) -> list[str]:
        """Commands that show what the model can do; `run_path` is quoted for the shell."""

    @abstractmethod
    def source_lines(self) -> list[str]:
        """One line per source of data, for the model card."""

    def build_metrics_callback(self, learner: Learner, logger: RunLogger, total: int) -> MetricsCallback | None:
        """A callback that shows more than the progress bar during training, if any."""
        return None

    def write_reports(self, run: RunFolder, learner: Learner, logger: RunLogger) -> list[str]:
        """Write the reports of a finished run; returns lines for the model card."""
        return []


def selection_loss(metric: str, metrics: Mapping[str, float]) -> float:
    """The value of `metric` with its sign set so that lower is better."""
    return metrics["loss"] if metric == "loss" else -metrics[metric]


def refuse_foreign_folder(out: Path) -> None:
    """Raise if `out` is a file or a folder that holds anything but a run that was being created."""
    if out.is_file() or (out.exists() and any(out.iterdir()) and not (out / CREATING_MARKER).exists()):
        kind = "a file" if out.is_file() else "a folder that holds other files"
        raise MeristemError(f"{out} is {kind}: choose another folder with --out")


def clear_unstarted(run: RunFolder) -> bool:
    """Whether a run never took a step, so that there is nothing to resume; its files are then removed."""
    if list_steps(run.checkpoints) or (run.metrics_path.is_file() and run.metrics_path.stat().st_size):
        return False
    if any(run.checkpoints.iterdir()):  # not a checkpoint
        return False
    with run.hold_lock():
        (run.path / CREATING_MARKER).touch()
        for name in RUN_FILES:
            if name != run.lock_path.name:
                (run.path / name).unlink(missing_ok=True)
        run.checkpoints.rmdir()
        shutil.rmtree(run.path / "tensorboard", ignore_errors=True)
    return True


def create_run(out: Path, recipe: Recipe, training_data: TrainingData) -> RunFolder:
    """Create the run folder with everything that resuming needs."""
    out.mkdir(parents=True, exist_ok=True)
    (out / CREATING_MARKER).touch()
    run = RunFolder(out)
    training_data.tokenizer.save(run.tokenizer_path)
    disk.atomic_write(
        run.shards_path, [untrusted_files.to_json(dict(training_data.shard_keys), indent=1, ascii_only=True).encode()]
    )
    for name, content in training_data.record_files.items():
        disk.atomic_write(out / name, [content.encode()])
    provenance.sign_run(run, recipe)
    run = RunFolder.create(out, recipe_yaml(recipe), run.tokenizer_path)
    (out / CREATING_MARKER).unlink(missing_ok=True)
    return run
