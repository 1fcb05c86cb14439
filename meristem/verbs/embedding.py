"""The embed command: vectors of texts, tokens or words on the screen, as JSON lines, or in a file."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from meristem import bounded, options
from meristem.errors import MeristemError, RecipeError
from meristem.terminal import emit
from meristem.verbs.screen import opened, print_json, say

if TYPE_CHECKING:
    from meristem.api import Loaded
    from meristem.evaluation.embedding import Layer, Pooling
    from meristem.evaluation.token_vectors import Level

CHUNK = 256
"""Texts that are embedded together."""
SHOWN = 4
"""Numbers of a vector that the screen shows."""
ENDINGS = (".npy", ".jsonl", ".tsv")


def embed(
    run: options.Run,
    text: options.Embedded = None,
    file: options.Texts = None,
    level: options.EmbedLevel = "text",
    layer: options.EmbedLayer = None,
    pooling: options.EmbedPooling = "mean",
    out: options.EmbedOut = None,
    which: options.Which = None,
    json_: options.Json = False,
) -> None:
    """Vectors of texts, of their tokens or of their words.

    meristem embed runs/bert-mini "The old gardener sat there." --json
    meristem embed runs/bert-mini --file texts.txt --out vectors.npy
    meristem embed runs/elmo-mini "The river bank" --level word --layer mix --out words.tsv
    cat texts.txt | meristem embed runs/bert-mini --layer 2 --json > vectors.jsonl

    --json prints one object per text: {"index", "text", "embedding"}, or {"index", "text", "tokens": [{"token",
    "start", "end", "embedding"}, …]}. A .npy file of tokens or words holds them one after another, and FILE.units.tsv
    beside it names each row. Blank lines are passed over; a text longer than the model is cut, which is said.
    """
    if out is not None and out.suffix not in ENDINGS:
        raise RecipeError(f"--out {out}: expected a name that ends in {', '.join(ENDINGS)}")
    if level != "text" and pooling != "mean":
        raise RecipeError(f"--pooling: makes one vector of a text; --level {level} gives each of them")
    chosen, texts = _layer(layer), _texts(text, file)
    loaded = opened(run, which)
    records = _records(loaded, texts, level, chosen, pooling)
    if out is not None:
        _write(records, out, level)
        say(f"wrote {out}")
        return
    for record in records:
        if json_:
            print_json(record)
        else:
            _show(record, level)


def _layer(layer: str | None) -> Layer:
    if layer is None or layer == "mix":
        return None if layer is None else "mix"
    try:
        return int(layer)
    except ValueError:
        raise RecipeError(f"--layer {layer}: expected a number or mix") from None


def _texts(text: str | None, file: Path | None) -> Iterator[str]:
    """The text that was given, or the lines of a file or a pipe that hold something."""
    if text is not None and file is not None:
        raise RecipeError("embed: a text and --file exclude each other")
    if text is not None:
        return iter([text])
    if file is None and sys.stdin.isatty():
        raise RecipeError("embed: give a text, --file with one text a line, or pipe lines in")
    return _lines(file)


def _lines(file: Path | None) -> Iterator[str]:
    name = "standard input" if file is None else str(file)
    try:
        source = sys.stdin.buffer if file is None else file.open("rb")
        with source:
            for number, line in enumerate(source, 1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip("\r\n")
                if text.strip():
                    yield text
    except UnicodeDecodeError:
        raise MeristemError(f"{name}:{number}: not UTF-8 text") from None
    except OSError as error:
        raise MeristemError(f"{name}: {error.strerror or error}") from None


def _records(
    loaded: Loaded, texts: Iterator[str], level: Level, layer: Layer, pooling: Pooling
) -> Iterator[dict[str, Any]]:
    """One record per text, as --json prints it; a chunk of texts is in memory at a time."""
    done = 0
    while some := list(islice(texts, CHUNK)):
        for offset, text in enumerate(some):
            if left := loaded.truncated(text):
                say(f"text {done + offset + 1}: its last {left:,} tokens do not fit the model and were left out")
        for record in _embedded(loaded, some, level, layer, pooling):
            yield {"index": done, **record}
            done += 1


def _embedded(
    loaded: Loaded, texts: list[str], level: Level, layer: Layer, pooling: Pooling
) -> Iterator[dict[str, Any]]:
    if level == "text":
        vectors = loaded.embed(texts, layer=layer, pooling=pooling).float().cpu().tolist()
        yield from ({"text": text, "embedding": vector} for text, vector in zip(texts, vectors, strict=True))
        return
    for one in loaded.embed(texts, level=level, layer=layer):
        yield {"text": one.text, f"{level}s": one.plain()}


def _show(record: dict[str, Any], level: Literal["text", "token", "word"]) -> None:
    """A line per vector: how it begins, and whose it is."""
    rows = [record] if level == "text" else record[f"{level}s"]
    for row in rows:
        vector = row["embedding"]
        begins = " ".join(f"{number:8.4f}" for number in vector[:SHOWN])
        emit(f"{begins} …  ({len(vector)})  {row[level]}")


def _write(records: Iterator[dict[str, Any]], out: Path, level: Level) -> None:
    """All records into a file, in the format its name ends in."""
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".npy":
        _write_npy(records, out, level)
        return
    with out.open("w", encoding="utf-8", newline="") as file:
        if out.suffix == ".tsv":
            _write_tsv(records, file, level)
        else:
            file.writelines(bounded.to_json(record) + "\n" for record in records)


def _rows(records: Iterator[dict[str, Any]], level: Level) -> Iterator[tuple[list[Any], list[float]]]:
    """What names each vector, and the vector."""
    for record in records:
        if level == "text":
            yield [record["text"]], record["embedding"]
        else:
            for row in record[f"{level}s"]:
                yield [record["index"], row[level], row["start"], row["end"]], row["embedding"]


def _names(level: Level) -> list[str]:
    return ["text"] if level == "text" else ["text", level, "start", "end"]


def _write_tsv(records: Iterator[dict[str, Any]], file: TextIO, level: Level) -> None:
    """A header, then a row per vector: what names it, and a column per dimension."""
    writer = csv.writer(file, delimiter="\t", lineterminator="\n")
    for number, (names, vector) in enumerate(_rows(records, level)):
        if number == 0:
            writer.writerow([*_names(level), *range(len(vector))])
        writer.writerow([*names, *vector])


def _write_npy(records: Iterator[dict[str, Any]], out: Path, level: Level) -> None:
    """[texts, width], or [tokens or words of all texts, width] with a table beside it that names the rows."""
    import numpy as np

    vectors: list[Any] = []
    names: list[list[Any]] = []
    for name, vector in _rows(records, level):
        names.append(name)
        vectors.append(np.array(vector, np.float32))
    np.save(out, np.stack(vectors) if vectors else np.zeros((0, 0), np.float32))
    if level != "text":
        with out.with_suffix(".units.tsv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter="\t", lineterminator="\n").writerows([_names(level), *names])
