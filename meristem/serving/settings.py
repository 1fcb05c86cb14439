"""What the server can be told."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from meristem.settings import Settings


class ServingSettings(Settings):
    """Where it listens, who may ask, and how much it takes."""

    host: str = "127.0.0.1"
    """The address it listens on; any other than this machine's own needs a key file."""
    port: int = Field(8000, ge=0, le=65535)
    """The port it listens on; 0 takes a free one."""
    key_file: Path | None = None
    """A file with one key a line, of which each request must bring one."""
    threads: int | None = Field(None, ge=1)
    """Threads that read, a batch each; as many as torch would take by itself unless set."""
    queue: int = Field(64, ge=1)
    """Requests that are in work or wait for it; more are answered 429."""
    deadline: float = Field(60.0, gt=0)
    """Seconds that a request may take in all."""
    rows: int = Field(64, ge=1)
    """Texts of one run that are written side by side."""
    max_generated_tokens: int = Field(1 << 15, ge=1)
    """Tokens that one request may ask for: prompts × texts (or beams) × tokens of each, and tokens listed beside."""
    max_read_tokens: int = Field(1 << 18, ge=1)
    """Tokens that may be read for one request, as often as they are read."""
    body: int = Field(1 << 20, ge=1)
    """Bytes of a request's body."""
    patience: float = Field(10.0, gt=0)
    """Seconds that a client has to send a request."""
    allow_nonfinite: bool = False
    """Serve runs whose weights are not finite numbers too."""
    connections: int = Field(1024, ge=1)
    """Connections that are open at once."""
