"""Built-in corpora and labelled data sets, generated or read locally, so that they exist on every machine.

`documents("pydocs")`, `documents("microworld-zh?size=500&seed=3")`, `labelled("microworld-sentiment?size=200&seed=1")`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from meristem.config.errors import MeristemError, did_you_mean
from meristem.samples import microworld, pydocs, sets

CORPORA = {
    "pydocs": "prose of the docstrings of this Python installation, about 8 MB of English",
    "microworld": "stories from a small simulated world, alternating English and Chinese",
    "microworld-en": "stories from a small simulated world, in English",
    "microworld-zh": "stories from a small simulated world, in Chinese",
    "microworld-pairs": "passages of such stories with their translation, English to Chinese (?to=en: the reverse)",
    "microworld-pictures": "images of colored shapes with English captions (?language=zh: Chinese captions)",
}
CORPUS_KINDS = {"microworld-pairs": "pairs", "microworld-pictures": "pictures"}
OPTIONS = {"size": "10000", "seed": "0"}
LANGUAGE_OPTIONS = {"microworld-pairs": {"to": "zh"}, "microworld-pictures": {"language": "en"}}
"""Options that choose a language, with their defaults."""
LABELLED_SETS = {f"microworld-{name}": of for name, of in sets.SETS.items()}
SET_OPTIONS = {"size": "1000", "seed": "0", "language": "en"}


@dataclass(frozen=True)
class BuiltinSpec:
    """A parsed name of a built-in corpus with its options."""

    name: str
    options: dict[str, str]
    """The options that were given."""

    def __getitem__(self, option: str) -> str:
        return self.options.get(option) or {**OPTIONS, **LANGUAGE_OPTIONS.get(self.name, {})}[option]


def list_corpora() -> dict[str, str]:
    """Every built-in corpus with one line of help."""
    return dict(CORPORA)


def list_labelled_sets() -> dict[str, str]:
    """Every built-in labelled set with one line of help."""
    return {name: labelled_set.summary for name, labelled_set in LABELLED_SETS.items()}


def labelled_rows(name: str) -> Iterator[dict[str, Any]]:
    """The samples of a labelled set as rows of named columns; the same name always gives the same rows.

    Sets whose seeds differ modulo three share no sample, and no corpus contains the stories behind them.
    """
    base_name, _, query = name.partition("?")
    labelled_set = LABELLED_SETS.get(base_name)
    if labelled_set is None:
        is_text = base_name in CORPORA and corpus_kind(name) == "text"
        problem = "text without labels" if is_text else "not a labelled set"
        raise MeristemError(f"builtin:{name} is {problem}{did_you_mean(base_name, list(LABELLED_SETS))}")
    choice_options = {"language": labelled_set.languages, **dict.fromkeys(labelled_set.flags, ("0", "1"))}
    values = {**SET_OPTIONS, **_parse_options(name, query, ("size", "seed"), choice_options)}
    seed, size, language = int(values["seed"]), int(values["size"]), values["language"]
    options = {flag: values.get(flag, "0") for flag in labelled_set.flags}
    return sets.generate_set(
        base_name.removeprefix("microworld-"), seed=seed, size=size, language=language, options=options
    )


def corpus_kind(name: str) -> str:
    """The kind of a corpus's documents: "text", "pairs" or "pictures"."""
    return CORPUS_KINDS.get(name.partition("?")[0], "text")


def documents(name: str) -> Iterator[str]:
    """The documents of a built-in corpus, always the same; pairs and images come from `paired_documents`."""
    spec = _parse_spec(name)
    if corpus_kind(name) != "text":
        return (target for _, target in paired_documents(name))
    if spec.name == "pydocs":
        size_option = spec.options.get("size")
        return islice(pydocs.documents(), None if size_option is None else int(size_option))
    languages = microworld.LANGUAGES if spec.name == "microworld" else (spec.name.rpartition("-")[2],)
    seed, size = int(spec["seed"]), int(spec["size"])
    return (microworld.story_text(seed, number, languages[number % len(languages)]) for number in range(size))


def paired_documents(name: str) -> Iterator[tuple[str, str]]:
    """(source, target) pairs, or image names (for `draw_image`) with their captions."""
    spec = _parse_spec(name)
    seed, size = int(spec["seed"]), int(spec["size"])
    if spec.name == "microworld-pairs":
        source, target = ("zh", "en") if spec["to"] == "en" else ("en", "zh")
        return (microworld.translated_passage(seed, number, source, target) for number in range(size))
    language = spec["language"]
    return (
        (f"microworld:{seed}:{number}", microworld.describe_scene(microworld.generate_scene(seed, number), language))
        for number in range(size)
    )


def draw_image(name: str, size: int) -> NDArray[np.uint8]:
    """An image that `paired_documents` named, as [size, size, 3] pixels."""
    _, seed, number = name.split(":")
    return microworld.draw(microworld.generate_scene(int(seed), int(number)), size)


def digest(name: str) -> str:
    """A cache key that changes whenever `documents(name)` would return something else."""
    spec = _parse_spec(name)
    defaults = {} if spec.name == "pydocs" else {**OPTIONS, **LANGUAGE_OPTIONS.get(spec.name, {})}
    values = {**defaults, **spec.options}
    state = pydocs.digest() if spec.name == "pydocs" else f"{microworld.VERSION}"
    key_text = "\n".join([spec.name, state, *(f"{key}={values[key]}" for key in sorted(values))])
    return hashlib.blake2b(key_text.encode(), digest_size=16).hexdigest()


def _parse_spec(name: str) -> BuiltinSpec:
    base_name, _, query = name.partition("?")
    if base_name in LABELLED_SETS:
        raise MeristemError(
            f"builtin:{name} is labelled data for a task: meristem finetune data.train=builtin:{base_name}"
        )
    if base_name not in CORPORA:
        raise MeristemError(f"builtin:{name}: no built-in corpus {base_name!r}{did_you_mean(base_name, list(CORPORA))}")
    number_options = ("size",) if base_name == "pydocs" else tuple(OPTIONS)
    choice_options = dict.fromkeys(LANGUAGE_OPTIONS.get(base_name, {}), microworld.LANGUAGES)
    return BuiltinSpec(base_name, _parse_options(name, query, number_options, choice_options))


def _parse_options(
    name: str, query: str, number_options: Sequence[str], choice_options: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """The options after the question mark of a name: whole numbers, or one of a few choices."""
    base_name = name.partition("?")[0]
    options: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in number_options and key not in choice_options:
            raise MeristemError(
                f"builtin:{name}: unknown option {key!r}{did_you_mean(key, [*number_options, *choice_options])}"
            )
        if key in choice_options and value not in choice_options[key]:
            raise MeristemError(f"builtin:{name}: {key} must be {' or '.join(choice_options[key])}, not {value!r}")
        if key in number_options and (
            not value.isascii() or not value.isdigit() or (key == "size" and int(value) == 0)
        ):
            raise MeristemError(f"builtin:{name}: {key} must be a whole number, for instance {base_name}?{key}=500")
        options[key] = value if key in choice_options else str(int(value))
    return options
