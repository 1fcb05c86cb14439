"""The pydocs corpus: docstrings are read without importing modules."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest

from meristem.samples import pydocs

PROSE = "The {0} is a quiet part of the program that nobody ever looks at."


def plant(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_modules_are_never_imported(tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    root = tmp_path / "root"
    plant(root, "evil.py", f'"""{PROSE.format("trap")}"""\nopen({str(trace)!r}, "w").write("x")\nraise SystemExit\n')
    assert list(pydocs.read_documents(pydocs.iter_modules([root]))) == [PROSE.format("trap")]
    assert not trace.exists()
    assert "evil" not in sys.modules


def test_one_document_per_module_in_reading_order(tmp_path: Path) -> None:
    source = '''"""The module comes first of all."""

class A:
    """The class is the second to speak."""

    def f(self):
        """The method is the third to speak."""
        def g():
            """The inner one is heard as well."""

    async def h(self):
        """The coroutine is the last to speak."""

if True:
    def k():
        """The branch is read like the rest."""
'''
    plant(tmp_path, "a.py", source)
    (document,) = pydocs.read_documents(pydocs.iter_modules([tmp_path]))
    words = [text.split()[1] for text in document.split("\n\n")]
    assert words == ["module", "class", "method", "inner", "coroutine", "branch"]


def test_order_skips_and_preference(tmp_path: Path) -> None:
    for name in (
        "zeta.py",
        "alpha/b.py",
        "alpha/a.py",
        "numpy/n.py",
        "torch/t.py",
        "tests/x.py",
        "alpha/test_y.py",
        "alpha/tests/z.py",
        "site-packages/w.py",
        "empty.py",
    ):
        plant(tmp_path, name, "" if name == "empty.py" else f'"""{PROSE.format(name)}"""')
    plant(tmp_path, "huge.py", f'"""{PROSE.format("huge")}"""\n' + "x = 1\n" * 100_000)
    plant(tmp_path, "note.txt", "not a module")
    module_paths = [str(path.relative_to(tmp_path)) for path in pydocs.iter_modules([tmp_path])]
    assert module_paths == ["torch/t.py", "numpy/n.py", "alpha/a.py", "alpha/b.py", "zeta.py"]


def test_links_lead_nowhere(tmp_path: Path) -> None:
    plant(tmp_path, "package/a.py", f'"""{PROSE.format("only one")}"""')
    (tmp_path / "package" / "round").symlink_to(tmp_path / "package")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nothing.py")
    assert list(pydocs.read_documents(pydocs.iter_modules([tmp_path]))) == [PROSE.format("only one")]


def test_what_does_not_parse_is_skipped(tmp_path: Path) -> None:
    plant(tmp_path, "a.py", f'"""{PROSE.format("broken")}"""\ndef (:')
    (tmp_path / "b.py").write_bytes(b'"""\xff\xfe not utf-8 at all"""')
    plant(tmp_path, "c.py", '"""The nul is here."""\x00')
    plant(tmp_path, "d.py", f'"""{PROSE.format("good one")}"""')
    assert list(pydocs.read_documents(pydocs.iter_modules([tmp_path]))) == [PROSE.format("good one")]


def test_duplicates_are_dropped_and_the_cap_holds(tmp_path: Path) -> None:
    for number in range(6):
        plant(tmp_path, f"m{number}.py", f'"""{PROSE.format("same")}\n\n{PROSE.format(f"number {number}")}"""')
    documents = list(pydocs.read_documents(pydocs.iter_modules([tmp_path])))
    assert [text.count("same") for text in documents] == [1, 0, 0, 0, 0, 0]
    capped = list(pydocs.read_documents(pydocs.iter_modules([tmp_path]), max_characters=300))
    assert capped == documents[: len(capped)]
    assert sum(map(len, capped)) <= 300 < sum(map(len, documents[: len(capped) + 1]))


def test_processes_change_nothing(tmp_path: Path) -> None:
    for number in range(240):
        plant(tmp_path, f"m{number:03}.py", f'"""{PROSE.format(f"module number {number}")}"""')
    parallel_documents = list(pydocs.read_documents(pydocs.iter_modules([tmp_path])))
    one_by_one = [text for path in pydocs.iter_modules([tmp_path]) for text in pydocs.module_prose(path)]
    assert parallel_documents == one_by_one
    assert len(parallel_documents) == 240


def test_a_reader_may_stop_early_and_leaves_no_processes(tmp_path: Path) -> None:
    for number in range(240):
        plant(tmp_path, f"m{number:03}.py", f'"""{PROSE.format(f"module number {number}")}"""')
    documents = pydocs.read_documents(pydocs.iter_modules([tmp_path]))
    assert len(list(islice(documents, 2))) == 2
    assert len(multiprocessing.active_children()) > 0
    documents.close()  # type: ignore[attr-defined]  # a generator
    deadline = time.monotonic() + 60
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not multiprocessing.active_children()


def test_digest_sees_a_changed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plant(tmp_path, "a.py", '"""The first text is here."""')
    monkeypatch.setattr(pydocs, "module_roots", lambda: (tmp_path,))
    before = pydocs.digest()
    assert pydocs.digest() == before
    os.utime(path, ns=(1, 1))
    touched = pydocs.digest()
    plant(tmp_path, "b.py", '"""The second text is here."""')
    assert len({before, touched, pydocs.digest()}) == 3


def test_the_standard_library_comes_first_and_is_english() -> None:
    start = time.process_time()
    documents = list(pydocs.read_documents(islice(pydocs.iter_modules(pydocs.module_roots()), 100)))
    assert sum(map(len, documents)) > 50_000
    assert time.process_time() - start < 15
    words = " ".join(documents).lower().split()
    assert 0.04 < words.count("the") / len(words) < 0.12
    assert not any(">>>" in text or "::" in text for text in documents)


def test_samples_do_without_torch() -> None:
    code = "import sys, meristem.samples; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False).returncode == 0
