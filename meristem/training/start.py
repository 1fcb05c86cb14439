"""Where a run's weights begin: another run's, or only its embeddings (SPEC B11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from meristem.batch import Model
from meristem.blocks.vocabulary import VocabularyHead
from meristem.checkpoint import transfer
from meristem.checkpoint.revive import Revived
from meristem.errors import MeristemError
from meristem.recipe import Recipe
from meristem.settings import find, names
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training import encoder_start

SHOWN = 4
"""Tokens that a message spells out before it only counts."""
ALIKE = {"pair": "classification", "classification": "pair"}
"""Tasks whose heads are one: published classifiers of pairs are called classification like all others."""


def from_run(
    model: Model,
    tokenizer: Tokenizer,
    other: Revived,
    *,
    take: Literal["all", "encoder", "embeddings"] = "all",
    recipe: Recipe | None = None,
) -> str:
    """Take another run's weights, rows of the vocabulary following their tokens; what was taken, in words.

    `recipe` is this run's: heads with labels are taken where both runs have the same, in whatever order. An encoder
    of another family becomes this model's where it has one; with `take="encoder"` no head is taken.
    """
    place, theirs = other.run.path, dict(other.learner.model.state_dict())
    known = _Known.by(tokenizer, other.tokenizer)
    if take == "embeddings":
        name = _name_of_embedding(model)
        _copy_rows(model, {name: other.learner.model.backbone.embedding().weight}, [name], known, other)
        return f"from {place}: {known.told(tokenizer)}; everything else is fresh"
    lines = list[str]()
    if encoder_start.is_encoder(other, model):
        theirs = encoder_start.encoder_weights(model, other)
        lines.append(encoder_start.summary(model, other))
    if take == "encoder":
        theirs = _encoder_only(theirs, model, other)
    sizes = {len(one.backbone.embedding().weight) for one in (model, other.learner.model)}
    same = tokenizer.digest == other.tokenizer.digest and len(sizes) == 1
    fresh, notes = _heads(model, theirs, recipe, other.recipe)
    words: list[str] = []
    if not same:
        words = [name for name in _rows_are_tokens(model) if name in theirs]
        _copy_rows(model, theirs, words, known, other)
    taken = transfer.into(model, theirs, only=lambda name: name not in words and not name.startswith(fresh))
    taken = replace(
        taken,
        taken=(*taken.taken, *words),
        fresh=tuple(name for name in taken.fresh if name not in words),
        reshaped={name: shapes for name, shapes in taken.reshaped.items() if name not in words},
    )
    said = [f"from {place}: {taken.summary()}", *lines, *([] if same else [known.told(tokenizer)]), *notes]
    return "\n".join(said)


def _encoder_only(theirs: dict[str, Tensor], model: Model, other: Revived) -> dict[str, Tensor]:
    """The tensors of an encoder and its token embedding, without decoders and heads."""
    found = {name: tensor for name, tensor in theirs.items() if encoder_start.of_encoder(name, model)}
    if not found:
        here = encoder_start.settings_of(model).family
        able = [name for name in names("models") if find("models", name).encoder_prefixes]
        raise MeristemError(
            f"from.take=encoder: {other.recipe.model.family} has no encoder that {here} "
            f"could take over; families that start from an encoder: {', '.join(able)} (model.family=…)"
        )
    return found


# ------------------------------------------------------------ words


@dataclass(frozen=True, kw_only=True)
class _Known:
    """The tokens that two tokenizers share: their numbers here and there."""

    here: Tensor
    there: Tensor

    @classmethod
    def by(cls, tokenizer: Tokenizer, other: Tokenizer) -> _Known:
        pairs = [
            (number, found)
            for number in range(tokenizer.size)
            if (found := other.id(tokenizer.token(number))) is not None
        ]
        here, there = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).unbind(1)
        return cls(here=here, there=there)

    def told(self, tokenizer: Tokenizer) -> str:
        """How many there are, and which are new where these are few."""
        old = set(self.here.tolist())
        new = [tokenizer.token(number) for number in range(tokenizer.size) if number not in old]
        if 0 < len(new) <= SHOWN:
            return f"embeddings of all tokens but {', '.join(new)}, which are new, were copied"
        return f"embeddings of {len(old):,} of {tokenizer.size:,} tokens, known to both, were copied"


def _name_of_embedding(model: Model) -> str:
    embedding = model.backbone.embedding().weight
    return next(name for name, tensor in model.state_dict(keep_vars=True).items() if tensor is embedding)


def _rows_are_tokens(model: Model) -> list[str]:
    """Names of the tensors with a row for each token: embeddings, and what vocabulary heads predict with."""
    tables = {id(model.backbone.embedding().weight)}
    for module in model.heads.modules():
        if isinstance(module, VocabularyHead):
            tables |= {id(module.weight), id(module.bias)}
        elif isinstance(module, nn.Embedding):
            tables.add(id(module.weight))
    return [name for name, tensor in model.state_dict(keep_vars=True).items() if id(tensor) in tables]


def _copy_rows(model: Model, theirs: Mapping[str, Tensor], names: list[str], known: _Known, other: Revived) -> None:
    """Every token's row from where the other run has it."""
    if not len(known.here):
        raise MeristemError(f"from: {other.run.path} shares no token with this tokenizer")
    ours = model.state_dict()
    for name in names:
        mine, its = ours[name], theirs[name]
        if mine.shape[1:] != its.shape[1:]:
            raise MeristemError(
                f"from: embeddings are {its.shape[-1]} wide in {other.run.path} and {mine.shape[-1]} here; "
                f"set model.width={its.shape[-1]}"
            )
        mine[known.here] = its[known.there].to(mine)


