"""Settings of a claim: paper, sentence, comparisons and what they are expected to show; from YAML.

A claim is a file of `meristem/claims/`, of a package that an entry point of the group `meristem.claims` names, or any
YAML file. Text and labelled data stand in it by name (`"{text}"`, `"{sentiment}"`) and are filled in when it is run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from meristem.compare.comparison_settings import BUDGET_KINDS, QUICK_TASK, ComparisonSettings, build_comparison
from meristem.config.errors import MeristemError, RecipeError, did_you_mean
from meristem.config.settings import Settings
from meristem.config.validation import build_settings
from meristem.utils import untrusted_files

CLAIMS_DIR = Path(__file__).parents[1] / "claims"
ENTRY_POINT_GROUP = "meristem.claims"
QUICK_SHARE = 0.005
"""Share of its budget that a claim gets with --quick."""


def _builtin(name: str) -> dict[str, str]:
    seeds = {"train": "size=2000&seed=1", "validation": "size=400&seed=2", "test": "size=400&seed=3"}
    return {split: f"builtin:microworld-{name}?{options}" for split, options in seeds.items()}


DEFAULT_DATA: Mapping[str, Any] = {
    "text": "builtin:microworld-en",
    "bilingual_text": ["builtin:microworld-en", "builtin:microworld-zh"],
    "images": "builtin:microworld-pictures?size=8000",
    **{role: _builtin(role) for role in ("sentiment", "pos", "senses")},
    "pair": _builtin("entailment"),
    "translation": _builtin("pairs"),
}
"""Name → built-in data; `minimal_pairs` and `word_vectors` have none."""


class ContrastSettings(Settings):
    """One measure of two arms of a comparison, or two measures of one arm."""

    comparison: str = "main"
    """Name of the comparison."""
    measure: str
    """A task's measure, `pairs`, or `run` for held-out text; then :METRIC and @short, @medium or @long, if wanted."""
    better: str
    """The arm that the claim says is better."""
    than: str
    """The arm it is compared with."""
    than_measure: str | None = None
    """The measure of that arm, where it is another one."""


class ExpectationSettings(ContrastSettings):
    """What a claim expects."""

    says: str
    """In a few words."""
    more_than: dict[str, str] = {}
    """What differs in a second contrast, whose difference is expected to be smaller."""

    @property
    def contrasts(self) -> list[ContrastSettings]:
        """The contrast, and the one it is expected to exceed."""
        own = self.model_dump(include=set(ContrastSettings.model_fields))
        second = [ContrastSettings.model_validate({**own, **self.more_than})] if self.more_than else []
        return [ContrastSettings.model_validate(own), *second]


class ClaimSettings(Settings):
    """A published claim."""

    title: str
    """Its name for readers."""
    paper: str
    """Where it was published."""
    sentence: str
    """The claim in one sentence."""
    figure: str
    """The paper's own figures."""
    scale: str
    """What is smaller or otherwise different here."""
    comparisons: dict[str, dict[str, Any]]
    """Name → comparison, as in a comparison's file."""
    expected: tuple[ExpectationSettings, ...]
    """What the comparisons are expected to show."""

    @property
    def data_names(self) -> list[str]:
        """The names of the data it needs."""
        return sorted(set(re.findall(r"\{(\w+)\}", untrusted_files.to_json(self.comparisons))))


def claim_files() -> dict[str, Path]:
    """Every known claim: those of this package, and of packages that entry points name."""
    folders = [CLAIMS_DIR, *plugin_folders()]
    files = [file for folder in reversed(folders) for file in sorted(folder.glob("*.yaml"))]
    return dict(sorted((file.stem, file) for file in files))


@cache
def plugin_folders() -> tuple[Path, ...]:
    """The folders of the packages that entry points name."""
    folders: list[Path] = []
    declared: Sequence[EntryPoint] = tuple(entry_points(group=ENTRY_POINT_GROUP))
    for entry_point in declared:
        try:
            folders += [Path(folder) for folder in entry_point.load().__path__]
        except Exception as error:  # third-party code can raise anything
            origin = "an unknown distribution" if entry_point.dist is None else entry_point.dist.name
            raise MeristemError(
                f"{ENTRY_POINT_GROUP} {entry_point.name} of {origin} is no package that can be imported "
                f"({type(error).__name__}: {error}); update or uninstall it"
            ) from error
    return tuple(folders)


