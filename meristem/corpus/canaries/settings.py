"""Settings of canaries: what they look like, how many there are, and how often each is repeated."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator

from meristem.config.settings import Settings, expand_switch
from meristem.corpus.canaries.templates import CanaryTemplate, resolve_templates

MAX_REPEATS = 1_000_000


class CanarySettings(Settings):
    """Random texts planted as documents into the training split, to measure what the model memorises."""

    formats: tuple[str, ...] = ("en",)
    """Templates with {name}, {digits:N}, {letters:N} or {hex:N}; en and zh stand for built-in ones."""

    repeats: tuple[int, ...] = (1, 4, 16, 64, 256)
    """How often a canary is planted; each number has its own canaries."""

    per_repeat: int = Field(4, ge=1, le=1000)
    """Canaries for each number of repeats, taken from the formats in turn."""

    seed: int = 0
    """The same seed draws the same canaries and plants them at the same places."""

    @field_validator("formats", mode="before")
    @classmethod
    def _accept_one(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("formats")
    @classmethod
    def _check_formats(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("give at least one template, or en or zh")
        resolve_templates(value)
        return value

    @field_validator("repeats")
    @classmethod
    def _check_repeats(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or min(value) < 1 or max(value) > MAX_REPEATS or len(set(value)) < len(value):
            raise ValueError(f"give different numbers from 1 to {MAX_REPEATS:,}, such as [1, 4, 16, 64, 256]")
        return tuple(sorted(value))

    @property
    def templates(self) -> tuple[CanaryTemplate, ...]:
        """The templates that `formats` names."""
        return resolve_templates(self.formats)


CanaryOption = Annotated[
    CanarySettings | None, BeforeValidator(expand_switch, json_schema_input_type=CanarySettings | bool | None)
]
