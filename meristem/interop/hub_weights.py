"""Published weights by name: a Hugging Face hub model, from its local cache or downloaded with huggingface_hub.

Only weights, configuration and tokenizer files are downloaded: safetensors, or if there are none torch's own files,
which are read without executing anything (`torch_files.py`); never code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from meristem.config.errors import MeristemError
from meristem.interop.weights_folder import SAFETENSORS_FILE, SAFETENSORS_INDEX, TORCH_FILE, TORCH_INDEX

SCHEME = "hub:"
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
CONFIG_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "*.model",
)
TIMEOUT_SECONDS = 10.0
"""Seconds to wait for the hub to answer."""
WEIGHT_FILES = (
    (SAFETENSORS_FILE, SAFETENSORS_INDEX, "model-*.safetensors"),
    (TORCH_FILE, TORCH_INDEX, "pytorch_model-*.bin"),
)
"""Names of weight files, the safer format first."""


def parse_hub_name(location: str) -> str | None:
    """The hub model of a location: what follows hub:, or a possible name that is not a local path."""
    if location.startswith(SCHEME):
        name = location.removeprefix(SCHEME)
        if not HUB_NAME.fullmatch(name.partition("@")[0]):
            raise MeristemError(
                f"{location}: hub: needs a name, such as hub:bert-base-cased or hub:OWNER/NAME@REVISION"
            )
        return name
    path = Path(location)
    is_beside_folder = "/" in location and path.parent.is_dir()  # runs/bert-min is a mistyped run
    return None if path.exists() or is_beside_folder or not HUB_NAME.fullmatch(location.partition("@")[0]) else location


def hub_folder(name: str) -> Path:
    """The folder of a model in the local cache; downloaded if missing and there is a network."""
    hub = huggingface_hub_module()
    model, _, revision = name.partition("@")
    cached = _cached_folder(hub, model, revision or None)
    if cached is not None:
        return cached
    try:
        if hub.constants.HF_HUB_OFFLINE:
            raise OSError("HF_HUB_OFFLINE is set")
        # one request without retries: a mistyped run fails at once without a network
        model_info = hub.HfApi().model_info(model, revision=revision or None, timeout=TIMEOUT_SECONDS)
        patterns = _needed_files([sibling.rfilename for sibling in model_info.siblings or ()])
        return Path(hub.snapshot_download(model, revision=revision or None, allow_patterns=patterns))
    except Exception as error:  # transports raise arbitrary exceptions
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise MeristemError(
            f"hub:{name} is not in the local cache and cannot be downloaded ({reason:.200}); with a network, "
            f"this downloads it: {_download_command(model, revision)}"
        ) from None


def _cached_folder(hub: Any, model: str, revision: str | None) -> Path | None:
    """The model's folder in the cache, if it has all files that an import needs."""
    folder: Path | None
    try:
        folder = Path(hub.snapshot_download(model, revision=revision, local_files_only=True, allow_patterns=["*"]))
    except Exception:  # missing or incomplete
        # the snapshot of huggingface_hub's refs file: partial ones count too
        config_path = hub.try_to_load_from_cache(model, "config.json", revision=revision)
        folder = Path(config_path).parent if isinstance(config_path, str) else None
    if folder is None or not (folder / "config.json").is_file():
        return None
    has_weights = any((folder / name).is_file() for names in WEIGHT_FILES for name in names[:2])
    return folder if has_weights else None


def _needed_files(files: Sequence[str]) -> list[str]:
    """The files of a model that an import reads."""
    weight_files = next((matches for names in WEIGHT_FILES if (matches := _match_files(files, names))), [])
    return [*_match_files(files, CONFIG_FILES), *weight_files]


def _match_files(files: Sequence[str], patterns: Sequence[str]) -> list[str]:
    return [file for file in files if "/" not in file and any(fnmatch(file, pattern) for pattern in patterns)]


def _download_command(model: str, revision: str) -> str:
    """The command that downloads the model into the cache."""
    include_options = " ".join(f'--include "{pattern}"' for pattern in ("*.json", "*.txt", "*.model", "*.safetensors"))
    return f"hf download {model}{f' --revision {revision}' if revision else ''} {include_options}"


def huggingface_hub_module() -> Any:
    """The package huggingface_hub, or an error that says how to install it."""
    try:
        import huggingface_hub
    except ImportError:
        raise MeristemError('models of the hub need huggingface_hub: pip install "meristem-lm[hf]"') from None
    return huggingface_hub
