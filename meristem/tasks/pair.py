"""Pairs: two texts → a label (entailment) or how alike they are (SPEC C2)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.batch import Batch, Draws, Head, Hidden, Model, Row
from meristem.dependences import Dependences, when
from meristem.errors import MeristemError
from meristem.task import Piece, Sample
from meristem.tasks._labels import Answer, Labels, LabelSettings
from meristem.tasks._reader import Text
from meristem.tasks._sharing import shares
from meristem.tokenizers.tokenizer import Tokenizer

PARTS = ("text", "text_b")


class PairSettings(LabelSettings):
    """What pairs can be told."""

    needs: ClassVar[Dependences] = {
        "orders": (when("siamese", False),),
    }

    name: Literal["pair"] = "pair"
    """The task's name."""
    siamese: bool = False
    """Each text is read by itself: the cosine of the two vectors is a number, [u, v, |u − v|] gives labels."""
    orders: Literal["one", "both"] | None = None
    """Both: the pair is read in either order and the vectors added; for numbers on causal models unless set."""


class Pair(Labels):
    """p(label | text, text_b), or a number."""

    Settings = PairSettings
    name = "pair"
    shape = "pair"
    quantity = "similarity"

    def __init__(self, settings: PairSettings, tokenizer: Tokenizer) -> None:
        if settings.siamese and settings.orders == "both":
            raise MeristemError("task.orders: siamese texts are read apart and have no order; leave it out")
        if settings.siamese and settings.pooling is None:
            settings = settings.model_copy(update={"pooling": "mean"})
        super().__init__(settings, tokenizer)
        self.siamese = settings.siamese
        self.both = not self.siamese and (settings.orders or _orders(settings)) == "both"
        self.rows_per_sample = 2 if self.siamese or self.both else 1

    def label_heads(self, classes: int) -> dict[str, Head]:
        """One on what stands for the pair; none where the cosine itself is the answer."""
        if not self.settings.siamese:
            return super().label_heads(classes)
        if self.settings.problem == "regression":
            return {}
        head = self.sized(self.head_kind, classes)
        sizes = [(key, 3 * size if key == "beside" else size) for key, size in head.sizes]
        return {self.name: Head(head.kind, (*sizes, ("times", 3)))}

    # ------------------------------------------------------------ rows

    def pieces(self, samples: Sequence[Sample]) -> list[Piece]:
        """Both texts as far as they fit: beside each other, or each in a row of its own."""
        texts = self.reader.encode([sample.given[part] for sample in samples for part in PARTS], placed=False)
        room = self.reader.room(1 if self.siamese else 2)
        out = []
        for number, sample in enumerate(samples):
            pair = texts[2 * number : 2 * number + 2]
            sizes = [len(text.ids) for text in pair]
            kept = [min(size, room) for size in sizes] if self.siamese else shares(sizes[0], sizes[1], room)
            parts = {
                "texts": tuple(text.cut(0, size) for text, size in zip(pair, kept, strict=True)),
                "goal": self.goal(sample),
            }
            size = (max(kept) if self.siamese else sum(kept)) + self.reader.length - room
            out.append(Piece(sample=number, size=size, parts=parts, cut=sum(sizes) - sum(kept)))
        return out

    def prepare(self, row: Row, draw: Draws) -> list[Row]:
        """One row for the pair, one for each order of it, or one for each text; the first has the gold."""
        parts: dict[str, Any] = row.notes["piece"].parts
        one, other = parts["texts"]
        reads: list[tuple[Text, ...]] = [(one,), (other,)] if self.siamese else [(one, other)]
        if self.both:
            reads.append((other, one))
        rows: list[Row] = []
        for texts in reads:
            framed = self.reader.frame(*texts)
            at = np.array([framed.summary])
            goals = {"read": {"at": at}, **self.lm_goal(framed)}
            if parts["goal"] and not rows:
                goals[self.name] = {"at": at, **parts["goal"]}
            rows.append(Row(inputs=framed.inputs, goals=goals, notes=row.notes, sample=row.sample))
        return rows

    def scores(self, model: Model, hidden: Hidden, batch: Batch) -> Tensor:
        """[samples, classes]; of texts read apart the cosine, 1 being the top of the range and 0 its bottom."""
        if not self.siamese:
            return super().scores(model, hidden, batch)
        rows = self.pooled(hidden, batch, self.settings.pooling, batch.goals["read"]["at"])
        u, v = rows[::2], rows[1::2]
        if self.settings.problem == "regression":
            return F.cosine_similarity(u.float(), v.float())[:, None]
        return model.heads[self.name](torch.cat([u, v, (u - v).abs()], 1)).float()  # type: ignore[no-any-return]  # nn.Module.__call__

    # ------------------------------------------------------------ for people

    def asked(self, given: str | Mapping[str, Any]) -> Sample:
        """Two texts by their names."""
        if isinstance(given, str) or not all(isinstance(given.get(part), str) for part in PARTS):
            raise MeristemError('task pair reads two texts: give {"text": "…", "text_b": "…"} (--text-b "…")')
        return Sample(given={part: given[part] for part in PARTS})

    def shown(self, answer: Answer, sample: Sample) -> Any:
        """{label, score}; a cosine never leaves the range of the scores."""
        if self.siamese and self.settings.problem == "regression":
            answer = np.clip(answer, *self.settings.range)
        return super().shown(answer, sample)

    def commands(self, place: str, sample: Sample) -> list[str]:
        """The pair as it would be typed."""
        one, other = (shlex.quote(sample.given[part]) for part in PARTS)
        return [f"meristem predict {place} {one} --text-b {other}"]


def _orders(settings: PairSettings) -> str:
    """Likeness has no direction, which a model that reads one way cannot know (Radford et al. 2018)."""
    return "both" if settings.way == "causal" and settings.problem == "regression" else "one"
