"""Replacement of personal data."""

import random
import time
from importlib.metadata import PackageNotFoundError
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meristem.config.errors import MeristemError, RecipeError
from meristem.config.validation import build_settings
from meristem.corpus.document import Document
from meristem.corpus.privacy import id_numbers
from meristem.corpus.privacy.pii import PLACEHOLDERS, find_pii, pii_step
from meristem.corpus.privacy.secrets import looks_random
from meristem.corpus.settings import CorpusSettings

ALL = pii_step(tuple(PLACEHOLDERS))


def marked(text: str) -> str:
    return ALL(Document(text, "f:1")).text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Write to ada.lovelace+maths@mail.example.co.uk, please.", "Write to <email>, please."),
        ("请发邮件至wang_wei@example.cn，谢谢。", "请发邮件至<email>，谢谢。"),
        ("ada (at) example (dot) org or ada[at]example.org", "<email> or <email>"),
        ("jürgen.müller@straße.example.de", "<email>"),
        ("Call +49 (0)30 1234 5678 or 0049 30 12345678.", "Call <phone> or <phone>."),
        ("Call (212) 555-0187 or 1-212-555-0187 ext. 12.", "Call <phone> or <phone>."),
        ("Ring 020 7946 0958, 07700 900123 or 07700900123.", "Ring <phone>, <phone> or <phone>."),
        ("Telefon: 089/1234567, mobil 0171 1234567", "Telefon: <phone>, mobil <phone>"),
        ("Appelez le 06 12 34 56 78.", "Appelez le <phone>."),
        ("手机13812345678，座机010-12345678。", "手机<phone>，座机<phone>。"),
        ("（0755）86541234 或 400-820-8820", "<phone> 或 <phone>"),
        ("phone: 2125550187", "phone: <phone>"),
        ("Card 4111 1111 1111 1111, 5500-0000-0000-0004, 378282246310005.", "Card <card>, <card>, <card>."),
        ("SSN 078-05-1120, NINO AB 12 34 56 C.", "SSN <identity>, NINO <identity>."),
        ("身份证11010519491231002X。", "身份证<identity>。"),
        (
            "Steuer-ID 86 095 742 719, DNI 12345678Z, NIE X1234567L",
            "Steuer-ID <identity>, DNI <identity>, NIE <identity>",
        ),
        ("RSSMRA85T10A562S 111.444.777-35 2 55 08 14 168 025 38", "<identity> <identity> <identity>"),
        ("PESEL 44051401359", "PESEL <identity>"),
        ("RRN 850101-1234566, personnummer 811218-9876", "RRN <identity>, personnummer <identity>"),
        ("IBAN NO93 8601 1117 947 VISA and SE45 5000 0000 0583 9825 7466", "IBAN <account> VISA and <account>"),
        ("IBAN DE89 3704 0044 0532 0130 00 and GB82WEST12345698765432", "IBAN <account> and <account>"),
        ("from 85.214.132.117 and 2a00:1450:4001:81b::200e", "from <ip> and <ip>"),
        ("AKIAIOSFODNN7EXAMPLE ghp_16C7e42F292c6912E7710c838347Ae178B4a", "<key> <key>"),
        ("api_key = 'aB3dE5fG7hJ9kL1mN3pQ'", "api_key = '<key>'"),
        ("Authorization: Bearer 9f8A7b6C5d4E3f2A1b0C", "Authorization: Bearer <key>"),
        ("postgres://ada:s3cretPa55@db.example.org/x", "postgres://ada:<key>@db.example.org/x"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P", "<key>"),
        ("a\n-----BEGIN RSA PRIVATE KEY-----\nMIIEow==\n-----END RSA PRIVATE KEY-----\nb", "a\n<key>\nb"),
    ],
)
def test_private_strings_are_replaced(text, clean):
    assert marked(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "On 12.03.2021, 2021-03-12 at 10:30:45 and 03/12/2021, from 1914-1918 to 1939–1945.",
        "It cost $1,234,567.89, 1.234.567,89 € or 12 000 000 yen, 3.141592653589793 times as much.",
        "ISBN 978-0-306-40615-7, ISBN 0-306-40615-2, ISSN 0317-8471, 9780306406157.",
        "Version 1.2.3.4, v10.4.12.31, section 3.1.2.4, Chrome 117.0.5938.92, 192.168.1.1, 127.0.0.1.",
        "Commit 3b18e512dba79e4c8300dd08aeb37f8e728b8dad and md5 d41d8cd98f00b204e9800998ecf8427e.",
        "Order 00451234567, invoice 2023-004512, parcel 1Z999AA10123456784, row 123456789012345.",
        "Page 123 of 456; 100 200 300 400; the years 1999 2000 2001 2002; 12:34:56 00:1a:2b:3c:4d:5e.",
        "Follow @ada, see icon@2x.png, clone git@github.com:ada/engine.git, mail me @ home.",
        "The secret: everybody knows that password: forgotten. token: none",
        "The population of 12,345,678 grew to 13 456 789 in 2020, by 9.1 %.",
        "第12345678号公告，2021年3月12日，共1,234,567人，人均GDP为12345.67元。",
        "111.111.111-11 and 529.982.247-24; 850101-1234561; 811218-9875; 11010519491331002X; DE89370400440532013001.",
        "Tracking 9400 1000 0000 0000 0000 00 and 4111 1111 1111 1112.",
    ],
)
def test_other_numbers_stay(text):
    assert marked(text) == text


