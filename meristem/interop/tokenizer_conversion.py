"""Tokenizers and labels of transformers folders, imported and exported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meristem.config.errors import MeristemError
from meristem.inputs.template import InputTemplate
from meristem.interop.model_type import ModelType
from meristem.tokenizers.special_tokens import add_role_tokens, read_role_ids
from meristem.tokenizers.token_bytes import select_spelling
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils import untrusted_files

MAX_LABELS = 1 << 20
TemplateParts = list[tuple[int | str, int]]
"""Parts of a template with their segments: ids of special tokens, and the texts A and B."""
KIND_BY_MODEL = {"WordPiece": "wordpiece", "BPE": "bpe", "Unigram": "unigram", "WordLevel": "words"}


def read_tokenizer(folder: Path, model_type: type[ModelType], config: Mapping[str, Any]) -> Tokenizer:
    """The folder's tokenizer; old formats without a template get the one of this model type."""
    tokenizer = _with_end_token(Tokenizer.load(folder), folder)
    if tokenizer.single_template is not None or (folder / "tokenizer.json").is_file():
        return tokenizer
    description = json.loads(tokenizer.json_text)
    description["post_processor"] = _template_processor(
        description["post_processor"],
        tokenizer,
        *(_parse_template(text, tokenizer) for text in (model_type.single_template, model_type.pair_template)),
        has_segments=_has_segments(model_type),
    )
    return Tokenizer(json.dumps(description), str(folder))


def _with_end_token(tokenizer: Tokenizer, folder: Path) -> Tokenizer:
    """A tokenizer without an end token, as the first GPT's, uses its unknown token, which it hardly ever needs."""
    if tokenizer.end is not None or tokenizer.unknown is None:
        return tokenizer
    description = json.loads(tokenizer.json_text)
    end_role = {"end": (tokenizer.unknown, tokenizer.id_to_token(tokenizer.unknown))}
    description["post_processor"] = add_role_tokens(description["post_processor"], end_role)
    return Tokenizer(json.dumps(description), str(folder))


def tokenizer_kind(tokenizer: Tokenizer) -> str:
    """The tokenizer kind here."""
    description = json.loads(tokenizer.json_text)
    pre_tokenizer = description["pre_tokenizer"] or {}
    if description["model"]["type"] == "WordLevel" and pre_tokenizer.get("type") == "Split":
        return "characters"
    return KIND_BY_MODEL[description["model"]["type"]]


def label_names(config: Mapping[str, Any]) -> list[str]:
    """Label names in order of id; the default of transformers is two labels."""
    id2label = config.get("id2label")
    if isinstance(id2label, dict) and id2label:
        if not all(str(key).isdecimal() for key in id2label):
            raise MeristemError(f"config.json: the keys of id2label must be numbers; got {', '.join(id2label)}")
        return [str(id2label[key]) for key in sorted(id2label, key=int)]
    count = config.get("num_labels") or 2
    if type(count) is not int or not 0 < count < MAX_LABELS:
        raise MeristemError(f"config.json: num_labels={count!r} is not a valid number of labels")
    return [f"LABEL_{number}" for number in range(count)]


def tokenizer_files(
    tokenizer: Tokenizer,
    model_type: type[ModelType],
    max_length: int,
    *,
    template: InputTemplate | None = None,
    pad_id: int | None = None,
    padding_side: str | None = None,
) -> dict[str, str]:
    """tokenizer.json and tokenizer_config.json as AutoTokenizer reads them.

    `template` is the run's, if the tokenizer has none of its own; `pad_id` is used if it has no padding token;
    `padding_side` is by default that of the model type.
    """
    description = describe_tokenizer(tokenizer, template, has_segments=_has_segments(model_type))
    carries_space = select_spelling(description, "tokenizer.json").carries_space
    for token in description["added_tokens"]:
        if token["id"] == tokenizer.mask:  # "a <mask>" has one space, which belongs to the masked word
            token["lstrip"] = token["lstrip"] or carries_space
    tokenizer_config = _tokenizer_config(tokenizer, model_type, max_length, pad_id)
    if padding_side:
        tokenizer_config["padding_side"] = padding_side
    return {
        "tokenizer.json": untrusted_files.to_json(description, indent=1) + "\n",
        "tokenizer_config.json": untrusted_files.to_json(tokenizer_config, indent=2) + "\n",
    }


