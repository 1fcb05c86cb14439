"""Image captioning samples: an image and its captions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from meristem.data.images import BUILTIN_REFERENCE, ImageError, image_reference
from meristem.interfaces.sample import Sample
from meristem.labelled import cell_values
from meristem.labelled.columns import CAPTION_COLUMNS, IMAGE_COLUMNS
from meristem.labelled.rows import RawRow, ReadNotes, SkipRow
from meristem.labelled.sample_type import SampleType

IMAGE_SUFFIX_PATTERN = re.compile(r"\.(jpe?g|png|gif|bmp|webp|tiff?|ppm)(#\d+)?", re.IGNORECASE)
CAPTION_NUMBER_PATTERN = re.compile(r"#\d+$")
"""Some caption files number the captions of an image: 1000.jpg#0, 1000.jpg#1."""


class ImageSample(SampleType):
    """{"picture"}, a path or a built-in reference → captions."""

    single_gold = False

    def resolve_columns(self) -> None:
        """By name, or in a file without header the column that holds image file names."""
        image_names = (*IMAGE_COLUMNS, self._find_unnamed_image_column())
        self.image_column = self.columns.require("image", image_names, "the image files")
        self.caption_column = self.find_caption_column()

    def find_caption_column(self) -> str | None:
        """The column of the captions."""
        return self.gold_column("target", self.caption_names(), "the captions", exclude=(self.image_column,))

    def caption_names(self) -> tuple[str, ...]:
        """Common names of the caption column; of two unnamed columns, the one without images."""
        other_columns = [name for name in self.columns.names if name != self.image_column]
        is_clear = self.columns.has_numbered_names and len(other_columns) == 1
        return (*CAPTION_COLUMNS, *(other_columns if is_clear else ()))

    def parse_row(self, row: RawRow) -> list[Sample]:
        """One sample; the row is skipped if its image cannot be opened."""
        path = self.require_image_path(row)
        captions = row.values.get(self.caption_column) if self.caption_column else None
        return [self.reference_sample({"picture": path}, captions, "caption", row)]

    @classmethod
    def finalize(cls, splits: Sequence[list[Sample]], notes: ReadNotes) -> None:
        """Merge the captions of one image, given on separate lines, into one sample."""
        for samples in splits:
            by_image: dict[str, Sample] = {}
            for sample in samples:
                earlier = by_image.get(sample.inputs["picture"])
                gold = None if sample.gold is None else (*(earlier.gold if earlier else ()), *sample.gold)
                by_image[sample.inputs["picture"]] = replace(earlier or sample, gold=gold)
            samples[:] = by_image.values()

    @classmethod
    def training_samples(cls, sample: Sample) -> list[Sample]:
        """One sample for each caption, with that caption first."""
        golds = sample.gold
        return [replace(sample, gold=(gold, *golds[:index], *golds[index + 1 :])) for index, gold in enumerate(golds)]

    @classmethod
    def dedup_key(cls, sample: Sample) -> str:
        """The digest of the image content, independent of its path."""
        return _image_digest(sample.inputs["picture"])

    def _find_unnamed_image_column(self) -> str:
        """Of unnamed columns, the one in which every cell is an image file name; "" if there is none."""
        for name in self.columns.names if self.columns.has_numbered_names else ():
            cells = [str(row.values.get(name, "")) for row in self.columns.sample_rows]
            if cells and all(IMAGE_SUFFIX_PATTERN.search(cell) for cell in cells):
                return name
        return ""

    def require_image_path(self, row: RawRow) -> str:
        """The path or built-in reference of a row's image; raises SkipRow if it is not a readable image."""
        name = cell_values.parse_text(self.require_cell(row, self.image_column), "image", row.location)
        path = self._resolve_path(name)
        try:
            _image_digest(path)
        except ImageError as reason:
            raise SkipRow(str(reason), path) from None
        return path

    def _resolve_path(self, name: str) -> str:
        if name.endswith(f" {BUILTIN_REFERENCE}"):
            return name
        path = Path(self.columns.source_name).parent / name
        return str(path if path.exists() else path.with_name(CAPTION_NUMBER_PATTERN.sub("", path.name)))


@lru_cache(maxsize=1 << 17)
def _image_digest(path: str) -> str:
    """The digest of an image file; raises ImageError if it is not an image."""
    return path if path.endswith(f" {BUILTIN_REFERENCE}") else image_reference(Path(path)).partition(" ")[0]
