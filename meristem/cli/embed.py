"""The embed command: embeddings of texts, tokens or words, printed, as JSON lines, or in a file."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from meristem.cli import options
from meristem.cli.output import load_model, print_json, print_message
from meristem.config.errors import MeristemError, RecipeError
from meristem.utils import untrusted_files
from meristem.utils.terminal import emit

if TYPE_CHECKING:
    from meristem.api import LoadedModel
    from meristem.evaluation.text_embeddings import Layer, Pooling
    from meristem.evaluation.token_embeddings import Level

CHUNK_TEXTS = 256
"""Texts per chunk."""
SHOWN_VALUES = 4
"""Values of a vector printed in the terminal."""
SUFFIXES = (".npy", ".jsonl", ".tsv")


def embed(
    run: options.RunPath,
    text: options.EmbedText = None,
    file: options.TextFile = None,
    level: options.EmbedLevel = "text",
    layer: options.EmbedLayer = None,
    pooling: options.EmbedPooling = None,
    out: options.EmbedOut = None,
    precision: options.InferencePrecision = "auto",
    which: options.WhichCheckpoint = None,
    json_: options.Json = False,
) -> None:
    """Embeddings of texts, tokens or words.

    meristem embed runs/bert-mini "The old gardener sat there." --json
    meristem embed runs/bert-mini --file texts.txt --out vectors.npy
    meristem embed runs/elmo-mini "The river bank" --level word --layer mix --out words.tsv
    cat texts.txt | meristem embed runs/bert-mini --layer 2 --json > vectors.jsonl

    --json prints one object per text: {"index", "text", "embedding"}, or {"index", "text", "tokens": [{"token",
    "start", "end", "embedding"}, …]}. With --level token or word, a .npy file has one row per token or word of all
    texts, and FILE.units.tsv names the rows. Blank lines are skipped; a text longer than the model's maximum length is
    truncated with a warning.
    """
    if out is not None and out.suffix not in SUFFIXES:
        raise RecipeError(f"--out {out}: expected a name that ends in {', '.join(SUFFIXES)}")
    if level != "text" and pooling is not None:
        raise RecipeError(f"--pooling: needs --level text; --level {level} has one vector per {level}")
    layer_choice, texts = _parse_layer(layer), _read_texts(text, file)
    loaded = load_model(run, which, precision=precision)
    records = _records(loaded, texts, level, layer_choice, pooling)
    if out is not None:
        _write(records, out, level)
        print_message(f"wrote {out}")
        return
    for record in records:
        if json_:
            print_json(record)
        else:
            _print_record(record, level)


def _parse_layer(layer: str | None) -> Layer:
    if layer is None or layer == "mix":
        return None if layer is None else "mix"
    try:
        return int(layer)
    except ValueError:
        raise RecipeError(f"--layer {layer}: expected a number or mix") from None


def _read_texts(text: str | None, file: Path | None) -> Iterator[str]:
    """The text, or the lines of a file or of standard input that are not blank."""
    if text is not None and file is not None:
        raise RecipeError("embed: a text and --file cannot be combined")
    if text is not None:
        return iter([text])
    if file is None and sys.stdin.isatty():
        raise RecipeError("embed: give a text, --file with one text per line, or pipe lines in")
    return _read_lines(file)


def _read_lines(file: Path | None) -> Iterator[str]:
    name = "standard input" if file is None else str(file)
    try:
        source = sys.stdin.buffer if file is None else file.open("rb")
        with source:
            for line_number, line in enumerate(source, 1):
                text = line.decode("utf-8-sig" if line_number == 1 else "utf-8").strip("\r\n")
                if text.strip():
                    yield text
    except UnicodeDecodeError:
        raise MeristemError(f"{name}:{line_number}: not UTF-8 text") from None
    except OSError as error:
        raise MeristemError(f"{name}: {error.strerror or error}") from None


def _records(
    loaded: LoadedModel, texts: Iterator[str], level: Level, layer: Layer, pooling: Pooling | None
) -> Iterator[dict[str, Any]]:
    """One record per text, as printed by --json; one chunk of texts is in memory at a time."""
    index = 0
    while chunk := list(islice(texts, CHUNK_TEXTS)):
        for offset, text in enumerate(chunk):
            if num_truncated := loaded.count_truncated_tokens(text):
                print_message(
                    f"text {index + offset + 1}: longer than the model's maximum length; "
                    f"its last {num_truncated:,} tokens were left out"
                )
        for record in _embed_chunk(loaded, chunk, level, layer, pooling):
            yield {"index": index, **record}
            index += 1


def _embed_chunk(
    loaded: LoadedModel, texts: list[str], level: Level, layer: Layer, pooling: Pooling | None
) -> Iterator[dict[str, Any]]:
    if level == "text":
        vectors = loaded.embed(texts, layer=layer, pooling=pooling).float().cpu().tolist()
        yield from ({"text": text, "embedding": vector} for text, vector in zip(texts, vectors, strict=True))
        return
    for text_vectors in loaded.embed(texts, level=level, layer=layer):
        yield {"text": text_vectors.text, f"{level}s": text_vectors.plain()}


def _print_record(record: dict[str, Any], level: Literal["text", "token", "word"]) -> None:
    """One line per vector: its first values, its size, and its text, token or word."""
    rows = [record] if level == "text" else record[f"{level}s"]
    for row in rows:
        vector = row["embedding"]
        first_values = " ".join(f"{number:8.4f}" for number in vector[:SHOWN_VALUES])
        emit(f"{first_values} …  ({len(vector)})  {row[level]}")


def _write(records: Iterator[dict[str, Any]], out: Path, level: Level) -> None:
    """Write all records to a file, in the format of its suffix."""
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".npy":
        _write_npy(records, out, level)
        return
    with out.open("w", encoding="utf-8", newline="") as file:
        if out.suffix == ".tsv":
            _write_tsv(records, file, level)
        else:
            file.writelines(untrusted_files.to_json(record) + "\n" for record in records)


def _iter_vectors(records: Iterator[dict[str, Any]], level: Level) -> Iterator[tuple[list[Any], list[float]]]:
    """(cells that identify the vector, vector) of each text, token or word."""
    for record in records:
        if level == "text":
            yield [record["text"]], record["embedding"]
        else:
            for row in record[f"{level}s"]:
                yield [record["index"], row[level], row["start"], row["end"]], row["embedding"]


def _column_names(level: Level) -> list[str]:
    return ["text"] if level == "text" else ["text", level, "start", "end"]


def _write_tsv(records: Iterator[dict[str, Any]], file: TextIO, level: Level) -> None:
    """A header, then one row per vector: identifying cells, and one column per dimension."""
    writer = csv.writer(file, delimiter="\t", lineterminator="\n")
    for index, (names, vector) in enumerate(_iter_vectors(records, level)):
        if index == 0:
            writer.writerow([*_column_names(level), *range(len(vector))])
        writer.writerow([*names, *vector])


def _write_npy(records: Iterator[dict[str, Any]], out: Path, level: Level) -> None:
    """Save an array [texts, hidden size], or [tokens or words of all texts, hidden size] and a TSV of its rows."""
    import numpy as np

    vectors: list[Any] = []
    names: list[list[Any]] = []
    for name, vector in _iter_vectors(records, level):
        names.append(name)
        vectors.append(np.array(vector, np.float32))
    np.save(out, np.stack(vectors) if vectors else np.zeros((0, 0), np.float32))
    if level != "text":
        with out.with_suffix(".units.tsv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter="\t", lineterminator="\n").writerows([_column_names(level), *names])
