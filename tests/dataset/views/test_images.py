"""Rows with an image and its caption."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from meristem.config.errors import MeristemError
from meristem.corpus.paired_text import IMAGE_SEPARATOR
from meristem.data.images import builtin_image_reference
from meristem.dataset.token_dataset import TokenDataset
from meristem.dataset.views.images import ImagesView
from meristem.samples.microworld import draw, generate_scene
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.utils.randomness import SampleRng


def test_an_image_and_its_caption(make: Callable[..., TokenDataset], tokenizer: Tokenizer) -> None:
    captions = ["A b.", "c" * 30]
    texts = [
        f"{builtin_image_reference(f'microworld:3:{n}')}{IMAGE_SEPARATOR}{text}" for n, text in enumerate(captions)
    ]
    view = ImagesView(make(texts).split("train"), tokenizer, 8)
    assert len(view) == 2
    for number, text in enumerate(captions):
        row = view.row(number, SampleRng(0, 0, number))
        assert (row.inputs["image"] == draw(generate_scene(3, number), 32)).all()
        assert row.inputs["image"].flags.writeable  # no window into the file leaves the store
        expected = [*tokenizer.encode_ids([text])[0].tolist(), tokenizer.end]
        assert row.inputs["tokens"].tolist() == expected[:8]
        assert len(row.metadata["special"]) == len(row.inputs["tokens"])


def test_plain_text_has_no_images(make: Callable[..., TokenDataset], tokenizer: Tokenizer) -> None:
    with pytest.raises(MeristemError, match=r"have no images; name the column of images with corpus\.image"):
        ImagesView(make(["A text."]).split("train"), tokenizer, 8)
