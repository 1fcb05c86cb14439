"""What the operating system refuses is said as what it is, and nothing raw reaches a terminal."""

from __future__ import annotations

import errno
import os
import pty
import resource
import select
import shlex
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import pytest
from rich.table import Table

from meristem.utils.console import TerminalConsole
from meristem.utils.shell_quoting import shell_path
from meristem.utils.system_errors import is_damage, name_file_in_errors, system_error_message
from meristem.utils.terminal import printable

COMMAND = [sys.executable, "-c", "from meristem.cli import main; main()"]
FAULT = "bug in meristem"


def command(*words: str | bytes, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], text=True, errors="replace", timeout=120, check=False,
                          stderr=subprocess.PIPE, **{"stdout": subprocess.PIPE, **options})  # type: ignore[call-overload, no-any-return] # fmt: skip


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free some disk space"),
        (errno.EROFS, "mount the disk for writing"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EFBIG, "ulimit -f"),
        (errno.ENAMETOOLONG, "a shorter name"),
        (errno.ENOENT, "deleted while the command ran"),
        (errno.EACCES, "change its permissions"),
    ],
)
def test_an_error_of_the_system_names_the_file_and_the_remedy(number: int, remedy: str, tmp_path: Path) -> None:
    with pytest.raises(OSError) as error, name_file_in_errors(tmp_path / "weights"):
        raise OSError(number, os.strerror(number))
    message = system_error_message(error.value)
    assert message is not None
    assert str(tmp_path / "weights") in message
    assert remedy in message


def test_an_error_of_the_program_is_none_of_the_system() -> None:
    assert system_error_message(KeyError("width")) is None
    assert system_error_message(ValueError("shapes differ")) is None


def test_a_file_that_may_not_be_opened_now_is_not_damaged() -> None:
    assert not is_damage(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    assert is_damage(OSError(errno.EIO, os.strerror(errno.EIO)))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_under_the_output_is_said() -> None:
    with Path("/dev/full").open("w") as full:
        completed = command("recipes", stdout=full)
    assert completed.returncode == 1
    assert completed.stderr.count("\n") == 1
    assert "the output of this command: no space left on device: free some disk space" in completed.stderr


def test_a_low_limit_on_file_sizes_is_said(tmp_path: Path) -> None:
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # noqa: E731
    completed = command("recipes", "--schema", str(tmp_path / "schema.json"), preexec_fn=limit)
    assert completed.returncode == 1
    assert FAULT not in completed.stderr
    assert "ulimit -f" in completed.stderr


def test_a_path_that_is_too_long_is_said(tmp_path: Path) -> None:
    completed = command("recipes", "--schema", str(tmp_path / ("x" * 300)))
    assert completed.returncode in (1, 2)
    assert FAULT not in completed.stderr
    assert "file name too long: choose a shorter name" in completed.stderr


def test_a_path_that_is_no_utf8_is_refused_before_anything_begins(tmp_path: Path) -> None:
    completed = command("recipes", "--schema", os.fsencode(tmp_path) + b"/caf\xe9.json")
    assert completed.returncode == 1
    assert "is not UTF-8: rename the file or folder" in completed.stderr
    assert not list(tmp_path.iterdir())


def test_control_characters_become_escapes() -> None:
    assert printable("a\x1b[2Jb\x07\x9b\u202ec\td\n") == "a\\u001b[2Jb\\u0007\\u009b\\u202ec\td\n"


def test_a_console_shows_neither_control_characters_nor_markup_of_names() -> None:
    screen = StringIO()
    console = TerminalConsole(file=screen, force_terminal=True, color_system=None, width=80)
    table = Table("name\x1b]0;title\x07")
    table.add_row("[red]label\x1b[2J")
    console.print(table)
    console.print("run\x1b[2J")
    output = screen.getvalue()
    assert "\x1b[2J" not in output
    assert "\x07" not in output
    assert "[red]label\\u001b[2J" in output
    assert "run\\u001b[2J" in output


def test_an_argument_with_control_characters_is_escaped_on_a_terminal() -> None:
    screen, _ = on_a_terminal("predict", "no\x1b[2Jrun\x07", "text")
    assert "\\u001b[2Jrun\\u0007" in screen
    assert "\x1b[2J" not in screen


def on_a_terminal(*words: str) -> tuple[str, int]:
    """What a command shows on a terminal, and its exit code."""
    host, device = pty.openpty()
    process = subprocess.Popen([*COMMAND, *words], stdin=device, stdout=device, stderr=device, start_new_session=True)
    os.close(device)
    screen_bytes, until = b"", time.monotonic() + 120
    while time.monotonic() < until:
        if select.select([host], [], [], 0.05)[0]:
            try:
                part = os.read(host, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            screen_bytes += part
    os.close(host)
    return screen_bytes.decode("utf-8", "replace"), process.wait(timeout=120)


STUBBORN = """
from meristem.cli import app as cli
def recipes_waiting():
    import time
    try:
        print("WAITING", flush=True)
        time.sleep(60)
    finally:
        print("CLEANING", flush=True)
        time.sleep(60)
cli.app.command(name="wait")(recipes_waiting)
cli.main()
"""


def test_a_second_ctrl_c_ends_the_process_without_a_traceback() -> None:
    process = subprocess.Popen([sys.executable, "-c", STUBBORN, "wait"], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)  # fmt: skip
    assert process.stdout is not None
    for word in ("WAITING", "CLEANING"):
        assert process.stdout.readline().strip() == word
        process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert stderr == "meristem: stopped immediately\n"


@pytest.mark.parametrize("name", ["runs/my model", "runs/$(touch x)", "runs/it's", "-out", "runs/plain"])
def test_a_path_in_a_command_is_one_word_and_no_option(name: str) -> None:
    (word,) = shlex.split(shell_path(name))
    assert Path(word) == Path(name)
    assert not word.startswith("-")


def test_a_failed_write_is_named_with_its_file() -> None:
    full = Path("/dev/full")
    with pytest.raises(OSError) as failure, name_file_in_errors(full), full.open("w", encoding="utf-8") as file:
        file.write("text")
        file.flush()
    message = system_error_message(failure.value)
    assert message is not None and message.startswith("/dev/full: no space left on device: free some disk space")


def test_a_name_that_the_system_gave_is_kept(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as failure, name_file_in_errors(tmp_path / "other"):
        (tmp_path / "missing").open()
    assert failure.value.filename == str(tmp_path / "missing")
