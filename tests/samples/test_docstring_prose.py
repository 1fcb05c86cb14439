"""Prose extraction from docstrings."""

from __future__ import annotations

import pytest

from meristem.samples.docstring_prose import is_natural, paragraphs, strip_markup

EXAMPLE = """Sort the array in place and return nothing.

The algorithm is stable, which means that
equal elements keep their order.

.. versionadded:: 3.2
   This would not help a reader at all.

.. note:: The key is computed once for each of the elements.

Parameters
----------
key : callable
    Called with every element.

:param reverse: whether the order is turned round.
:type reverse: bool

Example::

    x = sort([3, 1])
    print(x)

>>> sort([3, 1])
[1, 3]

- Use :func:`~sorting.stable.check` to see whether ``x`` is *really* sorted.
- not_a_sentence

See `the manual <https://example.org/x>`_ for the rest of the story [1]_.
"""


def test_an_example_keeps_its_prose_only() -> None:
    assert list(paragraphs(EXAMPLE)) == [
        "Sort the array in place and return nothing.",
        "The algorithm is stable, which means that equal elements keep their order.",
        "The key is computed once for each of the elements.",
        "Called with every element.",
        "Use check to see whether x is really sorted.",
        "See the manual for the rest of the story.",
    ]


@pytest.mark.parametrize(
    ("marked", "words"),
    [
        (":class:`Thing`", "Thing"),
        (":py:meth:`~package.module.Thing.do`", "do"),
        (":ref:`the tutorial <tutorial-label>`", "the tutorial"),
        ("``code`` and `other`", "code and other"),
        ("a **bold** and *soft* word, but 2 * 3 * 4", "a bold and soft word, but 2 * 3 * 4"),
        ("`the site <https://example.org>`__ is up", "the site is up"),
        ("see https://example.org/a?b=c for more", "see for more"),
        ("two   spaces\n and lines", "two spaces and lines"),
    ],
)
def test_markup_becomes_plain_words(marked: str, words: str) -> None:
    assert strip_markup(marked) == words


@pytest.mark.parametrize(
    "sentence",
    [
        "Return the number of items in the list.",
        "This isn't the well-known method, is it?",
        "If the file is missing (which is rare), an error is raised.",
    ],
)
def test_sentences_are_natural(sentence: str) -> None:
    assert is_natural(sentence)


@pytest.mark.parametrize(
    "line",
    [
        "x = foo(bar) == 3",
        "foo(a, b, c) -> None",
        "Return value",
        "return the size of it.",
        "Usage: tool [-h] {a,b} [--flag FLAG].",
        "The list is truncated...",
        "A_B C_D E_F G_H the I_J K_L.",
        "import os and the rest.",
        "",
    ],
)
def test_code_and_fragments_are_not(line: str) -> None:
    assert not is_natural(line)


def test_a_dropped_directive_ends_where_its_indentation_ends() -> None:
    text = ".. code-block:: python\n\n    The code is not really a sentence.\n\nThe text after it is kept.\n"
    assert list(paragraphs(text)) == ["The text after it is kept."]
    text = ".. warning::\n    The body of a warning is kept.\n"
    assert list(paragraphs(text)) == ["The body of a warning is kept."]


def test_definitions_are_not_joined_to_their_terms() -> None:
    text = "Returns\n-------\nresult : dict\n    The mapping of names to their values.\n"
    assert list(paragraphs(text)) == ["The mapping of names to their values."]
