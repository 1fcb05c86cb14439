"""Settings of the HTTP server."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from meristem.config.settings import Settings


class ServingSettings(Settings):
    """Address, authentication and limits of the server."""

    host: str = "127.0.0.1"
    """The address to listen on; any address but localhost needs a key file."""
    port: int = Field(8000, ge=0, le=65535)
    """The port to listen on; 0 picks a free one."""
    key_file: Path | None = None
    """A file with one API key per line; every request must send one."""
    threads: int | None = Field(None, ge=1)
    """Number of inference threads, one batch each; torch's number of threads unless set."""
    queue: int = Field(64, ge=1)
    """Maximum number of running and waiting requests; more are answered 429."""
    deadline: float = Field(60.0, gt=0)
    """Timeout of a request in seconds."""
    rows: int = Field(64, ge=1)
    """Maximum number of texts of one run generated in one batch."""
    max_generated_tokens: int = Field(1 << 15, ge=1)
    """Maximum generated tokens per request: prompts × texts (or beams) × max_tokens, times listed top tokens."""
    max_read_tokens: int = Field(1 << 18, ge=1)
    """Maximum tokens processed per request, counted once per forward pass."""
    body: int = Field(1 << 20, ge=1)
    """Maximum bytes of a request body."""
    patience: float = Field(10.0, gt=0)
    """Seconds that a client may take to send a request body."""
    allow_nonfinite: bool = False
    """Also serve runs whose weights contain NaN or infinity."""
    connections: int = Field(1024, ge=1)
    """Maximum number of open connections."""
