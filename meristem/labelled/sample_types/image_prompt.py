"""Image prompts for reinforcement learning: an image, its reference captions, and the other columns of its row."""

from __future__ import annotations

from meristem.interfaces.sample import Sample
from meristem.labelled import cell_values
from meristem.labelled.rows import RawRow
from meristem.labelled.sample_types.image import ImageSample


class ImagePromptSample(ImageSample):
    """{"picture", "columns"} → reference captions, if there are any; rewards may read the other columns.

    Lines of the same image become one prompt with all their captions and the other columns of the first line.
    """

    def find_caption_column(self) -> str | None:
        """The column of the captions; a reward such as length needs none."""
        return self.columns.find("target", self.caption_names(), exclude=(self.image_column,))

    def parse_row(self, row: RawRow) -> list[Sample]:
        """One sample; the row is skipped if its image cannot be opened."""
        path, captions = self.require_image_path(row), row.values.get(self.caption_column or "")
        gold = () if cell_values.is_empty(captions) else cell_values.parse_texts(captions, "caption", row.location)
        other_columns = {
            name: value for name, value in row.values.items() if name not in (self.image_column, self.caption_column)
        }
        return [Sample(inputs={"picture": path, "columns": other_columns}, gold=gold, location=row.location)]

    @classmethod
    def training_samples(cls, sample: Sample) -> list[Sample]:
        """One prompt for each image, however many captions it has."""
        return [sample]
