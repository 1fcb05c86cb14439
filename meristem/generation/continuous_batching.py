"""Continuous batching, the decode engine: sequences join and leave the decoding batch between two tokens.

Text generation, rollouts, tasks that generate and the server all decode here. Every sequence gets the same tokens as
when decoded alone: its logits depend only on its own tokens, and its random numbers are its own.
"""

# B rows of the batch, V vocabulary

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from meristem.blocks.precision import at_least_float32
from meristem.generation.fair_scheduling import NO_OWNER, Owner
from meristem.generation.generated_text import FinishReason, GeneratedText, TextStream, build_text
from meristem.generation.generation_inputs import GenerationInputs, collate_inputs
from meristem.generation.head_selection import LMKind, lm_kind_for
from meristem.generation.incremental_decoder import DecoderModules, DecodeSession, limit_threads
from meristem.generation.logits_processors import LogitsProcessor, build_processors, process_logits
from meristem.generation.sampling import Uniforms, check_no_nan, most_probable, sample_tokens
from meristem.generation.settings import SamplingSettings
from meristem.generation.slot_scheduling import FREE_ROWS_DIVISOR, FirstComeScheduler, SlotScheduler
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

MAX_ROWS = 64
"""Sequences decoded together."""
INITIAL_CAPACITY = 64
"""KV cache slots for new tokens that a sequence starts with."""


