"""Hooks of the documentation's site: pages made at build time, navigation by pattern, links that leave docs/.

The pages in docs/ link to each other and to files of the repository, as a code host shows them. On the site a link to a
page made from a file (README.md is the home page) leads to that page, a link to a folder to its list of files, and a
link to a source file to the repository (`repo_url`) or, where that is not set, to a page that shows the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote

import api_pages  # beside this file, which mkdocs puts on the path
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PAGES_OF_FILES = {
    "README.md": "index.md",
    "README.zh.md": "zh.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Files at the root of the repository that are pages of the site."""
CODE = re.compile(
    r"^(`{3,}|~{3,}).*?^\1[ \t]*$"  # fenced
    r"|^(?: {4}|\t)[^\n]*$"  # indented
    r"|(?<!`)(`+)(?!`)(?:(?!\n\n).)+?(?<!`)\2(?!`)",  # in the text
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"(\]\()([^)\s]+)((?:\s+\"[^\"]*\")?\))")
BRANCH = "main"


def github_slug(text: str, separator: str) -> str:
    """The anchor of a heading as code hosts make it, so that a link with an anchor is right on both."""
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", separator)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Anchors like a code host's; patterns in the navigation become the pages that match them."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = github_slug
    docs = Path(config.docs_dir)
    config.nav = list(_expand(config.nav, docs, set(_named(config.nav))))
    return config


def _named(nav: Any) -> Iterator[str]:
    """Pages and patterns that the navigation names."""
    for item in nav:
        values = item.values() if isinstance(item, dict) else [item]
        for value in values:
            yield from _named(value) if isinstance(value, list) else [value]


def _expand(nav: list[Any], docs: Path, named: set[str]) -> Iterator[Any]:
    for item in nav:
        if isinstance(item, dict):
            ((title, value),) = item.items()
            yield {title: list(_expand(value, docs, named)) if isinstance(value, list) else value}
        elif "*" in item:
            found = [path.relative_to(docs).as_posix() for path in sorted(docs.glob(item))]
            pages = [page for page in found if page not in named and (".zh." in page) == (".zh." in item)]
            named.update(pages)  # a later pattern finds what is left
            yield from pages
        else:
            yield item


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made at build time."""
    root = Path(config.docs_dir).parent
    for name, page in PAGES_OF_FILES.items():
        if (root / name).is_file():
            files.append(File.generated(config, page, content=(root / name).read_text(encoding="utf-8")))
    if (root / "meristem").is_dir():
        files.append(File.generated(config, "reference/api.md", content=api_pages.render(root / "meristem")))
    for page in list(files.documentation_pages()):
        for path in _linked_paths(page, root):
            made = _made_page(path, root, str(config.repo_url or ""))
            if made is not None and files.get_file_from_path(made[0]) is None:
                files.append(File.generated(config, made[0], content=made[1]))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with the links that leave docs/, or lead to a folder, rewritten for the site."""
    root = Path(config.docs_dir).parent
    source = page.file.src_uri

    def rewrite(link: str) -> str:
        path = _repository_path(link, _repository_page(source), root)
        if path is None:
            return link
        target = site_target(path, root, str(config.repo_url or ""))
        if target.startswith("source/"):
            link = path  # a shown file has no anchors
        if "://" not in target:
            target = quote(os.path.relpath(target, PurePosixPath(source).parent.as_posix()))
        anchor = link.partition("#")[2]
        return f"{target}#{anchor}" if anchor else target

    if _repository_page(source).name.startswith("README"):
        page.meta["hide"] = ["navigation"]
    return _replace_links(_with_blank_lines(markdown), rewrite)


def on_page_content(html: str, *, page: Page, **_: Any) -> str:
    """Tables in a box that scrolls, so that a wide one does not make the page wide; links of notebooks to pages."""
    if page.file.src_uri.endswith(".ipynb"):
        html = re.sub(r'(href="(?![a-z]+:)[^"#]+)\.(?:md|ipynb)(?=["#])', r"\1.html", html)
    html = re.sub(r"<table(?! class=\"highlighttable)", '<div class="scroll" tabindex="0"><table', html)
    return re.sub(r"</table>(?!</div></td>)", "</table></div>", html) if 'class="scroll"' in html else html


