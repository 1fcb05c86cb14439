"""Text and labelled samples that exist on every machine.

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

from meristem.errors import MeristemError, did_you_mean
from meristem.samples import microworld, pydocs, sets

KNOWN = {
    "pydocs": "prose of the docstrings of this Python installation, about 8 MB of English",
    "microworld": "stories from a small simulated world, in English and Chinese by turns",
    "microworld-en": "stories from a small simulated world, in English",
    "microworld-zh": "stories from a small simulated world, in Chinese",
    "microworld-pairs": "passages of such stories with their translation, English to Chinese (?to=en: the other way)",
    "microworld-pictures": "drawn scenes of coloured shapes with English captions (?language=zh: Chinese ones)",
}
KINDS = {"microworld-pairs": "pairs", "microworld-pictures": "pictures"}
OPTIONS = {"size": "10000", "seed": "0"}
LANGUAGE = {"microworld-pairs": {"to": "zh"}, "microworld-pictures": {"language": "en"}}
"""Options that choose a language, with what they are unless given."""
SETS = {f"microworld-{name}": of for name, of in sets.SETS.items()}
SET_OPTIONS = {"size": "1000", "seed": "0", "language": "en"}


@dataclass(frozen=True)
class Request:
    """A sample's name with its options read."""

    name: str
    options: dict[str, str]
    """Those that were given."""

    def __getitem__(self, option: str) -> str:
        return self.options.get(option) or {**OPTIONS, **LANGUAGE.get(self.name, {})}[option]


def known() -> dict[str, str]:
    """Every built-in sample with one line for help."""
    return dict(KNOWN)


def known_sets() -> dict[str, str]:
    """Every built-in set of labelled samples with one line for help."""
    return {name: of.told for name, of in SETS.items()}


def labelled(name: str) -> Iterator[dict[str, Any]]:
    """The samples of a labelled set as rows of named columns, the same ones every time.

    Sets whose seeds differ by no multiple of three share no sample, and no corpus tells the stories behind them.
    """
    plain, _, query = name.partition("?")
    of = SETS.get(plain)
    if of is None:
        text = " is text without labels" if plain in KNOWN and kind(name) == "text" else " is no labelled set"
        raise MeristemError(f"builtin:{name}{text}{did_you_mean(plain, list(SETS))}")
    spoken = {"language": of.languages, **dict.fromkeys(of.flags, ("0", "1"))}
    given = {**SET_OPTIONS, **_options(name, query, ("size", "seed"), spoken)}
    seed, size, language = int(given["seed"]), int(given["size"]), given["language"]
    options = {flag: given.get(flag, "0") for flag in of.flags}
    return sets.labelled(plain.removeprefix("microworld-"), seed=seed, size=size, language=language, options=options)


def kind(name: str) -> str:
    """What a sample's documents are: "text", "pairs" or "pictures"."""
    return KINDS.get(name.partition("?")[0], "text")


def documents(name: str) -> Iterator[str]:
    """The documents of a built-in sample, the same ones every time; pairs and pictures come from `pairs`."""
    request = _read(name)
    if kind(name) != "text":
        return (told for _, told in pairs(name))
    if request.name == "pydocs":
        wanted = request.options.get("size")
        return islice(pydocs.documents(), None if wanted is None else int(wanted))
    languages = microworld.LANGUAGES if request.name == "microworld" else (request.name.rpartition("-")[2],)
    seed, size = int(request["seed"]), int(request["size"])
    return (microworld.document(seed, number, languages[number % len(languages)]) for number in range(size))


def pairs(name: str) -> Iterator[tuple[str, str]]:
    """Sources with their targets, or names of pictures (for `picture`) with their captions."""
    request = _read(name)
    seed, size = int(request["seed"]), int(request["size"])
    if request.name == "microworld-pairs":
        source, target = ("zh", "en") if request["to"] == "en" else ("en", "zh")
        return (microworld.translation(seed, number, source, target) for number in range(size))
    language = request["language"]
    return (
        (f"microworld:{seed}:{number}", microworld.caption(microworld.scene(seed, number), language))
        for number in range(size)
    )


def picture(name: str, size: int) -> NDArray[np.uint8]:
    """A picture that `pairs` named, as [size, size, 3] pixels."""
    _, seed, number = name.split(":")
    return microworld.draw(microworld.scene(int(seed), int(number)), size)


def digest(name: str) -> str:
    """A key that changes whenever `documents(name)` would give something else."""
    request = _read(name)
    defaults = {} if request.name == "pydocs" else {**OPTIONS, **LANGUAGE.get(request.name, {})}
    given = {**defaults, **request.options}
    state = pydocs.digest() if request.name == "pydocs" else f"{microworld.VERSION}"
    whole = "\n".join([request.name, state, *(f"{key}={given[key]}" for key in sorted(given))])
    return hashlib.blake2b(whole.encode(), digest_size=16).hexdigest()


def _read(name: str) -> Request:
    plain, _, query = name.partition("?")
    if plain in SETS:
        raise MeristemError(f"builtin:{name} is labelled data for a task: meristem finetune data.train=builtin:{plain}")
    if plain not in KNOWN:
        raise MeristemError(f"builtin:{name}: no built-in sample {plain!r}{did_you_mean(plain, list(KNOWN))}")
    numbers = ("size",) if plain == "pydocs" else tuple(OPTIONS)
    return Request(plain, _options(name, query, numbers, dict.fromkeys(LANGUAGE.get(plain, {}), microworld.LANGUAGES)))


def _options(name: str, query: str, numbers: Sequence[str], chosen: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """What stands behind a name's question mark: whole numbers, and one of a few words each."""
    plain = name.partition("?")[0]
    options: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in numbers and key not in chosen:
            raise MeristemError(f"builtin:{name}: unknown option {key!r}{did_you_mean(key, [*numbers, *chosen])}")
        if key in chosen and value not in chosen[key]:
            raise MeristemError(f"builtin:{name}: {key} is {' or '.join(chosen[key])}, not {value!r}")
        if key in numbers and (not value.isascii() or not value.isdigit() or (key == "size" and int(value) == 0)):
            raise MeristemError(f"builtin:{name}: {key} is a whole number, for instance {plain}?{key}=500")
        options[key] = value if key in chosen else str(int(value))
    return options
