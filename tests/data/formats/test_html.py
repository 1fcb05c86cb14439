"""HTML pages: main text and title, no boilerplate, encodings, limits."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import Any

import pytest

from meristem.config.errors import MeristemError
from meristem.data.formats import html
from meristem.labelled.load import load_samples
from meristem.labelled.settings import DataSettings

MENU = '<nav><ul><li><a href="/">Home</a></li><li><a href="/about">About us</a></li></ul></nav>'
FOOTER = '<footer><p>Copyright Example Ltd. All rights reserved.</p><a href="/privacy">Privacy policy</a></footer>'
COOKIES = '<div class="cookie-banner"><p>We use cookies to improve your experience.</p><button>Accept</button></div>'
STORY = "".join(
    f"<p>Paragraph {n}: the harbour was quiet, and the fishermen mended their nets while the tide went out.</p>"
    for n in range(4)
)
ARTICLE = f"""<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>The quiet harbour | Example News</title>
<script>var secret = 1;</script><style>p {{color: red}}</style></head><body>{COOKIES}<header>{MENU}</header>
<main><article><h1>The quiet harbour</h1>{STORY}<p>The keeper counted seventeen boats &amp; lit the lamp &mdash; as
always.</p></article></main><aside><h3>Most read</h3><a href="/1">Ten gardens to visit</a></aside>{FOOTER}</body></html>
"""
CHINESE = "".join(f"<p>第{n}段：清晨的港口很安静，渔民们一边修补渔网，一边看着潮水慢慢退去。</p>" for n in range(4))
CHINESE_PAGE = f"""<html><head><meta http-equiv="Content-Type" content="text/html; charset=CHARSET">
<title>安静的港口_示例新闻网</title></head><body><div class="nav"><a href="/">首页</a><a href="/n">新闻</a></div>
<div class="article"><h1>安静的港口</h1>{CHINESE}</div><div class="footer">版权所有 京ICP备00000000号</div>
</body></html>"""
FRENCH_PAGE = f"""<html><head><meta charset=iso-8859-1><title>Le café du port</title></head><body>{MENU}<article>
<h1>Le café du port</h1><p>À l’été, le garçon servait du café crème aux pêcheurs qui rentraient de la mer.</p>
<p>La patronne chantait, et personne ne savait d’où venait la chanson du vieux port.</p></article></body></html>"""


def write_page(path: Path, page: str | bytes) -> Path:
    path.write_bytes(page if isinstance(page, bytes) else page.encode())
    return path


def test_main_text_under_its_title_without_boilerplate(tmp_path: Path, read_corpus: Any) -> None:
    path = write_page(tmp_path / "a.html", ARTICLE)
    (document,), account = read_corpus(path, validation=0, test=0)
    assert document.text.startswith("The quiet harbour\n\nParagraph 0: the harbour was quiet")
    assert document.text.endswith("The keeper counted seventeen boats & lit the lamp — as always.")
    assert document.text.count("The quiet harbour") == 1 and document.location == f"{path}:1"
    for boilerplate in ("cookies", "About us", "Privacy", "secret", "Ten gardens", "red", "<", "Example News"):
        assert boilerplate not in document.text
    assert account.bytes == path.stat().st_size


@pytest.mark.parametrize("charset", ["gb2312", "GBK", "utf-8", "gb18030"])
def test_the_declared_encoding_is_used(tmp_path: Path, read_corpus: Any, charset: str) -> None:
    page = CHINESE_PAGE.replace("CHARSET", charset).encode(charset)
    (document,), account = read_corpus(write_page(tmp_path / "a.htm", page), validation=0, test=0)
    assert document.text.startswith("安静的港口\n\n第0段：清晨的港口很安静")
    assert "京ICP" not in document.text and "首页" not in document.text and not account.damaged


def test_latin_1_is_what_browsers_make_of_it_and_a_setting_wins(tmp_path: Path, read_corpus: Any) -> None:
    path = write_page(tmp_path / "a.html", FRENCH_PAGE.encode("cp1252"))  # ’ is no Latin-1
    (document,), _ = read_corpus(path, validation=0, test=0)
    assert "À l’été, le garçon servait du café crème" in document.text
    wrong = write_page(tmp_path / "b.html", FRENCH_PAGE.replace("iso-8859-1", "koi8-r").encode("cp1252"))
    assert "garçon" not in read_corpus(wrong, validation=0, test=0)[0][0].text
    assert "garçon" in read_corpus(wrong, validation=0, test=0, encoding="cp1252")[0][0].text
    unknown = write_page(tmp_path / "c.html", FRENCH_PAGE.replace("iso-8859-1", "no-such-charset").encode())
    assert "garçon" in read_corpus(unknown, validation=0, test=0)[0][0].text


def test_a_folder_of_pages_is_accounted_for(tmp_path: Path, read_corpus: Any) -> None:
    write_page(tmp_path / "a.html", ARTICLE)
    (tmp_path / "inner").mkdir()
    write_page(tmp_path / "inner" / "b.htm.gz", gzip.compress(CHINESE_PAGE.replace("CHARSET", "utf-8").encode()))
    write_page(tmp_path / "empty.html", "<html><body></body></html>")
    write_page(tmp_path / "none.html", "")
    write_page(tmp_path / "picture.html", b"\x89PNG\r\n\x1a\n" + bytes(100))
    documents, account = read_corpus(tmp_path)
    assert len(documents) == 2 and account.read == 3
    assert account.dropped == {"no main text": 1}
    assert account.rejected == {"empty file": 1, "ends in .html, but holds PNG data": 1}


@pytest.mark.parametrize("limit", ["MAX_PAGE_BYTES", "MAX_PAGE_TAGS"])
def test_a_page_that_would_fill_the_memory_is_rejected(
    tmp_path: Path, read_corpus: Any, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(html, limit, 20)
    write_page(tmp_path / "a.html", ARTICLE)
    write_page(tmp_path / "b.txt", "good")
    documents, account = read_corpus(tmp_path)
    assert [document.text for document in documents] == ["good"]
    assert account.rejected.total() == 1


def test_pages_are_labelled_data_too(tmp_path: Path) -> None:
    (sample,) = load_samples(str(write_page(tmp_path / "a.html", ARTICLE)), DataSettings(), "text", require_gold=False)
    assert sample.inputs["text"].startswith("The quiet harbour") and sample.location == f"{tmp_path}/a.html:1"


def test_without_the_extra_the_command_is_named(
    tmp_path: Path, read_corpus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trafilatura", None)
    with pytest.raises(MeristemError, match=r'reading \.html needs trafilatura: pip install "meristem-lm\[clean\]"'):
        read_corpus(write_page(tmp_path / "a.html", ARTICLE))
