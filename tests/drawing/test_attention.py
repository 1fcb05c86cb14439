"""Pictures of attention: really written, with the tokens in them, in any script and of any size."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from meristem.drawing import fonts
from meristem.drawing.attended import Attended, Seen
from meristem.drawing.attention import Shot, View, save, titles, what
from meristem.drawing.attention_words import lit
from meristem.errors import MeristemError

pytest.importorskip("matplotlib")
WORDS = ("[CLS]", "the", "old", "gard", "##ener", "␣costs", "$x$", "<b>&amp;", "[SEP]")


def made(size: int = 9, keys: int | None = None, layers: int = 2, heads: int = 3, name: str = "self") -> Attended:
    """Random weights over so many tokens."""
    across = keys or size
    weights = np.random.default_rng(0).dirichlet(np.full(across, 0.3), (layers, heads, size)).astype(np.float32)
    labels = [(WORDS * 40)[:number] for number in (size, across)]
    seen = Seen(queries=labels[0], keys=labels[1], weights=weights, rolls=name == "self")
    return Attended(text="the $old$ gardener costs <b>", run="small", kinds={name: seen})


def size_of(png: Path) -> tuple[int, int]:
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG")
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


@pytest.mark.parametrize("view", [None, "grid", "mean", "rollout"])
def test_every_view_is_written(view: View | None, tmp_path: Path) -> None:
    for ending in ("png", "svg"):
        assert save(made(), tmp_path / f"a.{ending}", Shot(view=view)) == ()
    wide, high = size_of(tmp_path / "a.png")
    assert 400 < wide < 3000 and 300 < high < 2000
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(drawn)
    assert "$old$" in drawn and "small · self" in drawn
    assert (">gard<" in drawn) is (view != "grid")  # small pictures have no room for words
    assert not list(tmp_path.glob("*.tmp"))


def test_an_svg_tells_its_numbers(tmp_path: Path) -> None:
    found = made()
    save(found, tmp_path / "a.svg", Shot(layer=2, head=3))
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    weight = found.kinds["self"].weights[1, 2, 1, 4]
    assert f"<title>the → ##ener: {weight:.4f}</title>" in drawn
    assert drawn.count("<title>") == 81
    assert "&lt;b&gt;&amp;amp;" in drawn and "<b>" not in drawn
    assert "layer 2 of 2, head 3 of 3" in drawn
    image, first = (
        re.search(r"<image [^>]*>", drawn),
        re.search(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"', drawn),
    )
    assert image is not None and first is not None
    left = float(re.search(r'\bx="([\d.]+)"', image[0])[1])  # type: ignore[index]  # every image has one
    assert float(first[1]) == pytest.approx(left, abs=2.0)  # titles lie over the cells
    save(found, tmp_path / "b.svg", Shot(layer=2, head=3))
    assert (tmp_path / "b.svg").read_bytes() == (tmp_path / "a.svg").read_bytes()


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (2, 2), (128, 128), (3, 120)])
def test_sizes_stay_sensible(queries: int, keys: int, tmp_path: Path) -> None:
    save(made(queries, keys, layers=1, heads=2, name="cross"), tmp_path / "a.png", Shot())
    assert max(size_of(tmp_path / "a.png")) < 3600
    save(made(queries, keys, name="cross"), tmp_path / "a.svg", Shot(view="mean"))
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert ("<title>" in drawn) is (queries * keys <= 64 * 64)
    if keys == 128:
        points = {float(found) for found in re.findall(r"([\d.]+)px", drawn)}
        assert min(points) >= 5.0  # thinned rather than too small to read
        assert drawn.count("gard<") < 2 * 15


def test_chinese_is_drawn_or_its_absence_is_said(tmp_path: Path) -> None:
    seen = Seen(queries=tuple("安娜"), keys=tuple("安娜"), weights=np.full((1, 1, 2, 2), 0.5, np.float32))
    notices = save(Attended(text="安娜", run="x", kinds={"self": seen}), tmp_path / "a.svg", Shot())
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "安" in drawn and "娜" in drawn
    families, lacking = fonts.families("安娜 a")
    assert families[0] == "DejaVu Sans" and (len(families) > 1) is not bool(lacking)
    assert bool(notices) is bool(lacking)
    assert fonts.families("plain ␣⏎⇥…→") == (["DejaVu Sans"], "")
    _, never = fonts.families("a\U0010fffe")  # no font has what is no character
    assert never == "\U0010fffe"


def test_what_no_font_has_is_named(tmp_path: Path) -> None:
    seen = Seen(queries=("\U0010fffe",), keys=("a",), weights=np.ones((1, 1, 1, 1), np.float32))
    (notice,) = save(Attended(text="a", run="x", kinds={"cross": seen}), tmp_path / "a.png", Shot())
    assert notice.startswith("no installed font has \U0010fffe") and "Noto Sans CJK" in notice


def test_a_caption_is_drawn_word_by_word(tmp_path: Path) -> None:
    picture = np.full((8, 8, 3), 200, np.uint8)
    weights = np.zeros((1, 2, 3, 4), np.float32)
    weights[:, :, 0, 1] = weights[:, :, 1, 2] = weights[:, :, 2, 3] = 1.0
    seen = Seen(queries=("a", "red", "猫"), keys=("1,1", "1,2", "2,1", "2,2"), weights=weights)
    found = Attended(text="a red 猫", run="x", kinds={"image": seen}, picture=picture)
    save(found, tmp_path / "a.svg", Shot())
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert drawn.count("<image ") == 4 and ">red<" in drawn and ">猫<" in drawn and "mean of 2 heads" in drawn
    shown = lit(picture, weights[0, 0, 0])
    assert shown[0, 7, 0] == 200 and shown[7, 0, 0] == shown[0, 0, 0] < 100
    save(found, tmp_path / "b.svg", Shot(view="grid"))
    assert (tmp_path / "b.svg").read_text(encoding="utf-8").count("<image ") >= 2


def test_numbers_are_written_as_json(tmp_path: Path) -> None:
    save(made(), tmp_path / "a.json", Shot())
    found = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert found["kinds"]["self"]["keys"] == list(WORDS)
    assert np.array(found["kinds"]["self"]["weights"]).shape == (2, 3, 9, 9)


def test_no_text_breaks_a_file(tmp_path: Path) -> None:
    hostile = "\x00]]><script>&\u202e\uffff\ud800$"
    seen = Seen(queries=(hostile, ""), keys=("\n", hostile), weights=np.full((1, 1, 2, 2), 0.5, np.float32))
    for ending in ("svg", "png"):
        save(Attended(text=hostile, run=hostile, kinds={"cross": seen}), tmp_path / f"a.{ending}", Shot())
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert not [one for one in ElementTree.fromstring(drawn).iter() if "script" in one.tag]
    assert "<script" not in drawn and "\u202e" not in drawn


def test_titles_say_what_is_seen() -> None:
    found = made()
    seen = found.kinds["self"]
    assert what(seen, Shot()) == "2 layers of 3 heads, and their mean"
    assert what(seen, Shot(head=1)) == "layer 2 of 2, head 1 of 3"
    assert what(seen, Shot(layer=1)) == "mean of 3 heads, layer 1 of 2"
    assert what(seen, Shot(view="rollout")) == "rollout through 2 layers"
    ordered = Attended(text="x", run="x", kinds={"query": seen}, order=(1, 0, 2))
    assert titles(ordered, "query", seen, Shot())[-1] == "order: the [CLS] old"


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    for shot, told in (
        (Shot(layer=3), "layer 3: there are 2"),
        (Shot(layer=3, view="grid"), "layer 3: there are 2"),
        (Shot(head=4), "head 4: there are 3"),
        (Shot(kind="cross"), "there is self"),
    ):
        with pytest.raises(MeristemError, match=told):
            save(made(), tmp_path / "a.png", shot)
    with pytest.raises(MeristemError, match=r"one of \.png, \.svg, \.json"):
        save(made(), tmp_path / "a.gif", Shot())
    with pytest.raises(MeristemError, match="make it first"):
        save(made(), tmp_path / "no" / "a.png", Shot())
    with pytest.raises(MeristemError, match="one head is one map"):
        Shot(head=1, view="grid")
    with pytest.raises(MeristemError, match="leave layer and head out"):
        Shot(layer=1, view="rollout")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_pip_line_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meristem.drawing.attention.can_draw", lambda: False)
    with pytest.raises(MeristemError, match=r'pip install "meristem\[draw\]"'):
        save(made(), tmp_path / "a.png", Shot())
    assert save(made(), tmp_path / "a.json", Shot()) == ()  # numbers need no library
