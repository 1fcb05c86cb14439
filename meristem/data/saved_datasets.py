"""Folders written by `save_to_disk` of the `datasets` library: which Arrow files hold which split."""

from __future__ import annotations

from pathlib import Path

from meristem.config.errors import MeristemError, did_you_mean
from meristem.utils import untrusted_files

SPLITS_FILE, STATE_FILE, INFO_FILE = "dataset_dict.json", "state.json", "dataset_info.json"


def saved_dataset_files(folder: Path, split: str, setting: str) -> list[Path]:
    """The Arrow files of a saved dataset, of its split if it has several; none if the folder is something else."""
    if (folder / SPLITS_FILE).is_file():
        splits = untrusted_files.read_json_object(folder / SPLITS_FILE).get("splits")
        names = [str(name) for name in splits] if isinstance(splits, list) else []
        if split not in names:
            suggestion = did_you_mean(split, names)
            raise MeristemError(f"{setting}: {folder} has no split {split!r}{suggestion}; name a folder in it")
        folder = folder / split
    if not (folder / STATE_FILE).is_file() or not (folder / INFO_FILE).is_file():
        return []
    entries = untrusted_files.read_json_object(folder / STATE_FILE).get("_data_files")
    entries = entries if isinstance(entries, list) else []
    names = [str(entry.get("filename")) for entry in entries if isinstance(entry, dict)]
    files = [folder / name for name in names if Path(name).name == name]
    if not files or len(files) != len(entries):
        raise MeristemError(f"{setting}: {folder / STATE_FILE} names no Arrow files beside it")
    if missing := [file for file in files if not file.is_file()]:
        raise MeristemError(f"{setting}: {missing[0]}: no such file, although {STATE_FILE} names it")
    return files
