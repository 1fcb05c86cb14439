"""Published weights by name: a model of the Hugging Face hub, from its local cache or fetched through huggingface_hub.

Only weights, configuration and tokenizer files are fetched: safetensors, or where there are none torch's own files,
which are read without running anything (`torch_files.py`); never code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from meristem.errors import MeristemError
from meristem.interop.folder import PICKLED, PICKLED_INDEX, SAFE, SAFE_INDEX

SCHEME = "hub:"
NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
WORDS = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
         "vocab.json", "vocab.txt", "merges.txt", "*.model")  # fmt: skip
PATIENCE = 10.0
"""Seconds to wait for the hub to answer."""
WEIGHTS = ((SAFE, SAFE_INDEX, "model-*.safetensors"), (PICKLED, PICKLED_INDEX, "pytorch_model-*.bin"))
"""Names of weight files, the safer kind first."""


def hub_name(place: str) -> str | None:
    """The name of a model of the hub: what follows hub:, or what could be one and is no path here."""
    if place.startswith(SCHEME):
        name = place.removeprefix(SCHEME)
        if not NAME.fullmatch(name.partition("@")[0]):
            raise MeristemError(f"{place}: hub: wants a name, such as hub:bert-base-cased or hub:OWNER/NAME@REVISION")
        return name
    path = Path(place)
    beside = "/" in place and path.parent.is_dir()  # runs/bert-min is a run that was mistyped
    return None if path.exists() or beside or not NAME.fullmatch(place.partition("@")[0]) else place


def hub_folder(name: str) -> Path:
    """The folder of a model in the local cache; it is fetched where it is not there and there is a network."""
    hub = _huggingface_hub()
    model, _, revision = name.partition("@")
    cached = _cached(hub, model, revision or None)
    if cached is not None:
        return cached
    try:
        if hub.constants.HF_HUB_OFFLINE:
            raise OSError("HF_HUB_OFFLINE is set")
        # one question without retries: a mistyped run is answered at once where there is no network
        about = hub.HfApi().model_info(model, revision=revision or None, timeout=PATIENCE)
        wanted = _wanted([one.rfilename for one in about.siblings or ()])
        return Path(hub.snapshot_download(model, revision=revision or None, allow_patterns=wanted))
    except Exception as error:  # transports raise whatever they like
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise MeristemError(
            f"hub:{name} is not in the local cache and cannot be fetched ({reason:.200}); where there is a network, "
            f"this fetches it: {_command(model, revision)}"
        ) from None


def _cached(hub: Any, model: str, revision: str | None) -> Path | None:
    """The model's folder in the cache, if that holds all that an import needs."""
    folder: Path | None
    try:
        folder = Path(hub.snapshot_download(model, revision=revision, local_files_only=True, allow_patterns=["*"]))
    except Exception:  # not there, or not whole
        folder = _newest(hub, model, revision)
    if folder is None or not (folder / "config.json").is_file():
        return None
    whole = any((folder / name).is_file() for names in WEIGHTS for name in names[:2])
    return folder if whole else None


def _newest(hub: Any, model: str, revision: str | None) -> Path | None:
    """The snapshot of a revision, by the file that huggingface_hub keeps of it: partial ones count too."""
    found = hub.try_to_load_from_cache(model, "config.json", revision=revision)
    return Path(found).parent if isinstance(found, str) else None


def _wanted(files: Sequence[str]) -> list[str]:
    """The files of a model that an import reads."""
    weights = next((some for names in WEIGHTS if (some := _matching(files, names))), [])
    return [*_matching(files, WORDS), *weights]


def _matching(files: Sequence[str], patterns: Sequence[str]) -> list[str]:
    return [file for file in files if "/" not in file and any(fnmatch(file, pattern) for pattern in patterns)]


def _command(model: str, revision: str) -> str:
    """What a person types to fill the cache."""
    included = " ".join(f'--include "{pattern}"' for pattern in ("*.json", "*.txt", "*.model", "*.safetensors"))
    return f"hf download {model}{f' --revision {revision}' if revision else ''} {included}"


def _huggingface_hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise MeristemError('weights by name need huggingface_hub: pip install "meristem[hf]"') from None
    return huggingface_hub
