"""Images of captioned documents: found beside the file that names them, checked, and loaded at their size."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meristem.config.errors import MeristemError
from meristem.corpus.paired_text import IMAGE_SEPARATOR, split_pair
from meristem.corpus.pipeline import CorpusReader
from meristem.corpus.settings import CorpusSettings
from meristem.data.images import ImageError, builtin_image_reference, image_reference, load_image
from meristem.samples.microworld import draw, generate_scene

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sound pictures of several kinds, and files that are none."""
    (tmp_path / "img").mkdir()
    for number, name in enumerate(("a.png", "b.jpg", "c.gif", "d.webp")):
        Image.fromarray(draw(generate_scene(0, number), 48)).save(tmp_path / "img" / name)
    content = (tmp_path / "img" / "a.png").read_bytes()
    (tmp_path / "img" / "cut.png").write_bytes(content[: len(content) // 2])
    (tmp_path / "img" / "text.png").write_text("no picture")
    (tmp_path / "img" / "copy.png").write_bytes(content)
    return tmp_path


def listed(folder: Path, rows: list[tuple[Any, Any]], name: str = "list.jsonl") -> CorpusSettings:
    path = folder / name
    if name.endswith("jsonl"):
        path.write_text("".join(json.dumps({"file": file, "caption": text}) + "\n" for file, text in rows))
    else:
        path.write_text("file,caption\n" + "".join(f"{file},{text}\n" for file, text in rows))
    return CorpusSettings(source=str(path), image="file", validation=0, test=0, processes=1)


def test_what_is_no_picture_is_a_counted_drop(folder: Path) -> None:
    names = ["img/a.png", "img/b.jpg", "img/c.gif", "img/d.webp", "img/cut.png", "img/text.png", "img/none.png", None]
    corpus_reader = CorpusReader(listed(folder, [(name, f"caption of {name}") for name in names]))
    assert [split_pair(document.text).target for document in corpus_reader] == [
        f"caption of {name}" for name in names[:4]
    ]
    account = corpus_reader.account
    assert account.dropped == {
        "not an image, or a damaged one": 2,
        "image missing": 1,
        "no image in the column": 1,
    }
    assert account.kinds == {"pictures": 4}
    assert any("img/none.png" in warning and ":7: image missing" in warning for warning in account.warnings)


def test_a_table_names_pictures_too_and_copies_are_one_picture(folder: Path) -> None:
    rows = [("img/a.png", "one"), ("img/copy.png", "one"), ("img/copy.png", "two"), ("img/b.jpg", "one")]
    corpus_reader = CorpusReader(listed(folder, rows, "list.csv"))
    assert [split_pair(document.text).target for document in corpus_reader] == ["one", "two", "one"]
    assert corpus_reader.account.dropped == {"duplicate": 1}


def test_captions_of_one_picture_are_held_out_together(folder: Path) -> None:
    rows = [(f"img/{name}", f"caption {n}") for n in range(20) for name in ("a.png", "b.jpg", "copy.png", "c.gif")]
    settings = listed(folder, rows).model_copy(update={"validation": 0.3, "test": 0.3})
    splits: dict[str, set[str]] = {}
    for document in CorpusReader(settings):
        splits.setdefault(split_pair(document.text).source.partition(" ")[0], set()).add(document.split)
    assert len(splits) == 3 and all(len(names) == 1 for names in splits.values())
    assert len({name for names in splits.values() for name in names}) == 3


def test_pictures_are_loaded_as_they_look(folder: Path) -> None:
    path = folder / "img" / "a.png"
    image = load_image(image_reference(path), 48)
    assert (image == draw(generate_scene(0, 0), 48)).all()
    small = load_image(image_reference(path), 16)
    assert small.shape == (16, 16, 3) and small.dtype == np.uint8
    assert np.abs(small.astype(int) - draw(generate_scene(0, 0), 16)).mean() < 8
    assert (load_image(builtin_image_reference("microworld:0:5"), 32) == draw(generate_scene(0, 5), 32)).all()
    clear = Image.new("RGBA", (9, 9), (255, 0, 0, 0))
    clear.save(folder / "clear.png")
    assert (load_image(image_reference(folder / "clear.png"), 9) == 255).all()
    grey = Image.new("L", (5, 9), 77)
    grey.save(folder / "grey.png")
    assert (load_image(image_reference(folder / "grey.png"), 8) == 77).all()


def test_a_picture_that_changes_in_between_is_an_error(folder: Path) -> None:
    path = folder / "img" / "a.png"
    before = image_reference(path)
    path.write_bytes((folder / "img" / "b.jpg").read_bytes())
    with pytest.raises(MeristemError, match=r"a\.png: its contents have changed"):
        load_image(before, 32)
    path.unlink()
    with pytest.raises(MeristemError, match="image missing"):
        load_image(before, 32)
    with pytest.raises(ImageError):
        image_reference(path)


def test_a_missing_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MeristemError, match=r'pip install "meristem-lm\[draw\]"'):
        list(CorpusReader(listed(folder, [("img/a.png", "one")])))


def test_the_path_is_left_as_it_is(folder: Path) -> None:
    unusual_path = folder / "img" / "e\u0301  x .png"  # neither composed nor trimmed: it names a file
    unusual_path.write_bytes((folder / "img" / "a.png").read_bytes())
    (document,) = CorpusReader(listed(folder, [("img/e\u0301  x .png", " cap\u0000tion ")]))
    image_path, caption, mark = split_pair(document.text)
    assert (caption, mark) == ("caption", IMAGE_SEPARATOR)
    assert load_image(image_path, 48).shape == (48, 48, 3)
