"""Input templates: special tokens around texts, pairs, truncation, segment ids, characters for ELMo, decoder inputs.

One template makes all inputs of a run: rows of pretraining and of tasks, embeddings, attention maps, prompts, sources,
targets and scored texts, and the post-processor of exported tokenizers (compare `TemplateProcessing` of tokenizers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal

import numpy as np

from meristem.config.errors import MeristemError
from meristem.inputs.batch import Array
from meristem.inputs.char_ids import surface_forms, token_char_ids
from meristem.inputs.encoded_input import EncodedInput, TokenizedText, truncate_pair
from meristem.tokenizers.tokenizer import PairTemplate, Tokenizer

BackboneMode = Literal["bidirectional", "causal", "both_directions", "encoder_decoder"]
TASK_TOKENS = ("<|start|>", "<|delimiter|>", "<|extract|>")
"""Special tokens around a task's texts for causal models (Radford et al. 2018), appended to the vocabulary."""


def add_task_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """A causal model's tokenizer with the special tokens of GPT-1's tasks and the template that adds them."""
    if tokenizer.token_to_id(TASK_TOKENS[-1]) is not None:
        return tokenizer
    start, delimiter, extract = TASK_TOKENS
    return tokenizer.with_special_tokens(
        TASK_TOKENS, {"single": f"{start} $A {extract}", "pair": f"{start} $A {delimiter} $B:1 {extract}:1"}
    )


def separator_id(tokenizer: Tokenizer) -> int:
    """The id of the separator between documents: the tokenizer's end token."""
    if tokenizer.end is None:
        raise MeristemError(
            "the tokenizer has no end token ([SEP], </s> or <|endoftext|>) to put between documents; "
            "train one here (tokenizer.kind) or add the token to its file"
        )
    return tokenizer.end


