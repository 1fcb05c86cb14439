"""Where a model looks while it reads or writes: the weights of every attention it has, with the tokens they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from meristem.batch import Hidden, Model
from meristem.drawing.attended import Attended, Floats, Seen
from meristem.drawing.attended import Picture as Pixels
from meristem.errors import MeristemError
from meristem.evaluation.asking import Given
from meristem.evaluation.held_out import SEED, resting
from meristem.evaluation.taking_in import TakenIn, take_in
from meristem.generation.given import Picture, opening
from meristem.randomness import generator
from meristem.task import Task
from meristem.tasks._words import cut
from meristem.tokenizers.tokenizer import Tokenizer, sound

WANT = ("attention",)


def look(
    model: Model,
    tokenizer: Tokenizer,
    given: Given = "",
    *,
    run: str = "",
    task: Task | None = None,
    target: str | None = None,
    picture: Picture | None = None,
    order: Sequence[int] | None = None,
    before: str | None = None,
) -> Attended:
    """Everything there is to see of one text, of its parts by name, or of a picture.

    `target` is what an encoder-decoder writes, which is found greedily unless given; `order` the factorisation that
    two streams follow, drawn unless given; `before` a text that a model with memory has read just before.
    """
    _refuse(model, task, order)
    followed: tuple[int, ...] = ()
    with resting(model):
        taken = take_in(model, tokenizer, given, task=task, target=target, picture=picture)
        inputs, remembered = _after(model, tokenizer, before, taken.inputs)
        hidden: Hidden = model.backbone(**inputs, want=WANT)
        if not hidden.attention:
            raise MeristemError(_nothing(model))
        if "source" in inputs or "image" in inputs:
            kinds = _written(hidden, taken, tokenizer)
        else:
            labels = tokenizer.labels(inputs["tokens"][0].tolist())
            kinds = {"self": _within(hidden.attention, labels, remembered)}
            if "two_stream" in model.backbone.can and task is None:
                text = given if isinstance(given, str) else ""
                streams, followed = _streams(model, tokenizer, inputs, order, remembered, text)
                kinds |= streams
    said = tokenizer.decode(taken.says).strip() if target is None else sound(target)
    pixels = None if picture is None else _pixels(picture)
    told: dict[str, Any] = {"target": said, "picture": pixels, "order": followed, "notices": taken.notices}
    return Attended(text=_shown(given) or said, run=run, kinds=kinds, **told)


def _refuse(model: Model, task: Task | None, order: Sequence[int] | None) -> None:
    """What needs no look to be refused."""
    if "both_directions" in model.backbone.can:  # recurrent nets, whose words would first have to be spelled
        raise MeristemError(_nothing(model))
    if order is not None and ("two_stream" not in model.backbone.can or task is not None):
        raise MeristemError("order: only a pretrained model of two streams follows one (model.family=xlnet)")


def _nothing(model: Model) -> str:
    return (
        f"this {type(model.backbone).__name__} has no attention to look at; the Transformers have "
        "(bert, gpt2, xlnet, transformer, captioner, …), and so has rnn with model.attention=general"
    )


def _shown(given: Given) -> str:
    """What was given, in one line, without the half characters that no file can hold."""
    parts = given.values() if isinstance(given, Mapping) else [given]
    return sound(" | ".join(part if isinstance(part, str) else " | ".join(map(str, part)) for part in parts))


def _pixels(picture: Picture) -> Pixels:
    """Bytes, also of numbers from 0 to 1."""
    levels = np.asarray(picture)
    return levels if levels.dtype == np.uint8 else np.round(levels * 255).clip(0, 255).astype(np.uint8)


def _stacked(layers: Sequence[Tensor]) -> Floats:
    """[L, H, Q, K] of the one row there is."""
    return torch.stack([layer[0] for layer in layers]).float().cpu().numpy()


def _within(layers: Sequence[Tensor], labels: Sequence[str], remembered: Sequence[str]) -> Seen:
    """A text that looks at itself, and at what is remembered; slots of memory that hold nothing are left out."""
    keys = (*remembered, *labels)
    weights = _stacked(layers)[..., -len(keys) :]
    return Seen(queries=tuple(labels), keys=keys, weights=weights, rolls=True)


def _written(hidden: Hidden, taken: TakenIn, tokenizer: Tokenizer) -> dict[str, Seen]:
    """What is written looks at its source and at itself; the source, where an encoder has attention, at itself.

    A row of `cross` is the token being written; one of `decoder` the token just read, which is also a column.
    """
    read = tuple(tokenizer.labels(taken.inputs["tokens"][0].tolist()))
    queries = tuple(tokenizer.labels(taken.says)) if taken.says else read
    outer = _stacked(hidden.attention)
    if "image" in taken.inputs:
        name, keys = "image", _patches(outer.shape[-1])
    else:
        keys = tuple(tokenizer.labels(taken.inputs["source"][0].tolist()))
        name = "cross" if "encoder_attention" in hidden.extra else "align"
    kinds = {name: Seen(queries=queries, keys=keys, weights=outer)}
    for other, labels in (("encoder", keys), ("decoder", read)):
        if layers := hidden.extra.get(f"{other}_attention"):
            kinds["self" if other == "encoder" else other] = _within(layers, labels, ())
    return kinds


def _patches(places: int) -> tuple[str, ...]:
    """Row and column of each patch, from 1."""
    side = round(places**0.5)
    return tuple(f"{place // side + 1},{place % side + 1}" for place in range(places))


def _after(
    model: Model, tokenizer: Tokenizer, before: str | None, inputs: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """The same inputs with the memory of a text before them, and the tokens that it holds."""
    if not before:
        return inputs, []
    first = opening(model, tokenizer) if "causal" in inputs else []
    read = [*first, *tokenizer.encode(before, special=True).ids.tolist()]
    state: dict[str, Tensor] = {}
    told = {"causal": True} if "causal" in inputs else {}
    for start in range(0, len(read), model.backbone.length) if "memory" in model.backbone.can else ():
        tokens = torch.tensor([read[start : start + model.backbone.length]], device=model.device)
        fresh = torch.tensor([[start == 0]], device=model.device)
        state = model.backbone(tokens=tokens, fresh=fresh, state=state, **told).state
    if not state:
        raise MeristemError("before: this model remembers nothing; one with model.memory above 0 does (transformer_xl)")
    kept = {**inputs, "state": state, "fresh": torch.tensor([[False]], device=model.device)}
    if first:  # the text goes on, so that no document begins with it
        kept["tokens"] = inputs["tokens"][:, len(first) :]
        if not kept["tokens"].numel():
            raise MeristemError("there is no token in the text: what was read before is only remembered")
    return kept, tokenizer.labels(read[-state["documents"].shape[1] :])


def _streams(
    model: Model,
    tokenizer: Tokenizer,
    inputs: dict[str, Any],
    order: Sequence[int] | None,
    remembered: Sequence[str],
    text: str,
) -> tuple[dict[str, Seen], tuple[int, ...]]:
    """Both streams under one order: content knows each token, a query only its place."""
    tokens = inputs["tokens"][0].cpu().numpy()
    places = np.flatnonzero(~tokenizer.specials[tokens])  # special tokens come first and are never predicted
    followed = _order(len(places), order, _tokens_of_words(tokenizer, text, len(places)))
    rank = np.ones(len(tokens), np.int64)
    rank[places[list(followed)]] = 2 + np.arange(len(places))
    ordered = {**inputs, "order": torch.from_numpy(rank)[None].to(model.device)}
    labels = tokenizer.labels(tokens.tolist())
    content = model.backbone(**ordered, want=WANT)
    kinds = {"content": _within(content.attention, labels, remembered)}
    if len(places):
        slots = torch.from_numpy(places)[None].to(model.device)
        query = _stacked(model.backbone(**ordered, slots=slots, want=WANT).attention)
        keys = (*remembered, *labels)
        weights = query[..., -len(keys) :].copy()
        if not remembered and len(places) == len(tokens):
            weights[:, :, followed[0]] = 0.0  # the first of the order sees nothing at all
        kinds["query"] = Seen(queries=tuple(labels[place] for place in places), keys=keys, weights=weights)
    return kinds, followed


def _order(size: int, order: Sequence[int] | None, words: Sequence[Sequence[int]] = ()) -> tuple[int, ...]:
    """The order that was given, once it is known to name every token or every word once; or one drawn, always the same.

    A word that is cut into several tokens is followed through them from left to right.
    """
    if order is None:
        return tuple(generator(SEED, "looking", 0, 0).permutation(size).tolist())
    if sorted(order) == list(range(size)):
        return tuple(order)
    if sorted(order) == list(range(len(words))):
        return tuple(token for word in order for token in words[word])
    several = f", or each of its {len(words)} words" if len(words) not in (0, size) else ""
    raise MeristemError(
        f"order: expected each of the text's {size} tokens once, numbered 0 to {size - 1}{several}; "
        f"got {' '.join(map(str, order))}"
    )


def _tokens_of_words(tokenizer: Tokenizer, text: str, size: int) -> list[list[int]]:
    """The tokens of each word of a text, special ones not counted; of a text that was cut, its first `size`."""
    words = cut(text)
    found = tokenizer.encode(text, special=True)
    starts = found.offsets[~tokenizer.specials[found.ids], 0][:size]
    owner = np.searchsorted([end for _, end in words], starts, side="right")  # the first word that ends behind it
    return [np.flatnonzero(np.minimum(owner, len(words) - 1) == word).tolist() for word in range(len(words))]
