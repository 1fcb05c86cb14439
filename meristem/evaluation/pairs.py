"""Minimal pairs in BLiMP's form: of two sentences that differ in one thing, is the right one likelier?

As in BLiMP (Warstadt et al. 2020) whole sentences are compared by summed log-probability, and only strictly likelier
counts as right: a tie is a wrong answer. Ties are counted so that they can be seen. A pair may have a `source` (a text)
or an `image` (a file beside the pairs) that both sentences are scored given.
"""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meristem import bounded
from meristem.batch import Model
from meristem.corpus.file_search import TOO_LONG, displayed_name, glob_files
from meristem.corpus.pictures import picture
from meristem.corpus.sources import missing
from meristem.errors import MeristemError
from meristem.generation.given import Prompt
from meristem.generation.score import score
from meristem.tokenizers.tokenizer import Tokenizer

CHUNK = 256  # pairs with a source that are scored together
SHOWN = 5  # broken lines in one message
LARGEST = 16 << 20  # bytes of a file of pairs; BLiMP's have 300 kB
FORM = '{"sentence_good": "The cats sleep.", "sentence_bad": "The cats sleeps."}'


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A right sentence, a wrong one, and what they differ in."""

    good: str
    bad: str
    phenomenon: str
    paradigm: str
    source: str | Path | None = None
    """What both sentences are targets or continuations of; a path is that of an image."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """How many pairs were answered, and how many of them right."""

    pairs: int
    right: int
    ties: int

    @property
    def accuracy(self) -> float:
        """Share of pairs whose right sentence was strictly likelier."""
        return self.right / self.pairs


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """All answers, and those of each phenomenon."""

    overall: Answers
    phenomena: dict[str, Answers]
    paradigms: dict[str, Answers]


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of a .jsonl file, of every such file in a folder, or in a .zip or .tar.gz."""
    pairs: list[Pair] = []
    broken: list[str] = []
    for place, content in _files(path):
        for number, line in enumerate(content.split("\n"), 1):
            if not line.strip():
                continue
            try:
                pairs.append(_pair(line, Path(place)))
            except ValueError as problem:
                broken.append(f"  {place}:{number}: {problem}")
    if broken:
        more = f"\n  and {len(broken) - SHOWN} more" if len(broken) > SHOWN else ""
        raise MeristemError(f"{path}: {len(broken)} lines are no pairs; each line must look like {FORM}\n"
                            + "\n".join(broken[:SHOWN]) + more)
    if not pairs:
        raise MeristemError(f"{path}: no pairs in it; each line of a .jsonl file must look like {FORM}")
    return pairs


def some(pairs: Sequence[Pair], limit: int | None) -> Sequence[Pair]:
    """The first so many of each paradigm."""
    if limit is None:
        return pairs
    met: Counter[str] = Counter()
    kept = []
    for pair in pairs:
        met[pair.paradigm] += 1
        if met[pair.paradigm] <= limit:
            kept.append(pair)
    return kept


def judge(model: Model, tokenizer: Tokenizer, pairs: Sequence[Pair], *, side: int = 0) -> Judgement:
    """Score both sentences of every pair and count; `side` is that of the images the model reads, in pixels."""
    differences = _differences(model, tokenizer, pairs, side)
    return Judgement(
        overall=_answers(["all"] * len(pairs), differences)["all"],
        phenomena=_answers([pair.phenomenon for pair in pairs], differences),
        paradigms=_answers([pair.paradigm for pair in pairs], differences),
    )


def _differences(model: Model, tokenizer: Tokenizer, pairs: Sequence[Pair], side: int) -> list[float]:
    """By how much the right sentence of each pair is likelier; pairs with and without a source are scored apart."""
    out = [0.0] * len(pairs)
    alone = [number for number, pair in enumerate(pairs) if pair.source is None]
    given = [number for number, pair in enumerate(pairs) if pair.source is not None]
    texts = [text for number in alone for text in (pairs[number].good, pairs[number].bad)]
    scored = score(model, tokenizer, texts) if texts else []
    for start in range(0, len(given), CHUNK):  # images are large, and only some are held
        some = given[start : start + CHUNK]
        sources = [source for number in some for source in [_source(pairs[number].source, side)] * 2]
        targets = [text for number in some for text in (pairs[number].good, pairs[number].bad)]
        scored += score(model, tokenizer, sources, text_b=targets)
    for number, good, bad in zip([*alone, *given], scored[::2], scored[1::2], strict=True):
        out[number] = good.logprob - bad.logprob
    return out


def _source(source: str | Path | None, side: int) -> Prompt:
    assert source is not None
    return picture(source, side) if isinstance(source, Path) else source


