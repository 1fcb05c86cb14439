"""Recursive listing and globbing of folders, of any depth and with any file names.

`os.walk` and `Path.glob` recurse once per level in Python 3.11 and end with a RecursionError below about 1,000 nested
folders; this uses a list of folders still to be read.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from fnmatch import translate
from pathlib import Path

TOO_LONG = "(path too long)"
UNREADABLE_FOLDER = "(folder not readable)"
MAX_PATH_BYTES = 4095
"""Longest path that Linux opens, in bytes: PATH_MAX without the final zero."""
_UNDECODABLE = re.compile("[\udc80-\udcff]")


def displayed_name(path: Path | str) -> str:
    """A path as text that any encoding can represent: bytes that are not UTF-8 are escaped, `caf\\xe9.txt`."""
    return _UNDECODABLE.sub(lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", str(path))


def walk_files(folder: Path, skipped: Counter[str]) -> list[Path]:
    """The files below a folder, sorted; hidden folders and links to folders are not entered, as with `os.walk`."""
    path_excess = _absolute_path_excess(folder)
    problems: set[tuple[str, str]] = set()
    files, pending = [], [str(folder)]
    while pending:
        for entry in _scan_folder(pending.pop(), path_excess, problems):
            if not _is_folder(entry):
                files.append(Path(entry.path))
            elif not entry.is_symlink() and not entry.name.startswith("."):
                pending.append(entry.path)
    skipped.update(reason for reason, _ in problems)
    return sorted(files)


def glob_files(root: Path, pattern: str, skipped: Counter[str]) -> list[Path]:
    """The matching files below `root`, sorted: `**` is any number of folders, hidden ones too, as in `Path.glob`."""
    path_excess = _absolute_path_excess(root)
    parts = [part for part in pattern.split("/") if part and part != "."]
    problems: set[tuple[str, str]] = set()
    files: set[Path] = set()
    pending = [(str(root), 0)]
    entered = set(pending)
    while pending:
        path, depth = pending.pop()
        following: list[tuple[str, int]] = []
        if depth == len(parts):
            if os.path.isfile(path):  # noqa: PTH113 (Path.is_file raises where a name is too long)
                files.add(Path(path))
        elif parts[depth] == "**":
            entries = _scan_folder(path, path_excess, problems)
            following = [(entry.path, depth) for entry in entries if _is_folder(entry) and not entry.is_symlink()]
            following.append((path, depth + 1))
        elif any(wildcard in parts[depth] for wildcard in "*?["):
            matches = re.compile(translate(parts[depth])).fullmatch
            entries = (entry for entry in _scan_folder(path, path_excess, problems) if matches(entry.name))
            following = [(entry.path, depth + 1) for entry in entries if depth + 1 == len(parts) or _is_folder(entry)]
        else:
            following = [(str(Path(path, parts[depth])), depth + 1)]
        pending += [entry for entry in following if entry not in entered]
        entered.update(following)
    skipped.update(reason for reason, _ in problems)
    return sorted(files)


def _absolute_path_excess(folder: Path) -> int:
    """How many bytes longer the absolute path is, which a file's cache key needs, than the given one."""
    return max(0, len(os.fsencode(folder.resolve())) - len(os.fsencode(folder)))


def _scan_folder(folder: str, path_excess: int, problems: set[tuple[str, str]]) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder; names whose path is too long for the system are reported as problems."""
    try:
        with os.scandir(folder) as scan:
            entries = list(scan)
    except (FileNotFoundError, NotADirectoryError):  # a file, or deleted since it was listed
        return
    except OSError:
        problems.add((UNREADABLE_FOLDER, folder))
        return
    for entry in entries:
        if path_excess + len(os.fsencode(entry.path)) > MAX_PATH_BYTES:
            problems.add((TOO_LONG, entry.path))
        else:
            yield entry


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder or a link to one; broken and circular links are not."""
    try:
        return entry.is_dir()
    except OSError:
        return False
