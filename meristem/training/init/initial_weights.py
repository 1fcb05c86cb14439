"""Initial weights from another run: all of them, its encoder, or its embeddings; matched by token and by label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from meristem.blocks.embeddings.value_embeddings import ValueEmbeddings
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.checkpoint import weight_transfer
from meristem.checkpoint.load_run import LoadedRun
from meristem.config.errors import MeristemError
from meristem.config.recipe import Recipe
from meristem.interfaces.backbone import MODEL_FAMILIES, Model
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.init import encoder_init

MAX_SHOWN_TOKENS = 4
"""Tokens or labels listed in a message."""
EQUIVALENT_HEADS = {"pair": "classification", "classification": "pair"}
"""Tasks with the same head: published classifiers of text pairs are also called classification."""


def load_start_weights(
    model: Model,
    tokenizer: Tokenizer,
    source_run: LoadedRun,
    *,
    parts: Literal["all", "encoder", "embeddings"] = "all",
    recipe: Recipe | None = None,
) -> str:
    """Load weights of another run into `model`, vocabulary rows matched by token; returns a summary for the log.

    `recipe` is this run's: heads with labels are loaded if both runs have the same labels, in any order. An encoder of
    another family is loaded into this model's encoder if it has one; with `parts="encoder"` no head is loaded.
    """
    source_path, source_tensors = source_run.run.path, dict(source_run.learner.model.state_dict())
    shared_tokens = _SharedTokens.from_tokenizers(tokenizer, source_run.tokenizer)
    if parts == "embeddings":
        name = _embedding_name(model)
        embedding = source_run.learner.model.backbone.embedding().weight
        _copy_token_rows(model, {name: embedding}, [name], shared_tokens, source_run)
        return f"from {source_path}: {shared_tokens.describe(tokenizer)}; everything else is newly initialized"
    lines = list[str]()
    if encoder_init.can_init_encoder(source_run, model):
        source_tensors = encoder_init.encoder_weights(model, source_run)
        lines.append(encoder_init.describe_encoder_init(model, source_run))
    if parts == "encoder":
        source_tensors = _encoder_tensors(source_tensors, model, source_run)
    sizes = {len(run_model.backbone.embedding().weight) for run_model in (model, source_run.learner.model)}
    same_vocabulary = tokenizer.digest == source_run.tokenizer.digest and len(sizes) == 1
    fresh_heads, notes = _match_heads(model, source_tensors, recipe, source_run.recipe)
    token_tensors: list[str] = []
    if not same_vocabulary:
        token_tensors = [name for name in _token_row_names(model) if name in source_tensors]
        _copy_token_rows(model, source_tensors, token_tensors, shared_tokens, source_run)
    report = weight_transfer.load_matching(
        model, source_tensors, name_filter=lambda name: name not in token_tensors and not name.startswith(fresh_heads)
    )
    report = replace(
        report,
        loaded_keys=(*report.loaded_keys, *token_tensors),
        missing_keys=tuple(name for name in report.missing_keys if name not in token_tensors),
        mismatched_keys={name: shapes for name, shapes in report.mismatched_keys.items() if name not in token_tensors},
    )
    lines += [] if same_vocabulary else [shared_tokens.describe(tokenizer)]
    return "\n".join([f"from {source_path}: {report.summary()}", *lines, *notes])


def _encoder_tensors(source_tensors: dict[str, Tensor], model: Model, source_run: LoadedRun) -> dict[str, Tensor]:
    """The tensors of the encoder and its token embedding, without decoder and heads."""
    encoder_tensors = {
        name: tensor for name, tensor in source_tensors.items() if encoder_init.is_encoder_tensor(name, model)
    }
    if not encoder_tensors:
        family = model.backbone.settings.family
        families = [name for name, family_class in MODEL_FAMILIES.items() if family_class.encoder_prefixes]
        raise MeristemError(
            f"from.load=encoder: {source_run.recipe.model.family} has no encoder that fits {family}; "
            f"families that can start from an encoder: {', '.join(families)} (model.family=…)"
        )
    return encoder_tensors


# ------------------------------------------------------------ tokens


@dataclass(frozen=True, kw_only=True)
class _SharedTokens:
    """Tokens that two tokenizers share: their ids in this one and in the other."""

    target_ids: Tensor
    source_ids: Tensor

    @classmethod
    def from_tokenizers(cls, tokenizer: Tokenizer, source_tokenizer: Tokenizer) -> _SharedTokens:
        pairs = [
            (token_id, source_id)
            for token_id in range(tokenizer.vocab_size)
            if (source_id := source_tokenizer.token_to_id(tokenizer.id_to_token(token_id))) is not None
        ]
        target_ids, source_ids = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).unbind(1)
        return cls(target_ids=target_ids, source_ids=source_ids)

    def describe(self, tokenizer: Tokenizer) -> str:
        """Phrase with the number of shared tokens, or the new ones if they are few."""
        known_ids = set(self.target_ids.tolist())
        new_tokens = [
            tokenizer.id_to_token(token_id) for token_id in range(tokenizer.vocab_size) if token_id not in known_ids
        ]
        if 0 < len(new_tokens) <= MAX_SHOWN_TOKENS:
            return f"embeddings of all tokens but {', '.join(new_tokens)}, which are new, were copied"
        return f"embeddings of {len(known_ids):,} of {tokenizer.vocab_size:,} tokens, known to both, were copied"


def _embedding_name(model: Model) -> str:
    embedding = model.backbone.embedding().weight
    return next(name for name, tensor in model.state_dict(keep_vars=True).items() if tensor is embedding)


def _token_row_names(model: Model) -> list[str]:
    """Names of the tensors with a row for each token: embeddings, and weight and bias of vocabulary heads."""
    table_ids = {id(model.backbone.embedding().weight)}
    for module in model.backbone.modules():
        if isinstance(module, ValueEmbeddings):
            table_ids |= {id(weight) for weight in module.tables.parameters()}
    for module in model.heads.modules():
        if isinstance(module, VocabularyHead):
            table_ids |= {id(module.weight), id(module.bias)}
        elif isinstance(module, nn.Embedding):
            table_ids.add(id(module.weight))
    return [name for name, tensor in model.state_dict(keep_vars=True).items() if id(tensor) in table_ids]


def _copy_token_rows(
    model: Model,
    source_tensors: Mapping[str, Tensor],
    names: list[str],
    shared_tokens: _SharedTokens,
    source_run: LoadedRun,
) -> None:
    """Copy the rows of shared tokens from their position in the other run."""
    if not len(shared_tokens.target_ids):
        raise MeristemError(f"from: {source_run.run.path} shares no token with this tokenizer")
    target_tensors = model.state_dict()
    for name in names:
        target, source = target_tensors[name], source_tensors[name]
        if target.shape[1:] != source.shape[1:]:
            raise MeristemError(
                f"from: embeddings have width {source.shape[-1]} in {source_run.run.path} and {target.shape[-1]} here; "
                f"set model.hidden_size={source.shape[-1]}"
            )
        target[shared_tokens.target_ids] = source[shared_tokens.source_ids].to(target)


# ------------------------------------------------------------ heads


def _match_heads(
    model: Model, source_tensors: dict[str, Tensor], recipe: Recipe | None, source_recipe: Recipe
) -> tuple[tuple[str, ...], list[str]]:
    """Reorder label rows of `source_tensors` to this run's labels; name prefixes of heads not loaded, and notes."""
    fresh_prefixes, notes = list[str](), list[str]()
    for name in model.heads if recipe is not None else ():
        source_head = _source_head(name, source_tensors)
        labels = recipe.head_labels(name) if recipe is not None else ()
        source_labels = source_recipe.head_labels(source_head)
        if labels == source_labels or not _head_tensor_names(name, source_tensors):
            continue
        if sorted(labels) == sorted(source_labels) and (
            row_names := _label_row_names(model, name, source_tensors, len(labels))
        ):
            order = torch.tensor([source_labels.index(label) for label in labels])
            source_tensors.update({tensor_name: source_tensors[tensor_name][order] for tensor_name in row_names})
            notes.append(f"head {name}: loaded, its labels reordered")
        else:
            fresh_prefixes.append(f"heads.{name}.")
            notes.append(
                f"head {name}: newly initialized, since its labels are {_format_labels(source_labels)} there "
                f"and {_format_labels(labels)} here"
            )
    return tuple(fresh_prefixes), notes