def read_claim(name: str) -> ClaimSettings:
    """A claim by its name or its file."""
    path = Path(name)
    if path.suffix not in {".yaml", ".yml"}:
        files = claim_files()
        if name.replace("-", "_") not in files:
            raise RecipeError(f"no claim {name!r}{did_you_mean(name, list(files))}")
        path = files[name.replace("-", "_")]
    loaded = untrusted_files.read_yaml(path)
    if not isinstance(loaded, dict):
        raise RecipeError(f"{path}: a claim is a mapping: {', '.join(ClaimSettings.model_fields)}")
    claim = build_settings(ClaimSettings, loaded, str(path))
    assert isinstance(claim, ClaimSettings)
    for expectation in claim.expected:
        for contrast in expectation.contrasts:
            _check_contrast(claim, contrast, path)
    return claim


def split_claim_words(words: Sequence[str]) -> tuple[list[str], dict[str, str], list[str]]:
    """Names of claims, the text they train on (`{"text": SOURCE}`), and key=value settings of a command line."""
    settings = [word for word in words if re.match(r"[\w.-]+=", word) and not Path(word).exists()]
    files = claim_files()
    others = [word for word in words if word not in settings]
    names = [word for word in others if word.replace("-", "_") in files or Path(word).suffix in {".yaml", ".yml"}]
    sources = [word for word in others if word not in names]
    unknown = [word for word in sources if not Path(word).exists() and not any(sign in word for sign in ":/*?.")]
    if unknown:
        raise RecipeError(f"{unknown[0]!r} is neither a claim nor a file{did_you_mean(unknown[0], list(files))}")
    if len(sources) > 1:
        raise RecipeError(f"compare: {sources[0]} and {sources[1]} are both no claim; give one text source")
    return names, ({"text": sources[0]} if sources else {}), settings


def _check_contrast(claim: ClaimSettings, contrast: ContrastSettings, path: Path) -> None:
    if contrast.comparison not in claim.comparisons:
        known = did_you_mean(contrast.comparison, list(claim.comparisons))
        raise RecipeError(f"{path}: expected: no comparison {contrast.comparison!r}{known}")
    arms = list(claim.comparisons[contrast.comparison].get("arms") or {})
    for arm in (contrast.better, contrast.than):
        if arm not in arms:
            raise RecipeError(f"{path}: expected: no arm {arm!r}{did_you_mean(arm, arms)}")


def claim_comparisons(
    claim: ClaimSettings,
    data: Mapping[str, Any],
    settings: Mapping[str, Any] = {},
    *,
    seeds: int = 3,
    budget_share: float = 1.0,
    quick: bool = False,
) -> dict[str, ComparisonSettings]:
    """The comparisons of a claim with data filled in, and this share of its budgets; one among the settings replaces
    them. `quick` also shortens fine-tuning."""
    missing = [name for name in claim.data_names if name not in data]
    if missing:
        given = ", ".join(f"data.{name}=…" for name in missing)
        raise RecipeError(f"{claim.title}: it needs data that are not built in: give {given}")
    return {
        name: build_comparison(
            _complete(_fill(values, data), settings, seeds=seeds, budget_share=budget_share, quick=quick),
            f"{claim.title}: {name}",
            min_arms=1,
        )
        for name, values in claim.comparisons.items()
    }


def _complete(
    values: dict[str, Any], settings: Mapping[str, Any], *, seeds: int, budget_share: float, quick: bool
) -> dict[str, Any]:
    """A comparison with seeds, budget and further settings."""
    budgets = {kind: settings[f"train.{kind}"] for kind in BUDGET_KINDS if f"train.{kind}" in settings}
    others = {key: value for key, value in settings.items() if key.removeprefix("train.") not in BUDGET_KINDS}
    completed = {**values, "seeds": seeds, "settings": {**values.get("settings", {}), **others}}
    share = QUICK_SHARE if quick else budget_share
    scaled = {kind: max(1, round(float(amount) * share)) for kind, amount in values.get("budget", {}).items()}
    if budget := budgets or scaled:
        completed["budget"] = budget
    if quick:
        tasks = values.get("tasks", ())
        completed["tasks"] = [{**task, "settings": {**task.get("settings", {}), **QUICK_TASK}} for task in tasks]
        for task in completed["tasks"]:
            if task.get("labels"):
                del task["settings"]["data.limit"]  # the numbers of labels are what is compared
    return completed


def _fill(value: Any, data: Mapping[str, Any]) -> Any:
    """The value with data in place of their names."""
    if isinstance(value, Mapping):
        return {key: _fill(item, data) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_fill(item, data) for item in value]
    name = re.fullmatch(r"\{(\w+)\}", value) if isinstance(value, str) else None
    return data[name[1]] if name else value
