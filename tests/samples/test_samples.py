"""Built-in corpora by name: options, errors, digests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from meristem import samples
from meristem.config.errors import MeristemError
from meristem.samples import pydocs


@pytest.fixture
def few_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    def short() -> Iterator[str]:
        yield from pydocs.read_documents(islice(pydocs.iter_modules(pydocs.module_roots()), 40))

    monkeypatch.setattr(pydocs, "documents", short)


def test_known_names_have_one_line_each() -> None:
    corpora = samples.list_corpora()
    assert set(corpora) == {
        "pydocs", "microworld", "microworld-en", "microworld-zh", "microworld-pairs", "microworld-pictures"
    }  # fmt: skip
    assert all(line and "\n" not in line for line in corpora.values())


def test_size_and_seed_choose_the_documents() -> None:
    first = list(samples.documents("microworld-en?size=20&seed=3"))
    assert len(first) == 20
    assert first == list(samples.documents("microworld-en?seed=3&size=20"))
    assert first[:5] == list(samples.documents("microworld-en?size=5&seed=3"))
    assert not set(first) & set(samples.documents("microworld-en?size=20&seed=4"))


def test_microworld_alternates_languages() -> None:
    documents = list(samples.documents("microworld?size=6"))
    assert [text.isascii() or "é" in text for text in documents] == [True, False] * 3
    assert documents[1] == list(samples.documents("microworld-zh?size=2"))[1]


@pytest.mark.usefixtures("few_documents")
def test_pydocs_takes_a_size() -> None:
    assert len(list(samples.documents("pydocs?size=3"))) == 3
    assert len(list(samples.documents("pydocs"))) > 3


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("pydoc", "did you mean pydocs?"),
        ("microwold-en", "did you mean microworld-en?"),
        ("zzz", "known: microworld, microworld-en, microworld-pairs, microworld-pictures, microworld-zh, pydocs"),
        ("microworld?sizes=3", "did you mean size?"),
        ("pydocs?seed=3", "unknown option 'seed'; known: size"),
        ("microworld?size=many", "microworld?size=500"),
        ("microworld?size=0", "size must be a whole number"),
        ("microworld?seed=", "seed must be a whole number"),
        ("microworld?size=-3", "size must be a whole number"),
        ("microworld-pairs?to=fr", "to must be en or zh, not 'fr'"),
        ("microworld-pairs?language=zh", "unknown option 'language'; known: seed, size, to"),
        ("microworld-pictures?language=", "language must be en or zh"),
    ],
)
def test_wrong_names_say_what_would_do(name: str, hint: str) -> None:
    for ask in (samples.documents, samples.digest):
        with pytest.raises(MeristemError, match="builtin:") as error:
            ask(name)
        assert hint in str(error.value)


def test_digest_follows_what_would_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module.py").write_text('"""The only module there is."""')
    monkeypatch.setattr(pydocs, "module_roots", lambda: (tmp_path,))
    digests = [
        samples.digest(name)
        for name in ("microworld", "microworld-en", "microworld?seed=1", "microworld?size=5", "pydocs", "pydocs?size=5")
    ]
    assert len(set(digests)) == len(digests)
    assert samples.digest("microworld") == samples.digest("microworld?size=10000&seed=0")
    assert samples.digest("microworld?seed=1&size=7") == samples.digest("microworld?size=7&seed=1")
    assert samples.digest("pydocs") == samples.digest("pydocs")


def test_pairs_and_images_have_their_kinds() -> None:
    assert [samples.corpus_kind(name) for name in ("pydocs", "microworld-pairs?size=3", "microworld-pictures")] == [
        "text",
        "pairs",
        "pictures",
    ]
    forward_pairs, backward_pairs = (
        list(samples.paired_documents(f"microworld-pairs?size=20&to={to}")) for to in ("zh", "en")
    )
    assert backward_pairs == [(target, source) for source, target in forward_pairs]
    assert list(samples.documents("microworld-pairs?size=20")) == [target for _, target in forward_pairs]
    english, chinese = (
        list(samples.paired_documents(f"microworld-pictures?size=9&language={language}")) for language in ("en", "zh")
    )
    assert [name for name, _ in english] == [name for name, _ in chinese]
    assert len({name for name, _ in english}) == 9
    assert samples.draw_image(english[3][0], 16).shape == (16, 16, 3)
    names = ("microworld-pairs", "microworld-pairs?to=en", "microworld-pictures", "microworld-pictures?language=zh")
    assert len({samples.digest(name) for name in names}) == 4
    assert samples.digest("microworld-pairs?to=zh&size=10000") == samples.digest("microworld-pairs")
