"""Provenance of a run folder: an HMAC with a key of this machine over the data paths in the run's recipe.

A run may come from someone else, and its recipe may name any file of this machine. Commands that read the data of a
recipe do so only if the run was made on this machine; otherwise the user names the data or passes --trust-paths.
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

from meristem.checkpoint import disk
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.config.recipe import PretrainRecipe, Recipe, SampleRecipe
from meristem.config.setting_names import with_hashed_names
from meristem.config.settings import Settings
from meristem.utils import untrusted_files
from meristem.utils.system_errors import name_file_in_errors

SIGNATURE_FILE, KEY_FILE = "origin.json", "origin.key"
BUILTIN_PREFIX = "builtin:"


def sign_run(run: RunFolder, recipe: Recipe) -> None:
    """Write this machine's signature into a new run; skipped if the key cannot be stored."""
    with suppress(OSError):
        disk.atomic_write(run.path / SIGNATURE_FILE, [untrusted_files.to_json({"hmac": _signature(recipe)}).encode()])


def is_local_run(run: RunFolder, recipe: Recipe) -> bool:
    """Whether this machine made the run and its recipe still names the same data."""
    path = run.path / SIGNATURE_FILE
    if path.is_symlink() or not path.is_file():
        return False
    try:
        signature = untrusted_files.read_json_object(path).get("hmac")
        return isinstance(signature, str) and hmac.compare_digest(signature, _signature(recipe))
    except (MeristemError, OSError, TypeError):  # a digest is compared as ASCII
        return False


def refuse_foreign_data(run: RunFolder, recipe: Recipe, *, trust_paths: bool) -> None:
    """Raise if the recipe of a run names data to read, unless they are built in or the run was made here."""
    foreign_paths = sorted({path for path in _data_paths(recipe) if not path.startswith(BUILTIN_PREFIX)})
    if not foreign_paths or trust_paths or is_local_run(run, recipe):
        return
    raise MeristemError(
        f"{run.path} was not made on this machine, or its recipe was changed since, and it names data to read: "
        f"{', '.join(foreign_paths[:4])}. Give data of your own with --data FILE, or read these with --trust-paths"
    )


def _data_sections(recipe: Recipe) -> list[Any]:
    """The sections of a recipe that name data, as JSON values under the names that are hashed."""
    sections: list[Settings] = [recipe.data] if isinstance(recipe, SampleRecipe) else []
    if isinstance(recipe, PretrainRecipe):
        sections = [source.corpus for source in recipe.sources()]
    return [with_hashed_names(section, section.model_dump(mode="json")) for section in sections]


def _data_paths(recipe: Recipe) -> Iterator[str]:
    """Files, folders and datasets that a recipe names."""
    for section in _data_sections(recipe):
        for name in ("source", "target", "train", "validation", "test", "test_target", "validation_target"):
            value = section.get(name)
            paths = value if isinstance(value, list) else [value]
            yield from (path for path in paths if isinstance(path, str))


def _signature(recipe: Recipe) -> str:
    content = json.dumps(_data_sections(recipe), sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return hmac.new(_machine_key(), content, hashlib.sha256).hexdigest()


def _machine_key() -> bytes:
    """The user's key on this machine, created on first use with mode 0600.

    It is not stored in the cache, which may be deleted at any time.
    """
    path = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "meristem" / KEY_FILE
    try:
        return _read_key(path)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{KEY_FILE}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with name_file_in_errors(path), os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(32))
            os.link(temporary, path)  # the first of several processes wins
        except FileExistsError:
            pass
        finally:
            temporary.unlink(missing_ok=True)
        return _read_key(path)


def _read_key(path: Path) -> bytes:
    return bytes.fromhex(path.read_text(encoding="ascii"))
