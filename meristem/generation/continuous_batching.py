"""Continuous batching: sequences join and leave the decoding batch between two tokens.

Every sequence has its own sampling settings and gets the same result as when decoded alone: its logits depend only on
its own tokens, and its random draws only on its own seed.
"""

# B sequences in the batch, V vocabulary

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from meristem.generation.fair_scheduling import NO_OWNER, FairScheduler, Owner, fair_slots
from meristem.generation.generate import MAX_ROWS, banned_token_ids
from meristem.generation.generated_text import GeneratedTextBuilder
from meristem.generation.generation_inputs import GenerationInputs, collate_inputs
from meristem.generation.head_selection import LMKind, lm_kind_for
from meristem.generation.incremental_decoder import DecoderModules, DecodeSession, limit_threads
from meristem.generation.sampling import (
    SamplingSettings,
    apply_repetition_penalty,
    ban_repeated_ngrams,
    ban_tokens,
    check_no_nan,
    draw_uniforms,
    filter_logits,
    sample_from_logits,
)
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

INITIAL_CAPACITY = 64
"""KV cache slots for new tokens that a sequence starts with."""
PREFILL_TOKENS = 256
"""Prompt tokens prefilled between two decoding steps, padding included; one prompt always fits."""
CROWDED_DIVISOR = 4
"""While several clients have sequences, the batch is smaller by this factor: the cost of a step grows with its rows."""
TURN_TOKENS = 16
"""Tokens after which a paused request gets its turn, where there are more requests than slots."""


@dataclass(frozen=True)
class SampledToken:
    """One generated token, its log-probability, and if requested the most probable (token, log-probability) pairs."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(eq=False)
class SequenceState:
    """One sequence of a `ContinuousBatch`."""

    generated_text: GeneratedTextBuilder
    inputs: GenerationInputs
    settings: SamplingSettings
    copy_index: int = 0
    """Which of several texts for one prompt: each has its own random draws."""
    end_id: int | None = None
    """The token that ends the text, if not the tokenizer's end token."""
    top_logprobs: int = 0
    """How many of the most probable tokens are recorded per position."""
    is_wanted: Callable[[], bool] = lambda: True
    """Checked between two tokens; a sequence that is no longer wanted is removed."""
    owner: Owner = NO_OWNER
    """Client and request of the sequence: slots are shared between clients, then between the requests of a client."""
    sampled_tokens: list[SampledToken] = field(default_factory=list)
    error: Exception | None = None

    @property
    def is_active(self) -> bool:
        """Whether it needs more tokens."""
        return self.error is None and self.generated_text.finished is None

    @property
    def current_inputs(self) -> GenerationInputs:
        """Prompt and generated tokens, as the inputs of a new prefill."""
        return GenerationInputs(prompt_ids=self.generated_text.all_token_ids, inputs=self.inputs.inputs)