# ------------------------------------------------------------ links


def _replace_links(markdown: str, rewrite: Callable[[str], str]) -> str:
    """The text with its relative links rewritten, except in code."""

    def outside(text: str) -> str:
        return LINK.sub(lambda match: match[1] + rewrite(match[2]) + match[3], text)

    parts, end = [], 0
    for code in CODE.finditer(markdown):
        parts += [outside(markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, outside(markdown[end:])])


def _repository_page(source: str) -> PurePosixPath:
    """The file of the repository that a page of the site is made from."""
    return PurePosixPath(next((name for name, page in PAGES_OF_FILES.items() if page == source), f"docs/{source}"))


def _repository_path(link: str, page: PurePosixPath, root: Path) -> str | None:
    """The path in the repository that a relative link of a page leads to; None if there is nothing."""
    path = unquote(link.partition("#")[0])
    if not path or re.match(r"[a-z]+:", link):
        return None
    target = os.path.normpath(page.parent / path)
    return target if (root / target).exists() and not target.startswith("..") else None


def site_target(path: str, root: Path, repo_url: str) -> str:
    """Where a link to a path of the repository leads on the site: a page, relative to docs/, or an address."""
    if path in PAGES_OF_FILES:
        return PAGES_OF_FILES[path]
    in_docs = path.startswith("docs/")
    if (root / path).is_dir():
        if in_docs:
            return f"{path.removeprefix('docs/')}/index.md"
        return f"{repo_url.rstrip('/')}/tree/{BRANCH}/{quote(path)}" if repo_url else f"source/{path}/index.md"
    if in_docs:
        return path.removeprefix("docs/")
    return f"{repo_url.rstrip('/')}/blob/{BRANCH}/{quote(path)}" if repo_url else f"source/{path}.md"


def _linked_paths(page: File, root: Path) -> Iterator[str]:
    links: list[str] = []
    if page.src_uri.endswith(".md"):
        _replace_links(page.content_string, lambda link: links.append(link) or link)  # type: ignore[func-returns-value]
    for link in links:
        path = _repository_path(link, _repository_page(page.src_uri), root)
        if path is not None:
            yield path


def _made_page(path: str, root: Path, repo_url: str) -> tuple[str, str] | None:
    """The page that a linked folder or source file needs: its place and its Markdown."""
    target = site_target(path, root, repo_url)
    if (root / path).is_dir() and "://" not in target:
        names = sorted(item.name for item in (root / path).iterdir() if item.is_file() and item.name != "index.md")
        lines = [f"- [{name}]({quote(name)})" if path.startswith("docs/") else f"- `{name}`" for name in names]
        return target, f"# Files in {path}\n\n" + "\n".join(lines) + "\n"
    if target.startswith("source/"):
        text = (root / path).read_text(encoding="utf-8")
        fence = "`" * (3 + max(map(len, re.findall("`{3,}", text)), default=0))
        return target, f"# {path}\n\n{fence}{Path(path).suffix[1:]}\n{text}\n{fence}\n"
    return None


# ------------------------------------------------------------ Markdown


def _with_blank_lines(markdown: str) -> str:
    """A blank line before each list that directly follows text, which code hosts do not need and Markdown does."""
    lines, fenced = [], False
    for line in markdown.splitlines():
        previous = lines[-1] if lines else ""
        if re.match(r"(```|~~~)", line):
            fenced = not fenced
        if re.match(r"([-*]|1\.) ", line) and previous.strip() and not fenced and not _in_list(lines):
            lines.append("")
        lines.append(line)
    return "\n".join(lines) + "\n"


def _in_list(lines: list[str]) -> bool:
    """Whether the paragraph that these lines end with is part of a list."""
    for line in reversed(lines):
        if not line.strip():
            return False
        if re.match(r"([-*]|\d+\.) ", line):
            return True
    return False
