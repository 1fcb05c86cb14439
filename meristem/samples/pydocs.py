"""The pydocs corpus: English prose from the docstrings of the Python installation, parsed without importing."""

from __future__ import annotations

import ast
import gc
import hashlib
import multiprocessing
import os
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from meristem.config.errors import MeristemError
from meristem.samples.docstring_prose import paragraphs

VERSION = 1  # increment whenever the same installation would give other text
MAX_CHARACTERS = 8_000_000  # what an installation with torch gives, so that larger ones give the same amount
MAX_FILE_BYTES = 400_000  # larger files are generated tables, slow to parse and poor in prose
PREFERRED_PACKAGES = ("torch", "numpy")  # after the standard library, before the other packages by name
_SKIPPED_NAMES = (
    "__pycache__ site-packages dist-packages test tests testing idlelib lib2to3 turtledemo _vendor _generated pip "
    "meristem"
)
SKIPPED_NAMES = frozenset(_SKIPPED_NAMES.split())
MIN_DOCSTRING_SHARE = 0.1  # share of a file in long strings: below it, parsing costs more than the prose is worth
LONG_STRING = re.compile(r"(\"{3}|'{3})(.*?)\1", re.DOTALL)
DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


_documents_cache: dict[str, tuple[str, ...]] = {}  # 8 MB, so that building shards need not parse again


def documents() -> Iterator[str]:
    """One document per module: its docstrings' prose, in order, up to the cap."""
    key = digest()
    if key in _documents_cache:
        yield from _documents_cache[key]
        return
    collected = []
    for document in read_documents(iter_modules(module_roots())):
        collected.append(document)
        yield document
    _documents_cache[key] = tuple(collected)


def digest() -> str:
    """A cache key of the installation: relative paths, sizes and times of every file that may be read."""
    state = hashlib.blake2b(f"pydocs {VERSION} {MAX_CHARACTERS}".encode(), digest_size=16)
    for root in module_roots():
        for path in iter_modules([root]):
            stat = path.lstat()
            state.update(f"{path.relative_to(root)}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return state.hexdigest()


def module_roots() -> tuple[Path, ...]:
    """Folders of this interpreter's modules: the standard library first, then installed packages."""
    paths = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    return tuple(dict.fromkeys(Path(path).resolve() for path in paths if path and Path(path).is_dir()))


def iter_modules(roots: Iterable[Path]) -> Iterator[Path]:
    """Every module below the roots that may be read, in an order that depends only on names."""
    for root in roots:
        yield from map(Path, _iter_files(str(root), PREFERRED_PACKAGES))


def _iter_files(folder: str, preferred: tuple[str, ...] = ()) -> Iterator[str]:
    def sort_key(entry: os.DirEntry[str]) -> tuple[int, str]:
        return preferred.index(entry.name) if entry.name in preferred else len(preferred), entry.name

    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=sort_key)
    except OSError:  # unreadable folders are skipped
        return
    for entry in entries:
        if entry.name in SKIPPED_NAMES or entry.name.startswith(("test_", ".")):
            continue
        if entry.is_dir(follow_symlinks=False):  # links may form cycles
            yield from _iter_files(entry.path)
        elif entry.name.endswith(".py") and 0 < entry.stat(follow_symlinks=False).st_size <= MAX_FILE_BYTES:
            yield entry.path


def read_documents(paths: Iterable[Path], max_characters: int = MAX_CHARACTERS) -> Iterator[str]:
    """One document of prose per module, without repeated paragraphs, up to the maximum size."""
    seen: set[str] = set()
    total = 0
    for module_paragraphs in _parse_in_processes(list(paths)):
        new_paragraphs = [text for text in dict.fromkeys(module_paragraphs) if text not in seen]
        seen.update(new_paragraphs)
        if new_paragraphs:
            document = "\n\n".join(new_paragraphs)
            total += len(document)
            if total > max_characters:
                return
            yield document


def _parse_in_processes(paths: list[Path]) -> Iterator[list[str]]:
    """Parse in several processes, since parsing takes all the time, unless this process may have no children."""
    workers = min(4, os.cpu_count() or 1)
    is_small = len(paths) < 200
    if (
        is_small
        or workers == 1
        or multiprocessing.current_process().daemon
        or "fork" not in multiprocessing.get_all_start_methods()
    ):
        yield from map(module_prose, paths)
        return
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, fork, initializer=gc.disable) as pool:  # syntax trees need no garbage collector
        try:
            yield from pool.map(module_prose, paths, chunksize=16)
        except BrokenProcessPool:
            advice = "free some memory and run it again; nothing was changed"
            raise MeristemError(f"builtin:pydocs: a process that reads docstrings was killed; {advice}") from None
        finally:
            pool.shutdown(cancel_futures=True)  # when the reader stops early, wait for a few files only


def module_prose(path: Path) -> list[str]:
    """The prose paragraphs of one module; a file that does not parse has none."""
    try:
        source = path.read_text(encoding="utf-8")
        if sum(len(match[2]) for match in LONG_STRING.finditer(source)) < MIN_DOCSTRING_SHARE * len(source):
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(source)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return [text for docstring in _docstrings(tree) for text in paragraphs(docstring)]


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """Docstrings in source order; expressions are not searched."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, DEFINITIONS):
            docstring = ast.get_docstring(node)
            if docstring:
                yield docstring
        inner = [child for child in getattr(node, "body", []) if isinstance(child, ast.stmt)]
        inner += [child for child in getattr(node, "orelse", []) if isinstance(child, ast.stmt)]
        stack.extend(reversed(inner))
