"""The sections of a recipe and the settings class of each."""

from __future__ import annotations

from meristem.config.registry import ComponentKind
from meristem.config.settings import Settings
from meristem.corpus.settings import CorpusSettings
from meristem.dataset.settings import DatasetSettings
from meristem.labelled.settings import DataSettings
from meristem.reinforce.settings import PolicySettings
from meristem.tokenizers.settings import TokenizerSettings
from meristem.training.settings import GridSettings, StartSettings, TrainSettings

SECTIONS: dict[str, type[Settings]] = {
    "corpus": CorpusSettings,
    "tokenizer": TokenizerSettings,
    "dataset": DatasetSettings,
    "data": DataSettings,
    "train": TrainSettings,
    "start": StartSettings,
    "grid": GridSettings,
}
"""Sections that every mapping may have, whatever kind of recipe it becomes; `start` is written `from`."""
NAMED_SECTIONS = {
    "model": (ComponentKind.FAMILY, "family"),
    "objective": (ComponentKind.OBJECTIVE, "name"),
    "task": (ComponentKind.TASK, "name"),
    "rewards": (ComponentKind.REWARD, "name"),
    "judge": (ComponentKind.REWARD, "name"),
}
"""Section whose class is chosen by name → its kind, and the setting that names the class."""


def section_class(section: str) -> type[Settings]:
    """The settings class of a section in `SECTIONS`, or of the policy."""
    return PolicySettings if section == "policy" else SECTIONS[section]
