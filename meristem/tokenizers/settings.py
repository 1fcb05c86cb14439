"""What a person may say about a tokenizer."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from meristem.dependences import Dependences, when
from meristem.settings import Settings


class TokenizerSettings(Settings):
    """The tokenizer: which kind, how large, or an existing one."""

    needs: ClassVar[Dependences] = {
        "size": (when("path", None),),
        "sample_mb": (when("path", None),),
        "alphabet": (when("path", None), when("kind", "wordpiece", "unigram")),
        "sentinels": (when("path", None),),
    }

    kind: Literal["wordpiece", "bpe", "unigram", "characters", "words"] = "wordpiece"
    """How text is cut: wordpiece (BERT), bpe (GPT-2, byte-level), unigram, characters or whole words."""
    size: int = Field(8192, ge=64, le=4_000_000)
    """The most tokens the vocabulary may hold, special ones included; little text gives fewer."""
    lowercase: bool = False
    """Read capitals as small letters; wordpiece and words then drop accents too, as BERT does."""
    sample_mb: float = Field(64, gt=0)
    """Megabytes of text it learns from, taken evenly over the corpus."""
    alphabet: int | None = Field(None, ge=16)
    """The most distinct characters wordpiece and unigram begin with; unset means half the size."""
    sentinels: int = Field(0, ge=0, le=10_000)
    """Tokens <extra_id_0>, … kept free for objectives that hide spans (T5 has 100); they count towards the size."""
    room: int | None = Field(None, ge=1)
    """Rows of the model's table of words, where a published model has more of them than its tokenizer has tokens."""
    path: str | None = None
    """An existing tokenizer to use instead: tokenizer.json, its folder, vocab.txt, or vocab.json beside merges.txt."""

    @model_validator(mode="after")
    def _holds_every_byte(self) -> TokenizerSettings:
        if self.kind == "bpe" and self.size < 261:
            raise ValueError("bpe needs a size of at least 261: every byte and five special tokens")
        if self.size - self.sentinels < (261 if self.kind == "bpe" else 64):
            raise ValueError(f"{self.sentinels} sentinels leave too little of a size of {self.size} for words")
        return self

    @property
    def characters(self) -> int:
        """The limit of the alphabet."""
        return self.alphabet or self.size // 2