# ------------------------------------------------------------ heads


def _heads(
    model: Model, theirs: dict[str, Tensor], mine: Recipe | None, before: Recipe
) -> tuple[tuple[str, ...], list[str]]:
    """Scores put into this run's order of labels; the beginnings of names that stay fresh, and why, in words."""
    fresh, notes = list[str](), list[str]()
    for name in model.heads if mine is not None else ():
        source = _source(name, theirs)
        here, there = mine.labels(name) if mine is not None else (), before.labels(source)
        if here == there or not _of(name, theirs):
            continue
        if sorted(here) == sorted(there) and (scores := _scores(model, name, theirs, len(here))):
            order = torch.tensor([there.index(label) for label in here])
            theirs.update({one: theirs[one][order] for one in scores})
            notes.append(f"head {name}: kept, its labels put into this run's order")
        else:
            fresh.append(f"heads.{name}.")
            notes.append(f"head {name}: fresh, since its labels are {_some(there)} there and {_some(here)} here")
    return tuple(fresh), notes


def _source(head: str, theirs: dict[str, Tensor]) -> str:
    """The head that is one with it, put under its name where there is none of that name."""
    other = ALIKE.get(head, head)
    if other == head or _of(head, theirs) or not _of(other, theirs):
        return head
    theirs.update({f"heads.{head}.{one.split('.', 2)[2]}": theirs.pop(one) for one in _of(other, theirs)})
    return other


def _of(head: str, theirs: Mapping[str, Tensor]) -> list[str]:
    """Names of a head's tensors."""
    return [name for name in theirs if name.startswith(f"heads.{head}.")]


def _scores(model: Model, head: str, theirs: Mapping[str, Tensor], classes: int) -> list[str]:
    """The tensors of a head with a row for each label, where its shape is one whose rows are known."""
    place = {"pooled": f"heads.{head}.score.", "tags": f"heads.{head}.", "scores": f"heads.{head}."}
    start = place.get(model.declared[head].kind)
    found = [name for name in theirs if start is not None and name.startswith(start)]
    return found if all(len(theirs[name]) == classes for name in found) else []


def _some(labels: tuple[str, ...]) -> str:
    shown = ", ".join(labels[:SHOWN]) + (" …" if len(labels) > SHOWN else "")
    return shown or "not known"
