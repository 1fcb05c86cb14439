"""The documentation's site: built strictly, its links, structure and widths; links that leave docs/ on a small tree."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="no mkdocs here: make test-docs installs it")
pytest.importorskip("mkdocs_jupyter", reason="no mkdocs-jupyter here: make test-docs installs it")
pytest.importorskip("markdown_it")

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "website"))

import api_pages  # noqa: E402
from site_checks import article, broken_links, browser_path, build, page_links, structure_differences, wide_pages  # noqa: E402

CONFIG = """site_name: Small
repo_url: !ENV [MERISTEM_REPOSITORY_URL, ""]
use_directory_urls: false
hooks: ["HOOKS"]
theme: mkdocs
validation: {nav: {omitted_files: warn}, links: {not_found: warn, anchors: warn, unrecognized_links: warn}}
not_in_nav: |
  /source/
  **/index.md
nav: [index.md, part/*.md]
"""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this repository."""
    out = tmp_path_factory.mktemp("site")
    built = build(ROOT, out)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr, built.stderr
    return out


# ------------------------------------------------------------ this repository


@pytest.mark.timeout(600)
def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    pages = page_links(site)
    assert sorted(broken_links(site, pages)) == []
    assert len(pages) > 90


def test_a_broken_link_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p id="x"><a href="b.html#y">b</a><a href="#z">z</a><a href="c.html">c</a>')
    (tmp_path / "b.html").write_text('<p id="y"><a href="a.html#x">a</a>')
    assert sorted(broken_links(tmp_path, page_links(tmp_path))) == ["a.html: #z", "a.html: c.html"]


def test_pages_have_the_structure_that_code_hosts_show(site: Path) -> None:
    """As many items, rows, blocks, headings and pictures as CommonMark finds: no list became a paragraph."""
    assert structure_differences(site) == {}


def test_the_reference_has_every_public_name_with_its_arguments_and_types(site: Path) -> None:
    import inspect

    import meristem

    html = (site / "reference/api.html").read_text(encoding="utf-8")
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", article(site / "reference/api.html")))
    assert set(api_pages.public_names(ROOT / "meristem")) == set(meristem.__all__)
    places = api_pages.definitions(ROOT / "meristem")
    objects = {place: getattr(meristem, name) for name, place in places.items() if name != "MeristemError"}
    methods = [name for name in vars(meristem.LoadedModel) if not name.startswith("_")]
    objects |= {f"{places['LoadedModel']}.{name}": getattr(meristem.LoadedModel, name) for name in methods}
    assert len(objects) > 30
    for place, value in objects.items():
        assert f'id="{place}"' in html, place
        if inspect.isfunction(value):
            for parameter in inspect.signature(value).parameters.values():
                annotation = parameter.annotation
                assert annotation is not inspect.Parameter.empty or parameter.name == "self", place
                if parameter.name != "self" and "Literal" not in str(annotation):
                    assert re.search(rf"\b{parameter.name} ?: ", text), f"{place}({parameter.name})"
    for name in ("RunResult", "FilledMask", "ComparisonReport", "RecipeDescription", "TokenVectors"):
        assert f">{name}<" in html, name


@pytest.mark.timeout(600)
def test_no_page_is_wider_than_a_phone_or_a_desktop(site: Path) -> None:
    pytest.importorskip("playwright")
    browser = browser_path()
    if browser is None:
        pytest.skip("no chromium here: `make browser` installs one")
    assert wide_pages(site, browser) == {}


def test_a_wide_page_would_be_found(tmp_path: Path) -> None:
    pytest.importorskip("playwright")
    browser = browser_path()
    if browser is None:
        pytest.skip("no chromium here: `make browser` installs one")
    (tmp_path / "a.html").write_text('<div style="width:900px">a</div>')
    assert wide_pages(tmp_path, browser).keys() == {"phone: a.html"}


def test_the_command_of_make_sees_warnings() -> None:
    """mkdocs counts no warnings for --strict when it is told to be quiet."""
    (line,) = re.findall(r"-m mkdocs build(.*?)(?:#|$)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert line.split() == ["--strict"]


# ------------------------------------------------------------ a small repository


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A repository whose pages link out of docs/."""
    files = {
        "README.md": "# Small\n[a](docs/part/a.md#a-b--c) [b](LICENSE) [code](src/code.py#L1) [part](docs/part)\n",
        "LICENSE": "free\n",
        "src/code.py": 'print("```")\n',
        "docs/part/a.md": "# A\n[home](../../README.md) [code](../../src/code.py) `[no](link.md)`\n\n## A b / *c*\n"
        "text\n- item\n- item\n\n```text\n[no](link.md)\n- no\n```\n\n    [no](link.md)\n",
        "docs/part/b.zh.md": "# B\n[a](a.md)\n",
        "mkdocs.yml": CONFIG.replace("HOOKS", str(ROOT / "website/hooks.py")),
    }
    for name, text in files.items():
        (tmp_path / "repository" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "repository" / name).write_text(text, encoding="utf-8")
    return tmp_path / "repository"


def test_links_that_leave_docs_show_the_file(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    built = build(small, out, MERISTEM_REPOSITORY_URL="")
    assert "nav" in built.stderr and built.returncode == 1  # b.zh.md is in no pattern
    (small / "mkdocs.yml").write_text(f"{(small / 'mkdocs.yml').read_text()[:-2]}, part/*.zh.md]\n")
    built = build(small, out, MERISTEM_REPOSITORY_URL="")
    assert built.returncode == 0, built.stderr
    assert list(broken_links(out, page_links(out))) == []
    page = (out / "part/a.html").read_text(encoding="utf-8")
    assert 'href="../index.html"' in page and 'href="../source/src/code.py.html"' in page
    assert page.count("[no](link.md)") == 3 and page.count("<li>item") == 2
    home = (out / "index.html").read_text(encoding="utf-8")
    assert 'href="part/a.html#a-b--c"' in home and 'href="source/LICENSE.html"' in home
    assert "```" in (out / "source/src/code.py.html").read_text(encoding="utf-8")
    assert 'href="part/index.html"' in home and "a.html" in (out / "part/index.html").read_text(encoding="utf-8")


def test_links_that_leave_docs_lead_to_the_repository(small: Path, tmp_path: Path) -> None:
    (small / "docs/part/b.zh.md").unlink()
    built = build(small, tmp_path / "out", MERISTEM_REPOSITORY_URL="https://example.org/me/small")
    assert built.returncode == 0, built.stderr
    home = (tmp_path / "out/index.html").read_text(encoding="utf-8")
    assert 'href="https://example.org/me/small/blob/main/src/code.py#L1"' in home
    assert not (tmp_path / "out/source").exists()
    (small / "docs/part/a.md").write_text("# A\n[absent](../../absent.py)\n")
    built = build(small, tmp_path / "out", MERISTEM_REPOSITORY_URL="https://example.org/me/small")
    assert built.returncode == 1 and "absent.py" in built.stderr
