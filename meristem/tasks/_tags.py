"""What tasks share that tag words: the scores, a CRF on them, the loss, the answers."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.batch import Batch, Head, Hidden, Model
from meristem.blocks.correct import is_correct
from meristem.blocks.crf import CRF, NEVER
from meristem.blocks.precision import wide
from meristem.metrics.entities import are_entities
from meristem.tasks._tagged import Found, legal
from meristem.tasks._word_rows import Words, WordSettings
from meristem.tokenizers.tokenizer import Tokenizer


class TagSettings(WordSettings):
    """What a task that tags words can be told."""

    scheme: Literal["entities", "plain"] | None = None
    """B-TYPE, I-TYPE and O, or any other tags; found from the labels unless set."""
    crf: bool = False
    """Which tag follows which is learned too, and whole sequences are judged (a conditional random field)."""


class Tags(Words):
    """p(tag | word in its text), word by word or, with a CRF, over whole sequences."""

    def __init__(self, settings: Any, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        scheme = settings.scheme or ("entities" if are_entities([settings.labels]) else "plain")
        self.entities = scheme == "entities"
        self.legal = torch.from_numpy(legal(settings.labels)) if self.entities else None

    def tag_heads(self) -> dict[str, Head]:
        """A score per tag at a word, and the CRF on them."""
        classes = len(self.settings.labels)
        crf = {"crf": Head("crf", (("classes", classes),))} if self.settings.crf else {}
        return {self.term: self.sized("tags", classes), **crf}

    def tags_lost(self, model: Model, hidden: Hidden, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The sum of −log p of the gold tags, and how many are right word by word."""
        goal = batch.goals.get(self.term)
        if goal is None:
            nothing = hidden.last.sum() * 0.0
            return nothing, None if self.settings.crf else nothing.detach()
        if self.settings.crf:
            return self._sequence_lost(model, hidden, batch), None
        scores = wide(model.heads[self.term](self.read_at(hidden, goal["at"])))
        right = is_correct(scores.detach(), goal["values"]).sum().float()
        return F.cross_entropy(scores, goal["values"], reduction="sum"), right

    def _sequence_lost(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        """log Σ over all paths − log Σ over those through the gold tags; words without one may be anything."""
        scores_BWC, present_BW = self._grid(self._scores(model, hidden, batch), batch)
        values_BW = self._grid(batch.goals["read"]["values"][:, None], batch, fill=-1)[0][..., 0]
        classes = torch.arange(scores_BWC.shape[-1], device=scores_BWC.device)
        other = (values_BW[..., None] >= 0) & (values_BW[..., None] != classes)
        both = torch.cat([scores_BWC, scores_BWC.masked_fill(other, NEVER)])
        every, through = model.heads["crf"](both, present_BW.repeat(2, 1)).chunk(2)
        return (every - through).sum()  # type: ignore[no-any-return]  # nn.Module.__call__

    def _scores(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        """[n, tags] for every word that is read."""
        return wide(model.heads[self.term](self.read_at(hidden, batch.goals["read"]["at"])))

    def _grid(self, flat: Tensor, batch: Batch, fill: int = 0) -> tuple[Tensor, Tensor]:
        """What each read word has [n, C] as rows of words [B, W, C], and which words there are [B, W]."""
        read, rows = batch.goals["read"], len(batch.notes)
        words = max(1, *(len(note["piece"].parts["words"]) for note in batch.notes))
        place = read["at"] // batch.inputs["tokens"].shape[1] * words + read["order"]
        grid = flat.new_full((rows * words, flat.shape[1]), fill).index_copy(0, place, flat)
        there = torch.zeros(rows * words, dtype=torch.bool, device=flat.device).index_fill(0, place, value=True)
        return grid.view(rows, words, -1), there.view(rows, words)

    # ------------------------------------------------------------ answers

    def tags_found(self, model: Model, hidden: Hidden, batch: Batch) -> list[Found]:
        """What each row's words are."""
        scores = self._scores(model, hidden, batch)
        if not self.settings.crf:
            chances, best = scores.softmax(1).max(1)
        else:
            crf, (grid, there) = model.heads["crf"], self._grid(scores, batch)
            assert isinstance(crf, CRF)
            allowed = None if self.legal is None else self.legal.to(grid.device)
            path = crf.best(grid, there, allowed)
            likely = crf.marginals(grid, there, allowed).gather(2, path[..., None])[..., 0]
            best, chances = path[there], likely[there]
        split = (self.split(batch, part.cpu().numpy()) for part in (best, chances))
        return list(zip(*split, strict=True))
