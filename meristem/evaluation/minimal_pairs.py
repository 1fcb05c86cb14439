"""Minimal pairs in BLiMP's format: is the acceptable sentence of a pair more probable than the other?

As in BLiMP (Warstadt et al. 2020) whole sentences are compared by summed log-probability, and only a strictly higher
one counts as correct: a tie is wrong. Ties are also reported. A pair may have a `source` (a text) or an `image` (a
file beside the pairs) on which both sentences are conditioned.
"""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from meristem.config.errors import MeristemError
from meristem.data.file_search import TOO_LONG, displayed_name, glob_files
from meristem.data.images import load_image_file
from meristem.data.sources import describe_missing_path
from meristem.generation.generation_inputs import Prompt
from meristem.generation.score import score
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils import untrusted_files

PAIRS_PER_CHUNK = 256  # pairs with a source that are scored together
MAX_SHOWN_LINES = 5  # bad lines shown in one message
MAX_FILE_BYTES = 16 << 20  # bytes of a file of pairs; BLiMP's have 300 kB
ARCHIVE_SUFFIXES = (".zip", ".tar.gz", ".tgz", ".tar")
EXAMPLE_LINE = '{"sentence_good": "The cats sleep.", "sentence_bad": "The cats sleeps."}'


@dataclass(frozen=True, kw_only=True)
class MinimalPair:
    """An acceptable sentence, an unacceptable one, and the phenomenon they differ in."""

    good: str
    bad: str
    phenomenon: str
    paradigm: str
    source: str | Path | None = None
    """The source or context of both sentences; a path is that of an image."""


@dataclass(frozen=True, kw_only=True)
class PairCounts:
    """Number of pairs, and of correct and tied ones."""

    pairs: int
    correct: int
    ties: int

    @property
    def accuracy(self) -> float:
        """Share of pairs whose acceptable sentence is strictly more probable."""
        return self.correct / self.pairs


@dataclass(frozen=True, kw_only=True)
class MinimalPairResult:
    """Counts over all pairs, and per phenomenon and paradigm."""

    overall: PairCounts
    phenomena: dict[str, PairCounts]
    paradigms: dict[str, PairCounts]


def read_pairs(path: Path) -> list[MinimalPair]:
    """The pairs of a .jsonl file, or of all .jsonl files in a folder, .zip or .tar.gz."""
    pairs: list[MinimalPair] = []
    bad_lines: list[str] = []
    for location, content in _iter_files(path):
        for number, line in enumerate(content.split("\n"), 1):
            if not line.strip():
                continue
            try:
                pairs.append(_parse_pair(line, Path(location)))
            except ValueError as error:
                bad_lines.append(f"  {location}:{number}: {error}")
    if bad_lines:
        more_text = f"\n  and {len(bad_lines) - MAX_SHOWN_LINES} more" if len(bad_lines) > MAX_SHOWN_LINES else ""
        raise MeristemError(
            f"{path}: {len(bad_lines)} lines are not valid pairs; each line must look like {EXAMPLE_LINE}\n"
            + "\n".join(bad_lines[:MAX_SHOWN_LINES])
            + more_text
        )
    if not pairs:
        raise MeristemError(f"{path}: no pairs found; each line of a .jsonl file must look like {EXAMPLE_LINE}")
    return pairs


def limit_per_paradigm(pairs: Sequence[MinimalPair], limit: int | None) -> Sequence[MinimalPair]:
    """The first `limit` pairs of each paradigm."""
    if limit is None:
        return pairs
    counts: Counter[str] = Counter()
    selected = []
    for pair in pairs:
        counts[pair.paradigm] += 1
        if counts[pair.paradigm] <= limit:
            selected.append(pair)
    return selected


def evaluate_pairs(
    model: Model, tokenizer: Tokenizer, pairs: Sequence[MinimalPair], *, image_size: int = 0
) -> MinimalPairResult:
    """Score both sentences of every pair and count; `image_size` is the model's input size in pixels."""
    logprob_differences = pair_differences(model, tokenizer, pairs, image_size)
    return MinimalPairResult(
        overall=_count_answers(["all"] * len(pairs), logprob_differences)["all"],
        phenomena=_count_answers([pair.phenomenon for pair in pairs], logprob_differences),
        paradigms=_count_answers([pair.paradigm for pair in pairs], logprob_differences),
    )


def pair_differences(
    model: Model, tokenizer: Tokenizer, pairs: Sequence[MinimalPair], image_size: int = 0
) -> list[float]:
    """Log-probability of the acceptable sentence minus that of the other, for each pair.

    Pairs with and without a source are scored separately.
    """
    differences = [0.0] * len(pairs)
    without_source = [index for index, pair in enumerate(pairs) if pair.source is None]
    with_source = [index for index, pair in enumerate(pairs) if pair.source is not None]
    texts = [text for index in without_source for text in (pairs[index].good, pairs[index].bad)]
    scores = score(model, tokenizer, texts) if texts else []
    for start in range(0, len(with_source), PAIRS_PER_CHUNK):  # images are large, so only some are in memory
        chunk = with_source[start : start + PAIRS_PER_CHUNK]
        sources = [source for index in chunk for source in [_load_source(pairs[index].source, image_size)] * 2]
        targets = [text for index in chunk for text in (pairs[index].good, pairs[index].bad)]
        scores += score(model, tokenizer, sources, text_b=targets)
    for index, good, bad in zip([*without_source, *with_source], scores[::2], scores[1::2], strict=True):
        differences[index] = good.logprob - bad.logprob
    return differences


