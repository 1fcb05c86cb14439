"""Texts that are written side by side although they began at different times: each joins and leaves between two tokens.

Every text has settings of its own and is what it would be alone: what it may depend on is its own text, and what is
drawn for it follows from its own seed.
"""

# B texts in the session, V vocabulary

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from meristem.batch import Model
from meristem.generation.fair_share import NOBODY, FairShare, Owner, fair_places
from meristem.generation.given import Given, together
from meristem.generation.sampling import (
    SamplingSettings,
    draw,
    refuse_nan,
    shaped,
    uniforms,
    with_repetition_penalty,
    without,
    without_repeats,
)
from meristem.generation.session import Means, Session, steady
from meristem.generation.way import Way, way_for
from meristem.generation.write import ROWS, unwanted
from meristem.generation.written import Writing
from meristem.tokenizers.tokenizer import Tokenizer

AHEAD = 64
"""Tokens that a text has room for at first."""
PREFILL = 256
"""Tokens of prompts that are read between two tokens of the others, padding counted; one prompt is always read."""
CROWDED = 4
"""While several clients have texts the batch is so many times narrower: what a step costs grows with its rows."""
TURN = 16
"""Tokens after which a place changes hands, where there are more requests than places."""


@dataclass(frozen=True)
class Chosen:
    """One token of a text, its log-probability, and the likeliest ones at its place where they were asked for."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(eq=False)
class Seat:
    """One text of a pool."""

    writing: Writing
    start: Given
    settings: SamplingSettings
    copy: int = 0
    """Which of several texts from one prompt: each is drawn on its own."""
    end: int | None = None
    """The token that ends it, where that is not the tokenizer's own."""
    top: int = 0
    """How many of the likeliest tokens are remembered at each place."""
    wanted: Callable[[], bool] = lambda: True
    """Asked between two tokens; a text that nobody wants any more leaves."""
    owner: Owner = NOBODY
    """Whose text it is: places are shared between clients, and between the requests of one."""
    chosen: list[Chosen] = field(default_factory=list)
    error: Exception | None = None

    @property
    def going(self) -> bool:
        """Whether it still wants tokens."""
        return self.error is None and self.writing.finished is None

    @property
    def text(self) -> Given:
        """Where it stands, as a start to go on from."""
        return Given(prompt=self.writing.text_so_far, inputs=self.start.inputs)