@dataclass(frozen=True)
class SampledToken:
    """One generated token, its log-probability, and if requested the most probable (token, log-probability) pairs."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class TokenSampler:
    """How the next token is chosen; sequences with equal samplers are sampled together."""

    key: Hashable
    processors: tuple[LogitsProcessor, ...] = field(compare=False)
    greedy: bool = field(compare=False)

    @classmethod
    def from_settings(
        cls,
        settings: SamplingSettings,
        banned_ids: tuple[int, ...],
        end_id: int | None,
        device: torch.device | str = "cpu",
    ) -> TokenSampler:
        """The sampler of these settings; it does not depend on the seed, the stop strings and the maximum length."""
        s = settings
        numbers = s.greedy, s.min_tokens, s.repetition_penalty, s.no_repeat_ngram_size, s.temperature, s.top_k, s.top_p
        return cls((numbers, end_id, banned_ids), build_processors(settings, banned_ids, end_id, device), s.greedy)


@dataclass(eq=False)
class SequenceState:
    """One sequence of a `ContinuousBatch`."""

    inputs: GenerationInputs
    sampler: TokenSampler
    uniforms: Uniforms
    """The random numbers that its tokens are sampled with."""
    max_tokens: int
    end_id: int | None = None
    """The token that ends the text."""
    text: TextStream | None = None
    """Decodes the tokens as they come, where a stop string may end the text or somebody reads along."""
    top_logprobs: int = 0
    """How many of the most probable tokens are recorded per position."""
    is_wanted: Callable[[], bool] = lambda: True
    """Checked between two tokens; a sequence that is no longer wanted is removed."""
    owner: Owner = NO_OWNER
    """Client and request of the sequence."""

    token_ids: list[int] = field(default_factory=list)
    """The generated tokens without the end token."""
    logprobs: list[float] = field(default_factory=list)
    """Of each generated token, end token included."""
    top: list[tuple[tuple[int, float], ...]] = field(default_factory=list)
    """The most probable tokens at each position, if requested."""
    finished: FinishReason | None = None
    error: Exception | None = None

    def __post_init__(self) -> None:
        self.all_ids = array("q", self.inputs.prompt_ids)
        """Prompt and generated tokens without the end token."""

    @property
    def is_active(self) -> bool:
        """Whether it needs more tokens."""
        return self.finished is None and self.error is None

    @property
    def has_ended(self) -> bool:
        """Whether its last token was the end token."""
        return len(self.logprobs) > len(self.token_ids)

    @property
    def current_inputs(self) -> GenerationInputs:
        """Prompt and generated tokens, as the inputs of a prefill; the same object for all new copies of a prompt."""
        if not self.token_ids:
            return self.inputs
        return GenerationInputs(prompt_ids=self.all_ids.tolist(), inputs=self.inputs.inputs)

    def append(self, token: int, logprob: float) -> None:
        """Append a token; sets `finished` if it ends the text."""
        self.logprobs.append(logprob)
        if token == self.end_id:
            self._finish("end")
            return
        self.token_ids.append(token)
        self.all_ids.append(token)
        if self.text is not None and self.text.push(token):
            self.finished = "stop"
        elif len(self.token_ids) >= self.max_tokens:
            self._finish("length")

    def _finish(self, reason: FinishReason) -> None:
        self.finished = "stop" if self.text is not None and self.text.finish() else reason

    def to_text(self, tokenizer: Tokenizer, seed: int | None) -> GeneratedText:
        """The generated text, sampled with this seed."""
        ids, score, reason = self.token_ids, sum(self.logprobs), self.finished or "length"
        if self.text is None:
            return build_text(tokenizer, self.inputs.prompt_ids, ids, finished=reason, score=score, seed=seed)
        return GeneratedText(text=self.text.text, tokens=tuple(ids), score=score, finished=reason, seed=seed)

    def sampled_tokens(self, first: int = 0) -> tuple[SampledToken, ...]:
        """The generated tokens from index `first` on, end token included."""
        ids = self.token_ids[first:]
        if self.has_ended and self.end_id is not None:
            ids.append(self.end_id)
        top = self.top[first:] if self.top_logprobs else [()] * len(ids)
        return tuple(SampledToken(*entry) for entry in zip(ids, self.logprobs[first:], top, strict=True))


class ContinuousBatch:
    """The sequences that one model is decoding, waiting ones and paused ones included."""

    def __init__(
        self,
        model: Model,
        *,
        lm_kind: LMKind | None = None,
        scheduler: SlotScheduler | None = None,
        sampling_logprobs: bool = False,
    ) -> None:
        """`lm_kind` is the kind of language-model head for all sequences; by default the one the model prefers.

        Log-probabilities are those of the model; with `sampling_logprobs`, of the distribution that is sampled from.
        """
        self._device, self._sampling_logprobs = model.device, sampling_logprobs
        self._decoder = DecoderModules.from_model(model, lm_kind or lm_kind_for(model, "generate"))
        self._scheduler = scheduler or FirstComeScheduler(MAX_ROWS)
        self._session: DecodeSession | None = None
        self._rows: list[SequenceState] = []
        """The sequence of each row of the session; finished ones stay until enough of them can be removed together."""
        self._samplers: dict[TokenSampler, list[int]] = {}
        """The rows of each sampler; empty after the rows have changed."""
        self._waiting: list[SequenceState] = []
        self._paused: dict[SequenceState, DecodeSession] = {}
        """Sequences that gave up their rows, with their decoder state, from which they resume."""

    @property
    def active(self) -> list[SequenceState]:
        """The sequences being decoded now."""
        return [sequence for sequence in self._rows if sequence.is_active]

    @property
    def has_work(self) -> bool:
        """Whether there are active, waiting or paused sequences."""
        return bool(self._waiting or self._paused or self.active)

    def add(self, sequence: SequenceState) -> None:
        """Queue a sequence; it joins before the next token, as soon as there is a free row."""
        self._waiting.append(sequence)

    def run(self) -> None:
        """Decode all sequences to their end; the first error is raised."""
        while self.has_work:
            if admitted := self._change_rows():
                self._extend(self._prefill(admitted), admitted)
            self._decode_step()

    def step(self) -> list[SequenceState]:
        """Decode one token per sequence and return the sequences that got one, finished, failed or were removed.

        An error is stored in the sequence that caused it, and the others continue.
        """
        gone = self._remove_unwanted()
        admitted = self._change_rows()
        failed = (
            [] if self._can_admit(admitted) else [sequence for sequence in admitted if not self._can_admit([sequence])]
        )
        active = self.active
        try:
            self._decode_step()
        except Exception:  # whatever one sequence broke, the others continue
            self._retry_separately(active)
        return [*gone, *failed, *active]

    def clear(self) -> list[SequenceState]:
        """Remove and return all sequences."""
        sequences = [*self.active, *self._paused, *self._waiting]
        self._set_rows(None, [])
        self._paused, self._waiting = {}, []
        return sequences

    # ------------------------------------------------------------ joining and leaving

    def _remove_unwanted(self) -> list[SequenceState]:
        """Remove and return the sequences that are no longer wanted."""
        gone = {sequence for sequence in (*self.active, *self._paused, *self._waiting) if not sequence.is_wanted()}
        if gone:
            self._waiting = [sequence for sequence in self._waiting if sequence not in gone]
            self._paused = {sequence: session for sequence, session in self._paused.items() if sequence not in gone}
            self._keep_rows(
                [row for row, sequence in enumerate(self._rows) if sequence.is_active and sequence not in gone]
            )
        return list(gone)

    def _change_rows(self) -> list[SequenceState]:
        """Pause and resume sequences as scheduled, and return those that must be prefilled."""
        changes = self._scheduler.assign_slots(self.active, list(self._paused), self._waiting)
        if changes.pause or changes.resume or changes.admit:
            for sequence in changes.pause:
                assert self._session is not None  # there are active sequences
                self._paused[sequence] = self._session.take_rows([self._rows.index(sequence)])
            self._keep_rows(
                [row for row, sequence in enumerate(self._rows) if sequence.is_active and sequence not in self._paused]
            )
        if changes.resume:
            first, *others = [self._paused.pop(sequence) for sequence in changes.resume]
            for session in others:
                first.extend(session)
            self._extend(first, changes.resume)
        admitted = set(changes.admit)
        self._waiting = [sequence for sequence in self._waiting if sequence not in admitted]
        return changes.admit

    def _can_admit(self, sequences: Sequence[SequenceState]) -> bool:
        """Prefill these sequences and append them to the batch; False, and the error in a single one, if that fails."""
        try:
            if sequences:
                self._extend(self._prefill(sequences), sequences)
        except Exception as error:
            sequences[0].error = error if len(sequences) == 1 else None
            return False
        return True

    def _prefill(self, sequences: Sequence[SequenceState]) -> DecodeSession:
        """A session of these sequences; several copies of one prompt are prefilled once."""
        prompts = [sequence.current_inputs for sequence in sequences]
        unique = {id(prompt): prompt for prompt in prompts}
        index = {key: row for row, key in enumerate(unique)}
        tokens, sizes, encoder_inputs = collate_inputs(list(unique.values()), self._device)
        ahead = min(INITIAL_CAPACITY, max(sequence.max_tokens for sequence in sequences))
        with limit_threads(len(unique)):
            session = DecodeSession(self._decoder, tokens, sizes, capacity=tokens.shape[1] + ahead, **encoder_inputs)
        session.select_rows(torch.tensor([index[id(prompt)] for prompt in prompts], device=self._device))
        return session

    def _extend(self, session: DecodeSession, sequences: Sequence[SequenceState]) -> None:
        """Append the rows of another session."""
        if self._session is not None:
            self._session.extend(session)
        self._set_rows(self._session or session, [*self._rows, *sequences])

    def _keep_rows(self, rows: list[int]) -> None:
        """Keep these rows of the batch."""
        if len(rows) < len(self._rows):
            if rows and self._session is not None:
                self._session.select_rows(torch.tensor(rows, device=self._device))
            self._set_rows(self._session if rows else None, [self._rows[row] for row in rows])

    def _set_rows(self, session: DecodeSession | None, sequences: list[SequenceState]) -> None:
        self._session, self._rows, self._samplers = session, sequences, {}

    def _retry_separately(self, sequences: Sequence[SequenceState]) -> None:
        """After a failure, prefill and step each sequence alone; one that fails again gets the error."""
        self._set_rows(None, [])
        done: list[tuple[DecodeSession, SequenceState]] = []
        for sequence in filter(lambda sequence: sequence.is_active, sequences):
            try:
                self._set_rows(self._prefill([sequence]), [sequence])
                self._decode_step()
                if self._session is not None:
                    done.append((self._session, sequence))
            except Exception as error:
                sequence.error = error
        self._set_rows(None, [])
        for session, sequence in done:
            self._extend(session, [sequence])

    # ------------------------------------------------------------ one decoding step

    @torch.inference_mode()
    def _decode_step(self) -> None:
        """Sample a token for each sequence, record it, and compute the next logits of those that continue."""
        if self._session is None:
            return
        with limit_threads(len(self._rows)):
            tokens = self._sample_step(at_least_float32(self._session.logits))
            rows = [row for row, sequence in enumerate(self._rows) if sequence.is_active]
            if (len(self._rows) - len(rows)) * FREE_ROWS_DIVISOR >= len(self._rows):
                self._keep_rows(rows)
                tokens = tokens[rows]
            if self._session is not None:
                self._session.decode_step(tokens)

    def _sample_step(self, logits: Tensor) -> Tensor:
        """[B] a token for each row, appended to the sequences that need one."""
        tokens, sampling_logprobs = self._choose_tokens(logits)
        model_logprobs = logits.log_softmax(1) if sampling_logprobs is None else None
        logprobs = model_logprobs.gather(1, tokens[:, None])[:, 0] if model_logprobs is not None else sampling_logprobs
        assert logprobs is not None
        check_no_nan(logprobs)
        most = max(sequence.top_logprobs for sequence in self._rows)
        best = model_logprobs.topk(min(most, logits.shape[1])) if most and model_logprobs is not None else None
        entries = zip(self._rows, tokens.tolist(), logprobs.tolist(), strict=True)
        active = [(row, *entry) for row, entry in enumerate(entries) if entry[0].is_active]
        self._scheduler.charge(sequence.owner for _, sequence, _, _ in active)
        for row, sequence, token, logprob in active:
            if best is not None and sequence.top_logprobs:
                values = best.values[row, : sequence.top_logprobs].tolist()
                ids = best.indices[row, : sequence.top_logprobs].tolist()
                sequence.top.append(tuple(zip(ids, values, strict=True)))
            sequence.append(token, logprob)
        return tokens

    def _choose_tokens(self, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """(tokens [B], their log-probabilities [B] if those are of the sampling distribution)."""
        if not self._samplers:
            for row, sequence in enumerate(self._rows):
                self._samplers.setdefault(sequence.sampler, []).append(row)
        if len(self._samplers) == 1:
            return self._choose(self._rows[0].sampler, logits, self._rows)
        tokens = torch.empty(len(self._rows), dtype=torch.long, device=logits.device)
        logprobs = torch.empty_like(logits[:, 0]) if self._sampling_logprobs else None
        for sampler, rows in self._samplers.items():
            tokens[rows], chosen_logprobs = self._choose(sampler, logits[rows], [self._rows[row] for row in rows])
            if logprobs is not None and chosen_logprobs is not None:
                logprobs[rows] = chosen_logprobs
        return tokens, logprobs

    def _choose(
        self, sampler: TokenSampler, raw_logits: Tensor, sequences: Sequence[SequenceState]
    ) -> tuple[Tensor, Tensor | None]:
        """The same for sequences with the same sampler."""
        logits = process_logits(raw_logits, sequences, sampler.processors)
        if sampler.greedy:
            tokens, weights = most_probable(logits), None
        else:
            numbers = [
                sequence.uniforms(len(sequence.token_ids)) if sequence.is_active else 0.0 for sequence in sequences
            ]
            tokens, weights = sample_tokens(logits, torch.tensor(numbers, dtype=torch.float64))
        if not self._sampling_logprobs:
            return tokens, None
        if weights is None:
            return tokens, logits.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
        return tokens, (weights.gather(1, tokens[:, None])[:, 0] / weights.sum(1)).log()
