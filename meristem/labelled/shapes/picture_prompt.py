"""Picture prompts for rewards: a picture, its reference captions, and the other columns of its row."""

from __future__ import annotations

from meristem.labelled import values
from meristem.labelled.columns import PICTURE
from meristem.labelled.found import Found
from meristem.labelled.shapes.picture import Picture
from meristem.task import Sample


class PicturePrompt(Picture):
    """{"picture", "columns"} → captions as references, where there are any; rewards may read the other columns.

    Lines of the same picture become one prompt: their captions together, the other columns of the first line.
    """

    def look(self) -> None:
        """Captions are optional: a reward such as length needs none."""
        columns = self.columns
        self.picture = columns.need("picture", (*PICTURE, self.unnamed_picture_column()), "the pictures' files")
        self.caption = columns.find("target", self.caption_names(), besides=(self.picture,))

    def samples(self, found: Found) -> list[Sample]:
        """One sample; a picture that cannot be opened drops it."""
        path, captions = self.checked_path(found), found.values.get(self.caption or "")
        gold = () if values.nothing(captions) else values.texts(captions, "caption", found.place)
        others = {name: value for name, value in found.values.items() if name not in (self.picture, self.caption)}
        return [Sample(given={"picture": path, "columns": others}, gold=gold, place=found.place)]

    @classmethod
    def learned(cls, sample: Sample) -> list[Sample]:
        """One prompt for each picture, however many captions it has."""
        return [sample]
