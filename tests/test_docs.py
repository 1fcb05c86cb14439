"""Every command in the READMEs and the pages of docs/, run in its order in one folder per page, only smaller.

A command that cannot run here carries a mark and its reason in the page itself ("not tested: needs the network").
"""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from cli_runner import CommandResult, Meristem
from documented_commands import (
    NOT_TESTED,
    ROOT,
    Command,
    Provided,
    commands,
    pages,
    python,
    small_finetune,
    small_pretrain,
    smaller,
    written_files,
)
from while_serving import while_serving

import meristem as package
from meristem import api

ELSEWHERE = {
    "docs/adding-a-family.md": "tests/test_adding.py",
    "docs/adding-a-file-format.md": "tests/test_adding.py",
    "docs/adding-a-reward.md": "tests/test_adding.py",
    "docs/adding-a-tokenizer.md": "tests/test_adding.py",
    "docs/adding-a-task.md": "tests/test_adding_a_task.py",
    "docs/adding-an-objective.md": "tests/test_adding.py",
    "docs/architecture.md": "tests/test_walks.py",
    "docs/corpus.md": "tests/test_corpus_page.py",
    "docs/multitask.md": "tests/test_multitask_docs.py",
    "docs/using.md": "tests/test_families_in_use.py",
}
"""Pages whose commands need what the page itself tells to write; their own tests run them."""
PENDING: dict[str, str] = {}
"""Commands that do not work yet, by a part of them, with the reason; each leaves this list with its fault."""
WITH_PYTHON = ["README.md", "README.zh.md", "docs/attention.md", "docs/python.md", "docs/tasks.md"]
"""Pages whose Python is a program to type in; that of other pages shows files to write, and has tests of its own."""
PAGES = [page for page in pages() if page not in ELSEWHERE and commands(page)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokenizers, shards and runs that one page made serve the others too."""
    return tmp_path_factory.mktemp("shared")


def waiting(command: Command) -> bool:
    """Whether it is known not to work yet."""
    return any(part in command.line for part in PENDING)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("small_peak")
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work_in_their_order(
    page: str, meristem: Meristem, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # over 10 s: some thirty commands on the longest page, half of which train
    monkeypatch.setenv("MERISTEM_CACHE", str(shared / "cache"))
    monkeypatch.delitem(sys.modules, "mine", raising=False)  # another test's module of the same name
    provided, finished_folder = Provided(shared / "runs"), shared / "done"
    for name, content in written_files(page).items():
        Path(name).write_text(content, encoding="utf-8")
    todo = [command for command in commands(page) if command.tested and not waiting(command)]
    for number, command in enumerate(todo):
        words = command.words
        provided.provide(smaller(words) if words[0] == "meristem" else words)
        if words[0] == "curl" or _taken_over(command, finished_folder):
            continue
        result = _run(meristem, words, todo[number + 1 :])
        assert result.code == (143 if words[1] in ("serve", "studio") else 0), f"{command}\n{result.out}\n{result.err}"
        assert result.out.strip() or result.err.strip() or ">" in words, f"{command} said nothing"
        _keep(command, finished_folder)


def _run(meristem: Meristem, words: list[str], following: list[Command]) -> CommandResult:
    """A command in this process: with its pipe, or, where it serves, asked what the page asks next."""
    pipe = b""
    if words[0] == "cat":
        pipe, words = Path(words[1]).read_bytes(), words[words.index("|") + 1 :]
    if words[0] == "python":
        program = [sys.executable, *smaller(words)[1:]]
        completed = subprocess.run(program, capture_output=True, text=True, timeout=240)
        return CommandResult(completed.returncode, completed.stdout, completed.stderr)
    if ">" in words:
        words = words[: words.index(">")]
    if words[1] in ("serve", "studio"):
        requests = [next_command.line for next_command in following]
        until = next((n for n, line in enumerate(requests) if line.startswith("meristem serve")), len(requests))
        return _served(meristem, words, [line for line in requests[:until] if line.startswith("curl")])
    return meristem(*smaller(words)[1:], pipe=pipe)


# ------------------------------------------------------------ Python


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("small_peak")
@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_python_of_a_page_works(
    page: str, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MERISTEM_CACHE", str(shared / "cache"))
    monkeypatch.chdir(tmp_path)
    code = "\n".join(python(page))
    output_runs = set(re.findall(r'out="(runs/[\w-]+)"', code))
    Provided(shared / "runs").provide([run for run in re.findall(r"runs/[\w-]+", code) if run not in output_runs])
    monkeypatch.setattr(api, "pretrain", small_pretrain)
    monkeypatch.setattr(api, "finetune", small_finetune)
    exec(compile(code, page, "exec"), {"__name__": "__main__", "meristem": package})  # the page's own
    assert capsys.readouterr().out.strip() or "print" not in code


# ------------------------------------------------------------ commands that two pages have


def _place(command: Command, finished_folder: Path) -> Path:
    return finished_folder / hashlib.sha256(shlex.join(command.words).encode()).hexdigest()


def _taken_over(command: Command, finished_folder: Path) -> bool:
    """Whether another page ran the very same command; a run that it made is copied."""
    saved_folder = _place(command, finished_folder)
    if not saved_folder.is_dir() or command.words[0] == "python":  # whose files are the page's own
        return False
    if any(saved_folder.iterdir()):
        shutil.copytree(saved_folder, "runs", dirs_exist_ok=True)
    return True


def _keep(command: Command, finished_folder: Path) -> None:
    words, saved_folder = command.words, _place(command, finished_folder)
    saved_folder.mkdir(parents=True, exist_ok=True)
    if words[1] in ("pretrain", "finetune", "import"):
        out = Path(words[words.index("--out") + 1]) if "--out" in words else Path("runs", words[2])
        if out.is_dir() and out.parent == Path("runs"):
            shutil.copytree(out, saved_folder / out.name)


# ------------------------------------------------------------ servers


def _served(meristem: Meristem, words: list[str], curls: list[str]) -> CommandResult:
    """The server is asked what the page asks, then told to stop."""
    key = Path("key.txt").read_text(encoding="utf-8").strip() if "--key-file" in words else ""

    def ask(address: str) -> None:
        with httpx2.Client(base_url=address, timeout=60) as client:
            assert client.get("/health/live").json() == {"status": "live"}
            for line in curls:
                _send_request(client, line, key)

    return while_serving(meristem, smaller(words)[1:], ask)


def _send_request(client: httpx2.Client, line: str, key: str) -> None:
    """A request as curl would send it."""
    words = shlex.split(line.replace("$(cat key.txt)", key), comments=True)
    headers = dict(words[index + 1].split(": ", 1) for index, word in enumerate(words) if word == "-H")
    body = words[words.index("-d") + 1] if "-d" in words else None
    (url,) = [word for word in words[1:] if "8000/" in word]
    response = client.request(
        "GET" if body is None else "POST", "/" + url.split("8000/")[1], content=body, headers=headers
    )
    assert response.status_code == 200, f"{line}\n{response.text}"


# ------------------------------------------------------------ the pages themselves


def test_a_new_command_on_any_page_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "docs" / "new.md"
    page.parent.mkdir()
    page.write_text(
        "Type `meristem recipes now` or `meristem evaluate RUN`.\n\n    meristem fill a \\\n        b    # c\n\n"
        "```\ncat x | meristem score y\n```\n\n```python\nmeristem.load()\n```\n",
        encoding="utf-8",
    )
    monkeypatch.setattr("documented_commands.ROOT", tmp_path)
    commands_found = commands("docs/new.md")
    lines = ["meristem recipes now", "meristem fill a b    # c", "cat x | meristem score y"]
    assert [command.line for command in commands_found] == lines
    assert [command.location for command in commands_found] == ["docs/new.md:1", "docs/new.md:3", "docs/new.md:7"]


def test_the_commands_that_cannot_run_say_why() -> None:
    marked = [command for page in pages() for command in commands(page) if not command.tested]
    for marked_command in marked:
        reason = next(marked_command.line.split(mark, 1)[1] for mark in NOT_TESTED if mark in marked_command.line)
        assert len(reason.strip()) > 8, marked_command
    assert len(marked) <= 6, "most commands must run"


def test_what_is_waited_for_is_on_a_page() -> None:
    lines = [command.line for page in pages() for command in commands(page)]
    for part in PENDING:
        assert any(part in line for line in lines), f"{part!r} is on no page any more: take it off the list"
    for page, test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8"), page


def test_both_readmes_show_the_same_commands() -> None:
    english, chinese = ([command.words[:2] for command in commands(page)] for page in ("README.md", "README.zh.md"))
    assert english == chinese


def test_every_picture_is_there_and_shown() -> None:
    link = re.compile(r"\]\(((?:docs/|\.\./)?pictures/[\w.-]+)\)")
    shown_images = {
        (page.parent / path).resolve()
        for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
        for path in link.findall(page.read_text(encoding="utf-8"))
    }
    assert shown_images == set((ROOT / "docs/pictures").resolve().iterdir())
