"""Code lines of meristem/ per layer, without blank lines, comments and docstrings, now and at an earlier commit.

python -m benchmarks.code_lines [--base COMMIT]

With an earlier commit, a column counts the lines in files that it does not have, not even under another name.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "meristem"
RENAMED = "40%"
"""The share of equal lines from which on git takes a file for a renamed one."""
NOT_CODE = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


def count_code_lines(source: str) -> int:
    """Lines of Python that hold code; every line of a statement over several lines counts."""
    docstring_lines = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    code_lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in NOT_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(code_lines - docstring_lines)


def layer_of(path: str) -> str:
    """Layer of a path inside the repository: the folder below the package, or the package itself."""
    parts = Path(path).parts
    return f"{parts[1]}/" if len(parts) > 2 else f"{PACKAGE}/*.py"


def added_files(root: Path, commit: str) -> frozenset[str]:
    """The tracked files of the package that a commit does not have, not even under another name."""
    options = ("--name-only", "--diff-filter=A", f"--find-renames={RENAMED}", "-l0")
    command = ["git", "diff", *options, commit, "--", PACKAGE]
    return frozenset(subprocess.run(command, cwd=root, capture_output=True, check=True, text=True).stdout.splitlines())


def lines_by_layer(sources: Iterator[tuple[str, str]]) -> Counter[str]:
    """Code lines per layer of pairs (path, source)."""
    lines: Counter[str] = Counter()
    for path, source in sources:
        lines[layer_of(path)] += count_code_lines(source)
    return lines


def working_tree(root: Path) -> Iterator[tuple[str, str]]:
    """Path and source of every Python file of the package in a folder."""
    for path in sorted((root / PACKAGE).rglob("*.py")):
        yield str(path.relative_to(root)), path.read_text(encoding="utf-8")


def committed(root: Path, commit: str) -> Iterator[tuple[str, str]]:
    """Path and source of every Python file of the package at a commit."""
    archive = subprocess.run(
        ["git", "archive", "--format=tar", commit, PACKAGE], cwd=root, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            if member.name.endswith(".py") and (content := files.extractfile(member)) is not None:
                yield member.name, content.read().decode()


def markdown(
    current: Mapping[str, int],
    base: Mapping[str, int] | None = None,
    added: Mapping[str, int] | None = None,
    commit: str = "",
) -> str:
    """The table, largest layer first, with a last row of sums; `added` are the lines of files added since the base."""
    base, added, compares = base or {}, added or {}, base is not None
    layers = sorted({*current, *base}, key=lambda layer: -current.get(layer, 0))
    rows = [(layer, base.get(layer, 0), current.get(layer, 0), added.get(layer, 0)) for layer in layers]
    rows.append(("**all**", sum(base.values()), sum(current.values()), sum(added.values())))
    if not compares:
        return "\n".join(["| layer | code lines |", "| --- | ---: |", *(f"| {row[0]} | {row[2]:,} |" for row in rows)])
    lines = [f"| layer | {commit} | now | change | in added files |", "| --- | ---: | ---: | ---: | ---: |"]
    lines += [f"| {layer} | {old:,} | {now:,} | {now - old:+,} | {new:,} |" for layer, old, now, new in rows]
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", metavar="COMMIT", help="a commit to compare with")
    commit = parser.parse_args().base
    current = lines_by_layer(working_tree(ROOT))
    if commit is None:
        print(markdown(current))
        return
    new_files = added_files(ROOT, commit)
    added = lines_by_layer((path, source) for path, source in working_tree(ROOT) if path in new_files)
    print(markdown(current, lines_by_layer(committed(ROOT, commit)), added, commit))


if __name__ == "__main__":
    main()
