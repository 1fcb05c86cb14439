"""Attention plots: files are written with their tokens, in any script and size."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from meristem.config.errors import MeristemError
from meristem.drawing import fonts
from meristem.drawing.attention_plots import (
    AttentionSelection,
    AttentionView,
    describe_selection,
    save_attention,
    title_lines,
)
from meristem.drawing.attention_record import AttentionRecord, AttentionWeights
from meristem.drawing.caption_attention import apply_brightness

pytest.importorskip("matplotlib")
WORDS = ("[CLS]", "the", "old", "gard", "##ener", "␣costs", "$x$", "<b>&amp;", "[SEP]")


def example_attention(
    size: int = 9, keys: int | None = None, layers: int = 2, heads: int = 3, name: str = "self"
) -> AttentionRecord:
    """Random weights over so many tokens."""
    across = keys or size
    weights = np.random.default_rng(0).dirichlet(np.full(across, 0.3), (layers, heads, size)).astype(np.float32)
    labels = [(WORDS * 40)[:number] for number in (size, across)]
    attention_weights = AttentionWeights(
        queries=labels[0], keys=labels[1], weights=weights, supports_rollout=name == "self"
    )
    return AttentionRecord(text="the $old$ gardener costs <b>", run="small", kinds={name: attention_weights})


def size_of(png: Path) -> tuple[int, int]:
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG")
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


@pytest.mark.parametrize("view", [None, "grid", "mean", "rollout"])
def test_every_view_is_written(view: AttentionView | None, tmp_path: Path) -> None:
    for ending in ("png", "svg"):
        assert save_attention(example_attention(), tmp_path / f"a.{ending}", AttentionSelection(view=view)) == ()
    wide, high = size_of(tmp_path / "a.png")
    assert 400 < wide < 3000 and 300 < high < 2000
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert "$old$" in text and "small · self" in text
    assert (">gard<" in text) is (view != "grid")  # small pictures have no room for words
    assert not list(tmp_path.glob("*.tmp"))


def test_an_svg_has_tooltips(tmp_path: Path) -> None:
    attention = example_attention()
    save_attention(attention, tmp_path / "a.svg", AttentionSelection(layer=2, head=3))
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    weight = attention.kinds["self"].weights[1, 2, 1, 4]
    assert f"<title>the → ##ener: {weight:.4f}</title>" in text
    assert text.count("<title>") == 81
    assert "&lt;b&gt;&amp;amp;" in text and "<b>" not in text
    assert "layer 2 of 2, head 3 of 3" in text
    image, first = (
        re.search(r"<image [^>]*>", text),
        re.search(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"', text),
    )
    assert image is not None and first is not None
    left_edge = float(re.search(r'\bx="([\d.]+)"', image[0])[1])  # type: ignore[index]  # every image has one
    assert float(first[1]) == pytest.approx(left_edge, abs=2.0)  # titles lie over the cells
    save_attention(attention, tmp_path / "b.svg", AttentionSelection(layer=2, head=3))
    assert (tmp_path / "b.svg").read_bytes() == (tmp_path / "a.svg").read_bytes()


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (2, 2), (128, 128), (3, 120)])
def test_sizes_stay_sensible(queries: int, keys: int, tmp_path: Path) -> None:
    save_attention(
        example_attention(queries, keys, layers=1, heads=2, name="cross"), tmp_path / "a.png", AttentionSelection()
    )
    assert max(size_of(tmp_path / "a.png")) < 3600
    save_attention(example_attention(queries, keys, name="cross"), tmp_path / "a.svg", AttentionSelection(view="mean"))
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert ("<title>" in text) is (queries * keys <= 64 * 64)
    if keys == 128:
        points = {float(size) for size in re.findall(r"([\d.]+)px", text)}
        assert min(points) >= 5.0  # thinned rather than too small to read
        assert text.count("gard<") < 2 * 15


def test_chinese_is_drawn_or_reported_as_missing(tmp_path: Path) -> None:
    attention_weights = AttentionWeights(
        queries=tuple("安娜"), keys=tuple("安娜"), weights=np.full((1, 1, 2, 2), 0.5, np.float32)
    )
    notices = save_attention(
        AttentionRecord(text="安娜", run="x", kinds={"self": attention_weights}),
        tmp_path / "a.svg",
        AttentionSelection(),
    )
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "安" in text and "娜" in text
    families, lacking = fonts.font_families("安娜 a")
    assert families[0] == "DejaVu Sans" and (len(families) > 1) is not bool(lacking)
    assert bool(notices) is bool(lacking)
    assert fonts.font_families("plain ␣⏎⇥…→") == (["DejaVu Sans"], "")
    _, never = fonts.font_families("a\U0010fffe")  # no font has what is no character
    assert never == "\U0010fffe"


def test_what_no_font_has_is_named(tmp_path: Path) -> None:
    attention_weights = AttentionWeights(
        queries=("\U0010fffe",), keys=("a",), weights=np.ones((1, 1, 1, 1), np.float32)
    )
    (notice,) = save_attention(
        AttentionRecord(text="a", run="x", kinds={"cross": attention_weights}), tmp_path / "a.png", AttentionSelection()
    )
    assert notice.startswith("no installed font has \U0010fffe") and "Noto Sans CJK" in notice


def test_a_caption_is_drawn_word_by_word(tmp_path: Path) -> None:
    picture = np.full((8, 8, 3), 200, np.uint8)
    weights = np.zeros((1, 2, 3, 4), np.float32)
    weights[:, :, 0, 1] = weights[:, :, 1, 2] = weights[:, :, 2, 3] = 1.0
    attention_weights = AttentionWeights(queries=("a", "red", "猫"), keys=("1,1", "1,2", "2,1", "2,2"), weights=weights)
    attention_record = AttentionRecord(text="a red 猫", run="x", kinds={"image": attention_weights}, picture=picture)
    save_attention(attention_record, tmp_path / "a.svg", AttentionSelection())
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert text.count("<image ") == 4 and ">red<" in text and ">猫<" in text and "mean of 2 heads" in text
    brightened = apply_brightness(picture, weights[0, 0, 0])
    assert brightened[0, 7, 0] == 200 and brightened[7, 0, 0] == brightened[0, 0, 0] < 100
    save_attention(attention_record, tmp_path / "b.svg", AttentionSelection(view="grid"))
    assert (tmp_path / "b.svg").read_text(encoding="utf-8").count("<image ") >= 2


def test_numbers_are_written_as_json(tmp_path: Path) -> None:
    save_attention(example_attention(), tmp_path / "a.json", AttentionSelection())
    payload = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert payload["kinds"]["self"]["keys"] == list(WORDS)
    assert np.array(payload["kinds"]["self"]["weights"]).shape == (2, 3, 9, 9)


def test_no_text_breaks_a_file(tmp_path: Path) -> None:
    hostile = "\x00]]><script>&\u202e\uffff\ud800$"
    attention_weights = AttentionWeights(
        queries=(hostile, ""), keys=("\n", hostile), weights=np.full((1, 1, 2, 2), 0.5, np.float32)
    )
    for ending in ("svg", "png"):
        save_attention(
            AttentionRecord(text=hostile, run=hostile, kinds={"cross": attention_weights}),
            tmp_path / f"a.{ending}",
            AttentionSelection(),
        )
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert not [element for element in ElementTree.fromstring(text).iter() if "script" in element.tag]
    assert "<script" not in text and "\u202e" not in text


def test_titles_describe_the_selection() -> None:
    attention = example_attention()
    self_attention = attention.kinds["self"]
    assert describe_selection(self_attention, AttentionSelection()) == "2 layers of 3 heads, and their mean"
    assert describe_selection(self_attention, AttentionSelection(head=1)) == "layer 2 of 2, head 1 of 3"
    assert describe_selection(self_attention, AttentionSelection(layer=1)) == "mean of 3 heads, layer 1 of 2"
    assert describe_selection(self_attention, AttentionSelection(view="rollout")) == "rollout through 2 layers"
    ordered = AttentionRecord(text="x", run="x", kinds={"query": self_attention}, order=(1, 0, 2))
    assert title_lines(ordered, "query", self_attention, AttentionSelection())[-1] == "order: the [CLS] old"


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    for shot, message in (
        (AttentionSelection(layer=3), "layer 3: there are 2"),
        (AttentionSelection(layer=3, view="grid"), "layer 3: there are 2"),
        (AttentionSelection(head=4), "head 4: there are 3"),
        (AttentionSelection(kind="cross"), "it has self"),
    ):
        with pytest.raises(MeristemError, match=message):
            save_attention(example_attention(), tmp_path / "a.png", shot)
    with pytest.raises(MeristemError, match=r"one of \.png, \.svg, \.json"):
        save_attention(example_attention(), tmp_path / "a.gif", AttentionSelection())
    with pytest.raises(MeristemError, match="create it first"):
        save_attention(example_attention(), tmp_path / "no" / "a.png", AttentionSelection())
    with pytest.raises(MeristemError, match="a head is a single map"):
        AttentionSelection(head=1, view="grid")
    with pytest.raises(MeristemError, match="leave layer and head out"):
        AttentionSelection(layer=1, view="rollout")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_pip_line_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meristem.drawing.attention_plots.can_draw", lambda: False)
    with pytest.raises(MeristemError, match=r'pip install "meristem-lm\[draw\]"'):
        save_attention(example_attention(), tmp_path / "a.png", AttentionSelection())
    assert (
        save_attention(example_attention(), tmp_path / "a.json", AttentionSelection()) == ()
    )  # numbers need no library
