"""Sandboxed trial: one entry point in a child process with limits and an audit hook; outcome, message, time, memory."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meristem.config.errors import MeristemError

MEMORY = 64 << 20
"""Bytes that a child may take beside what its parent had: more is a MemoryError, not a refusal."""
PATIENCE = 30.0
"""Seconds after which a child is taken to hang; those in which the machine had no processor for it do not count."""
PROCESSOR = 20
"""Seconds of the processor that a child may take."""
RUNS = {"pickle.find_class", "os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn",
        "socket.connect", "socket.bind", "webbrowser.open", "ctypes.dlopen"}  # fmt: skip
CHANGES = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
PLANTED = "planted"
"""The module that hostile folders hold, and that nothing may import."""


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """Result of one trial."""

    outcome: str
    """refused, passed over (with notices), taken, or what it died of."""
    message: str
    seconds: float
    """Of the processor."""
    memory: float
    """MiB beside what there was."""
    ran: tuple[str, ...] = ()
    """Events that must not happen."""


def run_sandboxed(
    entry_point: Callable[[Path, Path], str],
    artifact_path: Path,
    inside: Path,
    out: Path,
    *,
    memory: int = MEMORY,
    processor: int = PROCESSOR,
    patience: float = PATIENCE,
) -> TrialResult:
    """Run an entry point on a path; files may be written only `inside` its folder and to `out`."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        _child(entry_point, artifact_path, inside, out, sink, memory, processor)
    os.close(sink)
    peak, status = _wait(child, patience)
    with os.fdopen(source, "rb") as pipe:
        child_report = pipe.read()
    if not child_report:
        number = os.waitstatus_to_exitcode(status)
        name = signal.Signals(-number).name if number < 0 else str(number)
        return TrialResult(outcome=f"died of {name}", message="", seconds=patience, memory=peak)
    payload: dict[str, Any] = json.loads(child_report)
    return TrialResult(memory=peak, **{**payload, "ran": tuple(payload["ran"])})


def _wait(child: int, patience: float) -> tuple[float, int]:
    """The most anonymous memory the child was seen with, beside what it began with, and how it ended."""
    first, peak, start = 0, 0, time.monotonic()
    while True:
        finished_pid, status = os.waitpid(child, os.WNOHANG)
        if finished_pid:
            return max(0, peak - first) / 1024, status
        try:
            text = Path(f"/proc/{child}/status").read_text()
            current = int(text.partition("RssAnon:")[2].split()[0])
        except (OSError, IndexError):
            current = 0
        first, peak = first or current, max(peak, current)
        elapsed = time.monotonic() - start
        if elapsed > patience and elapsed - _seconds_without_processor(child) > patience:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.002)


def _seconds_without_processor(child: int) -> float:
    """How long the thread of a child that waited longest was ready to run while others ran; 0 where nobody counts."""
    try:
        counted = [path.read_text().split() for path in Path(f"/proc/{child}/task").glob("*/schedstat")]
        return max(int(waited) for _, waited, _ in counted) / 1e9
    except (OSError, ValueError):
        return 0.0


def _child(
    entry_point: Callable[[Path, Path], str],
    artifact_path: Path,
    inside: Path,
    out: Path,
    sink: int,
    memory: int,
    processor: int,
) -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1), os.dup2(quiet, 2)
    os.chdir(out)
    sys.path.insert(0, str(inside))
    ran: list[str] = []
    sys.addaudithook(
        _hook(
            ran,
            artifact_path,
            [os.path.realpath(allowed_path) for allowed_path in (inside, out, os.environ["MERISTEM_CACHE"])],
        )
    )
    data_size = int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (data_size + memory, data_size + memory))
    before = _seconds()
    resource.setrlimit(resource.RLIMIT_CPU, (int(before) + processor, int(before) + processor))
    try:
        message = entry_point(artifact_path, out)
        outcome = "passed over" if message else "taken"
    except MeristemError as error:
        outcome, message = "refused", str(error)
    except BaseException as error:
        outcome, message = f"died of {type(error).__name__}", f"{str(error)[:500]} ({_origin(error)})"
    facts = {"outcome": outcome, "message": message[:2000], "seconds": _seconds() - before, "ran": ran[:5]}
    os.write(sink, json.dumps(facts).encode())
    os._exit(0)


def _origin(error: BaseException) -> str:
    """The file, line and function that raised an error, and the last of ours on the way there."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/meristem/" in frame.filename]
    frame_lines = dict.fromkeys(
        f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in (*ours[-2:], *frames[-1:])
    )
    return ", ".join(frame_lines)


def _seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _hook(ran: list[str], artifact_path: Path, free: list[str]) -> Callable[[str, tuple[Any, ...]], None]:
    """Notes whatever would run a file's content, reach out of the machine, or write where nothing may be written."""
    content = artifact_path.read_bytes() if artifact_path.is_file() and artifact_path.stat().st_size < 1 << 20 else b""

    def outside(path: Any) -> bool:
        real_path = os.path.realpath(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else ""
        return bool(real_path) and real_path != os.devnull and not any(real_path.startswith(root) for root in free)

    def hook(event: str, event_arguments: tuple[Any, ...]) -> None:
        if event in RUNS:
            ran.append(f"{event} {event_arguments[:1]!r:.100}")
        elif event == "import" and PLANTED in str(event_arguments[0]):
            ran.append(f"import {event_arguments[0]}")
        elif event == "exec" and str(getattr(event_arguments[0], "co_filename", "")).startswith(
            str(artifact_path.parent)
        ):
            ran.append(f"exec {event_arguments[0].co_filename}")
        elif event == "compile" and isinstance(event_arguments[0], str | bytes) and len(event_arguments[0]) > 3:
            source = (
                event_arguments[0].encode("utf-8", "replace")
                if isinstance(event_arguments[0], str)
                else event_arguments[0]
            )
            if source in content:
                ran.append(f"compile {source[:80]!r}")
        elif (
            event == "open"
            and isinstance(event_arguments[2], int)
            and event_arguments[2] & WRITING
            and outside(event_arguments[0])
        ):
            ran.append(f"open for writing {event_arguments[0]}")
        elif event in CHANGES and event_arguments[-1] in (-1, None) and outside(event_arguments[0]):
            ran.append(f"{event} {event_arguments[0]}")

    return hook