class ContinuousBatch:
    """The sequences that one model is decoding, waiting ones and paused ones included."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        *,
        max_rows: int = MAX_ROWS,
        lm_kind: LMKind | None = None,
        turn: int = TURN_TOKENS,
    ) -> None:
        """`lm_kind` is the kind of language-model head for all sequences; by default the one the model prefers."""
        self._model, self._tokenizer, self._max_rows, self._turn = model, tokenizer, max_rows, turn
        self._lm_kind: LMKind = lm_kind or lm_kind_for(model, "generate")
        self._decoder = DecoderModules.from_model(model, self._lm_kind)
        self._banned: dict[int | None, list[int]] = {}
        self._session: DecodeSession | None = None
        self._active: list[SequenceState] = []
        self._waiting: list[SequenceState] = []
        self._paused: dict[SequenceState, DecodeSession] = {}
        """Sequences that gave up their slots, with their decoder state, from which they resume."""
        self._scheduler = FairScheduler()

    def __len__(self) -> int:
        """Number of sequences being decoded now."""
        return len(self._active)

    @property
    def has_work(self) -> bool:
        """Whether there are active, waiting or paused sequences."""
        return bool(self._active or self._waiting or self._paused)

    def add(self, sequence: SequenceState) -> None:
        """Queue a sequence; it joins before the next token, as soon as there is a free slot."""
        self._waiting.append(sequence)

    @torch.inference_mode()
    def step(self, *, crowded: bool = False) -> list[SequenceState]:
        """Decode one token per sequence and return the sequences that got one, finished, failed or were removed.

        `crowded` means that several clients wait for tokens, possibly of other models.
        """
        gone = self._remove_cancelled()
        failed = self._admit(crowded)
        seats = list(self._active)
        if self._session is not None:
            try:
                with limit_threads(len(seats)):
                    self._sample_step(self._session, seats)
                self._keep_rows([place for place, seat in enumerate(seats) if seat.is_active], decode=True)
            except Exception:  # whatever one sequence broke, the others continue
                self._retry_separately(seats)
        return [*gone, *failed, *seats]

    def clear(self) -> list[SequenceState]:
        """Remove and return all sequences."""
        seats = [*self._active, *self._paused, *self._waiting]
        self._session, self._active, self._paused, self._waiting = None, [], {}, []
        return seats

    # ------------------------------------------------------------ joining and leaving

    def _remove_cancelled(self) -> list[SequenceState]:
        """Remove and return the sequences that are no longer wanted."""
        gone = [seat for seat in (*self._active, *self._paused, *self._waiting) if not seat.is_wanted()]
        if gone:
            left = set(map(id, gone))
            self._waiting = [seat for seat in self._waiting if id(seat) not in left]
            self._paused = {seat: session for seat, session in self._paused.items() if id(seat) not in left}
            self._keep_rows([place for place, seat in enumerate(self._active) if id(seat) not in left], decode=False)
        return gone

    def _admit(self, crowded: bool) -> list[SequenceState]:
        """Share the slots and prefill the prompts that got one; return the sequences whose prefill failed."""
        every = Counter(seat.owner for seat in (*self._active, *self._paused, *self._waiting))
        crowded = crowded or len({owner.client for owner in every}) > 1
        places = max(1, self._max_rows // CROWDED_DIVISOR) if crowded else self._max_rows
        if not (self._waiting or self._paused) and len(self._active) <= places:
            return []
        self._scheduler.set_active(every)
        turns = sorted(every, key=lambda owner: [int(served) // self._turn for served in self._scheduler.rank(owner)])
        free = Counter(fair_slots({owner: every[owner] for owner in turns}, places))
        for seat in self._active:
            free[seat.owner] -= 1
        self._pause_sequences(free)
        self._resume_paused(free)
        new = self._select_for_prefill(free)
        if not new:
            return []
        try:
            self._add_to_batch(self._prefill(new), new)
            return []
        except Exception:  # one by one, so that only the faulty sequence fails
            return [seat for seat in new if not self._admit_alone(seat)]

    def _pause_sequences(self, free_slots: Counter[Owner]) -> None:
        """Requests with more slots than their share give back those of their newest sequences."""
        out = []
        for place in reversed(range(len(self._active))):
            owner = self._active[place].owner
            if free_slots[owner] < 0:
                free_slots[owner] += 1
                out.append(place)
        if out:
            assert self._session is not None  # there are active sequences
            for place in reversed(out):
                self._paused[self._active[place]] = self._session.take_rows([place])
            self._keep_rows([place for place in range(len(self._active)) if place not in set(out)], decode=False)

    def _resume_paused(self, free_slots: Counter[Owner]) -> None:
        """Paused sequences resume before new ones start."""
        back: list[SequenceState] = []
        for seat in self._paused:
            if free_slots[seat.owner] > 0:
                free_slots[seat.owner] -= 1
                back.append(seat)
        if back:
            first, *others = [self._paused.pop(seat) for seat in back]
            for one in others:
                first.extend(one)
            self._add_to_batch(first, back)

    def _select_for_prefill(self, free_slots: Counter[Owner]) -> list[SequenceState]:
        """Waiting sequences that get a slot, the least served request first, up to `PREFILL_TOKENS` tokens."""
        new: list[SequenceState] = []
        longest, window = 0, self._decoder.decoder.max_length or PREFILL_TOKENS
        ranks = {owner: self._scheduler.rank(owner) for owner in {seat.owner for seat in self._waiting}}
        for seat in sorted(self._waiting, key=lambda seat: ranks[seat.owner]):
            if free_slots[seat.owner] <= 0:
                continue
            longest = max(longest, min(seat.inputs.num_tokens, window))
            if new and (len(new) + 1) * longest > PREFILL_TOKENS:
                break
            free_slots[seat.owner] -= 1
            new.append(seat)
        taken = set(map(id, new))
        self._waiting = [seat for seat in self._waiting if id(seat) not in taken]
        return new

    def _admit_alone(self, sequence: SequenceState) -> bool:
        try:
            self._add_to_batch(self._prefill([sequence]), [sequence])
        except Exception as error:
            sequence.error = error
        return sequence.error is None

    def _prefill(self, sequences: Sequence[SequenceState]) -> DecodeSession:
        tokens, sizes, inputs = collate_inputs([seat.current_inputs for seat in sequences], self._model.device)
        ahead = min(INITIAL_CAPACITY, max(seat.settings.max_tokens for seat in sequences))
        return DecodeSession(self._decoder, tokens, sizes, capacity=tokens.shape[1] + ahead, **inputs)

    def _add_to_batch(self, session: DecodeSession, sequences: Sequence[SequenceState]) -> None:
        if self._session is None:
            self._session = session
        else:
            self._session.extend(session)
        self._active += sequences

    def _keep_rows(self, rows: list[int], *, decode: bool) -> None:
        """Keep these rows of the batch; `decode` also feeds them the token each has just been given."""
        self._active = [self._active[place] for place in rows]
        if not rows or self._session is None:
            self._session = None
            return
        self._session.select_rows(torch.tensor(rows, device=self._model.device))
        if decode:
            tokens = [seat.sampled_tokens[-1].token for seat in self._active]
            with limit_threads(len(tokens)):
                self._session.decode_step(torch.tensor(tokens, device=self._model.device))

    def _retry_separately(self, sequences: Sequence[SequenceState]) -> None:
        """After a failure, prefill and step each sequence alone; one that fails again gets the error."""
        self._session, self._active = None, []
        for seat in sequences:
            if not seat.is_active:
                continue
            try:
                alone = self._prefill([seat])
                self._sample_step(alone, [seat])
                if seat.is_active:
                    alone.decode_step(torch.tensor([seat.sampled_tokens[-1].token], device=self._model.device))
                    self._add_to_batch(alone, [seat])
            except Exception as error:
                seat.error = error

    # ------------------------------------------------------------ one decoding step

    def _sample_step(self, session: DecodeSession, sequences: Sequence[SequenceState]) -> None:
        """Sample a token for each sequence and record it."""
        raw = session.logits
        check_no_nan(raw)
        tokens = self._sample_tokens(raw, sequences)
        lses = raw.logsumexp(1)
        logprobs = (raw.gather(1, tokens[:, None])[:, 0] - lses).tolist()
        most = max(seat.top_logprobs for seat in sequences)
        best = raw.topk(min(most, raw.shape[1])) if most else None
        for place, (seat, token) in enumerate(zip(sequences, tokens.tolist(), strict=True)):
            top: tuple[tuple[int, float], ...] = ()
            if best is not None and seat.top_logprobs:
                values = (best.values[place, : seat.top_logprobs] - lses[place]).tolist()
                top = tuple(zip(best.indices[place, : seat.top_logprobs].tolist(), values, strict=True))
            seat.sampled_tokens.append(SampledToken(token, logprobs[place], top))
            self._scheduler.charge(seat.owner, 1)
            seat.generated_text.add_token(token, logprobs[place], seat.settings.max_tokens)

    def _sample_tokens(self, raw_logits: Tensor, sequences: Sequence[SequenceState]) -> Tensor:
        """[B] tokens; sequences with the same settings are sampled together."""
        alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for place, seat in enumerate(sequences):
            s = seat.settings
            early = len(seat.generated_text.token_ids) < s.min_tokens
            alike[
                seat.end_id,
                early,
                s.repetition_penalty,
                s.no_repeat_ngram_size,
                s.greedy,
                s.temperature,
                s.top_k,
                s.top_p,
            ].append(place)
        out = torch.empty(len(sequences), dtype=torch.long, device=raw_logits.device)
        for places in alike.values():
            some = [sequences[place] for place in places]
            whole = len(places) == len(sequences)
            at = torch.tensor(places, device=raw_logits.device)
            logits = self._constrain_logits(raw_logits if whole else raw_logits[at], some)
            out[at] = logits.argmax(-1) if some[0].settings.greedy else _draw_tokens(logits, some)
        return out

    def _constrain_logits(self, logits: Tensor, sequences: Sequence[SequenceState]) -> Tensor:
        """Logits with the banned tokens of each sequence at −∞."""
        first = sequences[0]
        s, end = first.settings, self._tokenizer.end if first.end_id is None else first.end_id
        if first.end_id not in self._banned:
            self._banned[first.end_id] = banned_token_ids(self._model, self._tokenizer, first.end_id, self._lm_kind)
        banned = self._banned[first.end_id]
        forbidden = [*banned, end] if len(first.generated_text.token_ids) < s.min_tokens and end is not None else banned
        if s.repetition_penalty != 1.0:
            logits = apply_repetition_penalty(
                logits, [one.generated_text.all_token_ids for one in sequences], s.repetition_penalty
            )
        return ban_repeated_ngrams(
            ban_tokens(logits, forbidden), [one.generated_text.token_ids for one in sequences], s.no_repeat_ngram_size
        )


def _draw_tokens(logits: Tensor, sequences: Sequence[SequenceState]) -> Tensor:
    """[B] one token per sequence, drawn by its own seed, copy index and position."""
    numbers = [
        draw_uniforms(one.settings.seed, [one.copy_index], len(one.generated_text.token_ids)) for one in sequences
    ]
    return sample_from_logits(filter_logits(logits, sequences[0].settings), torch.cat(numbers))
