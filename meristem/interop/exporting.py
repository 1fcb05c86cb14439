"""A run becomes a folder that transformers opens."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from meristem.checkpoint import disk, tensors
from meristem.checkpoint.revive import Revived, revive
from meristem.interop import words
from meristem.interop.folder import SAFE
from meristem.interop.lines import given, places
from meristem.interop.published import Published, of_family
from meristem.settings import MeristemError, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written."""

    folder: Path
    architecture: str
    parameters: int

    def summary(self) -> str:
        """One line for people."""
        return f"{self.architecture}, {self.parameters / 1e6:.1f} M parameters, in {self.folder}"


def export_run(run: Path, out: Path, *, architecture: str | None = None) -> Exported:
    """Write config.json, weights, tokenizer and a model card, whole or not at all."""
    revived = revive(run)
    table = table_of(revived)
    heads, chosen = _heads(table, revived, architecture)
    model = revived.learner.model
    names = [name for name, _ in model.named_parameters() if not _of_other_head(name, heads)]
    found = given(places(table.lines(heads), names), model.state_dict(), revived.recipe.model)
    texts = {
        "config.json": json.dumps(config_of(table, revived, chosen, heads), indent=2) + "\n",
        **words.files(revived.tokenizer, table, revived.recipe.model.length),
        "README.md": _card(revived, chosen),
    }
    _put(out, texts, found)
    return Exported(folder=out, architecture=chosen, parameters=sum(one.numel() for one in found.values()))


def table_of(revived: Revived) -> type[Published]:
    """The published type that a run's model is; what stands in the way is named."""
    recipe, problems = revived.recipe, []
    for table in of_family(recipe.model.family):
        differences = table.differences(recipe.model)
        if not differences:
            return table
        problems.append(f"{table.type} has no {', '.join(differences)}")
    other = "meristem export --onnx writes it for onnxruntime"
    if not problems:
        raise MeristemError(f"transformers has no {recipe.model.family}; this run stays readable here, and {other}")
    raise MeristemError(f"transformers has no model of this shape: {'; '.join(problems)}. {other}")


def _heads(table: type[Published], revived: Revived, wanted: str | None) -> tuple[tuple[str, ...], str]:
    """Which heads go along, and their class: a task's before the pretraining's, and the one that holds most."""
    have = set(revived.learner.model.heads)
    fitting = {name: heads for name, heads in table.architectures.items() if set(heads) <= have}
    if wanted is not None:
        if wanted not in fitting:
            raise MeristemError(f"{wanted} cannot be made of this run{did_you_mean(wanted, list(fitting))}")
        return fitting[wanted], wanted
    brought = set(revived.recipe.heads)
    chosen = max(fitting, key=lambda name: (len(brought & set(fitting[name])), len(fitting[name])))
    return fitting[chosen], chosen


def _of_other_head(name: str, heads: tuple[str, ...]) -> bool:
    return name.startswith("heads.") and name.split(".")[1] not in heads


def config_of(table: type[Published], revived: Revived, architecture: str, heads: tuple[str, ...]) -> dict[str, Any]:
    """config.json: the shape, the words and the labels."""
    tokenizer, recipe = revived.tokenizer, revived.recipe
    room = len(revived.learner.model.backbone.embedding().weight)
    out = {
        "architectures": [architecture],
        **table.config(recipe.model),
        "vocab_size": room,
        "dtype": "float32",
        "tie_word_embeddings": True,
        "pad_token_id": tokenizer.pad,
        "bos_token_id": tokenizer.start,
        "eos_token_id": tokenizer.end,
    }
    labels = next(
        (recipe.heads[name].labels for name in heads if name in recipe.heads and recipe.heads[name].labels), ()
    )
    if labels:
        out["id2label"] = {str(number): label for number, label in enumerate(labels)}
        out["label2id"] = {label: number for number, label in enumerate(labels)}
    return out


def _card(revived: Revived, architecture: str) -> str:
    own = revived.run.path / "README.md"
    use = [
        "```python",
        f"from transformers import AutoTokenizer, {architecture}",
        "",
        f'model = {architecture}.from_pretrained(".")',
        'tokenizer = AutoTokenizer.from_pretrained(".")',
        "```",
        "",
    ]
    card = own.read_text(encoding="utf-8") if own.is_file() else f"# {revived.recipe.name}\n"
    top = ["---", "library_name: transformers", "tags:", "- meristem", "---", "", card]
    return "\n".join([*top, "## With transformers", "", *use])


def _put(out: Path, texts: Mapping[str, str], found: Mapping[str, Tensor]) -> None:
    """The folder, whole or not at all; an existing one is never written into."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise MeristemError(f"{out} exists already: name a folder that does not")
    beside = out.with_name(f".{out.name}.unfinished")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir(parents=True)
        for name, text in texts.items():
            disk.store(beside / name, [text.encode()])
        disk.store(beside / SAFE, tensors.encode(found, {"format": "pt"}))
        if out.is_dir():
            out.rmdir()
        beside.rename(out)
    except OSError as error:
        raise MeristemError(f"{out} could not be written: {error.strerror} ({error.filename})") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
