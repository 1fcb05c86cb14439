"""Settings of the tokenizer."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from meristem.config.conditions import SettingConditions, when
from meristem.config.name_choice import NameChoice
from meristem.config.registry import ComponentKind
from meristem.config.settings import Settings


class TokenizerSettings(Settings):
    """Tokenizer: kind and vocabulary size, or the path of an existing one."""

    renamed: ClassVar[dict[str, str]] = {
        "alphabet": "alphabet_size",
        "room": "padded_vocab_size",
        "size": "vocab_size",
    }
    foreign_names: ClassVar[dict[str, str]] = {
        "vocabulary_size": "vocab_size",
        "type": "kind",
        "tokenizer_type": "kind",
    }

    needs: ClassVar[SettingConditions] = {
        "vocab_size": (when("path", None),),
        "sample_mb": (when("path", None),),
        "alphabet_size": (when("path", None), when("kind", "wordpiece", "unigram")),
        "sentinels": (when("path", None),),
    }

    kind: Annotated[str, NameChoice("tokenizer kind", ComponentKind.TOKENIZER.names)] = "wordpiece"
    """Algorithm: wordpiece (BERT), bpe (GPT-2, byte-level), unigram, characters or whole words."""
    vocab_size: int = Field(8192, ge=64, le=4_000_000)
    """Maximum vocabulary size, special tokens included; little text gives fewer tokens."""
    lowercase: bool = False
    """Lowercase the text; wordpiece and words then strip accents too, as BERT does."""
    sample_mb: float = Field(64, gt=0)
    """Megabytes of text to train on, sampled evenly over the corpus."""
    alphabet_size: int | None = Field(None, ge=16)
    """Maximum number of characters in the initial alphabet of wordpiece and unigram; half of vocab_size if not set."""
    sentinels: int = Field(0, ge=0, le=10_000)
    """Number of sentinel tokens <extra_id_0>, … for span corruption (T5 has 100); they count as tokens."""
    padded_vocab_size: int | None = Field(None, ge=1)
    """Rows of the model's token embedding, if a published model has more of them than its tokenizer has tokens."""
    path: str | None = None
    """An existing tokenizer: tokenizer.json, its folder, vocab.txt, or vocab.json with merges.txt."""

    @model_validator(mode="after")
    def _check_vocab_size(self) -> TokenizerSettings:
        if self.kind == "bpe" and self.vocab_size < 261:
            raise ValueError("bpe needs a vocab_size of at least 261: 256 bytes and five special tokens")
        if self.vocab_size - self.sentinels < (261 if self.kind == "bpe" else 64):
            raise ValueError(f"{self.sentinels} sentinels leave too few of {self.vocab_size} tokens for text")
        return self

    @property
    def alphabet_limit(self) -> int:
        """Maximum number of characters in the initial alphabet."""
        return self.alphabet_size or self.vocab_size // 2
