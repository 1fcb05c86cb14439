"""The syntax trees of every file: nothing that could run what a file holds is called, under whatever name."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import meristem

ROOT = Path(meristem.__file__).parent.parent
FILES = sorted([*(ROOT / "meristem").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])
FILES_BY_FOLDER = {
    "/".join(parts): list(paths)
    for parts, paths in itertools.groupby(FILES, lambda path: path.relative_to(ROOT).parts[:2])
}
MODULES = frozenset({
    "pickle", "_pickle", "cPickle", "pickle5", "dill", "cloudpickle", "marshal", "shelve", "joblib", "jsonpickle",
    "code", "codeop", "imp", "runpy", "torch.package",
})  # fmt: skip
"""Never imported."""
CALLS = frozenset({
    "eval", "exec", "__import__", "compile", "builtins.eval", "builtins.exec", "builtins.__import__",
    "torch.load", "torch.jit.load", "torch.hub.load", "torch.serialization.load",
    "yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load", "yaml.full_load_all",
    "yaml.Loader", "yaml.UnsafeLoader", "yaml.FullLoader", "yaml.CLoader",
    "os.system", "os.popen", "os.execv", "os.execve", "os.execvp", "os.spawnl", "os.spawnv", "pty.spawn",
    "commands.getoutput", "subprocess.getoutput", "subprocess.getstatusoutput",
    "tempfile.mktemp", "shutil.unpack_archive", "pandas.read_pickle",
    "importlib.util.spec_from_file_location", "importlib.machinery.SourceFileLoader",
})  # fmt: skip
"""Never named, called or not."""
METHODS = frozenset({"extractall", "unsafe_load", "full_load", "read_pickle"})
"""Never called on anything."""


NAMED = {
    ("function.py", "import_module of what a file may say"),
    ("id_numbers.py", "import_module of what a file may say"),
    ("optional_packages.py", "import_module of what a file may say"),
    ("project_tracker.py", "import_module of what a file may say"),
    ("nanogpt_layout.py", "import pickle"),
}
"""A reward that is a function of one's own: people name it themselves, and a run that names one is refused. Validators
of python-stdnum: their names are in a table of that module. Optional packages: every caller writes out the name.
Trackers: each class writes out its library. A benchmark writes the meta.pkl of nanoGPT, and reads none."""


def dangers(source: str) -> list[str]:
    """Everything in a source that could run what a file holds, with its line."""
    tree = ast.parse(source)
    imported_names = dict(_names(tree))
    problems = [f"{line}: {problem}" for line, problem in _imports(tree)]
    for node in ast.walk(tree):
        is_read = isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load)
        if is_read and (name := _dotted(node, imported_names)) in CALLS:
            problems.append(f"{node.lineno}: {name}")
        if isinstance(node, ast.Call):
            problems += [f"{node.lineno}: {problem}" for problem in _call(node, imported_names)]
    return problems


def _names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """What each imported name stands for, wherever it is imported, and what names are given to such names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name.split(".")[0],
                         alias.name if alias.asname else alias.name.split(".")[0]) for alias in node.names)  # fmt: skip
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for module in modules:
            parts = module.split(".")
            if any(".".join(parts[:size]) in MODULES for size in (1, 2)) or module in CALLS:
                yield node.lineno, f"import {module}"  # type: ignore[attr-defined]  # both have one


def _dotted(node: ast.AST, imported_names: dict[str, str]) -> str:
    """`torch.load` of `t.load` after `import torch as t`."""
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value, imported_names)
        return f"{before}.{node.attr}" if before else ""
    return imported_names.get(node.id, node.id) if isinstance(node, ast.Name) else ""


def _call(node: ast.Call, imported_names: dict[str, str]) -> Iterator[str]:
    """What is wrong with how something is called."""
    name = _dotted(node.func, imported_names)
    words = {word.arg: word.value for word in node.keywords}

    def keyword_value(key: str) -> object:
        return words[key].value if isinstance(words.get(key), ast.Constant) else words.get(key)  # type: ignore[attr-defined]  # a constant has one

    if "trust_remote_code" in words:
        yield "trust_remote_code"
    if "shell" in words and keyword_value("shell") is not False:
        yield f"{name} with shell"
    if name in ("numpy.load", "numpy.lib.npyio.load") and keyword_value("allow_pickle") is not False:
        yield f"{name} without allow_pickle=False"
    if "allow_pickle" in words and keyword_value("allow_pickle") is not False:
        yield f"{name} with allow_pickle"
    if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
        yield f"{node.func.attr}()"
    if name == "getattr" and len(node.args) > 1 and isinstance(hidden := node.args[1], ast.Constant):
        yield from {f"{_dotted(node.args[0], imported_names)}.{hidden.value}"} & CALLS
    imports = name == "importlib.import_module" or name.endswith("optional_packages.require_module")
    if imports and not _our_module(node.args[0]):
        yield "import_module of what a file may say"