def test_kinds_are_counted_and_only_those_asked_for_go():
    text = "ada@example.org, bob@example.org, +49 30 12345678"
    document = ALL(Document(text, "f:1"))
    assert document.notes == (("e-mail", 2), ("phone", 1))
    assert pii_step(("phone",))(Document(text, "f:1")).text == "ada@example.org, bob@example.org, <phone>"
    plain = Document("Nothing to hide.", "f:1")
    assert ALL(plain) is plain


def test_places_are_those_of_the_text():
    text = "x ada@example.org y +49 30 12345678 z"
    assert [(kind, text[start:stop]) for kind, start, stop in find_pii(text)] == [
        ("e-mail", "ada@example.org"),
        ("phone", "+49 30 12345678"),
    ]


def test_without_the_library_the_extra_is_named(monkeypatch):
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    id_numbers._validator.cache_clear()
    for action in (lambda: find_pii("4111 1111 1111 1111"), CorpusSettings(source="a.txt", pii=True).cache_key_fields):
        with pytest.raises(MeristemError, match=r'needs python-stdnum: pip install "meristem-lm\[clean\]"'):
            action()


def test_what_looks_random():
    assert looks_random("aB3dE5fG7hJ9kL1mN3pQ") and not looks_random("everybody-knows-that-one")


@pytest.mark.parametrize(
    "piece",
    [
        "1", "1 ", "@", "a.a@", "eyJaaaaaaaaaa.", "-----BEGIN PRIVATE KEY-----", "+1 ", "(0", "token=", "2001:",
        "1.1.1.", "DE89 ", "012 ", "a://a:", "4111 1111 ", "tel 1", "a[dot]",
    ],
)  # fmt: skip
def test_a_megabyte_of_almost_private_strings_takes_no_time(piece):
    text = piece * (1_000_000 // len(piece))
    start = time.process_time()
    find_pii(text)
    assert (
        time.process_time() - start < 4
    )  # 0.1 to 1.2 s on a busy core; looking again from every character takes hours


def mixed() -> st.SearchStrategy[str]:
    pieces = [
        "+49 30 ",
        "1234567",
        "@",
        "example.org",
        "ada",
        " ",
        ".",
        "-",
        "(0",
        ")",
        "DE89",
        "3704 0044",
        "tel ",
        "api_key=",
        "aB3dE5fG7hJ9kL1m",
        "://",
        ":",
        "4111 ",
        "1111",
        "2a00:",
        "85.",
        "214",
        "，",
        "电话",
        "\n",
        "<",
    ]
    return st.lists(st.one_of(st.sampled_from(pieces), st.text(max_size=4)), max_size=30).map("".join)


@given(st.one_of(st.text(max_size=200), mixed()))
def test_whatever_the_text_what_is_marked_stays_so(text):
    replaced_once = ALL(Document(text, "f:1"))
    assert ALL(replaced_once).text == replaced_once.text
    spans = find_pii(text)
    assert all(0 <= a < b <= len(text) for _, a, b in spans)
    assert all(previous.stop <= right.start for previous, right in pairwise(spans))


def test_settings_name_kinds_or_all_or_none():
    def kinds(value):
        return build_settings(CorpusSettings, {"pii": value}, "corpus").pii

    assert kinds(True) == tuple(PLACEHOLDERS) and kinds(False) == () and CorpusSettings().pii == ()
    assert kinds("phone") == ("phone",) and kinds(["e-mail", "key"]) == ("e-mail", "key")
    with pytest.raises(RecipeError, match=r"corpus\.pii\.0.*'e-mail'"):
        kinds(["emial"])


def test_the_account_counts_them_whatever_the_number_of_processes(read_corpus, tmp_path: Path, monkeypatch):
    rng = random.Random(0)
    lines = [
        f"Document {n} says: write to person{n}@example.org{' or +49 30 12345678' * (n % 2)}. "
        + " ".join(str(rng.random()) for _ in range(4))
        for n in range(600)
    ]
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("\n".join(lines[number * 200 : number * 200 + 200]))
    monkeypatch.setattr("meristem.corpus.pipeline.MIN_POOL_BYTES", 1)
    single_documents, single_account = read_corpus(tmp_path, document="line", pii=True, processes=1)
    parallel_documents, parallel_account = read_corpus(tmp_path, document="line", pii=True, processes=2)
    assert single_account.removed == {"e-mail": 600, "phone": 300} and single_account.repaired["replace private"] == 600
    assert single_documents == parallel_documents and single_account == parallel_account
    assert not any("@" in document.text for document in single_documents)
