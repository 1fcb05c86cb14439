"""A task run measured on labelled samples: those it held out, or a file that is read like its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meristem.checkpoint.revive import Revived
from meristem.errors import MeristemError
from meristem.evaluation.answering import answer, judge
from meristem.evaluation.carried import tasks_of, the_task
from meristem.evaluation.reported import form, reported
from meristem.labelled.columns import MissingColumnError
from meristem.labelled.reading import read, splits
from meristem.labelled.settings import DataSettings
from meristem.settings import build
from meristem.task import Sample, Task


def evaluate_task(
    revived: Revived,
    *,
    data: str | None = None,
    columns: Mapping[str, Any] | None = None,
    limit: int | None = None,
    task: str | None = None,
    report: str | Path | None = None,
) -> dict[str, Any]:
    """The task's numbers with their intervals, and what is strange about the samples, as one plain mapping.

    `data` is read by the columns the run learned from, unless `columns` says otherwise (label → its name there).
    """
    if report is not None:
        form(Path(report))
    chosen = the_task(tasks_of(revived), revived, task)
    notices: list[str] = []
    samples, split, where = _samples(revived, chosen, data, columns or {}, notices)
    samples = samples[:limit]
    found = answer(revived.learner, samples, task=chosen)
    return reported(
        revived,
        chosen,
        judge(chosen, found.answers, samples),
        split=split,
        data=where,
        notices=[*notices, *chosen.strange(samples)],
        losses=found.losses,
        report=report,
    )


def _samples(
    revived: Revived, task: Task, data: str | None, columns: Mapping[str, Any], notices: list[str]
) -> tuple[list[Sample], str, str]:
    """Samples, what they are of the run's, and where they are from; `notices` is added to."""
    settings = revived.recipe.data or DataSettings.model_validate({})
    if data is not None:
        named = build(DataSettings, {**settings.model_dump(), **columns}, "columns")
        assert isinstance(named, DataSettings)
        try:
            return read(data, named, task.shape, notices=notices), "data", data
        except MissingColumnError as error:
            raise MeristemError(f"{error}. Say which it is with --columns {error.setting}=COLUMN") from None
    if columns:
        raise MeristemError("--columns: names columns of a file; give it with --data FILE")
    if revived.recipe.task is None:
        raise MeristemError(f"{revived.run.path} has no labelled data of its own: give some with --data FILE")
    try:
        found = splits(settings, task.shape)
    except (MeristemError, OSError) as error:
        raise MeristemError(
            f"the samples {revived.run.path} held out cannot be read again ({error}). Give some with --data FILE"
        ) from None
    split = next((name for name in ("test", "validation") if found.samples.get(name)), None)
    if split is None:
        raise MeristemError(f"{revived.run.path} held no samples out (data.held_out is 0). Give some with --data FILE")
    notices += found.notices
    return found.samples[split], split, f"the run's own {split} samples"
