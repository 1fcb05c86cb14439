"""Input encoding of tasks: special tokens around one or two texts, segment ids, characters for ELMo, decoder inputs.

It also returns the positions at which a task uses the hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from meristem.config.errors import MeristemError
from meristem.dataset.char_ids import token_char_ids
from meristem.dataset.encode_documents import separator_id
from meristem.interfaces.batch import Array
from meristem.tokenizers.tokenizer import Encoding, PairTemplate, Tokenizer

BackboneMode = Literal["bidirectional", "causal", "both_directions", "encoder_decoder"]
TASK_TOKENS = ("<|start|>", "<|delimiter|>", "<|extract|>")
"""Special tokens around a task's texts for causal models (Radford et al. 2018), appended to the vocabulary."""


def add_task_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """A causal model's tokenizer with the three special tokens of GPT-1's tasks, and the template that adds them."""
    start, delimiter, extract = TASK_TOKENS
    return tokenizer.with_special_tokens(
        TASK_TOKENS, {"single": f"{start} $A {extract}", "pair": f"{start} $A {delimiter} $B:1 {extract}:1"}
    )


@dataclass(frozen=True, kw_only=True)
class TokenizedText:
    """A tokenized text without special tokens: ids, offsets, and the text itself for character inputs."""

    ids: Array
    offsets: Array
    text: str

    def slice(self, start: int, stop: int) -> TokenizedText:
        """The tokens [start, stop)."""
        return TokenizedText(ids=self.ids[start:stop], offsets=self.offsets[start:stop], text=self.text)

    @classmethod
    def from_encoding(cls, text: str, encoding: Encoding) -> TokenizedText:
        """From the encoding of a tokenizer."""
        return cls(ids=encoding.ids.astype(np.int64), offsets=encoding.offsets, text=text)


@dataclass(frozen=True, kw_only=True)
class EncodedInput:
    """The inputs of a row, and the positions of its texts."""

    inputs: dict[str, Array]
    text_starts: tuple[int, ...]
    """The position of each text's first token."""
    summary_position: int
    """The position of the summary state: the [CLS] token in front (BERT) or at the end (XLNet), or the last token."""


class TextEncoder:
    """Encodes one or two texts as the inputs of the backbone's forward."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        backbone_mode: BackboneMode,
        max_length: int,
        decoder_start_ids: Sequence[int] = (),
        *,
        add_special_tokens: bool = True,
    ) -> None:
        self.tokenizer, self.backbone_mode, self.max_length = tokenizer, backbone_mode, max_length
        self.decoder_start_ids = tuple(decoder_start_ids[:1]) or (
            tokenizer.start if tokenizer.start is not None else separator_id(tokenizer),
        )
        """The decoder's start token; its input is the text shifted by this one token."""
        self.single_template: tuple[Array, Array] = tokenizer.single_template or (
            _single_template(tokenizer) if add_special_tokens else _empty_template()
        )
        self.pair_template = tokenizer.pair_template or _pair_template(
            *self.single_template, between=[separator_id(tokenizer)] if add_special_tokens else []
        )

    def tokenize(self, texts: Sequence[str], *, with_offsets: bool = True) -> list[TokenizedText]:
        """Texts tokenized without special tokens; offsets are computed if `with_offsets` or for character inputs."""
        if not with_offsets and self.backbone_mode != "both_directions":
            nowhere = np.zeros((0, 2), np.int64)
            found = zip(texts, self.tokenizer.encode_ids(texts), strict=True)
            return [TokenizedText(ids=ids.astype(np.int64), offsets=nowhere, text=text) for text, ids in found]
        return [
            TokenizedText.from_encoding(text, found)
            for text, found in zip(texts, self.tokenizer.encode_batch(texts), strict=True)
        ]

    def max_text_tokens(self, num_texts: int = 1) -> int:
        """Maximum number of text tokens besides special tokens."""
        pair = self.pair_template
        taken = sum(map(len, self.single_template if num_texts == 1 else (pair.before, pair.between, pair.after)))
        if self.max_length <= taken:
            raise MeristemError(
                f"task.max_length: {self.max_length} is too short for text besides {taken} special tokens"
            )
        return self.max_length - taken

    def build_input(self, first: TokenizedText, second: TokenizedText | None = None) -> EncodedInput:
        """The inputs of one or two texts, which must fit into the maximum length."""
        pair = self.pair_template
        parts = [(self.single_template[0], None), (first.ids, first), (self.single_template[1], None)]
        if second is not None:
            parts = [
                (pair.before, None),
                (first.ids, first),
                (pair.between, None),
                (second.ids, second),
                (pair.after, None),
            ]
        if not any(len(ids) for ids, _ in parts):  # an empty text without special tokens
            parts[-1] = (np.array([separator_id(self.tokenizer)], np.int64), None)
        tokens = np.concatenate([ids for ids, _ in parts]).astype(np.int64)
        ends = np.cumsum([0, *(len(ids) for ids, _ in parts)])
        starts = tuple(int(ends[number]) for number, (_, text) in enumerate(parts) if text is not None)
        inputs: dict[str, Array] = {"tokens": tokens}
        match self.backbone_mode:
            case "bidirectional":
                kinds = self.tokenizer.template_segments if second is None else pair.segments
                inputs["segments"] = np.array(_segment_ids(kinds, [len(ids) for ids, _ in parts]), np.int64)
            case "encoder_decoder":
                inputs = {
                    "source": tokens,
                    "tokens": np.concatenate([self.decoder_start_ids, tokens])[: len(tokens)].astype(np.int64),
                }
            case "both_directions":
                words = [
                    w for ids, text in parts for w in (_token_bytes(text) if text is not None else [b""] * len(ids))
                ]
                inputs["characters"] = token_char_ids(tokens, words, self.tokenizer)
        return EncodedInput(inputs=inputs, text_starts=starts, summary_position=self._summary_position(tokens))

    def _summary_position(self, tokens: Array) -> int:
        """The position of the start token ([CLS]) for bidirectional encoders; the last position for others."""
        if self.backbone_mode == "bidirectional" and self.tokenizer.start is not None:
            found = np.flatnonzero(tokens == self.tokenizer.start)
            return int(found[-1] if len(found) and found[0] else 0)
        return len(tokens) - 1


def _single_template(tokenizer: Tokenizer) -> tuple[Array, Array]:
    """Start and end token, if the tokenizer has them, for a tokenizer without a template."""
    start, end = ([] if mark is None else [mark] for mark in (tokenizer.start, tokenizer.end))
    return np.array(start, np.int64), np.array(end, np.int64)


def _empty_template() -> tuple[Array, Array]:
    return np.array([], np.int64), np.array([], np.int64)


def _pair_template(before: Array, after: Array, *, between: list[int]) -> PairTemplate:
    """[CLS] a [SEP] b [SEP], with segment 1 for the second text and the tokens after it."""
    return PairTemplate(
        before, np.array(between, np.int64), after, ([0] * len(before), [0], [0], [1], [1] * len(after))
    )


def _segment_ids(part_segments: Sequence[Sequence[int] | int], sizes: Sequence[int]) -> list[int]:
    """The segment id of each token: one for each special token, and one for all tokens of a text."""
    out: list[int] = []
    for segments, size in zip(part_segments, sizes, strict=True):
        several = [segments] if isinstance(segments, int) else list(segments)
        out += several if len(several) == size else (several or [0])[:1] * size
    return out


def _token_bytes(text: TokenizedText) -> list[bytes]:
    return [text.text[a:b].encode("utf-8", "surrogatepass") for a, b in text.offsets.tolist()]
