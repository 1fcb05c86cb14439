"""The prose in the docstrings of the Python installation: real English on every machine, parsed and never imported."""

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

from meristem.errors import MeristemError
from meristem.samples.prose import paragraphs

VERSION = 1  # raised whenever the same installation would give other text
CAP = 8_000_000  # characters: what an installation with torch gives, so that bigger ones give the same
LARGEST = 400_000  # bytes: files beyond this are generated tables, slow to parse and poor in prose
PREFERRED = ("torch", "numpy")  # after the standard library, before the other packages by name
SKIPPED = frozenset(
    {"__pycache__", "site-packages", "dist-packages", "test", "tests", "testing", "idlelib", "lib2to3", "turtledemo",
     "_vendor", "_generated", "pip", "meristem"}
)
DOCUMENTED = 0.1  # share of a file in long strings: below it, parsing costs more than the prose is worth
LONG_STRING = re.compile(r"(\"{3}|'{3})(.*?)\1", re.DOTALL)
DEFINITIONS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


_parsed: dict[str, tuple[str, ...]] = {}  # 8 MB, so that the pass for shards need not parse again


def documents() -> Iterator[str]:
    """One document per module: its docstrings' prose, in order, up to the cap."""
    key = digest()
    if key in _parsed:
        yield from _parsed[key]
        return
    found = []
    for document in read(files(installed())):
        found.append(document)
        yield document
    _parsed[key] = tuple(found)


def digest() -> str:
    """A key of the installation: the paths below their roots, sizes and times of every file that may be read."""
    state = hashlib.blake2b(f"pydocs {VERSION} {CAP}".encode(), digest_size=16)
    for root in installed():
        for path in files([root]):
            facts = path.lstat()
            state.update(f"{path.relative_to(root)}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode())
    return state.hexdigest()


def installed() -> tuple[Path, ...]:
    """Where this interpreter keeps its modules: the standard library first, then installed packages."""
    found = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    return tuple(dict.fromkeys(Path(path).resolve() for path in found if path and Path(path).is_dir()))


def files(roots: Iterable[Path]) -> Iterator[Path]:
    """Every module worth reading below the roots, in an order that depends on names alone."""
    for root in roots:
        yield from map(Path, _below(str(root), PREFERRED))


def _below(folder: str, preferred: tuple[str, ...] = ()) -> Iterator[str]:
    def rank(entry: os.DirEntry[str]) -> tuple[int, str]:
        return preferred.index(entry.name) if entry.name in preferred else len(preferred), entry.name

    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=rank)
    except OSError:  # a folder that may not be listed has nothing for us
        return
    for entry in entries:
        if entry.name in SKIPPED or entry.name.startswith(("test_", ".")):
            continue
        if entry.is_dir(follow_symlinks=False):  # a link may lead round in a circle
            yield from _below(entry.path)
        elif entry.name.endswith(".py") and 0 < entry.stat(follow_symlinks=False).st_size <= LARGEST:
            yield entry.path


def read(paths: Iterable[Path], cap: int = CAP) -> Iterator[str]:
    """The prose of each module, no paragraph twice, until the cap is reached."""
    seen: set[str] = set()
    total = 0
    for found in _in_processes(list(paths)):
        fresh = [text for text in dict.fromkeys(found) if text not in seen]
        seen.update(fresh)
        if fresh:
            document = "\n\n".join(fresh)
            total += len(document)
            if total > cap:
                return
            yield document


def _in_processes(paths: list[Path]) -> Iterator[list[str]]:
    """Parsing is all of the time, so it is shared out, unless this process may have no children."""
    workers = min(4, os.cpu_count() or 1)
    few = len(paths) < 200
    if few or workers == 1 or multiprocessing.current_process().daemon or "fork" not in _starts():
        yield from map(prose_of, paths)
        return
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, fork, initializer=gc.disable) as pool:  # trees are freed by reference alone
        try:
            yield from pool.map(prose_of, paths, chunksize=16)
        except BrokenProcessPool:
            advice = "free some memory and run it again; what is installed was only read"
            raise MeristemError(f"builtin:pydocs: a process that reads docstrings was killed; {advice}") from None
        finally:
            pool.shutdown(cancel_futures=True)  # a reader that stops early waits for a few files, not for all


def _starts() -> list[str]:
    return multiprocessing.get_all_start_methods()


def prose_of(path: Path) -> list[str]:
    """The prose paragraphs of one module; a file that does not parse has none."""
    try:
        source = path.read_text(encoding="utf-8")
        if sum(len(found[2]) for found in LONG_STRING.finditer(source)) < DOCUMENTED * len(source):
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(source)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return [text for docstring in _docstrings(tree) for text in paragraphs(docstring)]


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """Docstrings in the order a reader meets them; bodies of expressions are never entered."""
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
