"""The predict command: predictions printed or written chunk by chunk in input order, errors counted and reported."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from meristem.cli.output import print_json, print_message
from meristem.cli.prediction_input import read_request_chunks
from meristem.cli.prediction_output import format_prediction, format_ranking
from meristem.cli.predictions_file import PredictionsFile, prediction_record
from meristem.config.errors import MeristemError, RecipeError
from meristem.utils.terminal import emit

if TYPE_CHECKING:
    from meristem.api import LoadedModel
    from meristem.evaluation.prediction_requests import Prediction
    from meristem.interfaces.task import Task

MAX_NAMED_ERRORS = 20
"""Samples whose error is printed; further ones are only counted."""
PROGRESS_SECONDS = 5.0
"""Seconds between progress messages."""


@dataclass
class PredictionProgress:
    """Number of predictions, and the errors so far."""

    num_predicted: int = 0
    errors: list[str] = field(default_factory=list)
    start_time: float = field(default_factory=time.monotonic)
    last_report_time: float = field(default_factory=time.monotonic)

    def add(self, prediction: Prediction) -> None:
        """Count a prediction; the first errors are printed at once."""
        if not prediction.error:
            self.num_predicted += 1
            return
        self.errors.append(prediction.error)
        if len(self.errors) <= MAX_NAMED_ERRORS:
            print_message(prediction.error)

    def report_progress(self) -> None:
        """Print the number of predictions, at most every `PROGRESS_SECONDS`."""
        now = time.monotonic()
        if now - self.last_report_time >= PROGRESS_SECONDS:
            print_message(
                f"{self.num_predicted:,} predictions, {self.num_predicted / (now - self.start_time):,.0f} per second"
            )
            self.last_report_time = now

    def finish(self) -> None:
        """Report errors and exit with code 1 if there were any."""
        if self.errors:
            omitted = f" (the first {MAX_NAMED_ERRORS} are listed above)" if len(self.errors) > MAX_NAMED_ERRORS else ""
            print_message(f"{self.num_predicted:,} predictions, {len(self.errors):,} failed{omitted}")
            raise typer.Exit(1)


def predict(
    loaded: LoadedModel,
    parts: Mapping[str, Any],
    file: str | None,
    *,
    top: int | None,
    as_json: bool,
    out: Path | None = None,
    abstain_below: float | None = None,
) -> None:
    """Predict for the fields in `parts`, a file, or standard input; print the predictions, or write them to `out`."""
    from meristem.evaluation.abstention import check_abstention
    from meristem.evaluation.prediction_requests import predict_chunks

    task, progress = loaded.task(), PredictionProgress()
    check_abstention(task, abstain_below)
    if abstain_below is not None and top is not None:
        raise RecipeError("--abstain-below: cannot be combined with --top, which gives several answers")
    with nullcontext() if out is None else PredictionsFile(out) as predictions_file:
        for chunk in predict_chunks(
            loaded.loaded_run.learner, task, read_request_chunks(task, loaded.recipe.data_settings, parts, file)
        ):
            for prediction in chunk:
                if prediction.error and parts:
                    raise MeristemError(prediction.error)
                progress.add(prediction)
                if predictions_file is None:
                    _print_prediction(task, prediction, top, as_json, abstain_below)
            if predictions_file is not None:
                predictions_file.write(
                    [
                        prediction_record(
                            prediction.row,
                            _format_prediction(task, prediction, top, abstain_below),
                            prediction.error,
                        )
                        for prediction in chunk
                    ]
                )
            progress.report_progress()
    if out is not None:
        print_message(f"wrote {out}")
    progress.finish()


def _format_prediction(task: Task, prediction: Prediction, top: int | None, abstain_below: float | None) -> Any:
    """The formatted prediction; None after an error."""
    from meristem.evaluation.abstention import withhold_uncertain

    if prediction.error or prediction.sample is None:
        return None
    if abstain_below is not None:
        output = task.format_output(prediction.output, prediction.sample)
        return withhold_uncertain(task.parts.output.kind, output, abstain_below)
    return (
        task.format_output(prediction.output, prediction.sample)
        if top is None
        else task.format_top_outputs(prediction.output, prediction.sample, top)
    )


def _print_prediction(
    task: Task, prediction: Prediction, top: int | None, as_json: bool, abstain_below: float | None
) -> None:
    if prediction.error or prediction.sample is None:
        if as_json:
            print_json({"error": prediction.error})
        return
    output = _format_prediction(task, prediction, top, abstain_below)
    if as_json:
        print_json(output)
        return
    format_for_terminal = format_prediction if top is None else format_ranking
    emit(format_for_terminal(task.parts.output, output, prediction.sample.inputs), flush=True)