def _answers(names: Sequence[str], differences: Sequence[float]) -> dict[str, Answers]:
    total = Counter(names)
    right = Counter(name for name, difference in zip(names, differences, strict=True) if difference > 0)
    ties = Counter(name for name, difference in zip(names, differences, strict=True) if difference == 0)
    return {name: Answers(pairs=total[name], right=right[name], ties=ties[name]) for name in sorted(total)}


def _pair(line: str, place: Path) -> Pair:
    """A line's pair: `linguistics_term` is BLiMP's phenomenon, `phenomenon` ZhoBLiMP's, `UID` the paradigm of both.

    A file's name is the default, as in BLiMP's supplement.
    """
    try:
        entry = bounded.row(line)
    except ValueError:
        raise ValueError("not JSON") from None
    if not isinstance(entry, dict):
        raise ValueError("not an object")
    for key in ("sentence_good", "sentence_bad"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise ValueError(f"no {key}")
    for key in ("source", "image"):
        if key in entry and not isinstance(entry[key], str):
            raise ValueError(f"{key} is no text")
    paradigm = entry.get("UID") or displayed_name(place.stem)
    phenomenon = entry.get("linguistics_term") or entry.get("phenomenon") or entry.get("field") or paradigm
    return Pair(good=entry["sentence_good"], bad=entry["sentence_bad"], paradigm=str(paradigm),
                phenomenon=str(phenomenon), source=_given(entry, place))


def _given(entry: dict[str, Any], place: Path) -> str | Path | None:
    """The text both sentences depend on, or the image, which lies beside the file."""
    if entry.get("source") and entry.get("image"):
        raise ValueError("both a source and an image")
    if entry.get("image"):
        if Path(entry["image"]).is_absolute() or ".." in Path(entry["image"]).parts:
            raise ValueError("an image that does not lie beside the file")
        return place.parent / str(entry["image"])
    return entry.get("source") or None


def _files(path: Path) -> Iterator[tuple[str, str]]:
    """(place, content) of every .jsonl there is."""
    if path.is_dir():
        skipped: Counter[str] = Counter()
        files = glob_files(path, "**/*.jsonl", skipped)
        if skipped[TOO_LONG]:
            raise MeristemError(f"{path}: {skipped[TOO_LONG]:,} files or folders have a path too long to be read; move "
                                "them to a folder with a shorter name")
        for file in (one for one in files if not one.name.startswith(".")):
            yield str(file), _text(bounded.content(file, LARGEST), str(file))
    elif path.suffix == ".zip" and path.is_file():
        try:
            with zipfile.ZipFile(path) as archive:
                for name in sorted(one for one in archive.namelist() if _wanted(one)):
                    with archive.open(name) as member:
                        found = member.read(LARGEST + 1)
                    if len(found) > LARGEST:
                        raise MeristemError(f"{path}/{name}: more than {LARGEST >> 20} MiB of pairs in one file")
                    yield f"{path}/{name}", _text(found, f"{path}/{name}")
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error, EOFError) as error:
            raise MeristemError(f"{path}: not readable as a zip archive: {error}") from None
    elif path.name.endswith((".tar.gz", ".tgz", ".tar")) and path.is_file():
        yield from _tar(path)
    elif path.is_file():
        yield str(path), _text(bounded.content(path, LARGEST), str(path))
    else:
        raise MeristemError(f"--pairs: {missing(path)}; give a .jsonl file, a folder, a .zip or a .tar.gz of them")


def _tar(path: Path) -> Iterator[tuple[str, str]]:
    """Those of a tar archive, packed or not, in the order of their names; links and devices are passed over."""
    try:
        with tarfile.open(path) as archive:
            members = sorted((one for one in archive if one.isfile() and _wanted(one.name)), key=lambda one: one.name)
            for member in members:
                if member.size > LARGEST:
                    raise MeristemError(f"{path}/{member.name}: more than {LARGEST >> 20} MiB of pairs in one file")
                data = archive.extractfile(member)
                assert data is not None  # it is a file
                yield f"{path}/{member.name}", _text(data.read(), f"{path}/{member.name}")
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise MeristemError(f"{path}: not readable as a tar archive: {error}") from None


def _wanted(name: str) -> bool:
    """Whether a member of an archive holds pairs: a Mac packs a hidden twin beside every file."""
    return name.endswith(".jsonl") and not name.rpartition("/")[2].startswith(".")


def _text(data: bytes, place: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MeristemError(f"{place}: not UTF-8 (byte {error.start}); save it as UTF-8") from None