def _our_module(expression: ast.expr) -> bool:
    """A module that is written out, or one inside this package."""
    if isinstance(expression, ast.JoinedStr):
        first = expression.values[0]
        return isinstance(first, ast.Constant) and str(first.value).startswith("meristem.")
    return isinstance(expression, ast.Constant) and str(expression.value).split(".")[0] not in MODULES


@pytest.mark.parametrize("folder", FILES_BY_FOLDER)
def test_nothing_runs_what_a_file_holds(folder: str) -> None:
    problems = [
        f"{path.relative_to(ROOT)}:{danger}"
        for path in FILES_BY_FOLDER[folder]
        for danger in dangers(path.read_text(encoding="utf-8"))
        if (path.name, danger.split(": ")[1]) not in NAMED
    ]
    assert problems == []


def test_the_benchmark_that_knows_pickle_only_writes() -> None:
    source = (ROOT / "benchmarks" / "formats" / "nanogpt_layout.py").read_text(encoding="utf-8")
    assert re.findall(r"pickle\.(\w+)", source) == ["dumps"]


@pytest.mark.parametrize("source", [
    "import pickle", "import cPickle as json", "from pickle import loads as read", "import os, marshal",
    "from joblib import load", "def f():\n    import dill", "import torch.package", "from torch import package",
    "import torch\ntorch.load(p)", "import torch as t\nt.load(p, weights_only=True)", "from torch import load",
    "from torch import load as decode", "import torch\nread = torch.load", "import torch\ngetattr(torch, 'load')(p)",
    "from torch import jit\njit.load(p)", "import torch.hub\ntorch.hub.load('a', 'b')",
    "eval(text)", "exec(text)", "x = eval", "import builtins\nbuiltins.exec(x)", "from builtins import eval as f",
    "compile(text, 'x', 'exec')", "__import__(name)",
    "import yaml\nyaml.load(text)", "import yaml\nyaml.load(text, yaml.SafeLoader)",
    "from yaml import unsafe_load as u", "import yaml as y\ny.full_load(t)", "from yaml import Loader",
    "import numpy as np\nnp.load(p)", "import numpy\nnumpy.load(p, allow_pickle=True)",
    "from numpy import load\nload(p)", "import numpy as np\nnp.load(p, None, x)", "np.save(p, a, allow_pickle=True)",
    "M.from_pretrained(n, trust_remote_code=True)", "f(**x, trust_remote_code=flag)",
    "import os\nos.system('x')", "from os import system as s", "from os import popen",
    "import subprocess\nsubprocess.run(x, shell=True)", "from subprocess import run\nrun(x, shell=flag)",
    "import tempfile\ntempfile.mktemp()", "tar.extractall(p)", "import shutil\nshutil.unpack_archive(p)",
    "from meristem.utils.optional_packages import require_module\nrequire_module(name, 'a', 'b')",
    "import importlib\nimportlib.import_module(name)", "from importlib import import_module as m\nm(name)",
    "from importlib import import_module\nimport_module(f'{room}.x')",
    "import importlib.util\nimportlib.util.spec_from_file_location('a', p)",
])  # fmt: skip
def test_a_danger_is_found(source: str) -> None:
    assert dangers(source)


@pytest.mark.parametrize("source", [
    "model.eval()", "import yaml\nyaml.safe_dump(x)", "import numpy as np\nnp.load(p, allow_pickle=False)",
    "import re\nre.compile(x)", "from safetensors.torch import load_file\nload_file(p)", "self.load(p)",
    "import subprocess\nsubprocess.run([x], shell=False)", "def compile_all(): ...", "text = 'eval(pickle)'",
    "from importlib import import_module\nimport_module(f'meristem.{room}.{name}')", "learner.compile()",
    "import importlib\nimportlib.import_module('h5py')", "import json\njson.load(f)", "from . import pickle_free",
])  # fmt: skip
def test_what_only_looks_dangerous_is_let_through(source: str) -> None:
    assert dangers(source) == []
