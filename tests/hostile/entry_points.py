"""Every public entry point that reads a file: each opens a path and returns the notices it printed."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from meristem import api
from meristem.cli import main
from meristem.config.errors import MeristemError
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.settings import CorpusSettings
from meristem.corpus.word_vector_files import read_vectors
from meristem.data.images import load_image_file
from meristem.dataset.token_dataset import TokenDataset
from meristem.evaluation.minimal_pairs import read_pairs
from meristem.labelled.load import load_samples
from meristem.labelled.settings import DataSettings
from meristem.tokenizers.tokenizer import Tokenizer

QUIET = Console(quiet=True)
EntryPoint = Callable[[Path, Path], str]


def load_run(path: Path, out: Path) -> str:
    """A run for use."""
    return "; ".join(api.load(path).loaded_run.notices)


def resume_run(path: Path, out: Path) -> str:
    """A run that is trained on."""
    result = api.pretrain(path / "recipe.yaml", out=path, console=QUIET)
    return (result.run / "log.txt").read_text()


def begin_from_run(path: Path, out: Path) -> str:
    """A run that another begins from."""
    text = os.environ["HOSTILE_TEXT"]
    api.pretrain(os.environ["HOSTILE_RECIPE"], [f"from={path}"], source=text, out=out / "begun", console=QUIET)
    return (out / "begun" / "log.txt").read_text()


def import_published(path: Path, out: Path) -> str:
    """A folder of published weights."""
    api.import_folder(path, out / "imported")
    return ""


def begin_from_published(path: Path, out: Path) -> str:
    """A folder of published weights that a task begins from."""
    api.resolve_task_recipe(None, ["task=classification", f"from={path}"])
    return ""


def load_tokenizer(path: Path, out: Path) -> str:
    """A tokenizer's file or folder, used."""
    Tokenizer.load(path).encode("a text with aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab in it, 中文 1234.")
    return ""


def read_recipe(path: Path, out: Path) -> str:
    """A recipe's file."""
    api.resolve_pretrain_recipe(path)
    return ""


def describe_recipe(path: Path, out: Path) -> str:
    """The command line, with a recipe's file."""
    return _command("describe", str(path))


def fill_with_run(path: Path, out: Path) -> str:
    """The command line, with a run."""
    return _command("fill", str(path), "a [MASK] c")


def open_store(path: Path, out: Path) -> str:
    """A folder of shards."""
    TokenDataset.open(path)
    return ""


def read_corpus(path: Path, out: Path) -> str:
    """A file of text; what a corpus drops it counts and names."""
    corpus_reader = CorpusReader(CorpusSettings(source=str(path), processes=1))
    deque(corpus_reader, maxlen=0)
    return "; ".join([*corpus_reader.account.warnings, *map(str, corpus_reader.account.dropped.items())])


def look_at_picture(path: Path, out: Path) -> str:
    """A picture's file."""
    load_image_file(path, 32)
    return ""


def read_word_vectors(path: Path, out: Path) -> str:
    """A file of word vectors."""
    deque(read_vectors(path), maxlen=0)
    return ""


def read_minimal_pairs(path: Path, out: Path) -> str:
    """A file of minimal pairs."""
    read_pairs(path)
    return ""


def labelled(shape: str) -> EntryPoint:
    """A file of labelled samples of one shape."""

    def read_labelled(path: Path, out: Path) -> str:
        notices: list[str] = []
        load_samples(str(path), DataSettings.model_validate({}), shape, notices=notices)
        return "; ".join(notices)

    return read_labelled


ALL_ENTRY_POINTS: tuple[EntryPoint, ...] = (
    load_run, resume_run, begin_from_run, import_published, begin_from_published, load_tokenizer, read_recipe,
    describe_recipe, fill_with_run, open_store, read_corpus, look_at_picture, read_word_vectors, read_minimal_pairs,
)  # fmt: skip


def _command(*words: str) -> str:
    """The command line in this process; an error that is told is one, a fault is not."""
    stream = io.StringIO()
    sys.argv = ["meristem", *words]
    with contextlib.redirect_stderr(stream), contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as exit_error:
            if exit_error.code in (0, None):
                return ""
    if "an unexpected" in stream.getvalue() or "Traceback" in stream.getvalue():
        raise AssertionError(stream.getvalue())
    raise MeristemError(stream.getvalue())
