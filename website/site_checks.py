"""Checks of the built site: links and anchors, the structure that code hosts show, and widths in a browser.

.venv-docs/bin/python website/site_checks.py     builds the site, checks it, and writes docs/results/site.md
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote

import hooks

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results/site.md"
COUNTED = re.compile(r"<(li|tr|pre|h[1-6]|blockquote|img)\b")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTHS = {"phone": 390, "desktop": 1440}


def build(root: Path, out: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build the site of a repository; every warning is an error."""
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # ruff formats signatures
    environment = {"NO_MKDOCS_2_WARNING": "1", **os.environ, "PATH": path, **environment}
    return subprocess.run(words, cwd=root, capture_output=True, text=True, env=environment)


class PageLinks(HTMLParser):
    """The targets of links and pictures, and the anchors, of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect one element."""
        for name, value in attrs:
            if name in ("href", "src") and value and tag != "link":
                self.targets.append(value)
            if name in ("id", "name") and value:
                self.anchors.add(value)


def page_links(site: Path) -> dict[Path, PageLinks]:
    """Links and anchors of every page."""
    return {path: PageLinks(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def broken_links(site: Path, pages: Mapping[Path, PageLinks]) -> Iterator[str]:
    """Links of a built site that lead to no file or no anchor."""
    for path, links in pages.items():
        for target in links.targets:
            if re.match(r"[a-z]+:|//", target) or path.name == "404.html":
                continue
            name, _, anchor = unquote(target).partition("#")
            file = (path.parent / name).resolve() if name else path
            if not file.is_file() or (anchor and file in pages and anchor not in pages[file].anchors):
                yield f"{path.relative_to(site)}: {target}"


def article(page: Path) -> str:
    """The page's own content."""
    html = page.read_text(encoding="utf-8")
    return html[html.index("<article") : html.index("</article>")]


def scrolling_tables(page: Path) -> int:
    """Number of tables in boxes that scroll."""
    return page.read_text(encoding="utf-8").count('class="scroll"')


def structure_differences(site: Path) -> dict[str, tuple[Counter[str], Counter[str]]]:
    """Pages with other numbers of items, rows, blocks, headings or pictures than CommonMark with tables finds."""
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark").enable("table")
    sources = {ROOT / name: page for name, page in hooks.PAGES_OF_FILES.items()}
    sources |= {path: path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    different = {}
    for source, page in sources.items():
        expected = Counter(COUNTED.findall(reader.render(source.read_text(encoding="utf-8"))))
        shown = Counter(COUNTED.findall(article((site / page).with_suffix(".html"))))
        if expected != shown:
            different[page] = (expected - shown, shown - expected)
    return different


def browser_path() -> str | None:
    """The system's browser."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def wide_pages(site: Path, browser: str) -> dict[str, int]:
    """Pages that are wider than a phone's or a desktop's window, and how wide."""
    from playwright.sync_api import sync_playwright

    too_wide = {}
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=browser, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        for device, width in WIDTHS.items():
            page = chromium.new_page(viewport={"width": width, "height": 800})
            for file in sorted(site.rglob("*.html")):
                page.goto(file.as_uri(), wait_until="domcontentloaded")
                page_width = int(page.evaluate("document.documentElement.scrollWidth"))
                if page_width > width:
                    too_wide[f"{device}: {file.relative_to(site)}"] = page_width
            page.close()
        chromium.close()
    return too_wide


def main() -> None:
    """Build, check, and write the results."""
    with tempfile.TemporaryDirectory() as folder:
        site, start = Path(folder).resolve(), time.perf_counter()
        built = build(ROOT, site)
        if built.returncode:
            sys.exit(built.stderr)
        seconds = time.perf_counter() - start
        pages, browser = page_links(site), browser_path()
        inner = [link for links in pages.values() for link in links.targets if not re.match(r"[a-z]+:|//", link)]
        widths = "no browser here" if browser is None else f"{len(wide_pages(site, browser))} of {len(pages)}"
        rows = {
            "pages": f"{len(pages):,}",
            "warnings of the strict build": str(built.stderr.count("WARNING")),
            "links to pages, anchors and files of the site": f"{len(inner):,}",
            "of them broken": str(len(list(broken_links(site, pages)))),
            "pages whose lists, tables, blocks or headings differ from CommonMark's": str(
                len(structure_differences(site))
            ),
            f"pages wider than a phone ({WIDTHS['phone']} px) or a desktop ({WIDTHS['desktop']} px)": widths,
            "tables in boxes that scroll": f"{sum(map(scrolling_tables, pages)):,}",
            "seconds to build, on a shared machine": f"{seconds:.0f}",
        }
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("mkdocs-material", "mkdocstrings-python"))
    lines = ["# Documentation site", "", f"`.venv-docs/bin/python website/site_checks.py` ({versions}):", ""]
    lines += ["| what | found |", "| --- | --- |", *(f"| {what} | {found} |" for what, found in rows.items())]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
