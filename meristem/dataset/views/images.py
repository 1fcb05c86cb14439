"""Image-caption view: an image and its caption."""

from __future__ import annotations

import numpy as np

from meristem.config.errors import MeristemError
from meristem.dataset.dataset_view import TokenView
from meristem.dataset.rows import content_length, make_row
from meristem.dataset.token_dataset import IntArray, TokenStream
from meristem.inputs.batch import RngFactory, Row
from meristem.inputs.template import InputTemplate
from meristem.tokenizers.tokenizer import Tokenizer


class ImagesView(TokenView):
    """`image` [side, side, 3] as bytes, and `tokens`, the caption with its end token, truncated to `length`.

    `spare` positions are reserved for tokens that an objective adds.
    """

    shuffled = True

    def __init__(
        self, stream: TokenStream, tokenizer: Tokenizer, length: int, *, isolate: bool = False, spare: int = 0
    ) -> None:
        if not stream.has_images:
            raise MeristemError(
                f"{stream.path}: these documents have no images; name the column of images with "
                "corpus.image, or use builtin:microworld-pictures"
            )
        self._stream, self._tokenizer = stream, tokenizer
        self._template = InputTemplate(tokenizer, "encoder_decoder")
        self._caption_length = content_length(stream, tokenizer, length, spare)

    def __len__(self) -> int:
        return self._stream.documents

    def rows_per_document(self) -> IntArray:
        """Number of rows of each document."""
        return np.ones(self._stream.documents, np.int64)

    def row(self, index: int, draw: RngFactory) -> Row:
        """One image and its caption; `draw` is not used."""
        span = self._stream.document(index)
        caption = self._template.target_ids(self._stream.tokens(span.start, span.text_stop), self._caption_length)
        return make_row(self._tokenizer, caption, {"image": self._stream.image(index)}, index, document=index)
