"""Boilerplate removal."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meristem.corpus.clean.boilerplate import KNOWN_PHRASES, MENU_VOCABULARY, remove_boilerplate
from meristem.corpus.document import Document

ARTICLE = [
    "The mill at the river was built in 1820 and burned down twice.",
    "",
    "Its last owner sold it to the town, which made a museum of it.",
]


def removed(text: str) -> str:
    return remove_boilerplate(Document(text, "f:1")).text


@pytest.mark.parametrize(
    "line",
    [
        "Read more »",
        "SHARE THIS",
        "Skip to content",
        "Leave a Reply",
        "[Advertisement]",
        "Back to top ↑",
        "We use cookies to give you the best experience on our site.",
        "By continuing you agree to our use of cookies.",
        "Please enable JavaScript to view this page.",
        "JavaScript is disabled in your browser.",
        "© 2023 The Example Times. All rights reserved.",
        "Copyright (c) 2019 Example Ltd",
        "Copyright 2021 by Example",
        "Subscribe to our weekly newsletter",
        "12 comments",
        "Posted by admin on 3 May 2019",
        "Page 3 of 12",
        "Share on Facebook",
        "Weiterlesen",
        "Tous droits réservés",
        "Leer más",
        "阅读全文",
        "上一篇",
        "版权所有 © 2020 示例公司",
        "京ICP备12345678号",
        "未经授权不得转载",
    ],
)
def test_notices_go_wherever_they_stand(line):
    for position in (0, 2, len(ARTICLE)):
        lines = [*ARTICLE[:position], line, *ARTICLE[position:]]
        document = remove_boilerplate(Document("\n".join(lines), "f:1"))
        assert document.text == "\n".join(ARTICLE)
        assert document.notes == (("boilerplate lines", 1),)


@pytest.mark.parametrize(
    "line",
    [
        "Home | About us | Products | Contact",
        "HOME",
        "Home » News » Archive",
        "About Us",
        "https://example.org/a/b",
        "FAQ",
        "首页 | 新闻 | 论坛",
        "Impressum  Datenschutz  Kontakt",
        "Home    Blog    Sign up    Log in",
    ],
)
def test_menus_go_only_at_the_top_and_the_bottom(line):
    text = "\n".join(ARTICLE)
    assert removed(f"{line}\n\n{text}") == text
    assert removed(f"{text}\n{line}\n{line}") == text
    inside = "\n".join([ARTICLE[0], line, ARTICLE[2]])
    assert removed(inside) == inside


def test_repeated_buttons_and_long_lines():
    posts = [f"This is what I think about it, number {n}." for n in range(4)]
    assert removed("\n".join(f"{post}\nReply to this post" for post in posts)) == "\n".join(posts)
    disclaimer = "The views in this message are those of its author alone and not those of the forum or its owners."
    assert removed("\n".join(f"{post}\n{disclaimer}" for post in posts)).count(disclaimer) == 1
    repeated = "\n".join(f"{post}\n{disclaimer}" for post in posts[:2])
    assert removed(repeated) == repeated


ORDINARY = {
    "novel": 'He closed the door behind him.\n"Read more," she said, "and talk less."\nHome was a long way '
    "off, and the news from there was bad.\n"
    "He had copied out the contract twice; all rights were reserved to the widow.\nThe End",
    "poem": "Row, row, row your boat\nGently down the stream\nMerrily, merrily\nLife is but a dream\n\n"
    "Row, row, row your boat\nGently down the creek\nMerrily, merrily\nLife is but a dream\n\n"
    "Row, row, row your boat\nGently to the shore\nMerrily, merrily\nLife is but a dream",
    "title": "Cookies\n\nWe baked cookies and shared them with the children, and they asked for more.",
    "code": "Parameters\n----------\nmenu : Menu\n    The menu to open.\n\nReturns\n-------\n"
    "None\n\nExamples\n--------\n"
    ">>> open(menu)\n>>> share(menu)\n>>> open(menu)\n>>> open(menu)\n\nSee also `close`.",
    "letter": "Dear Anna,\n\nthank you for your letter. I read it on page 3 of the paper first!\n\nYours\nTom",
    "poetry": "静夜思\n李白\n\n床前明月光，\n疑是地上霜。\n举头望明月，\n低头思故乡。",
    "chinese": "他说，关于我们的故事，大家都愿意分享。\n新闻里说，下一页还有更多的内容，可是没有人再往下看了。",
    "law": "The author keeps the copyright in the text.\n"
    "The court held that the use of cookies needs consent, and said why.",
    "web": "JavaScript is a language that browsers run.\nAll of them support JavaScript, and few need it.\n"
    "It has little to do with Java, whatever its name says.",
    "list": "Apples | Pears | Plums | Cherries\nwere sold at the market, and the cherries went first.",
    "table": "1914\n1918\n1939\n1945\nare the years every pupil knows.",
}


@pytest.mark.parametrize("kind", ORDINARY)
def test_ordinary_documents_are_the_same_objects_afterwards(kind):
    document = Document(ORDINARY[kind], "f:1")
    assert remove_boilerplate(document) is document


def pages() -> st.SearchStrategy[str]:
    phrases = st.sampled_from(
        sorted(KNOWN_PHRASES)[:80] + sorted(MENU_VOCABULARY)[:60] + ["", "", "Reply", "a | b | home | news", "x" * 90]
    )
    return st.lists(st.one_of(phrases, st.text(max_size=20)), max_size=25).map("\n".join)


@given(pages())
def test_what_is_left_stays(text):
    cleaned_once = remove_boilerplate(Document(text.strip(), "f:1"))
    assert remove_boilerplate(cleaned_once) is cleaned_once


def test_the_account_counts_lines_and_balances(read_corpus, tmp_path: Path):
    for number in range(4):
        text = "\n".join(ARTICLE).replace("1820", f"182{number}")
        (tmp_path / f"{number}.txt").write_text(f"Home\n{text}\nShare this\n© 2020 Example")
    (tmp_path / "menu.txt").write_text("Home\nAbout us\nContact")
    documents, account = read_corpus(tmp_path, document="file", boilerplate=True)
    assert account.read == 5 and account.dropped == {"empty": 1}
    assert account.removed == {"boilerplate lines": 12}
    assert all(document.text.startswith("The mill") for document in documents)
