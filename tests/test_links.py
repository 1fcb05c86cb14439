"""Links, anchors and paths of source files in all pages of the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from documented_commands import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
SOURCE_PATH = re.compile(r"`((?:[A-Za-z_][\w-]*/)+(?:[\w-]+\.\w+)?)`")
EXAMPLE_NAMES = {"ssm", "known_words", "whitespace", "recutils", "swap", "shouting", "NAME"}
"""Files that pages create in an example, and a placeholder."""
EXAMPLE_FOLDERS = ("runs/", "cluster/", "data/", "novels/", "unseen/", "crawl/", "clean/", "exported/")
"""Folders of a user."""
HISTORY = ("docs/log/", "CHANGELOG.md")
"""Pages about earlier versions, whose source paths need not exist any more."""


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """The text of a page without code blocks."""
    return CODE_BLOCK.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    plain = (re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in HEADING.findall(prose(page)))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in plain}


def broken_links(page: Path) -> list[str]:
    """Relative links of a page whose file or anchor does not exist."""
    broken = []
    for link in LINK.findall(CODE_SPAN.sub("", prose(page))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / unquote(path)).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


def missing_paths(page: Path) -> list[str]:
    """Source files and folders that a page names and that are neither in the repository nor in the package."""
    named = {path for path in SOURCE_PATH.findall(prose(page)) if Path(path).stem not in EXAMPLE_NAMES}
    named -= {path for path in named if path.startswith(EXAMPLE_FOLDERS)}
    roots = (ROOT, ROOT / "meristem", page.parent)
    return sorted(path for path in named if not any((root / path).exists() for root in roots))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_relative_link_and_anchor_resolves(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", [page for page in PAGES if not page_id(page).startswith(HISTORY)], ids=page_id)
def test_every_named_source_file_exists(page: Path) -> None:
    assert missing_paths(page) == []


def test_broken_links_and_missing_paths_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A `b` heading, with [a link](x.md)\n", encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n[a](other.md) [b](other.md#a-b-heading-with-a-link) [c](#title) [d](absent.md) [e](other.md#absent)\n"
        "[f](#absent) [g](https://example.org/absent) `[h](absent.md)`\n"
        "`models/bert.py` `models/absent.py` `models/NAME.py`\n"
        "```\n[i](absent.md) # Absent\n```\n",
        encoding="utf-8",
    )
    assert broken_links(page) == ["absent.md", "other.md#absent", "#absent"]
    assert missing_paths(page) == ["models/absent.py"]
