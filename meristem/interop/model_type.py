"""Declarative description of a transformers model type: settings, weight map, heads and special tokens."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

from torch import Tensor

from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError
from meristem.config.registry import ComponentKind, Registry
from meristem.config.settings import Settings
from meristem.config.validation import build_settings
from meristem.interfaces.backbone import MODEL_FAMILIES, Head, Model
from meristem.interfaces.task import TASKS
from meristem.interop.weight_map import WeightRule
from meristem.interop.weights_folder import FolderWeights
from meristem.tokenizers.tokenizer import Tokenizer

TASK_KEY = "meristem_task"
"""The key of config.json with the task a class was exported for, where several tasks share the class."""
START_TOKEN_KEYS = ("bos_token_id", "decoder_start_token_id", "forced_bos_token_id")
"""The keys of config.json with the tokens that generation starts with."""
INIT_SETTINGS = frozenset({"init_std", "embedding_init_std", "output_init"})
"""Settings of weight initialisation, which weight files do not depend on."""


def shared_head(name: str) -> str:
    """The head of another task whose class a task's head shares (a pair's that of classification); else empty."""
    exported = TASKS[name].signature.export_head if name in TASKS else None
    return "" if exported in (None, name) else str(exported)


@dataclass(frozen=True)
class ConfigEntry:
    """One of our settings and its key in config.json; of several keys all are written, and the first present is read.

    A dot leads into a mapping: `rope_parameters.rope_theta`.
    """

    ours: str
    theirs: str | tuple[str, ...]
    default: Any
    """The default of transformers if config.json lacks the key."""
    values: Mapping[Any, Any] = field(default_factory=dict)
    """Our value → theirs, where the same thing has another name."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys in config.json."""
        return (self.theirs,) if isinstance(self.theirs, str) else self.theirs


ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}


@dataclass(frozen=True)
class HeadMapping:
    """A head: its kind here, and where its tensors are."""

    kind: str
    rules: tuple[WeightRule, ...]
    classes: int | None = None
    """Number of outputs, for kinds that need it; 0 means the number of labels in config.json."""
    sizes: tuple[tuple[str, int], ...] = ()

    def to_head(self, num_labels: int) -> Head:
        """The head's specification."""
        class_sizes = () if self.classes is None else (("classes", self.classes or num_labels),)
        return Head(self.kind, (*class_sizes, *self.sizes))


SCORES_HEAD = HeadMapping("scores", (WeightRule("heads.classification", "score"),), classes=0)
TAGGING_HEAD = HeadMapping("tags", (WeightRule("heads.tagging", "classifier"),), classes=0)
SPAN_HEAD = HeadMapping("tags", (WeightRule("heads.span", "qa_outputs"),), classes=2)


ModelTypeClass: TypeAlias = "type[ModelType]"


