"""Settings of the HTTP server."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from meristem.config.settings import Settings


class ServingSettings(Settings):
    """Address, authentication and limits of the server."""

    renamed: ClassVar[dict[str, str]] = {
        "body": "max_body_bytes",
        "connections": "max_connections",
        "deadline": "request_timeout",
        "max_read_tokens": "max_processed_tokens",
        "patience": "body_timeout",
        "queue": "max_requests",
        "rows": "max_batch_size",
    }

    host: str = "127.0.0.1"
    """The address to listen on; any address but localhost needs a key file."""
    port: int = Field(8000, ge=0, le=65535)
    """The port to listen on; 0 picks a free one."""
    key_file: Path | None = None
    """A file with one API key per line; every request must send one."""
    threads: int | None = Field(None, ge=1)
    """Number of inference threads, one batch each; torch's number of threads unless set."""
    max_requests: int = Field(64, ge=1)
    """Maximum number of running and waiting requests; more are answered 429."""
    request_timeout: float = Field(60.0, gt=0)
    """Timeout of a request in seconds."""
    max_batch_size: int = Field(64, ge=1)
    """Maximum number of texts of one run generated in one batch."""
    max_generated_tokens: int = Field(1 << 15, ge=1)
    """Maximum generated tokens per request: prompts × texts (or beams) × max_tokens, times listed top tokens."""
    max_processed_tokens: int = Field(1 << 18, ge=1)
    """Maximum tokens processed per request, counted once per forward pass."""
    max_body_bytes: int = Field(1 << 20, ge=1)
    """Maximum bytes of a request body."""
    body_timeout: float = Field(10.0, gt=0)
    """Seconds that a client may take to send a request body."""
    allow_nonfinite: bool = False
    """Also serve runs whose weights contain NaN or infinity."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of forward passes; auto is float32, so that an answer never depends on what shares its batch."""
    quantize: Literal["int8"] | None = None
    """Round weights to int8: faster, slightly different answers; needs a CPU with VNNI instructions."""
    max_connections: int = Field(1024, ge=1)
    """Maximum number of open connections."""
