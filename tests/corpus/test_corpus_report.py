"""The corpus report in the terminal, as a page and as JSON, with hostile names and texts."""

import html
import json
import random
import re
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from meristem.config.errors import MeristemError, RecipeError
from meristem.corpus import pipeline, read_ranges
from meristem.corpus.accounting import CorpusAccount
from meristem.corpus.corpus_command import run_corpus_command
from meristem.corpus.report.corpus_report import CorpusReport, report_to_dict, report_to_json
from meristem.corpus.report.report_html import render_report
from meristem.corpus.report.report_terminal import report_sections
from meristem.corpus.report.sample_trial import SampleFindings, SettingTrial
from meristem.corpus.settings import CorpusSettings

EVIL = "</bdi><script>alert(1)</script><img src=x onerror='alert(2)'>\x1b[31m\u202e"
VOID = {"meta", "br", "img"}
ONSETS, RHYMES = (
    ("b", "d", "fl", "g", "kn", "l", "m", "p", "st", "tr"),
    ("ark", "eed", "ill", "old", "oon", "ush", "ay"),
)
WORDS = [
    *["the", "of", "and", "that", "with", "is", "for"] * 6,
    *(onset + rhyme for onset in ONSETS for rhyme in RHYMES),
]


class Checked(HTMLParser):
    """A page whose elements are closed in their order, with what could do harm collected."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.harm: list[str] = []
        self.words = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "iframe", "link", "object", "img"}:
            self.harm.append(tag)
        self.harm += [name for name, value in attrs if name.startswith("on") or (value or "").startswith("javascript")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def example_report(source: str = "crawl/") -> CorpusReport:
    account = CorpusAccount(read=1000, kept=700, characters=1_400_000, bytes=2_000_000)
    account.dropped.update({"duplicate": 200, "near duplicate": 60, "too few words": 30, EVIL: 10})
    account.lengths.update({3: 1, 8: 100, 9: 200, 10: 300, 11: 98, 19: 1})
    account.splits.update(train=672, validation=14, test=14)
    account.sources.update({f"crawl/{EVIL}.txt": 300, "crawl/中文.txt": 400})
    account.examples = {"duplicate": [("crawl/中文.txt:3", "春眠不觉晓，处处闻啼鸟。")], EVIL: [(EVIL, EVIL)]}
    account.passages.update({f"A line that stands in many documents {EVIL}": 70})
    account.removed.update({"e-mail": 12, "boilerplate lines": 90})
    account.repaired["trim spaces"] = 51
    account.rejected["empty file"] = 1
    account.skipped[".[red]"] = 2
    account.warn(f"crawl/{EVIL}: strange")
    findings = SampleFindings(
        documents=500,
        languages=Counter({"en": 400, "zh": 90, "": 10}),
        compared=500,
        alike=40,
        private=SettingTrial(affected=9, removed=Counter({"phone": 4, "e-mail": 9})),
    )
    return CorpusReport(account=account, findings=findings, settings=CorpusSettings(source=source))


def screen(report: CorpusReport, width: int = 80) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        for section in report_sections(report):
            console.print(section)
    return capture.get()


def test_the_page_is_whole_escaped_and_says_everything() -> None:
    text = render_report(example_report(EVIL))
    checked = Checked(text)
    assert checked.harm == []
    assert "\x1b" not in text and "\u202e" not in text
    assert "default-src 'none'" in html.unescape(text)
    for fragment in (
        "1,000",
        "700",
        "70 %",
        "1.4 M",
        "2.0 MB",
        "near duplicate",
        "春眠不觉晓，处处闻啼鸟。",
        "crawl/中文.txt:3",
        "en",
        "zh",
        "80 %",
        "e-mail",
        "boilerplate lines",
        "trim spaces",
        "empty file",
        ".[red]",
        "672",
        "corpus.near_dedup=true",
        "corpus.languages=[en]",
        "corpus.pii=true",
        "alert(1)",
        "deduplicate: true",
    ):
        assert fragment in checked.words, fragment
    assert "<script" not in text


def test_the_bars_of_the_page_add_up() -> None:
    text = render_report(example_report())
    match = re.search(r'<div class="whole".*?</div>', text, re.DOTALL)
    assert match
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", match[0])]
    assert sum(widths) == pytest.approx(100, abs=0.1)
    assert widths[0] == 70.0


def test_many_reasons_share_the_last_colour() -> None:
    corpus_report = example_report()
    corpus_report.account.dropped.update({f"another language: {n}": 2 for n in range(30)})
    corpus_report.account.read += 60
    checked = Checked(render_report(corpus_report))
    assert "29 other reasons" in checked.words
    assert checked.words.count("another language:") >= 30


def test_lengths_have_a_bar_for_each_power_and_thin_ends_drawn_together() -> None:
    bars = example_report().lengths
    assert [(bar.label, bar.count) for bar in bars] == [("<512", 101), ("512", 200), ("1k", 300), ("≥2k", 99)]
    assert [bar.range_label for bar in bars] == ["8 to 511", "512 to 1,023", "1,024 to 2,047", "2,048 to 1,048,575"]
    assert sum(bar.count for bar in bars) == example_report().account.kept


def test_the_terminal_shows_the_same_on_two_screens() -> None:
    text = screen(example_report())
    assert len(text.splitlines()) <= 80
    assert "\x1b" not in text and "\u202e" not in text
    for fragment in (
        "documents kept",
        "dropped: duplicate",
        "1,024 to 2,047",
        "en 80 %, zh 18 %, unknown 2.0 %",
        "春眠不觉晓",
        "A line that stands",
        "10 %",
        "corpus.near_dedup=true",
        "files skipped: .[red]",
    ):
        assert fragment in text, fragment


def test_a_terminal_of_sixty_columns_is_enough() -> None:
    assert max(map(len, screen(example_report(), width=60).splitlines())) <= 60


def test_languages_that_were_asked_for_and_those_dropped() -> None:
    corpus_report = CorpusReport(
        account=example_report().account, findings=example_report().findings, settings=CorpusSettings(languages=("zh",))
    )
    corpus_report.account.languages.update(zh=400)
    corpus_report.account.dropped.update({"another language: de": 30, "another language: not clear": 7})
    assert corpus_report.languages == {"zh": 400, "de": 30, "unknown": 7}
    assert "of a sample" not in render_report(corpus_report)


def test_nothing_to_advise_is_said() -> None:
    corpus_report = CorpusReport(
        account=CorpusAccount(), findings=SampleFindings(), settings=CorpusSettings(source="x.txt")
    )
    assert "Nothing stands out." in screen(corpus_report)
    assert "Nothing stands out." in Checked(render_report(corpus_report)).words


def test_programs_get_the_same() -> None:
    payload = json.loads(report_to_json(example_report()))
    assert payload["read"] == payload["kept"] + sum(payload["dropped"].values())
    assert payload["sample"]["private"] == {"affected": 9, "dropped": {}, "removed": {"phone": 4, "e-mail": 9}}
    assert [advice["setting"] for advice in payload["advice"]] == [
        "corpus.near_dedup=true",
        "corpus.languages=[en]",
        "corpus.boilerplate=true",
        "corpus.pii=true",
    ]
    assert payload["lengths"]["10"] == 300
    assert payload["settings"]["source"] == "crawl/"
    assert report_to_dict(example_report())["examples"]["duplicate"]


def test_names_that_no_encoding_has(tmp_path: Path) -> None:
    corpus_report = example_report("caf\udce9.txt")
    corpus_report.account.sources["caf\udce9.txt"] = 5
    json.loads(report_to_json(corpus_report)).items()
    render_report(corpus_report).encode()
    screen(corpus_report).encode()


# ------------------------------------------------------------ the command


def write_crawl(folder: Path, documents: int = 200) -> Path:
    folder.mkdir()
    lines = []
    for n in range(documents):
        rng = random.Random(n)
        text = " ".join(f"{' '.join(rng.choices(WORDS, k=12)).capitalize()}." for _ in range(6 + n % 10))
        lines.append("ok" if n % 10 == 3 else lines[-1] if n % 7 == 6 else text)
    (folder / "a.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "b.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in lines[50:]), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "settings_overrides", [[], ["corpus.near_dedup=true", "corpus.quality=true", "corpus.pii=true"]]
)
def test_the_report_does_not_depend_on_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings_overrides: list[str]
) -> None:
    monkeypatch.setattr(read_ranges, "RANGE_BYTES", 20_000)
    monkeypatch.setattr(pipeline, "MIN_POOL_BYTES", 1)
    crawl = write_crawl(tmp_path / "crawl")
    settings = ["corpus.document=line", "corpus.min_characters=5", *settings_overrides]
    reports = []
    for processes in (1, 2, 3):
        corpus_report = run_corpus_command(
            str(crawl), [*settings, f"corpus.processes={processes}"], Console(quiet=True)
        )
        reports.append({name: value for name, value in report_to_dict(corpus_report).items() if name != "settings"})
    assert reports[0] == reports[1] == reports[2]
    assert reports[0]["dropped"]["duplicate"] > 150
    assert (
        {"duplicate", "too short"} <= set(reports[0]["examples"]) if not settings_overrides else reports[0]["examples"]
    )
    lines = (crawl / "a.txt").read_text(encoding="utf-8").splitlines()
    placed = [
        (location, text)
        for examples in reports[0]["examples"].values()
        for location, text in examples
        if "a.txt" in location
    ]
    assert placed
    for location, text in placed:
        assert lines[int(location.rpartition(":")[2]) - 1].startswith(text.removesuffix(" …"))


def test_pages_are_written_where_asked_and_beside_the_text(tmp_path: Path) -> None:
    crawl = write_crawl(tmp_path / "crawl")
    run_corpus_command(
        str(crawl),
        ["corpus.document=line"],
        Console(quiet=True),
        out=tmp_path / "clean",
        page_path=tmp_path / "new" / "p.html",
    )
    assert (tmp_path / "new" / "p.html").read_text("utf-8") == (tmp_path / "clean" / "report.html").read_text("utf-8")
    assert sorted(path.name for path in (tmp_path / "clean").iterdir()) == [
        "report.html",
        "test.jsonl",
        "train.jsonl",
        "validation.jsonl",
    ]


def test_where_nothing_is_kept_the_page_says_why(tmp_path: Path) -> None:
    crawl = write_crawl(tmp_path / "crawl")
    with pytest.raises(MeristemError, match="no usable documents"):
        run_corpus_command(
            str(crawl),
            ["corpus.min_characters=100000", "corpus.document=line"],
            Console(quiet=True),
            page_path=tmp_path / "p.html",
        )
    checked = Checked((tmp_path / "p.html").read_text("utf-8"))
    assert "too short" in checked.words
    assert "corpus.min_characters=25000" in checked.words


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium here")
def test_a_browser_shows_no_scroll_bar_sideways(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(render_report(example_report(EVIL * 5)), encoding="utf-8")
    outer = (
        '<iframe id="f" src="page.html" width="400" height="900"></iframe><script>onload=()=>{const d='
        "document.getElementById('f').contentDocument.documentElement;document.title=d.scrollWidth}</script>"
    )
    (tmp_path / "outer.html").write_text(outer, encoding="utf-8")
    words = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--allow-file-access-from-files",
        "--dump-dom",
        f"--user-data-dir={tmp_path / 'profile'}",
        f"file://{tmp_path / 'outer.html'}",
    ]
    completed = subprocess.run(words, capture_output=True, text=True, timeout=60)
    width = re.search(r"<title>(\d+)</title>", completed.stdout)
    assert width, completed.stdout + completed.stderr
    assert int(width[1]) <= 400


def test_what_could_not_be_written_is_refused_before_the_pass(tmp_path: Path) -> None:
    crawl = str(write_crawl(tmp_path / "crawl"))
    with pytest.raises(RecipeError, match=r"is a folder; name a file"):
        run_corpus_command(crawl, [], Console(quiet=True), page_path=tmp_path)
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(RecipeError, match="cannot be written to"):
        run_corpus_command(crawl, [], Console(quiet=True), out=tmp_path / "file" / "deeper")
    with pytest.raises(RecipeError, match="cannot be written to"):
        run_corpus_command(crawl, [], Console(quiet=True), page_path=tmp_path / "file" / "page.html")
