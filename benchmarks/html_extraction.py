"""Main text of hand-written pages by HTML extractors: what is kept, what boilerplate remains, and how fast.

python -m benchmarks.html_extraction trafilatura        # or resiliparse, in an environment that has it
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import NamedTuple

MENU = '<nav><ul><li><a href="/">Home</a></li><li><a href="/about">About us</a></li></ul></nav>'
FOOTER = '<footer><p>Copyright Example Ltd.</p><ul><li><a href="/p">Privacy policy</a></li></ul></footer>'
COOKIES = '<div class="cookie-banner"><p>We use cookies to improve your experience.</p><button>Accept</button></div>'
ASIDE = '<aside class="sidebar"><h3>Most read</h3><ul><li><a href="/1">Ten gardens to visit</a></li></ul></aside>'
STORY = "".join(
    f"<p>Paragraph {n}: the harbour was quiet that morning, and the fishermen mended their nets while the tide went "
    "out slowly over the sand.</p>"
    for n in range(5)
)
CHINESE = "".join(f"<p>第{n}段：清晨的港口很安静，渔民们一边修补渔网，一边看着潮水慢慢退去。</p>" for n in range(5))
RECIPE = (
    "<h1>Apple cake</h1><p>A simple cake for a rainy afternoon, with apples from the garden and cinnamon.</p>"
    "<h2>Ingredients</h2><ul><li>200 g flour</li><li>3 apples</li><li>2 eggs</li></ul><h2>Method</h2>"
    "<ol><li>Beat the eggs with the sugar until pale.</li><li>Bake for forty minutes, then let it cool.</li></ol>"
)
CODE = (
    "<h1>Counting words</h1><p>The following function counts the words of a text, split at white space.</p>"
    "<pre><code>def count(text):\n    return len(text.split())</code></pre>"
    "<p>It returns a whole number, and zero where there is no text at all to count words in.</p>"
)
FRENCH = "".join(
    f"<p>Chapitre {n} : à l'été, le garçon servait du café crème aux pêcheurs qui rentraient.</p>" for n in range(4)
)


class Page(NamedTuple):
    """A page, sentences that are its text, and boilerplate that is not."""

    html: bytes
    text: tuple[str, ...]
    boilerplate: tuple[str, ...] = ()


def page(title: str, body: str, charset: str = "utf-8") -> bytes:
    """A whole page."""
    head = f'<meta charset="{charset}"><title>{title}</title><script>var tracking = 1</script>'
    return f"<!DOCTYPE html><html><head>{head}</head><body>{body}</body></html>".encode(charset)


CHINESE_BODY = (
    f'<div class="nav"><a href="/">首页</a></div><div class="article"><h1>安静的港口</h1>{CHINESE}</div>'
    '<div class="footer">版权所有 京ICP备00000000号</div>'
)
DIVISIONS = STORY.replace("<p>", "<div>").replace("</p>", "</div>")
PAGES = {
    "article": Page(
        page(
            "The quiet harbour | Example News",
            f"{COOKIES}{MENU}<article><h1>The quiet harbour</h1>{STORY}</article>{ASIDE}{FOOTER}",
        ),
        ("The quiet harbour", "Paragraph 4"),
        ("cookies", "About us", "Privacy policy", "tracking", "Ten gardens"),
    ),
    "divisions only": Page(
        page(
            "Notes on tides",
            f'<div id="top"><a href="/">Home</a> | <a href="/c">Contact</a></div><div id="content"><div>{DIVISIONS}'
            '</div></div><div id="bottom">Share on Facebook | Share on Twitter<br>Copyright 2023</div>',
        ),
        ("Paragraph 0", "Paragraph 4"),
        ("Share on Facebook", "Contact"),
    ),
    "lists": Page(
        page("Apple cake", f"{MENU}<main>{RECIPE}</main>{FOOTER}"),
        ("rainy afternoon", "3 apples", "Bake for forty minutes"),
        ("Privacy policy", "About us"),
    ),
    "code": Page(
        page("Counting words", f"{MENU}<article>{CODE}</article>{FOOTER}"),
        ("counts the words", "len(text.split())", "zero where there is no text"),
        ("Privacy policy",),
    ),
    "Latin-1": Page(
        page("Le café du port", f"{MENU}<article><h1>Le café du port</h1>{FRENCH}</article>{FOOTER}", "iso-8859-1"),
        ("Chapitre 3", "garçon servait du café crème"),
        ("Privacy policy",),
    ),
    **{
        f"Chinese, {charset}": Page(
            page("安静的港口_示例网", CHINESE_BODY, charset), ("第4段", "潮水"), ("京ICP", "首页")
        )
        for charset in ("utf-8", "gb2312")
    },
    "short": Page(page("Hello", "<p>One short sentence.</p>"), ("One short sentence.",)),
    "unclosed": Page(
        page("Unclosed", f"<p>{'The gardener planted a tree. ' * 6}<p>{'Nobody painted the boats. ' * 6}<div><b>x"),
        ("planted a tree", "painted the boats"),
    ),
}


def load_extractor(name: str) -> Callable[[bytes], str]:
    """The main text of a page, by one of the two libraries."""
    if name == "trafilatura":
        import trafilatura

        return lambda html: trafilatura.extract(html, include_comments=False) or ""
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.encoding import bytes_to_str, detect_encoding

    return lambda html: extract_plain_text(
        bytes_to_str(html, detect_encoding(html, from_html_meta=True)), main_content=True
    )


def main() -> None:
    extract = load_extractor(sys.argv[1])
    missing = remaining = 0
    for name, (html, sentences, boilerplate) in PAGES.items():
        text = extract(html)
        lost, boilerplate_left = (
            [part for part in sentences if part not in text],
            [part for part in boilerplate if part in text],
        )
        missing, remaining = missing + len(lost), remaining + len(boilerplate_left)
        print(f"{name}: {f'lost {lost} ' * bool(lost)}{f'left {boilerplate_left}' * bool(boilerplate_left)}")
    num_sentences = sum(len(page.text) for page in PAGES.values())
    num_notices = sum(len(page.boilerplate) for page in PAGES.values())
    print(f"text kept: {num_sentences - missing} of {num_sentences}; boilerplate left: {remaining} of {num_notices}")
    started, num_pages, num_bytes = time.process_time(), 0, 0
    while time.process_time() - started < 3:
        for html, *_ in PAGES.values():
            extract(html)
            num_pages, num_bytes = num_pages + 1, num_bytes + len(html)
    seconds = time.process_time() - started
    print(f"{num_pages / seconds:,.0f} pages and {num_bytes / 1e6 / seconds:.1f} MB a second of processor time")


if __name__ == "__main__":
    main()