def _source_head(head: str, source_tensors: dict[str, Tensor]) -> str:
    """Name of the source head for a head; an equivalent one is renamed to it if there is none of its own name."""
    equivalent = EQUIVALENT_HEADS.get(head)
    if equivalent is None or _head_tensor_names(head, source_tensors):
        return head
    equivalent_names = _head_tensor_names(equivalent, source_tensors)
    for name in equivalent_names:
        source_tensors[f"heads.{head}.{name.split('.', 2)[2]}"] = source_tensors.pop(name)
    return equivalent if equivalent_names else head


def _head_tensor_names(head: str, source_tensors: Mapping[str, Tensor]) -> list[str]:
    """Names of a head's tensors."""
    return [name for name in source_tensors if name.startswith(f"heads.{head}.")]


def _label_row_names(model: Model, head: str, source_tensors: Mapping[str, Tensor], classes: int) -> list[str]:
    """Names of a head's tensors with a row for each label; none for heads of other kinds."""
    prefixes = {"pooled": f"heads.{head}.score.", "tags": f"heads.{head}.", "scores": f"heads.{head}."}
    prefix = prefixes.get(model.head_specs[head].kind)
    tensor_names = [name for name in source_tensors if prefix is not None and name.startswith(prefix)]
    return tensor_names if all(len(source_tensors[name]) == classes for name in tensor_names) else []


def _format_labels(labels: tuple[str, ...]) -> str:
    listed = ", ".join(labels[:MAX_SHOWN_TOKENS]) + (" …" if len(labels) > MAX_SHOWN_TOKENS else "")
    return listed or "not known"
