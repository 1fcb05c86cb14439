"""What published encoder-decoders share: which tokens a target begins after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from meristem import bounded
from meristem.checkpoint.revive import Revived
from meristem.errors import MeristemError
from meristem.generation.given import start_of
from meristem.interop.folder import Weights
from meristem.interop.lines import Line
from meristem.interop.published import Carried, Published

CLASSIFICATION = Carried("pooled", (
    Line("heads.classification.dense", "classification_head.dense"),
    Line("heads.classification.score", "classification_head.out_proj"),
), classes=0)  # fmt: skip
SPAN = Carried("tags", (Line("heads.span", "qa_outputs"),), classes=2)
SPOKEN = ("decoder_start_token_id", "forced_bos_token_id")
ROLES = {"pad": "pad_token_id", "end": "eos_token_id", "start": "bos_token_id"}


def one_table(base: str) -> dict[str, str]:
    """Ties of source, target and output to the one table of words."""
    names = ("lm_head", f"{base}encoder.embed_tokens", f"{base}decoder.embed_tokens")
    return {f"{name}.weight": f"{base}shared.weight" for name in names}


class EncoderDecoder(Published):
    """A source is read, a target is written."""

    family = "transformer"
    writes = True
    objectives = {"denoising": ("seq2seq",)}
    numbers: ClassVar[Mapping[str, int | None]]
    """Ids of special tokens that their library takes where config.json is silent."""

    @classmethod
    def known(cls, config: Mapping[str, Any], weights: Weights) -> Mapping[str, Any]:
        """What generation_config.json says of a target's beginning goes before config.json, as it does there."""
        path = weights.folder / "generation_config.json"
        if not path.is_file():
            return config
        first, forced = (bounded.read_mapping(path).get(key) for key in SPOKEN)
        return {**config, SPOKEN[0]: config.get(SPOKEN[0]) if first is None else first, SPOKEN[1]: forced}

    @classmethod
    def objective(cls, name: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """Targets begin after the tokens that their `generate` begins with."""
        told = [cls._number(key, config) for key in SPOKEN]
        return {"name": name, "begin": [cls._role(number, config) for number in told if number is not None]}

    @classmethod
    def _number(cls, key: str, config: Mapping[str, Any]) -> Any:
        found = config.get(key)
        return cls.numbers.get(key) if found is None else found

    @classmethod
    def _role(cls, number: int, config: Mapping[str, Any]) -> str:
        for role, key in ROLES.items():
            found = cls._number(key, config)
            if number in (found if isinstance(found, list) else [found]):
                return role
        raise MeristemError(
            f"config.json: targets begin with token {number}, which is neither its pad, start nor end token; "
            "only these have a counterpart (objective.begin)"
        )

    @classmethod
    def finish(cls, config: dict[str, Any], found: dict[str, Tensor], revived: Revived) -> list[str]:
        """config.json says what a target begins after."""
        begin = start_of(revived.learner.model, revived.tokenizer)
        if len(begin) > len(SPOKEN):
            raise MeristemError(
                f"{cls.type} has no objective.begin of {len(begin)} tokens: a target begins after one or two there"
            )
        config |= {"is_encoder_decoder": True, **dict(zip(SPOKEN, begin, strict=False))}
        return super().finish(config, found, revived)
