"""Recursive listing and globbing of folders, of any depth and with any file names.

`os.walk` and `Path.glob` recurse once per level in Python 3.11 and end with a RecursionError below about 1,000 nested
folders; here a list holds the folders that are still to be read.
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
LONGEST_PATH = 4095
"""Bytes of a path that Linux opens: PATH_MAX without the final zero."""
_UNDECODABLE = re.compile("[\udc80-\udcff]")


def displayed_name(path: Path | str) -> str:
    r"""A path as text that every encoding can hold: a byte that is not UTF-8 becomes an escape, `caf\xe9.txt`."""
    return _UNDECODABLE.sub(lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", str(path))


def walk_files(folder: Path, skipped: Counter[str]) -> list[Path]:
    """The files below a folder, sorted; hidden folders and links to folders are not entered, as with `os.walk`."""
    above = _length_above(folder)
    problems: set[tuple[str, str]] = set()
    files, pending = [], [str(folder)]
    while pending:
        for entry in _entries(pending.pop(), above, problems):
            if not _is_folder(entry):
                files.append(Path(entry.path))
            elif not entry.is_symlink() and not entry.name.startswith("."):
                pending.append(entry.path)
    skipped.update(reason for reason, _ in problems)
    return sorted(files)


def glob_files(root: Path, pattern: str, skipped: Counter[str]) -> list[Path]:
    """The files below `root` that match, sorted: `**` is any number of folders, hidden ones too, as in `Path.glob`."""
    above = _length_above(root)
    parts = [part for part in pattern.split("/") if part and part != "."]
    problems: set[tuple[str, str]] = set()
    files: set[Path] = set()
    pending = [(str(root), 0)]
    entered = set(pending)
    while pending:
        place, at = pending.pop()
        following: list[tuple[str, int]] = []
        if at == len(parts):
            if os.path.isfile(place):  # noqa: PTH113 (Path.is_file raises where a name is too long)
                files.add(Path(place))
        elif parts[at] == "**":
            inside = _entries(place, above, problems)
            following = [(one.path, at) for one in inside if _is_folder(one) and not one.is_symlink()]
            following.append((place, at + 1))
        elif any(mark in parts[at] for mark in "*?["):
            matches = re.compile(translate(parts[at])).fullmatch
            inside = (one for one in _entries(place, above, problems) if matches(one.name))
            following = [(one.path, at + 1) for one in inside if at + 1 == len(parts) or _is_folder(one)]
        else:
            following = [(str(Path(place, parts[at])), at + 1)]
        pending += [one for one in following if one not in entered]
        entered.update(following)
    skipped.update(reason for reason, _ in problems)
    return sorted(files)


def _length_above(folder: Path) -> int:
    """By how many bytes the absolute path, which the cache key of a file needs, is longer than the one that is read."""
    return max(0, len(os.fsencode(folder.resolve())) - len(os.fsencode(folder)))


def _entries(folder: str, above: int, problems: set[tuple[str, str]]) -> Iterator[os.DirEntry[str]]:
    """What a folder holds, without names whose path is too long for the system; these are problems."""
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except (FileNotFoundError, NotADirectoryError):  # a file, or gone since it was listed
        return
    except OSError:
        problems.add((UNREADABLE_FOLDER, folder))
        return
    for entry in entries:
        if above + len(os.fsencode(entry.path)) > LONGEST_PATH:
            problems.add((TOO_LONG, entry.path))
        else:
            yield entry


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder or a link to one; a link that leads nowhere or in a circle is neither."""
    try:
        return entry.is_dir()
    except OSError:
        return False