class InputTemplate:
    """The special tokens of a model's inputs: `prefix_ids` and `suffix_ids` around a text, `pair` around two.

    They are those of the tokenizer's own template (published tokenizers have one), else those of pretraining here:
    start and end token around the text of an encoder, the end token after a source, and before the text of a causal
    model the end token of a preceding document.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        mode: BackboneMode,
        max_length: int | None = None,
        *,
        decoder_start_ids: Sequence[int] = (),
        special_ids: tuple[Sequence[int], Sequence[int]] | None = None,
        add_special_tokens: bool = True,
        closes_cut_texts: bool = True,
    ) -> None:
        """`special_ids` replaces the special tokens before and after a text; None as `max_length` is no limit.

        Without `add_special_tokens` there are only those of the tokenizer's own template. Without `closes_cut_texts`
        a text that is cut has no closing tokens, unless they are of that template, as in training on pairs (seq2seq).
        """
        self.tokenizer, self.mode, self.max_length = tokenizer, mode, max_length
        self._start_ids, self._adds_special_tokens = tuple(decoder_start_ids), add_special_tokens
        self._uses_own_template = special_ids is None and tokenizer.single_template is not None
        self._closes_cut_texts = closes_cut_texts or self._uses_own_template
        before, after = special_ids or tokenizer.single_template or self._default_special_ids()
        self.prefix_ids: Array = np.array(before, np.int64)
        self.suffix_ids: Array = np.array(after, np.int64)

    @classmethod
    def for_documents(
        cls, tokenizer: Tokenizer, max_length: int | None = None, start_ids: Sequence[int] | None = None
    ) -> InputTemplate:
        """The template of a causal language model: opening tokens, by default the separator, and no closing ones."""
        special_ids = ((separator_id(tokenizer),) if start_ids is None else start_ids, ())
        return cls(tokenizer, "causal", max_length, special_ids=special_ids)

    def _default_special_ids(self) -> tuple[Sequence[int], Sequence[int]]:
        tokenizer = self.tokenizer
        if not self._adds_special_tokens:
            return (), ()
        if self.mode == "causal":
            return (separator_id(tokenizer),), ()
        if self.mode == "encoder_decoder":
            return (), (separator_id(tokenizer),)
        if tokenizer.start is None or tokenizer.end is None:
            return (), ()
        return (tokenizer.start,), (tokenizer.end,)

    @cached_property
    def pair(self) -> PairTemplate:
        """Special tokens around and between two texts; without a template of its own, the end token between them."""
        if self._uses_own_template and self.tokenizer.pair_template is not None:
            return self.tokenizer.pair_template
        between = [separator_id(self.tokenizer)] if self._adds_special_tokens else []
        segments = ([0] * len(self.prefix_ids), [0], [0] * len(between), [1], [1] * len(self.suffix_ids))
        return PairTemplate(self.prefix_ids, np.array(between, np.int64), self.suffix_ids, segments)

    @cached_property
    def decoder_start_ids(self) -> tuple[int, ...]:
        """The tokens before every target: as in training, else the start token, or the separator without one."""
        if self._start_ids:
            return self._start_ids
        start = self.tokenizer.start
        return (separator_id(self.tokenizer) if start is None else start,)

    @cached_property
    def prompt_start_ids(self) -> tuple[int, ...]:
        """The tokens before a text that is continued: those before any text, for an encoder at least the separator."""
        if len(self.prefix_ids) or self.mode == "causal":
            return tuple(self.prefix_ids.tolist())
        return (separator_id(self.tokenizer),)

    @property
    def forward_options(self) -> dict[str, bool]:
        """Options of the backbone's forward besides its inputs: causal attention for a backbone that has both."""
        return {"causal": True} if self.mode == "causal" else {}

    # ------------------------------------------------------------ lengths

    def num_special_tokens(self, num_texts: int = 1) -> int:
        """Number of special tokens around one or two texts."""
        if num_texts == 1:
            return len(self.prefix_ids) + len(self.suffix_ids)
        return len(self.pair.before) + len(self.pair.between) + len(self.pair.after)

    def max_text_tokens(self, num_texts: int = 1) -> int:
        """Maximum number of text tokens besides special tokens."""
        assert self.max_length is not None
        num_special = self.num_special_tokens(num_texts)
        if self.max_length <= num_special:
            raise MeristemError(
                f"task.max_length: {self.max_length} is too short for text besides {num_special} special tokens"
            )
        return self.max_length - num_special

    def num_tokens(self, texts: Sequence[TokenizedText]) -> int:
        """Length of the input of one or two texts."""
        return sum(len(text.ids) for text in texts) + self.num_special_tokens(len(texts))

    def window_around(self, num_tokens: int, position: int) -> tuple[int, int]:
        """The window (start, stop) of a text of `num_tokens` tokens that is read to predict a position."""
        max_tokens = self.max_text_tokens()
        start = max(0, min(position - max_tokens // 2, num_tokens - max_tokens))
        return start, min(num_tokens, start + max_tokens)

    # ------------------------------------------------------------ token ids

    def add_special_tokens(self, ids: Array) -> Array:
        """Token ids with the special tokens around them."""
        return np.concatenate([self.prefix_ids, ids, self.suffix_ids]).astype(np.int64)

    def source_ids(self, ids: Array, max_length: int | None = None) -> Array:
        """A source with special tokens around it, cut to `max_length`, by default that of the template."""
        limit = self.max_length if max_length is None else max_length
        if limit is None or not self._closes_cut_texts:
            return self.add_special_tokens(ids)[:limit]
        return self.add_special_tokens(ids[: max(0, limit - self.num_special_tokens())])

    def target_ids(self, ids: Array, max_length: int) -> Array:
        """A target with special tokens around it, cut to `max_length`.

        Without a template of the tokenizer's own, a target that is cut has no end token: it is not over yet.
        """
        return (
            self.source_ids(ids, max_length) if self._uses_own_template else self.add_special_tokens(ids)[:max_length]
        )

    def prompt_ids(self, ids: Array) -> list[int]:
        """The beginning of a text that is continued: opening tokens and no closing ones."""
        return [*self.prompt_start_ids, *ids.tolist()]

    def target_special_ids(self, *, denoising: bool = False) -> tuple[list[int], list[int]]:
        """Special tokens before and after a target, without those that its start tokens hold.

        The target of a denoising model is a part of the text: only the end token follows it.
        """
        if denoising:
            return [], [separator_id(self.tokenizer)]
        return self.prefix_ids[self.start_overlap :].tolist(), self.suffix_ids.tolist()

    def strip_start(self, target: Array) -> Array:
        """A target without the prefix tokens that the decoder start tokens already end with."""
        return target[self.start_overlap :]

    @cached_property
    def start_overlap(self) -> int:
        """Number of prefix tokens that the decoder start tokens already end with."""
        size = len(self.prefix_ids)
        return size if size and self.decoder_start_ids[-size:] == tuple(self.prefix_ids.tolist()) else 0

    # ------------------------------------------------------------ inputs of the backbone

    def tokenize(self, texts: Sequence[str], *, with_offsets: bool = True) -> list[TokenizedText]:
        """Texts tokenized without special tokens; offsets are computed if `with_offsets` or for character inputs."""
        if not with_offsets and self.mode != "both_directions":
            return [TokenizedText.from_ids(ids) for ids in self.tokenizer.encode_ids(texts)]
        return [
            TokenizedText.from_encoding(text, encoding)
            for text, encoding in zip(texts, self.tokenizer.encode_batch(texts), strict=True)
        ]

    def encode(self, text: str, text_b: str | None = None, *, truncate: bool = True) -> EncodedInput:
        """The inputs of one or two texts, truncated to the maximum length; [MASK] in a text is the mask token."""
        texts = [text] if text_b is None else [text, text_b]
        max_tokens = self.max_length if truncate else None
        encodings = [self.tokenizer.encode(item, special=True, max_tokens=max_tokens) for item in texts]
        tokenized = [TokenizedText.from_encoding(*item) for item in zip(texts, encodings, strict=True)]
        if not truncate:
            return self.build_input(*tokenized)
        if not self._closes_cut_texts and self.num_tokens(tokenized) > (max_tokens or 0):
            return self._encode_unclosed(tokenized[0], encodings[0].left_out)
        fitting, num_truncated = self.truncate(tokenized)
        num_truncated += sum(encoding.left_out for encoding in encodings)
        return replace(self.build_input(*fitting), num_truncated=num_truncated)

    def _encode_unclosed(self, text: TokenizedText, num_truncated: int) -> EncodedInput:
        """A text that fills the maximum length, without closing tokens."""
        encoded = self.build_input(text)
        inputs = {name: values[: self.max_length] for name, values in encoded.inputs.items()}
        last = len(inputs["tokens"]) - 1
        return replace(encoded, inputs=inputs, summary_position=last, num_truncated=num_truncated)

    def truncate(self, texts: Sequence[TokenizedText]) -> tuple[list[TokenizedText], int]:
        """One or two texts cut to fit beside their special tokens, the longer first, and the number of tokens cut."""
        sizes, max_tokens = [len(text.ids) for text in texts], self.max_text_tokens(len(texts))
        sizes_kept = [min(sizes[0], max_tokens)] if len(texts) == 1 else truncate_pair(sizes[0], sizes[1], max_tokens)
        fitting = [text.slice(0, size) for text, size in zip(texts, sizes_kept, strict=True)]
        return fitting, sum(sizes) - sum(sizes_kept)

    def build_input(self, first: TokenizedText, second: TokenizedText | None = None) -> EncodedInput:
        """The inputs of one or two tokenized texts, which must fit into the maximum length."""
        parts: list[tuple[Array, TokenizedText | None]]
        if second is None:
            parts = [(self.prefix_ids, None), (first.ids, first), (self.suffix_ids, None)]
        else:
            before, between, after = self.pair.before, self.pair.between, self.pair.after
            parts = [(before, None), (first.ids, first), (between, None), (second.ids, second), (after, None)]
        if not any(len(ids) for ids, _ in parts):  # an empty text without special tokens
            parts[-1] = (np.array([separator_id(self.tokenizer)], np.int64), None)
        tokens = np.concatenate([ids for ids, _ in parts]).astype(np.int64)
        ends = np.cumsum([0, *(len(ids) for ids, _ in parts)])
        inputs: dict[str, Array] = {"tokens": tokens}
        match self.mode:
            case "bidirectional":
                inputs["segments"] = self._segment_ids([len(ids) for ids, _ in parts])
            case "encoder_decoder":  # the decoder reads the text moved by one token, as BART does
                shifted = np.concatenate([self.decoder_start_ids[:1], tokens])[: len(tokens)].astype(np.int64)
                inputs = {"source": tokens, "tokens": shifted}
            case "both_directions":
                inputs["characters"] = self._character_ids(tokens, parts)
        return EncodedInput(
            inputs=inputs,
            texts=(first,) if second is None else (first, second),
            text_starts=tuple(int(ends[index]) for index, (_, text) in enumerate(parts) if text is not None),
            summary_position=self._summary_position(tokens),
        )

    def _segment_ids(self, sizes: Sequence[int]) -> Array:
        """The segment id of each token: one for each special token, and one for all tokens of a text."""
        part_segments: Sequence[Sequence[int] | int] = self.pair.segments
        if len(sizes) == 3:
            part_segments = self.tokenizer.template_segments if self._uses_own_template else ([], 0, [])
        segment_ids: list[int] = []
        for segments, size in zip(part_segments, sizes, strict=True):
            ids = [segments] if isinstance(segments, int) else list(segments)
            segment_ids += ids if len(ids) == size else (ids or [0])[:1] * size
        return np.array(segment_ids, np.int64)

    def _character_ids(self, tokens: Array, parts: Sequence[tuple[Array, TokenizedText | None]]) -> Array:
        words: list[bytes] = []
        for ids, text in parts:
            words += [b""] * len(ids) if text is None else surface_forms(text.text, text.offsets)
        return token_char_ids(tokens, words, self.tokenizer)

    def _summary_position(self, tokens: Array) -> int:
        """The position of the start token ([CLS]) for bidirectional encoders; the last position for others."""
        if self.mode == "bidirectional" and self.tokenizer.start is not None:
            positions = np.flatnonzero(tokens == self.tokenizer.start)
            return int(positions[-1] if len(positions) and positions[0] else 0)
        return len(tokens) - 1