class Pool:
    """The texts that one model is writing."""

    def __init__(
        self, model: Model, tokenizer: Tokenizer, *, rows: int = ROWS, way: Way | None = None, turn: int = TURN
    ) -> None:
        """`way` is how all of its texts are written; the model's preferred one unless given."""
        self._model, self._tokenizer, self._rows, self._turn = model, tokenizer, rows, turn
        self._way: Way = way or way_for(model, "generate")
        self._means = Means.of(model, self._way)
        self._banned: dict[int | None, list[int]] = {}
        self._session: Session | None = None
        self._seats: list[Seat] = []
        self._waiting: list[Seat] = []
        self._paused: dict[Seat, Session] = {}
        """Texts that gave their places to others: they go on from the very state they had."""
        self._shares = FairShare()

    def __len__(self) -> int:
        """Texts that are written now."""
        return len(self._seats)

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._seats or self._waiting or self._paused)

    def add(self, seat: Seat) -> None:
        """One more text; it joins before the next token, as soon as there is a place."""
        self._waiting.append(seat)

    @torch.inference_mode()
    def step(self, *, crowded: bool = False) -> list[Seat]:
        """One token for each text → the texts that have one more, have ended, failed or left.

        `crowded` says that several clients wait for tokens, be it of other models.
        """
        gone = self._leave()
        failed = self._enter(crowded)
        seats = list(self._seats)
        if self._session is not None:
            try:
                with steady(len(seats)):
                    self._advance(self._session, seats)
                self._keep([place for place, seat in enumerate(seats) if seat.going], push=True)
            except Exception:  # whatever one text broke, the others go on
                self._part(seats)
        return [*gone, *failed, *seats]

    def clear(self) -> list[Seat]:
        """End with all texts → those that there were."""
        seats = [*self._seats, *self._paused, *self._waiting]
        self._session, self._seats, self._paused, self._waiting = None, [], {}, []
        return seats

    # ------------------------------------------------------------ coming and going

    def _leave(self) -> list[Seat]:
        """Those that nobody wants any more."""
        gone = [seat for seat in (*self._seats, *self._paused, *self._waiting) if not seat.wanted()]
        if gone:
            left = set(map(id, gone))
            self._waiting = [seat for seat in self._waiting if id(seat) not in left]
            self._paused = {seat: session for seat, session in self._paused.items() if id(seat) not in left}
            self._keep([place for place, seat in enumerate(self._seats) if id(seat) not in left], push=False)
        return gone

    def _enter(self, crowded: bool) -> list[Seat]:
        """Share the places, and read those prompts that have one → those that could not be read."""
        every = Counter(seat.owner for seat in (*self._seats, *self._paused, *self._waiting))
        crowded = crowded or len({owner.client for owner in every}) > 1
        places = max(1, self._rows // CROWDED) if crowded else self._rows
        if not (self._waiting or self._paused) and len(self._seats) <= places:
            return []
        self._shares.settle(every)
        turns = sorted(every, key=lambda owner: [int(served) // self._turn for served in self._shares.rank(owner)])
        free = Counter(fair_places({owner: every[owner] for owner in turns}, places))
        for seat in self._seats:
            free[seat.owner] -= 1
        self._pause(free)
        self._resume(free)
        new = self._to_read(free)
        if not new:
            return []
        try:
            self._join(self._begin(new), new)
            return []
        except Exception:  # one by one, so that only the culprit fails
            return [seat for seat in new if not self._enter_alone(seat)]

    def _pause(self, free: Counter[Owner]) -> None:
        """Requests that have more places than their share give back those of their newest texts."""
        out = []
        for place in reversed(range(len(self._seats))):
            owner = self._seats[place].owner
            if free[owner] < 0:
                free[owner] += 1
                out.append(place)
        if out:
            assert self._session is not None  # there are seats
            for place in reversed(out):
                self._paused[self._seats[place]] = self._session.rows([place])
            self._keep([place for place in range(len(self._seats)) if place not in set(out)], push=False)

    def _resume(self, free: Counter[Owner]) -> None:
        """Paused texts go on before new ones begin."""
        back: list[Seat] = []
        for seat in self._paused:
            if free[seat.owner] > 0:
                free[seat.owner] -= 1
                back.append(seat)
        if back:
            first, *others = [self._paused.pop(seat) for seat in back]
            for one in others:
                first.join(one)
            self._join(first, back)

    def _to_read(self, free: Counter[Owner]) -> list[Seat]:
        """New texts that have a place, the least served request's first, as many as are read before the next token."""
        new: list[Seat] = []
        longest, window = 0, self._means.writer.length or PREFILL
        ranks = {owner: self._shares.rank(owner) for owner in {seat.owner for seat in self._waiting}}
        for seat in sorted(self._waiting, key=lambda seat: ranks[seat.owner]):
            if free[seat.owner] <= 0:
                continue
            longest = max(longest, min(seat.start.size, window))
            if new and (len(new) + 1) * longest > PREFILL:
                break
            free[seat.owner] -= 1
            new.append(seat)
        taken = set(map(id, new))
        self._waiting = [seat for seat in self._waiting if id(seat) not in taken]
        return new

    def _enter_alone(self, seat: Seat) -> bool:
        try:
            self._join(self._begin([seat]), [seat])
        except Exception as error:
            seat.error = error
        return seat.error is None

    def _begin(self, seats: Sequence[Seat]) -> Session:
        tokens, sizes, inputs = together([seat.text for seat in seats], self._model.device)
        ahead = min(AHEAD, max(seat.settings.max_tokens for seat in seats))
        return Session(self._means, tokens, sizes, capacity=tokens.shape[1] + ahead, **inputs)

    def _join(self, session: Session, seats: Sequence[Seat]) -> None:
        if self._session is None:
            self._session = session
        else:
            self._session.join(session)
        self._seats += seats

    def _keep(self, places: list[int], *, push: bool) -> None:
        """Go on with the seats at these places; `push` reads the token each has just been given."""
        self._seats = [self._seats[place] for place in places]
        if not places or self._session is None:
            self._session = None
            return
        self._session.keep(torch.tensor(places, device=self._model.device))
        if push:
            tokens = [seat.chosen[-1].token for seat in self._seats]
            with steady(len(tokens)):
                self._session.push(torch.tensor(tokens, device=self._model.device))

    def _part(self, seats: Sequence[Seat]) -> None:
        """After a failure each text is read anew and steps alone; the one that fails again is the culprit."""
        self._session, self._seats = None, []
        for seat in seats:
            if not seat.going:
                continue
            try:
                alone = self._begin([seat])
                self._advance(alone, [seat])
                if seat.going:
                    alone.push(torch.tensor([seat.chosen[-1].token], device=self._model.device))
                    self._join(alone, [seat])
            except Exception as error:
                seat.error = error

    # ------------------------------------------------------------ one token

    def _advance(self, session: Session, seats: Sequence[Seat]) -> None:
        """Choose a token for each text and write it down."""
        raw = session.logits
        refuse_nan(raw)
        tokens = self._choose(raw, seats)
        lses = raw.logsumexp(1)
        logprobs = (raw.gather(1, tokens[:, None])[:, 0] - lses).tolist()
        most = max(seat.top for seat in seats)
        best = raw.topk(min(most, raw.shape[1])) if most else None
        for place, (seat, token) in enumerate(zip(seats, tokens.tolist(), strict=True)):
            top: tuple[tuple[int, float], ...] = ()
            if best is not None and seat.top:
                values = (best.values[place, : seat.top] - lses[place]).tolist()
                top = tuple(zip(best.indices[place, : seat.top].tolist(), values, strict=True))
            seat.chosen.append(Chosen(token, logprobs[place], top))
            self._shares.charge(seat.owner, 1)
            seat.writing.push(token, logprobs[place], seat.settings.max_tokens)

    def _choose(self, raw: Tensor, seats: Sequence[Seat]) -> Tensor:
        """[B]; texts with the same settings are looked at together."""
        alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for place, seat in enumerate(seats):
            s = seat.settings
            early = len(seat.writing.tokens) < s.min_tokens
            alike[seat.end, early, s.repetition_penalty, s.no_repeat, s.greedy, s.temperature, s.top_k, s.top_p].append(
                place
            )
        out = torch.empty(len(seats), dtype=torch.long, device=raw.device)
        for places in alike.values():
            some = [seats[place] for place in places]
            whole = len(places) == len(seats)
            at = torch.tensor(places, device=raw.device)
            logits = self._allowed(raw if whole else raw[at], some)
            out[at] = logits.argmax(-1) if some[0].settings.greedy else _drawn(logits, some)
        return out

    def _allowed(self, logits: Tensor, seats: Sequence[Seat]) -> Tensor:
        """Logits with what these texts may not say at −∞."""
        first = seats[0]
        s, end = first.settings, self._tokenizer.end if first.end is None else first.end
        if first.end not in self._banned:
            self._banned[first.end] = unwanted(self._model, self._tokenizer, first.end, self._way)
        banned = self._banned[first.end]
        forbidden = [*banned, end] if len(first.writing.tokens) < s.min_tokens and end is not None else banned
        if s.repetition_penalty != 1.0:
            logits = with_repetition_penalty(logits, [one.writing.text_so_far for one in seats], s.repetition_penalty)
        return without_repeats(without(logits, forbidden), [one.writing.tokens for one in seats], s.no_repeat)


def _drawn(logits: Tensor, seats: Sequence[Seat]) -> Tensor:
    """[B] one token each, by its own seed, copy and place."""
    numbers = [uniforms(one.settings.seed, [one.copy], len(one.writing.tokens)) for one in seats]
    return draw(shaped(logits, seats[0].settings), torch.cat(numbers))