def _load_source(source: str | Path | None, image_size: int) -> Prompt:
    assert source is not None
    return load_image_file(source, image_size) if isinstance(source, Path) else source


def _count_answers(names: Sequence[str], differences: Sequence[float]) -> dict[str, PairCounts]:
    totals = Counter(names)
    correct = Counter(name for name, difference in zip(names, differences, strict=True) if difference > 0)
    ties = Counter(name for name, difference in zip(names, differences, strict=True) if difference == 0)
    return {name: PairCounts(pairs=totals[name], correct=correct[name], ties=ties[name]) for name in sorted(totals)}


def _parse_pair(line: str, path: Path) -> MinimalPair:
    """Parse a line: `linguistics_term` is BLiMP's phenomenon, `phenomenon` ZhoBLiMP's, `UID` the paradigm of both.

    The file name is the default, as in BLiMP's supplement.
    """
    try:
        entry = untrusted_files.parse_json_line(line)
    except ValueError:
        raise ValueError("not JSON") from None
    if not isinstance(entry, dict):
        raise ValueError("not a JSON object")
    for key in ("sentence_good", "sentence_bad"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise ValueError(f"no {key}")
    for key in ("source", "image"):
        if key in entry and not isinstance(entry[key], str):
            raise ValueError(f"{key} is not a string")
    paradigm = entry.get("UID") or displayed_name(path.stem)
    phenomenon = entry.get("linguistics_term") or entry.get("phenomenon") or entry.get("field") or paradigm
    return MinimalPair(
        good=entry["sentence_good"],
        bad=entry["sentence_bad"],
        paradigm=str(paradigm),
        phenomenon=str(phenomenon),
        source=_pair_source(entry, path),
    )


def _pair_source(entry: dict[str, Any], path: Path) -> str | Path | None:
    """The source text of both sentences, or the image beside the file."""
    if entry.get("source") and entry.get("image"):
        raise ValueError("both a source and an image")
    if entry.get("image"):
        if Path(entry["image"]).is_absolute() or ".." in Path(entry["image"]).parts:
            raise ValueError("an image outside the folder of the file")
        return path.parent / str(entry["image"])
    return entry.get("source") or None


def _iter_files(path: Path) -> Iterator[tuple[str, str]]:
    """(location, content) of every .jsonl file."""
    if path.is_dir():
        skipped: Counter[str] = Counter()
        files = glob_files(path, "**/*.jsonl", skipped)
        if skipped[TOO_LONG]:
            raise MeristemError(
                f"{path}: {skipped[TOO_LONG]:,} files or folders have a path too long to read; move "
                "them to a folder with a shorter name"
            )
        for file in (item for item in files if not item.name.startswith(".")):
            yield str(file), _decode_utf8(untrusted_files.read_bytes(file, MAX_FILE_BYTES), str(file))
    elif path.name.endswith(ARCHIVE_SUFFIXES) and path.is_file():
        yield from _iter_archive(path)
    elif path.is_file():
        yield str(path), _decode_utf8(untrusted_files.read_bytes(path, MAX_FILE_BYTES), str(path))
    else:
        raise MeristemError(
            f"--pairs: {describe_missing_path(path)}; give a .jsonl file, a folder, a .zip or a .tar.gz of them"
        )


def _iter_archive(path: Path) -> Iterator[tuple[str, str]]:
    """The .jsonl files of a zip or tar archive, compressed or not, sorted by name; links and devices are skipped."""
    kind = "zip" if path.suffix == ".zip" else "tar"
    try:
        for name, file in _zip_members(path) if kind == "zip" else _tar_members(path):
            content = file.read(MAX_FILE_BYTES + 1)
            if len(content) > MAX_FILE_BYTES:
                raise MeristemError(f"{path}/{name}: more than {MAX_FILE_BYTES >> 20} MiB of pairs in one file")
            yield f"{path}/{name}", _decode_utf8(content, f"{path}/{name}")
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise MeristemError(f"{path}: not readable as a {kind} archive: {error}") from None


def _zip_members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(path) as archive:
        for name in sorted(filter(_is_pairs_file, archive.namelist())):
            with archive.open(name) as file:
                yield name, file


def _tar_members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(path) as archive:
        members = [member for member in archive if member.isfile() and _is_pairs_file(member.name)]
        for member in sorted(members, key=lambda member: member.name):
            file = archive.extractfile(member)
            assert file is not None  # it is a regular file
            yield member.name, file


def _is_pairs_file(name: str) -> bool:
    """Whether an archive member has pairs: macOS adds a hidden twin to every file."""
    return name.endswith(".jsonl") and not name.rpartition("/")[2].startswith(".")


def _decode_utf8(data: bytes, location: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MeristemError(f"{location}: not UTF-8 (byte {error.start}); save it as UTF-8") from None
