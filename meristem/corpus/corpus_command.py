"""The `meristem corpus` command: one pass over a corpus, with a report and, on request, the documents as JSON lines."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from meristem.config.errors import MeristemError, RecipeError
from meristem.config.overrides import apply_overrides
from meristem.config.validation import build_settings
from meristem.corpus.document import Document
from meristem.corpus.paired_text import IMAGE_SEPARATOR, PAIR_SEPARATOR, split_pair
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.pipeline import ReadProgress as Read
from meristem.corpus.processed_corpus import processed_corpus_dir
from meristem.corpus.report.corpus_report import CorpusReport
from meristem.corpus.report.sample_trial import CorpusSampler
from meristem.corpus.report.token_count import TokenCounter
from meristem.corpus.settings import CorpusSettings
from meristem.data.images import BUILTIN_REFERENCE
from meristem.utils import untrusted_files

REPORT_FILE = "report.html"


def run_corpus_command(
    source: str,
    overrides: Sequence[str],
    console: Console,
    *,
    out: Path | None = None,
    page_path: Path | None = None,
    token_counter: TokenCounter | None = None,
) -> CorpusReport:
    """Read everything once; with `out`, write kept documents to one JSON lines file per split, and the report beside.

    `token_counter` counts the tokens of the kept documents under a tokenizer.
    """
    sections = apply_overrides({"corpus": {"source": source}}, overrides)
    if set(sections) != {"corpus"}:
        raise RecipeError(f"corpus accepts only corpus.… settings, not {', '.join(sorted(set(sections) - {'corpus'}))}")
    settings = build_settings(CorpusSettings, sections["corpus"], "corpus")
    assert isinstance(settings, CorpusSettings)
    page_paths = [path for path in (page_path, out and out / REPORT_FILE) if path]
    _check_writable(page_paths, out)
    sampler = CorpusSampler(settings)
    with ReadProgressBar(console, "reading") as bar:
        reader = CorpusReader(settings, progress=bar.show_progress, folder=processed_corpus_dir(settings))
        documents = sampler.observe(token_counter.observe(reader) if token_counter else reader)
        try:
            if out is None:
                for _ in documents:
                    pass
            else:
                _write_splits(documents, out)
        except MeristemError:
            if page_path and reader.account.read:  # nothing was kept: the report shows why
                _write_pages(_make_report(reader, sampler, token_counter), [page_path])
            raise
    corpus_report = _make_report(reader, sampler, token_counter)
    _write_pages(corpus_report, page_paths)
    for warning in reader.account.warnings:
        console.print(f"  {warning}", highlight=False, markup=False, soft_wrap=True)
    return corpus_report


def _check_writable(page_paths: Sequence[Path], out: Path | None) -> None:
    """Check before a long pass that its results can be written."""
    for path in page_paths:
        if path.is_dir():
            raise RecipeError(f"--report {path}: is a folder; name a file, such as {path / REPORT_FILE}")
    for folder in (*(path.parent for path in page_paths), *([out] if out else [])):
        existing = next(candidate for candidate in (folder, *folder.absolute().parents) if candidate.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK):
            raise RecipeError(f"{folder}: cannot be written to, because of {existing}")


def _make_report(reader: CorpusReader, sampler: CorpusSampler, token_counter: TokenCounter | None) -> CorpusReport:
    reader.account.passages = sampler.repeated_lines
    token_count = None if token_counter is None else token_counter.total
    return CorpusReport(
        account=reader.account, findings=sampler.findings(), settings=reader.settings, tokens=token_count
    )


def _write_pages(corpus_report: CorpusReport, paths: Sequence[Path]) -> None:
    from meristem.corpus.report.report_html import render_report
    from meristem.drawing.html_page import current_timestamp

    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render_report(corpus_report, date=current_timestamp()), encoding="utf-8")


def _write_splits(documents: Iterable[Document], out: Path) -> None:
    """Write one file per split; a file gets its final name only when it is complete."""
    out.mkdir(parents=True, exist_ok=True)
    names = ("train", "validation", "test")
    files = {name: (out / f".{name}.jsonl.partial").open("w", encoding="utf-8") for name in names}
    try:
        for document in documents:
            files[document.split].write(untrusted_files.to_json(document_columns(document)) + "\n")
    finally:
        for file in files.values():
            file.close()
    for name in names:
        (out / f".{name}.jsonl.partial").replace(out / f"{name}.jsonl")


def document_columns(document: Document) -> dict[str, str]:
    """A document as columns to be read back: pairs with corpus.target=target, images with corpus.image=picture."""
    source, target, separator = split_pair(document.text)
    if separator == PAIR_SEPARATOR:
        return {"source": source, "target": target, "place": document.location}
    if separator == IMAGE_SEPARATOR:
        digest, _, path = source.partition(" ")
        image = digest if path == BUILTIN_REFERENCE else str(Path(path).resolve())
        return {"picture": image, "text": target, "place": document.location}
    language = {"language": document.language} if document.language else {}
    return {"text": target, "place": document.location, **language}


class ReadProgressBar(Progress):
    """A progress bar over the bytes of a pass; shown only in a terminal."""

    def __init__(self, console: Console, activity: str) -> None:
        super().__init__(
            TextColumn(f"{activity} " + "{task.fields[documents]:,} documents"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.add_task(activity, total=None, documents=0)

    def show_progress(self, progress: Read) -> None:
        """Update the bar."""
        self.update(self.task, completed=progress.bytes, total=progress.total or None, documents=progress.documents)
