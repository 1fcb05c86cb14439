"""Annotation of settings that name a component, built in or of a plugin: a tokenizer kind, a file format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core.core_schema import CoreSchema, no_info_after_validator_function

from meristem.config.errors import did_you_mean


@dataclass(frozen=True)
class NameChoice:
    """One of the names that there are when a value is checked: `Annotated[str, NameChoice("format", format_names)]`."""

    label: str
    """What is named, for messages."""
    names: Callable[[], Sequence[str]]

    def check(self, value: str) -> str:
        """The value; raises ValueError if there is no such component."""
        if value not in (names := self.names()):
            raise ValueError(f"no {self.label} {value!r}{did_you_mean(value, list(names))}")
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.names())}
