"""Metadata at the top of a model card, as the Hugging Face hub reads it: language, license, data, metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import yaml

from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError
from meristem.config.recipe import PretrainRecipe
from meristem.utils import untrusted_files

PIPELINE_TAGS = {
    "MaskedLM": "fill-mask",
    "PreTraining": "fill-mask",
    "CausalLM": "text-generation",
    "LMHeadModel": "text-generation",
    "LMHead": "text-generation",
    "ConditionalGeneration": "text2text-generation",
    "SequenceClassification": "text-classification",
    "TokenClassification": "token-classification",
    "QuestionAnswering": "question-answering",
    "QuestionAnsweringSimple": "question-answering",
    "MultipleChoice": "multiple-choice",
}
"""Ending of a transformers class → what the hub calls its use; a class without a head extracts features."""
TASK_TAGS = {"translation": "translation", "summarization": "summarization"}
MAX_METRICS = 40


@dataclass(frozen=True, kw_only=True)
class CardOptions:
    """What only the publisher of a model knows."""

    license: str | None = None
    """A license of the hub's list, such as apache-2.0."""
    languages: Sequence[str] = ()
    """Language codes, such as en; those that the corpus was filtered by unless given."""


NO_OPTIONS = CardOptions()


def front_matter(loaded: LoadedRun, architecture: str, options: CardOptions = NO_OPTIONS) -> str:
    """The metadata as YAML."""
    metadata = build_card_metadata(loaded, architecture, options)
    return yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True, width=1000)


def build_card_metadata(loaded: LoadedRun, architecture: str, options: CardOptions = NO_OPTIONS) -> dict[str, Any]:
    """The metadata as a dictionary; what is unknown is left out."""
    recipe = loaded.recipe
    languages = list(options.languages) or _corpus_languages(loaded)
    objectives = {part.name for parts in recipe.objectives.values() for part in parts}
    tag = pipeline_tag(architecture, None if recipe.tuned_task is None else recipe.tuned_task.name)
    metadata = {
        "language": languages,
        "license": options.license,
        "library_name": "transformers",
        "pipeline_tag": tag,
        "datasets": [source.removeprefix("hub:").partition("?")[0] for source in _sources(loaded) if "hub:" in source],
        "tags": ["meristem", recipe.model.family, *sorted(objectives)],
        "model-index": [{"name": loaded.run.path.resolve().name, "results": list(_results(loaded, tag))}],
    }
    if not metadata["model-index"][0]["results"]:  # type: ignore[index]
        del metadata["model-index"]
    return {name: value for name, value in metadata.items() if value}


def pipeline_tag(architecture: str, task: str | None) -> str:
    """What the hub calls the use of a model of this class."""
    if task in TASK_TAGS:
        return TASK_TAGS[str(task)]
    ending = next((ending for ending in PIPELINE_TAGS if architecture.endswith(ending)), "")
    return PIPELINE_TAGS.get(ending, "feature-extraction")


def _sources(loaded: LoadedRun) -> list[str]:
    """The corpus sources or training files of a run."""
    recipe = loaded.recipe
    if isinstance(recipe, PretrainRecipe):
        return list(dict.fromkeys(source for part in recipe.sources() for source in part.corpus.sources))
    train = recipe.data_settings.train
    return [train] if isinstance(train, str) else list(train or ())


def _corpus_languages(loaded: LoadedRun) -> list[str]:
    recipe = loaded.recipe
    if not isinstance(recipe, PretrainRecipe):
        return []
    filters = (part.corpus.languages for part in recipe.sources())
    return sorted({language for languages in filters for language in languages or ()})


def _results(loaded: LoadedRun, tag: str) -> Iterator[dict[str, Any]]:
    """One entry of the model index: the metrics of the test split, or of validation if there is none."""
    record = loaded.run.finish_record or {}
    split = next((name for name in ("test", "validation") if record.get(name)), None)
    if split is None or not isinstance(record[split], dict):
        return
    source = ", ".join(_public_name(source) for source in _sources(loaded)) or loaded.run.path.name
    report = _task_report(loaded.run.path)
    intervals = report.get("intervals", {}) if report.get("split") == split else {}
    yield {
        "task": {"type": tag},
        "dataset": {"name": source, "type": source.removeprefix("hub:"), "split": split},
        "metrics": [
            _metric(name, value, intervals.get(name))
            for name, value in list(record[split].items())[:MAX_METRICS]
            if isinstance(value, int | float) and math.isfinite(value)
        ],
    }


def _metric(name: str, value: float, interval: Any) -> dict[str, Any]:
    """One metric; the hub shows its name, which has the interval, and keeps the numbers in `args`."""
    metric = {"type": name, "value": round(value, 6), "name": name}
    if _is_pair(interval):
        low, high = (round(float(bound), 6) for bound in interval)
        metric["name"] = f"{name} (95 % interval {low:.4g} to {high:.4g})"
        metric["args"] = {"confidence_level": 0.95, "low": low, "high": high}
    return metric


def _task_report(run_path: Path) -> Mapping[str, Any]:
    """Content of report.json; empty if there is none or it cannot be read."""
    return _read_json(run_path / "report.json")


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        return untrusted_files.read_json_object(path) if path.is_file() else {}
    except MeristemError:
        return {}


def without_local_folders(text: str, loaded: LoadedRun) -> str:
    """The text of a card in which the files and runs of this machine have only their names."""
    for location in sorted({*_sources(loaded), loaded.recipe.start.path or ""}, key=len, reverse=True):
        if "/" in location:
            text = text.replace(location, _public_name(location))
    return text


def _public_name(source: str) -> str:
    """A source without the folders of this machine."""
    return source if source.startswith(("hub:", "builtin:")) else Path(source).name


def exposure_lines(run_path: Path) -> list[str]:
    """What `meristem exposure` measured, as a table; empty if it was not measured."""
    report = _read_json(run_path / "exposure.json")
    levels = [level for level in report.get("levels") or () if isinstance(level, dict)]
    rows = []
    for level in levels:
        interval = level.get("interval")
        values = [level.get(key) for key in ("repeats", "canaries", "mean_bits", "extracted")]
        if not all(isinstance(value, int | float) for value in values) or not _is_pair(interval):
            continue
        repeats, canaries, bits, extracted = values
        rows.append(f"| {repeats} | {canaries} | {bits:.1f} ({interval[0]:.1f} to {interval[1]:.1f}) | {extracted} |")
    if not rows:
        return []
    heading = "Random texts were planted into the training text; an unseen one has an exposure of about 1.4 bits."
    table = ["| repeats | texts | exposure in bits (95 % interval) | extracted |", "| --- | --- | --- | --- |"]
    return ["## Exposure of training text", "", heading, "", *table, *rows]


def _is_pair(value: Any) -> TypeGuard[list[float]]:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(bound, int | float) for bound in value)
