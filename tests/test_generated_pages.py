"""Pages and pictures made from the code are current, and the glossary's names exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from documented_commands import ROOT

import meristem
from benchmarks import architecture_pictures
from meristem.cli import command_reference
from meristem.cli.app import app

PACKAGE = Path(meristem.__file__).parent
GLOSSARY = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
OTHER_LIBRARIES = {"TemplateProcessing"}
"""Names in the glossary's last column."""


def test_the_page_of_commands_is_current() -> None:
    current = (ROOT / command_reference.PAGE).read_text(encoding="utf-8")
    assert current == command_reference.render_page(), "run: python -m meristem.cli.command_reference"


def test_the_page_of_commands_has_every_command_and_option() -> None:
    page = command_reference.render_page()
    names = [str(command.name) for command in app.registered_commands]
    assert re.findall(r"^## meristem (\S+)$", page, re.MULTILINE) == names
    generate = page.split("## meristem generate\n")[1].split("\n## ")[0]
    for option in ("--prompt", "--best-of", "--temperature", "--no-repeat-ngram-size", "--json"):
        assert f"| `{option}` |" in generate, option
    assert "| `--count` | integer | `1` |" in generate and "`latest` \\| `best`" in generate
    assert "| `RUN` | path | required |" in generate


def test_settings_without_help_are_not_on_the_page() -> None:
    rows = re.findall(r"^\| `.+` \|.*\|(.*)\|$", command_reference.render_page(), re.MULTILINE)
    assert len(rows) > 150 and all(meaning.strip() for meaning in rows)


def test_the_pictures_of_the_architecture_are_current() -> None:
    drawn = {"data-flow.svg": architecture_pictures.data_flow(), "layers.svg": architecture_pictures.layers()}
    for name, picture in drawn.items():
        current = (ROOT / "docs/pictures" / name).read_text(encoding="utf-8")
        assert picture == current, "run: python -m benchmarks.architecture_pictures"


def test_every_layer_is_in_the_picture_and_on_the_page() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    drawn = {name for _, layers in architecture_pictures.LAYERS for names, _ in layers for name in names}
    assert folders <= drawn
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    assert {name for name in folders if f"`{name}/" not in page} == set()


def test_every_name_in_the_glossary_exists() -> None:
    defined = {
        node.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    classes = set(re.findall(r"`([A-Z]\w+)`", GLOSSARY)) - OTHER_LIBRARIES
    functions = set(re.findall(r"`([a-z]\w+)`(?:, `\w+`)* \(`", GLOSSARY))
    assert len(classes) > 60 and len(functions) > 8
    assert (classes | functions) - defined == set()
    headings = re.findall(r"^## (.+)$", GLOSSARY, re.MULTILINE)
    assert len(headings) == len(set(headings))
