"""Where a run folder comes from: an HMAC, by a key of this machine, over the data that the run's recipe names.

A run may be a stranger's, and its recipe may name any file of this machine. Commands that would read such data by
themselves do so only where this machine made the run; whoever moves a run elsewhere names the data, or says so.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from meristem import bounded
from meristem.checkpoint import disk
from meristem.checkpoint.run import Run
from meristem.errors import MeristemError
from meristem.recipe import Recipe
from meristem.system_errors import naming_file

FILE, KEY = "origin.json", "origin.key"
BUILTIN = "builtin:"


def sign(run: Run, recipe: Recipe) -> None:
    """Leave the signature of this machine in a run that it makes; where no key can be kept, there is none."""
    with suppress(OSError):
        disk.replace(run.path / FILE, [bounded.to_json({"hmac": _signature(recipe)}).encode()])


def made_here(run: Run, recipe: Recipe) -> bool:
    """Whether this machine made the run, and the data it names are still the same."""
    path = run.path / FILE
    if path.is_symlink() or not path.is_file():
        return False
    try:
        found = bounded.read_mapping(path).get("hmac")
        return isinstance(found, str) and hmac.compare_digest(found, _signature(recipe))
    except (MeristemError, OSError, TypeError):  # a digest is compared as ASCII
        return False


def refuse_foreign_data(run: Run, recipe: Recipe, *, trust_paths: bool) -> None:
    """Refuse to read data that only a run's own recipe names, unless they are built in or the run was made here."""
    foreign = sorted({one for one in _sources(recipe) if not one.startswith(BUILTIN)})
    if not foreign or trust_paths or made_here(run, recipe):
        return
    raise MeristemError(
        f"{run.path} was not made on this machine, or its recipe was changed since, and names data to be read: "
        f"{', '.join(foreign[:4])}. Give data of your own with --data FILE, or read these with --trust-paths"
    )


def _named_data(recipe: Recipe) -> list[Any]:
    """Every section of a recipe that names data, as plain values."""
    sections = [source.corpus for source in recipe.sources() if source.corpus is not None]
    sections += [recipe.data] if recipe.data is not None else []
    return [section.model_dump(mode="json") for section in sections]


def _sources(recipe: Recipe) -> Iterator[str]:
    """The files, folders and data sets that a recipe would have read."""
    for section in _named_data(recipe):
        for name in ("source", "target", "train", "validation", "test", "test_target", "validation_target"):
            value = section.get(name)
            several = value if isinstance(value, list) else [value]
            yield from (one for one in several if isinstance(one, str))


def _signature(recipe: Recipe) -> str:
    content = json.dumps(_named_data(recipe), sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return hmac.new(_key(), content, hashlib.sha256).hexdigest()


def _key() -> bytes:
    """The user's key on this machine, made when it is first needed; nobody else may read it.

    It lies apart from the cache, which may be deleted at any time.
    """
    path = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "meristem" / KEY
    try:
        return _read(path)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{KEY}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with naming_file(path), os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(32))
            os.link(beside, path)  # the first of several processes wins
        except FileExistsError:
            pass
        finally:
            beside.unlink(missing_ok=True)
        return _read(path)


def _read(path: Path) -> bytes:
    return bytes.fromhex(path.read_text(encoding="ascii"))
