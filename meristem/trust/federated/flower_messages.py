"""Tasks and answers as Flower messages: tensors in an ArrayRecord, all else in a ConfigRecord and a MetricRecord."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.config.recipe import PretrainRecipe, recipe_yaml, resolve_recipe
from meristem.config.recipe_format import migrate_recipe
from meristem.config.validation import build_settings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.trust.federated.messages import REPORTED_METRICS, ClientReply, ClientTask
from meristem.trust.federated.settings import FederatedSettings
from meristem.utils import untrusted_files

TENSORS, CONFIG, METRICS = "tensors", "config", "metrics"


def task_to_records(task: ClientTask, *, with_weights: bool = True) -> RecordDict:
    """A task as the content of a message: all that a client needs, so that one that was away has missed nothing."""
    config = {
        "kind": task.kind,
        "round": task.round_number,
        "recipe": recipe_yaml(task.recipe),
        "recipe_name": task.recipe.name,
        "tokenizer": task.tokenizer.json_text,
        "settings": task.settings.model_dump_json(),
    }
    return RecordDict({TENSORS: _to_arrays(task.weights if with_weights else {}), CONFIG: ConfigRecord(config)})


def task_from_records(content: RecordDict) -> ClientTask:
    """The task in a message; every part is parsed as an untrusted file would be."""
    config = _config(content)
    name, place = str(config["recipe_name"]), Path("the server's recipe")
    mapping = untrusted_files.parse_yaml(str(config["recipe"]))
    if not isinstance(mapping, dict):
        raise MeristemError(f"{place} is not a mapping of sections")
    recipe = resolve_recipe(name, migrate_recipe(mapping, place))
    if not isinstance(recipe, PretrainRecipe):
        raise MeristemError(f"{place} is not for pretraining")
    settings = untrusted_files.parse_json(str(config["settings"]), "the server's settings")
    return ClientTask(
        kind="train" if config["kind"] == "train" else "evaluate",
        round_number=int(config["round"]),
        weights=_from_arrays(content[TENSORS]),
        recipe=recipe,
        tokenizer=Tokenizer(str(config["tokenizer"]), "the server's tokenizer"),
        settings=build_settings(FederatedSettings, settings, "federated"),
    )


def reply_to_records(reply: ClientReply) -> RecordDict:
    """An answer as the content of a message."""
    counts = {"weight": reply.weight, "tokens": reply.tokens, "samples": reply.samples}
    config = {"client": reply.client, "kind": reply.kind, "round": reply.round_number}
    return RecordDict(
        {
            TENSORS: _to_arrays(reply.update),
            METRICS: MetricRecord({**counts, **{name: float(value) for name, value in reply.metrics.items()}}),
            CONFIG: ConfigRecord(config),
        }
    )


def reply_from_records(content: RecordDict) -> ClientReply:
    """The answer in a message; numbers that no client should send are dropped."""
    config, metrics = _config(content), content[METRICS]
    if not isinstance(metrics, MetricRecord):
        raise MeristemError("an answer without counts")
    return ClientReply(
        client=str(config["client"]),
        kind="train" if config["kind"] == "train" else "evaluate",
        round_number=int(config["round"]),
        update=_from_arrays(content[TENSORS]),
        weight=float(_number(metrics["weight"])),
        tokens=int(_number(metrics["tokens"])),
        samples=int(_number(metrics["samples"])),
        metrics={name: float(_number(metrics[name])) for name in sorted(REPORTED_METRICS & set(metrics))},
    )


def _config(content: RecordDict) -> Mapping[str, Any]:
    config: Any = content[CONFIG]
    if not isinstance(config, ConfigRecord):
        raise MeristemError("a message without its configuration")
    return dict(config)


def _number(value: Any) -> Any:
    if not isinstance(value, int | float):
        raise MeristemError(f"{value!r:.60} is not a number")
    return value


def _to_arrays(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    return ArrayRecord({name: Array(tensor.detach().cpu().contiguous().numpy()) for name, tensor in tensors.items()})


def _from_arrays(record: object) -> dict[str, Tensor]:
    """Tensors of an ArrayRecord; Flower reads arrays without pickle."""
    if not isinstance(record, ArrayRecord):
        raise MeristemError("a message without tensors")
    return {name: torch.from_numpy(array.numpy().copy()) for name, array in record.items()}
