"""A picture, and what there is to say of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from meristem.corpus.pictures import BUILTIN, NoPicture, reference
from meristem.labelled import values
from meristem.labelled.columns import CAPTION, PICTURE
from meristem.labelled.found import Dropped, Found, Notes
from meristem.labelled.shape import Shape
from meristem.task import Sample

ENDING = re.compile(r"\.(jpe?g|png|gif|bmp|webp|tiff?|ppm)(#\d+)?", re.IGNORECASE)
COPY = re.compile(r"#\d+$")
"""Some caption files number the captions of a picture: 1000.jpg#0, 1000.jpg#1."""


class Picture(Shape):
    """{"picture"}, a path or a built-in reference → captions."""

    one_gold = False

    def look(self) -> None:
        """By name, or in a file without names the column that holds names of pictures."""
        columns = self.columns
        self.picture = columns.need("picture", (*PICTURE, self.unnamed_picture_column()), "the pictures' files")
        self.caption = self.right_column("target", self.caption_names(), "the captions", besides=(self.picture,))

    def caption_names(self) -> tuple[str, ...]:
        """Usual names of the captions' column; of two columns without names, the one that is not the pictures'."""
        left = [name for name in self.columns.names if name != self.picture]
        return (*CAPTION, *(left if self.columns.unnamed and len(left) == 1 else ()))

    def samples(self, found: Found) -> list[Sample]:
        """One sample; a picture that cannot be opened drops it."""
        path = self.checked_path(found)
        right = found.values.get(self.caption) if self.caption else None
        if values.nothing(right) and not self.gold:
            return [Sample(given={"picture": path}, place=found.place)]
        return [Sample(given={"picture": path}, gold=values.texts(right, "caption", found.place), place=found.place)]

    @classmethod
    def settle(cls, groups: Sequence[list[Sample]], notes: Notes) -> None:
        """Captions of the same picture, which stand in lines of their own, become one sample's."""
        for group in groups:
            first: dict[str, Sample] = {}
            for one in group:
                before = first.get(one.given["picture"])
                gold = None if one.gold is None else (*(before.gold if before else ()), *one.gold)
                first[one.given["picture"]] = replace(before or one, gold=gold)
            group[:] = first.values()

    @classmethod
    def learned(cls, sample: Sample) -> list[Sample]:
        """One sample for each caption, which comes first in it."""
        golds = sample.gold
        return [replace(sample, gold=(gold, *golds[:at], *golds[at + 1 :])) for at, gold in enumerate(golds)]

    @classmethod
    def identity(cls, sample: Sample) -> str:
        """What is in the file, wherever it lies."""
        return _content(sample.given["picture"])

    def unnamed_picture_column(self) -> str:
        """Of columns without names, the one with nothing but names of pictures."""
        for name in self.columns.names if self.columns.unnamed else ():
            cells = [str(one.values.get(name, "")) for one in self.columns.first]
            if cells and all(ENDING.search(cell) for cell in cells):
                return name
        return ""

    def checked_path(self, found: Found) -> str:
        """The path or built-in name in a row's picture column; a file that is no picture drops the row."""
        path = self._path(values.text(self.cell(found, self.picture), "picture", found.place))
        try:
            _content(path)
        except NoPicture as reason:
            raise Dropped(str(reason), path) from None
        return path

    def _path(self, named: str) -> str:
        if named.endswith(f" {BUILTIN}"):
            return named
        path = Path(self.columns.place).parent / named
        return str(path if path.exists() else path.with_name(COPY.sub("", path.name)))


@lru_cache(maxsize=1 << 17)
def _content(path: str) -> str:
    """A picture's digest, once it has been seen to be one."""
    return path if path.endswith(f" {BUILTIN}") else reference(Path(path)).partition(" ")[0]
