"""Base class of encoder-decoder model types: decoder start tokens and tied embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError
from meristem.generation.generation_inputs import input_template
from meristem.interop.model_type import HeadMapping, ModelType
from meristem.interop.weight_map import WeightRule
from meristem.interop.weights_folder import FolderWeights
from meristem.utils import untrusted_files

CLASSIFICATION_HEAD = HeadMapping("pooled", (
    WeightRule("heads.classification.dense", "classification_head.dense"),
    WeightRule("heads.classification.score", "classification_head.out_proj"),
), classes=0)  # fmt: skip
START_KEYS = ("decoder_start_token_id", "forced_bos_token_id")
ROLE_KEYS = {"pad": "pad_token_id", "end": "eos_token_id", "start": "bos_token_id"}


def tied_embeddings(base: str) -> dict[str, str]:
    """Source, target and output embeddings tied to one table."""
    names = ("lm_head", f"{base}encoder.embed_tokens", f"{base}decoder.embed_tokens")
    return {f"{name}.weight": f"{base}shared.weight" for name in names}


class EncoderDecoderModelType(ModelType):
    """The encoder reads a source, the decoder generates a target."""

    family = "transformer"
    generates_text = True
    objective_heads = {"denoising": ("seq2seq",)}
    default_token_ids: ClassVar[Mapping[str, int | None]]
    """Default special token ids of transformers if config.json has none."""

    @classmethod
    def complete_config(cls, config: Mapping[str, Any], weights: FolderWeights) -> Mapping[str, Any]:
        """The decoder start token of generation_config.json takes precedence over config.json, as in transformers."""
        path = weights.folder / "generation_config.json"
        if not path.is_file():
            return config
        first, forced = (untrusted_files.read_json_object(path).get(key) for key in START_KEYS)
        return {**config, START_KEYS[0]: config.get(START_KEYS[0]) if first is None else first, START_KEYS[1]: forced}

    @classmethod
    def objective_recipe(cls, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """Targets begin after the tokens that `generate` starts with."""
        start_ids = [cls._token_id(key, config) for key in START_KEYS]
        return {
            "name": name,
            "start_tokens": [cls._token_role(token_id, config) for token_id in start_ids if token_id is not None],
        }

    @classmethod
    def _token_id(cls, key: str, config: Mapping[str, Any]) -> Any:
        token_id = config.get(key)
        return cls.default_token_ids.get(key) if token_id is None else token_id

    @classmethod
    def _token_role(cls, token_id: int, config: Mapping[str, Any]) -> str:
        for role, key in ROLE_KEYS.items():
            role_ids = cls._token_id(key, config)
            if token_id in (role_ids if isinstance(role_ids, list) else [role_ids]):
                return role
        raise MeristemError(
            f"config.json: targets begin with token {token_id}, which is neither the pad, start nor end token; "
            "only these have a counterpart (objective.start_tokens)"
        )

    @classmethod
    def finalize_export(cls, config: dict[str, Any], tensors: dict[str, Tensor], loaded: LoadedRun) -> list[str]:
        """Sets the decoder start token in config.json."""
        start_ids = input_template(loaded.learner.model, loaded.tokenizer, "source").decoder_start_ids
        if len(start_ids) > len(START_KEYS):
            raise MeristemError(
                f"{cls.name} has no objective.start_tokens of {len(start_ids)} tokens: its targets begin after "
                "one or two"
            )
        config |= {"is_encoder_decoder": True, **dict(zip(START_KEYS, start_ids, strict=False))}
        return super().finalize_export(config, tensors, loaded)