def _tokenizer_config(
    tokenizer: Tokenizer, model_type: type[ModelType], max_length: int, pad_id: int | None
) -> dict[str, Any]:
    """tokenizer_config.json: use tokenizer.json as it is, with these special tokens."""
    roles = {"pad_token": "pad", "unk_token": "unknown", "mask_token": "mask", **model_type.special_token_roles}
    ids = {key: token_id for key, role in roles.items() if (token_id := getattr(tokenizer, role)) is not None}
    if tokenizer.end == tokenizer.unknown:  # the unknown token only substitutes for an end token
        ids = {key: token_id for key, token_id in ids.items() if roles[key] != "end"}
    if pad_id is not None:
        ids.setdefault("pad_token", pad_id)
    special_ids = tokenizer.special_mask.nonzero()[0].tolist()
    others = [tokenizer.id_to_token(token_id) for token_id in special_ids if token_id not in ids.values()]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": list(model_type.model_input_names),
        "padding_side": model_type.padding_side,
        "clean_up_tokenization_spaces": False,
        **{key: tokenizer.id_to_token(token_id) for key, token_id in ids.items()},
        **({"additional_special_tokens": others} if others else {}),
    }


def describe_tokenizer(
    tokenizer: Tokenizer, template: InputTemplate | None, *, has_segments: bool = True
) -> dict[str, Any]:
    """tokenizer.json whose post-processor adds the special tokens of a run's template, unless it has its own."""
    description: dict[str, Any] = json.loads(tokenizer.json_text)
    if tokenizer.single_template is None and template is not None:
        pair = template.pair
        before, _, between, _, after = pair.segments
        single_parts: TemplateParts = [
            *((token_id, 0) for token_id in template.prefix_ids.tolist()),
            ("A", 0),
            *((token_id, 0) for token_id in template.suffix_ids.tolist()),
        ]
        pair_parts: TemplateParts = [
            *zip(pair.before.tolist(), before, strict=True),
            ("A", 0),
            *zip(pair.between.tolist(), between, strict=True),
            ("B", 1),
            *zip(pair.after.tolist(), after, strict=True),
        ]
        description["post_processor"] = _template_processor(
            description["post_processor"], tokenizer, single_parts, pair_parts, has_segments=has_segments
        )
    return description


def _has_segments(model_type: type[ModelType]) -> bool:
    return "token_type_ids" in model_type.model_input_names


def _parse_template(template: str, tokenizer: Tokenizer) -> TemplateParts:
    """The parts of a model type's template; roles without a token are left out.

    An item may end in its segment (`start:2`); the default is segment 1 from `B` on.
    """
    parts: TemplateParts = []
    in_second = False
    for word in template.split():
        name, _, segment = word.partition(":")
        in_second = in_second or name == "B"
        part = name if name in ("A", "B") else getattr(tokenizer, name)
        if part is not None:
            parts.append((part, int(segment or in_second)))
    return parts


def _template_processor(
    processor: dict[str, Any] | None,
    tokenizer: Tokenizer,
    single_parts: TemplateParts,
    pair_parts: TemplateParts,
    *,
    has_segments: bool,
) -> dict[str, Any] | None:
    """Both templates as a TemplateProcessing post-processor of tokenizers; unchanged without special tokens."""
    special_tokens: dict[str, Any] = {}

    def build_pieces(parts: TemplateParts) -> list[dict[str, Any]]:
        pieces: list[dict[str, Any]] = []
        for part, segment in parts:
            type_id = segment if has_segments else 0
            if isinstance(part, str):
                pieces.append({"Sequence": {"id": part, "type_id": type_id}})
                continue
            token = tokenizer.id_to_token(part)
            special_tokens[token] = {"id": token, "ids": [part], "tokens": [token]}
            pieces.append({"SpecialToken": {"id": token, "type_id": type_id}})
        return pieces

    single, pair = build_pieces(single_parts), build_pieces(pair_parts)
    if not special_tokens:
        return processor
    template = {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special_tokens}
    roles = {role: (token_id, tokenizer.id_to_token(token_id)) for role, token_id in read_role_ids(processor).items()}
    return add_role_tokens(template, roles)
