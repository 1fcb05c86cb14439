"""Inputs of the predict command from arguments, files and standard input, in chunks, so that memory use is bounded."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from meristem.config.errors import MeristemError, RecipeError
from meristem.utils import untrusted_files

if TYPE_CHECKING:
    from meristem.evaluation.prediction_requests import PredictionRequest
    from meristem.interfaces.task import Task
    from meristem.labelled.settings import DataSettings

CHUNK_SAMPLES = 512
"""Maximum number of samples per chunk."""
PIPE_READ_BYTES = 1 << 16
"""Maximum number of bytes per read from standard input; a read returns as soon as some are available."""
PIPE = "-"


def read_request_chunks(
    task: Task, data: DataSettings, fields: Mapping[str, Any], file: str | None
) -> Iterator[list[PredictionRequest]]:
    """Chunks of requests: one request from `fields`, or the samples of a file or of standard input."""
    from meristem.evaluation.prediction_requests import PredictionRequest, parse_task_input

    if fields and file is not None:
        raise RecipeError(f"predict: --file and {next(iter(fields))} cannot be combined")
    if fields:
        return iter([[PredictionRequest(task_input=parse_task_input(task, fields), row=fields)]])
    if file is None and sys.stdin.isatty():
        raise RecipeError("predict: give a text, --file FILE, or pipe lines in")
    if file is None or file == PIPE:
        return _read_pipe(task)
    return _split_chunks(_read_file(task, file, data), CHUNK_SAMPLES)


def _read_file(task: Task, source: str, data: DataSettings) -> Iterator[PredictionRequest]:
    """The rows of a file with columns, or the lines of any other file, each with its location."""
    from meristem.data.sources import FileSource, describe_missing_path
    from meristem.evaluation.prediction_requests import PredictionRequest
    from meristem.labelled.load import stream_samples
    from meristem.labelled.row_streams import PLAIN_TEXT_FORMATS, iter_text_lines

    path = Path(source).expanduser()
    is_detected = path.is_file() and data.format in ("auto", "parallel")
    if is_detected and FileSource.from_path(path).format in ("", *PLAIN_TEXT_FORMATS):
        yield from _parse_lines(task, ((f"{path.name}:{number}", line) for number, line in iter_text_lines(path)))
        return
    if ":" not in source and not any(character in source for character in "*?[") and not path.exists():
        raise MeristemError(f"--file: {describe_missing_path(path)}")
    for sample in stream_samples(source, data, task.sample_type, task.signature.column_fields):
        if isinstance(sample, MeristemError):
            yield PredictionRequest(error=str(sample), row=sample.row)
        else:
            yield PredictionRequest(task_input=sample, location=sample.location)


def _read_pipe(task: Task) -> Iterator[list[PredictionRequest]]:
    """Lines of standard input as they arrive: available lines are predicted before waiting for more."""
    number, rest = 0, b""
    stream = cast(BufferedReader, sys.stdin.buffer)
    while True:
        data = stream.read1(PIPE_READ_BYTES)
        *complete_lines, rest = (rest + data).split(b"\n") if data else [rest, b""]
        numbered_lines = [(f"line {number + offset}", line) for offset, line in enumerate(complete_lines, 1)]
        number += len(complete_lines)
        yield from _split_chunks(_parse_lines(task, numbered_lines), CHUNK_SAMPLES)
        if not data:
            return


def _parse_lines(task: Task, lines: Iterable[tuple[str, str | bytes]]) -> Iterator[PredictionRequest]:
    """One sample per line: a text, its fields separated by tabs, or a JSON object; blank lines are skipped."""
    from meristem.evaluation.prediction_requests import PredictionRequest

    for location, line in lines:
        try:
            text = (line.decode("utf-8-sig") if isinstance(line, bytes) else line).rstrip("\r")
        except UnicodeDecodeError:
            yield PredictionRequest(location=location, error=f"{location}: not UTF-8 text")
            continue
        if not text.strip():
            continue
        fields = _parse_object(text) if text.lstrip().startswith("{") else None
        fields = fields if fields is not None else task.signature.split_cells(text.split("\t"))
        yield PredictionRequest(task_input=text if fields is None else fields, location=location)


def _parse_object(text: str) -> dict[str, Any] | None:
    """The JSON object in a line; None if it is not one."""
    try:
        value = untrusted_files.parse_json_line(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _split_chunks(requests: Iterator[PredictionRequest], size: int) -> Iterator[list[PredictionRequest]]:
    while chunk := list(islice(requests, size)):
        yield chunk
