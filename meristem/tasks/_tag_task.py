"""Base of sequence labelling tasks: tag logits, optional CRF, loss, Viterbi decoding."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.blocks.heads.accuracy import is_correct
from meristem.blocks.heads.crf import CRF, NEG_INF
from meristem.blocks.precision import at_least_float32
from meristem.inputs.batch import Batch
from meristem.interfaces.backbone import Head, Hidden, Model
from meristem.metrics.entity_f1 import is_iob
from meristem.tasks._tag_predictions import WindowTags, allowed_transitions
from meristem.tasks._word_task import WordTask, WordTaskSettings
from meristem.tokenizers.tokenizer import Tokenizer


class TagTaskSettings(WordTaskSettings):
    """Settings of every sequence labelling task."""

    renamed: ClassVar[dict[str, str]] = {
        "scheme": "tag_scheme",
    }

    tag_scheme: Literal["entities", "plain"] | None = None
    """Entity tags (B-TYPE, I-TYPE, O) or plain tags; detected from the labels if not set."""
    crf: bool = False
    """Add a conditional random field: tag transitions are learned, and whole sequences are scored."""


class TagTask(WordTask):
    """p(tag | word in context), word by word or, with a CRF, over whole sequences."""

    def __init__(self, settings: Any, tokenizer: Tokenizer) -> None:
        super().__init__(settings, tokenizer)
        scheme = settings.tag_scheme or ("entities" if is_iob([settings.labels]) else "plain")
        self.are_entities = scheme == "entities"
        self.allowed_transitions = torch.from_numpy(allowed_transitions(settings.labels)) if self.are_entities else None

    def tag_heads(self) -> dict[str, Head]:
        """The tag head and, if set, the CRF."""
        classes = len(self.settings.labels)
        crf = {"crf": Head("crf", (("classes", classes),))} if self.settings.crf else {}
        return {self.term: self.sized_head("tags", classes), **crf}

    def tag_loss(self, model: Model, hidden: Hidden, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The sum of −log p of the gold tags, and the number of correct words (None with a CRF)."""
        goal = batch.targets.get(self.term)
        if goal is None:
            nothing = hidden.last_hidden_state.sum() * 0.0
            return nothing, None if self.settings.crf else nothing.detach()
        if self.settings.crf:
            return self._crf_loss(model, hidden, batch), None
        scores = at_least_float32(model.heads[self.term](self.states_at(hidden, goal["at"], training=model.training)))
        right = is_correct(scores.detach(), goal["values"]).sum().float()
        return F.cross_entropy(scores, goal["values"], reduction="sum"), right

    def _crf_loss(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        """log Σ over all paths − log Σ over paths with the gold tags; words without gold may have any tag."""
        scores_BWC, present_BW = self._to_grid(self._tag_logits(model, hidden, batch), batch)
        values_BW = self._to_grid(batch.targets["read"]["values"][:, None], batch, fill=-1)[0][..., 0]
        classes = torch.arange(scores_BWC.shape[-1], device=scores_BWC.device)
        other = (values_BW[..., None] >= 0) & (values_BW[..., None] != classes)
        both = torch.cat([scores_BWC, scores_BWC.masked_fill(other, NEG_INF)])
        every, through = model.heads["crf"](both, present_BW.repeat(2, 1)).chunk(2)
        return (every - through).sum()  # type: ignore[no-any-return]  # nn.Module.__call__

    def _tag_logits(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        """Tag logits [n, tags] of all words of the batch."""
        return at_least_float32(
            model.heads[self.term](self.states_at(hidden, batch.targets["read"]["at"], training=model.training))
        )

    def _to_grid(self, flat: Tensor, batch: Batch, fill: int = 0) -> tuple[Tensor, Tensor]:
        """Values of words [n, C] as a padded grid [B, W, C], and its mask [B, W]."""
        read, rows = batch.targets["read"], len(batch.metadata)
        words = max(1, *(len(note["piece"].features["words"]) for note in batch.metadata))
        place = read["at"] // batch.inputs["tokens"].shape[1] * words + read["order"]
        grid = flat.new_full((rows * words, flat.shape[1]), fill).index_copy(0, place, flat)
        there = torch.zeros(rows * words, dtype=torch.bool, device=flat.device).index_fill(0, place, value=True)
        return grid.view(rows, words, -1), there.view(rows, words)

    # ------------------------------------------------------------ predictions

    def decode_tags(self, model: Model, hidden: Hidden, batch: Batch) -> list[WindowTags]:
        """The tags of each row's words, and their probabilities."""
        scores = self._tag_logits(model, hidden, batch)
        if not self.settings.crf:
            chances, best = scores.softmax(1).max(1)
        else:
            crf, (grid, there) = model.heads["crf"], self._to_grid(scores, batch)
            assert isinstance(crf, CRF)
            allowed = None if self.allowed_transitions is None else self.allowed_transitions.to(grid.device)
            path = crf.viterbi_decode(grid, there, allowed)
            likely = crf.marginals(grid, there, allowed).gather(2, path[..., None])[..., 0]
            best, chances = path[there], likely[there]
        split = (self.split_by_row(batch, part.cpu().numpy()) for part in (best, chances))
        return list(zip(*split, strict=True))
