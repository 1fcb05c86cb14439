"""Write a built-in corpus or labelled set as a file: data to follow a tutorial with, or to see what a format is like.

python -m meristem.samples                                                      what there is
python -m meristem.samples "microworld-en?size=500" stories.txt                 texts, an empty line between them
python -m meristem.samples "microworld-tickets?size=800" tickets.csv            rows; also .tsv, .jsonl, .conll
python -m meristem.samples "microworld-tickets?size=4000" old.txt --column message
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from meristem import samples
from meristem.config.errors import MeristemError
from meristem.utils.untrusted_files import to_json

Row = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Write the file that was asked for; without a name, list the samples."""
    parser = argparse.ArgumentParser(
        prog="python -m meristem.samples", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", help="a built-in corpus or labelled set, with options: NAME?size=500&seed=1")
    parser.add_argument("file", nargs="?", type=Path, help="a .txt, .csv, .tsv, .jsonl or .conll file")
    parser.add_argument("--column", help="of a labelled set, write only this column")
    options = parser.parse_args(arguments)
    if options.name is None or options.file is None:
        for name, summary in {**samples.list_corpora(), **samples.list_labelled_sets()}.items():
            print(f"{name:<22} {summary}")
        return 0
    try:
        count = write_file(options.name, options.file, options.column)
    except MeristemError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{options.file}: {count:,} {'texts' if options.file.suffix == '.txt' else 'rows'}")
    return 0


def write_file(name: str, path: Path, column: str | None = None) -> int:
    """Write a sample in the format of the file's extension; returns how many texts or rows."""
    writers = {".txt": _write_texts, ".jsonl": _write_json_lines, ".csv": _write_table, ".tsv": _write_table,
               ".conll": _write_tagged}  # fmt: skip
    if path.suffix not in writers:
        raise MeristemError(f"{path}: the name must end in {', '.join(writers)}")
    rows = [_only(row, column, name) for row in _rows(name)] if column else list(_rows(name))
    path.parent.mkdir(parents=True, exist_ok=True)
    writers[path.suffix](rows, path)
    return len(rows)


def _rows(name: str) -> Iterator[Row]:
    """Rows of a labelled set; of a corpus, each text is a row."""
    if name.partition("?")[0] in samples.list_labelled_sets():
        return samples.labelled_rows(name)
    if samples.corpus_kind(name) == "pairs":
        return ({"source": source, "target": target} for source, target in samples.paired_documents(name))
    return ({"text": text} for text in samples.documents(name))


def _only(row: Row, column: str, name: str) -> Row:
    if column not in row:
        raise MeristemError(f"--column {column}: {name} has {', '.join(row)}")
    return {column: row[column]}


def _write_texts(rows: Iterable[Row], path: Path) -> None:
    texts = (" ".join(value for value in row.values() if isinstance(value, str)) for row in rows)
    path.write_text("\n\n".join(texts) + "\n", encoding="utf-8")


def _write_json_lines(rows: Iterable[Row], path: Path) -> None:
    path.write_text("".join(to_json(row) + "\n" for row in rows), encoding="utf-8")


def _write_table(rows: list[Row], path: Path) -> None:
    """Lists, such as the words of a sentence, are written as JSON."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="," if path.suffix == ".csv" else "\t")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: v if isinstance(v, str) else to_json(v) for key, v in row.items()})


def _write_tagged(rows: Iterable[Row], path: Path) -> None:
    """A word and its tag on each line, an empty line between sentences."""
    sentences = []
    for row in rows:
        if "tags" not in row:
            raise MeristemError(
                f"{path}: only sets with words and tags can be written as .conll; this one has {list(row)}"
            )
        sentences.append("".join(f"{word} {tag}\n" for word, tag in zip(row["words"], row["tags"], strict=True)))
    path.write_text("\n".join(sentences), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
