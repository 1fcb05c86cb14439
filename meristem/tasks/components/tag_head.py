"""Head, loss and decoder of sequence labelling: tag logits, optional CRF, Viterbi decoding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.blocks.heads.accuracy import is_correct
from meristem.blocks.heads.crf import CRF, NEG_INF
from meristem.blocks.precision import at_least_float32
from meristem.inputs.batch import Batch
from meristem.interfaces.backbone import Head, Hidden, Model
from meristem.interfaces.objective import Outcome
from meristem.interfaces.sample import Sample, SamplePiece
from meristem.interfaces.task_parts import HeadClasses, TaskHead
from meristem.metrics.entity_f1 import is_iob
from meristem.tasks.components.ngram_logits import TERM as NGRAMS
from meristem.tasks.components.ngram_logits import NgramLogits, fit_mixture, mix_logits
from meristem.tasks.components.state_reader import EncoderStateReader
from meristem.tasks.components.tag_predictions import TagPrediction, WindowTags, allowed_transitions
from meristem.tasks.components.tag_set import TagSet
from meristem.tasks.components.word_windows import split_by_window
from meristem.tasks.settings import TaskSettings

CRF_OBSTACLE = "a CRF over tags (task.crf)"


class TagSettings(TaskSettings):
    """Settings of every sequence labelling task."""

    renamed: ClassVar[dict[str, str]] = {
        "scheme": "tag_scheme",
    }

    tag_scheme: Literal["entities", "plain"] | None = None
    """Entity tags (B-TYPE, I-TYPE, O) or plain tags; detected from the labels if not set."""
    crf: bool = False
    """Add a conditional random field: tag transitions are learned, and whole sequences are scored."""


def are_entity_tags(settings: TagSettings, tags: TagSet) -> bool:
    """Whether the tags mark entities, as set or detected."""
    scheme = settings.tag_scheme or ("entities" if is_iob([tags.labels]) else "plain")
    return scheme == "entities"


class TagHead(TaskHead):
    """p(tag | word in context), word by word or, with a CRF, over whole sequences."""

    def __init__(
        self,
        term: str,
        states: EncoderStateReader,
        tags: TagSet,
        *,
        crf: bool,
        entities: bool,
        ngrams: NgramLogits | None = None,
    ) -> None:
        self.term, self.states, self.tags, self.has_crf = term, states, tags, crf
        num_tags = len(tags.labels)
        crf_head = {"crf": Head("crf", (("classes", num_tags),))} if crf else {}
        self.ngrams = ngrams
        self.heads = {term: states.head("tags", num_tags), **crf_head, **(ngrams.heads if ngrams else {})}
        self.loss_weights = {term: 1.0}
        self.classes = HeadClasses(labels=tags.labels)
        self.class_obstacles = (CRF_OBSTACLE,) if crf else ()
        self.export_obstacles = ngrams.export_obstacles if ngrams else ()
        self.has_mixture = ngrams is not None and not crf
        self.allowed_transitions = torch.from_numpy(allowed_transitions(tags.labels)) if entities else None

    def loss(self, model: Model, hidden: Hidden, batch: Batch) -> Outcome:
        """−log p of each word's tag or, with a CRF, of the tag sequences; accuracy without a CRF."""
        target = batch.targets.get(self.term)
        if target is not None and self.has_crf:
            return Outcome(loss_sums={self.term: self._crf_loss(model, hidden, batch)})
        if target is None:
            loss = hidden.last_hidden_state.sum() * 0.0
            num_correct = loss.detach()
        else:
            parts = self._logit_parts(model, hidden, batch, target["at"])
            logits = mix_logits(model, parts)
            losses = [
                F.cross_entropy(part, target["values"], reduction="sum")
                for part in (parts if model.training else [logits])
            ]
            loss = torch.stack(losses).mean()
            num_correct = is_correct(logits.detach(), target["values"]).sum().float()
        outcome = Outcome(loss_sums={self.term: loss})
        if not self.has_crf:
            num_words = torch.full((), float(batch.target_counts[self.term]), device=loss.device)
            outcome.metrics["accuracy"] = (num_correct, num_words)
        return outcome

    def scored_parts(self, model: Model, hidden: Hidden, batch: Batch) -> tuple[Tensor, ...] | None:
        """The logits of each part of the head for words with a gold tag, and their tags."""
        target = batch.targets.get(self.term)
        return None if target is None else (*self._logit_parts(model, hidden, batch, target["at"]), target["values"])

    def fit_mixture(self, model: Model, scored: Sequence[tuple[Tensor, ...]]) -> None:
        """Weigh the parts of the head so that the loss on these words is lowest."""
        fit_mixture(model, scored, partial(F.cross_entropy, reduction="sum"))

    def _logits(self, model: Model, hidden: Hidden, batch: Batch, positions: Tensor) -> Tensor:
        """Tag logits [n, tags] that predict at flat positions of words; a CRF takes the plain sum of the parts."""
        parts = self._logit_parts(model, hidden, batch, positions)
        return torch.stack(parts).sum(0) if self.has_crf else mix_logits(model, parts)

    def _logit_parts(self, model: Model, hidden: Hidden, batch: Batch, positions: Tensor) -> list[Tensor]:
        """Tag logits [n, tags] of the states, and of the words' features."""
        logits = at_least_float32(model.heads[self.term](self.states.select(model, hidden, positions)))
        if self.ngrams is None:
            return [logits]
        feature_positions = batch.targets[NGRAMS]["at"]
        words = torch.searchsorted(positions, feature_positions).clamp_max(max(len(positions) - 1, 0))
        is_wanted = positions[words] == feature_positions  # only words with a gold tag have a loss
        return [logits, self.ngrams.logits(model, batch, words, len(logits), is_wanted)]

    def _crf_loss(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        """log Σ over all paths − log Σ over paths with the gold tags; words without gold may have any tag."""
        logits_BWC, present_BW = _to_grid(self._logits(model, hidden, batch, batch.targets["read"]["at"]), batch)
        values_BW = _to_grid(batch.targets["read"]["values"][:, None], batch, fill=-1)[0][..., 0]
        classes = torch.arange(logits_BWC.shape[-1], device=logits_BWC.device)
        is_wrong = (values_BW[..., None] >= 0) & (values_BW[..., None] != classes)
        both = torch.cat([logits_BWC, logits_BWC.masked_fill(is_wrong, NEG_INF)])
        all_paths, gold_paths = model.heads["crf"](both, present_BW.repeat(2, 1)).chunk(2)
        return (all_paths - gold_paths).sum()  # type: ignore[no-any-return]  # nn.Module.__call__

    def decode(self, model: Model, hidden: Hidden, batch: Batch) -> list[WindowTags]:
        """The tags of each window's words, and their probabilities."""
        logits = self._logits(model, hidden, batch, batch.targets["read"]["at"])
        if not self.has_crf:
            probs, tag_ids = logits.softmax(1).max(1)
        else:
            crf, (grid, present) = model.heads["crf"], _to_grid(logits, batch)
            assert isinstance(crf, CRF)
            allowed = None if self.allowed_transitions is None else self.allowed_transitions.to(grid.device)
            path = crf.viterbi_decode(grid, present, allowed)
            marginals = crf.marginals(grid, present, allowed).gather(2, path[..., None])[..., 0]
            tag_ids, probs = path[present], marginals[present]
        by_window = (split_by_window(batch, values.cpu().numpy()) for values in (tag_ids, probs))
        return list(zip(*by_window, strict=True))

    def merge(
        self, samples: Sequence[Sample], pieces: Sequence[SamplePiece], candidates: Sequence[Any]
    ) -> list[TagPrediction]:
        """The tags of each sample's words."""
        return self.tags.merge(samples, pieces, candidates)


def _to_grid(flat: Tensor, batch: Batch, fill: int = 0) -> tuple[Tensor, Tensor]:
    """Values of words [n, C] as a padded grid [B, W, C], and its mask [B, W]."""
    read, num_rows = batch.targets["read"], len(batch.metadata)
    max_words = max(1, *(len(metadata["piece"].features["words"]) for metadata in batch.metadata))
    index = read["at"] // batch.inputs["tokens"].shape[1] * max_words + read["order"]
    grid = flat.new_full((num_rows * max_words, flat.shape[1]), fill).index_copy(0, index, flat)
    present = torch.zeros(num_rows * max_words, dtype=torch.bool, device=flat.device).index_fill(0, index, value=True)
    return grid.view(num_rows, max_words, -1), present.view(num_rows, max_words)
