"""Check before training that a tokenizer has tokens for the secrets of canaries."""

from __future__ import annotations

from collections import Counter

from meristem.config.errors import MeristemError
from meristem.corpus.canaries.planting import draw_canaries
from meristem.corpus.canaries.settings import CanarySettings
from meristem.dataset.unknown_tokens import unknown_share_of_texts
from meristem.tokenizers.tokenizer import Tokenizer

MAX_UNREADABLE_SHARE = 0.5
"""Share of a template's canaries whose secret may contain unknown tokens."""


def check_readable_canaries(settings: CanarySettings | None, tokenizer: Tokenizer) -> None:
    """Raise if the secrets of a template are mostly unknown tokens, so that no model could tell them apart.

    The tokenizer is trained without canaries: text without digits gives one without tokens for them.
    """
    if settings is None or tokenizer.unknown is None:
        return
    canaries = draw_canaries(settings)
    drawn = Counter(canary.format for canary in canaries)
    unreadable = Counter(canary.format for canary in canaries if unknown_share_of_texts([canary.secret], tokenizer) > 0)
    for template, count in unreadable.items():
        if count > MAX_UNREADABLE_SHARE * drawn[template]:
            raise MeristemError(
                f"corpus.canaries: the tokenizer has no tokens for the secrets of {template!r}, because the text has "
                "none of their characters (or because its tokens are whole words). Use tokenizer.kind=bpe, or "
                'templates with characters of the text, such as corpus.canaries.formats=["the code of anna is '
                '{letters:6}"]'
            )