class ModelType:
    """One transformers model type and the equivalent model family here."""

    name: ClassVar[str]
    """transformers' `model_type`."""
    family: ClassVar[str]
    extra_families: ClassVar[tuple[str, ...]] = ()
    """Further families here whose runs it can represent."""
    exportable: ClassVar[bool] = True
    """Whether runs are exported as this type; one that equals another but for its name is only imported."""
    config_entries: ClassVar[tuple[ConfigEntry, ...]]
    fixed_settings: ClassVar[Mapping[str, Any]] = {}
    """Our settings that are fixed for this type."""
    required_config: ClassVar[Mapping[str, Any]] = {}
    """Keys of config.json that must have this value if set: the family here supports no other."""
    training_settings: ClassVar[frozenset[str]] = frozenset()
    """Our settings that only affect training: config.json need not have them."""
    head_only_settings: ClassVar[Mapping[str, str]] = {}
    """Our settings that only one kind of head reads → that kind."""
    attention_mode: ClassVar[str | None] = None
    """The attention mode that every objective must use, where the family here has more modes than theirs."""
    generates_text: ClassVar[bool] = False
    """Whether models of this type generate text."""
    base_prefix: ClassVar[str] = ""
    """Prefix of the base model's tensor names in a model with heads; absent in one without."""
    body_rules: ClassVar[tuple[WeightRule, ...]]
    heads: ClassVar[Mapping[str, HeadMapping]] = {}
    optional_heads: ClassVar[frozenset[str]] = frozenset()
    """Heads that are imported if a folder has them, and that the class may lack."""
    architectures: ClassVar[Mapping[str, tuple[str, ...]]]
    """Class → our heads in it, the class without heads first."""
    standalone_types: ClassVar[Mapping[str, ModelTypeClass]] = {}
    """Class → model type of a head that is such a model by itself, for runs that fit no other class."""
    subfolder_heads: ClassVar[Mapping[str, str]] = {}
    """A head that transformers stores as a separate model → its class in `standalone_types`.

    It is written to and read from a subfolder of the head's name.
    """
    excluded_prefixes: ClassVar[tuple[str, ...]] = ()
    """Prefixes of our names that it has no tensors for."""
    objective_heads: ClassVar[Mapping[str, tuple[str, ...]]]
    """Objective → the heads that it trains; the first objective continues training a base model without heads."""
    tied_weights: ClassVar[Mapping[str, str]] = {}
    """Their tensor name → the name of the tensor it is tied to."""
    ignored_patterns: ClassVar[tuple[str, ...]] = ()
    """Patterns of tensor names without learned values, or not read by the imported heads."""
    zero_patterns: ClassVar[tuple[str, ...]] = ()
    """Patterns of tensor names that may be ignored only if they are all zeros."""
    single_template: ClassVar[str] = "start A end"
    """Template of one text: roles of special tokens, optionally with a segment (`start:2`), and A."""
    pair_template: ClassVar[str] = "start A end B end"
    """Template of a pair."""
    special_token_roles: ClassVar[Mapping[str, str]] = {"cls_token": "start", "sep_token": "end"}
    """transformers' names of the start and end tokens → their roles here."""
    model_input_names: ClassVar[tuple[str, ...]] = ("input_ids", "attention_mask")
    """The tokenizer outputs that the model takes."""
    padding_side: ClassVar[str] = "right"
    """The side on which shorter texts are padded."""

    @classmethod
    def settings_from_config(cls, config: Mapping[str, Any], source: str = "config.json") -> Settings:
        """Our settings for a config.json."""
        for key, required in cls.required_config.items():
            if (configured := _get_nested(config, key)) != required and configured is not None:
                raise MeristemError(
                    f"{source}: {key}={configured!r}: only {required!r} has a counterpart in the {cls.family} family"
                )
        ours: dict[str, Any] = {"family": cls.family, **cls.fixed_settings}
        for entry in cls.config_entries:
            configured = (_get_nested(config, key) for key in entry.keys)
            value = next((candidate for candidate in configured if candidate is not None), entry.default)
            to_ours = {there: here for here, there in entry.values.items()}
            if entry.values and (not isinstance(value, Hashable) or value not in to_ours):
                raise MeristemError(
                    f"{source}: {entry.keys[0]}={value!r} is not supported; supported: {', '.join(map(str, to_ours))}"
                )
            ours[entry.ours] = to_ours[value] if entry.values else value
        return build_settings(MODEL_FAMILIES[cls.family].Settings, cls.adjust_settings(ours, config), source)

    @classmethod
    def complete_config(cls, config: Mapping[str, Any], weights: FolderWeights) -> Mapping[str, Any]:
        """config.json completed with what only the weights show."""
        return config

    @classmethod
    def adjust_settings(cls, settings: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
        """Hook: adjust our settings where one key is not enough."""
        return settings

    @classmethod
    def objective_recipe(cls, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """Recipe settings of an objective that continues training these weights."""
        return {"name": name}

    @classmethod
    def config_from_settings(cls, settings: Any) -> dict[str, Any]:
        """config.json for our model: the architecture only, without vocabulary and labels."""
        out: dict[str, Any] = {"model_type": cls.name}
        for key, required in cls.required_config.items():
            _set_nested(out, key, required)
        own_settings, full_settings = settings.model_dump(), derived_settings(settings)
        for entry in cls.config_entries:
            value = own_settings[entry.ours] if entry.default is None else full_settings[entry.ours]
            for key in entry.keys:
                _set_nested(out, key, entry.values.get(value, value))
        return out

    @classmethod
    def unsupported_settings(cls, settings: Any, head_kinds: Collection[str] = ()) -> list[str]:
        """Settings that this type cannot represent: those that do not survive a round trip through config.json.

        `head_kinds` are those of the run's heads: settings that only other kinds read are ignored.
        """
        own_settings = derived_settings(settings)
        unknown_entries = [
            entry.ours for entry in cls.config_entries if entry.values and own_settings[entry.ours] not in entry.values
        ]
        if unknown_entries:
            return [f"model.{key}={own_settings[key]}" for key in unknown_entries]
        try:
            round_trip = derived_settings(cls.settings_from_config(cls.config_from_settings(settings)))
        except MeristemError as error:
            return [str(error)]
        unread_settings = {key for key, kind in cls.head_only_settings.items() if kind not in head_kinds}
        compared = own_settings.keys() - INIT_SETTINGS - cls.training_settings - {"family"} - unread_settings
        return [
            f"model.{key}={own_settings[key]}"
            for key in own_settings
            if key in compared and own_settings[key] != round_trip[key]
        ]

    @classmethod
    def generation_config(cls, tokenizer: Tokenizer, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """generation_config.json: start, end and padding tokens as here; None for types that do not generate."""
        if not cls.generates_text:
            return None
        pad_id = tokenizer.end if tokenizer.pad is None else tokenizer.pad
        token_ids = {"bos_token_id": tokenizer.start, "eos_token_id": tokenizer.end, "pad_token_id": pad_id}
        return {**token_ids, **{key: config[key] for key in START_TOKEN_KEYS if key in config}}

    @classmethod
    def run_padding_side(cls, loaded: LoadedRun) -> str:
        """The padding side for a run."""
        return cls.padding_side

    @classmethod
    def exported_settings(cls, settings: Any, model: Model) -> Any:
        """The settings to export: the run's, unless only a part of it is exported."""
        return settings

    @classmethod
    def finalize_export(cls, config: dict[str, Any], tensors: dict[str, Tensor], loaded: LoadedRun) -> list[str]:
        """Hook: change what is exported, in place, and return notes for the user."""
        return []

    @classmethod
    def head_mapping(cls, head: str) -> HeadMapping | None:
        """The mapping of a head; one that shares another's class gets the same tensor names."""
        shared_name = shared_head(head)
        if head in cls.heads or shared_name not in cls.heads:
            return cls.heads.get(head)
        shared_mapping = cls.heads[shared_name]
        return replace(
            shared_mapping,
            rules=tuple(
                replace(rule, ours=rule.ours.replace(f"heads.{shared_name}", f"heads.{head}", 1))
                for rule in shared_mapping.rules
            ),
        )

    @classmethod
    def weight_rules(cls, heads: Iterable[str]) -> tuple[WeightRule, ...]:
        """The weight rules of the base model and these heads."""
        mappings = (cls.head_mapping(name) for name in heads)
        return tuple(rule for mapping in mappings if mapping is not None for rule in mapping.rules) + cls.body_rules


MODEL_TYPES = Registry(ComponentKind.MODEL_TYPE, ModelType)
"""Model types of transformers by name."""


def derived_settings(settings: Settings) -> dict[str, Any]:
    """Settings with all derived values filled in."""
    values = settings.model_dump()
    defaults = {
        "ffn_size": 4 * values["hidden_size"],
        "kv_heads": values.get("heads"),
        "embedding_size": values["hidden_size"],
        "decoder_layers": values.get("layers"),
    }
    defaults["time_step_rank"] = -(-values["hidden_size"] // 16)
    return {key: defaults[key] if value is None and key in defaults else value for key, value in values.items()}


def _get_nested(config: Mapping[str, Any], key: str) -> Any:
    head_key, *rest = key.split(".", 1)
    value = config.get(head_key)
    if not rest:
        return value
    return _get_nested(value, rest[0]) if isinstance(value, Mapping) else None


def _set_nested(config: dict[str, Any], key: str, value: Any) -> None:
    head_key, *rest = key.split(".", 1)
    if rest:
        _set_nested(config.setdefault(head_key, {}), rest[0], value)
    else:
        config[head_key] = value


def find_model_type(model_type: str) -> type[ModelType]:
    """The class of a model type."""
    if model_type not in MODEL_TYPES:
        known_types = ", ".join(name.replace("_", "-") for name in MODEL_TYPES)
        raise MeristemError(f"model_type {model_type!r} is not supported; supported: {known_types}")
    return MODEL_TYPES[model_type]


def iter_export_types(family: str) -> Iterator[type[ModelType]]:
    """Every model type that runs of a family can be exported as."""
    for _, model_type in MODEL_TYPES.items():
        if model_type.exportable and family in (model_type.family, *model_type.extra_families):
            yield model_type
