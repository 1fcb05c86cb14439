"""Text that exists on every machine: `documents("pydocs")`, `documents("microworld-zh?size=500&seed=3")`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from urllib.parse import parse_qsl

from meristem.samples import microworld, pydocs
from meristem.settings import MeristemError, did_you_mean

KNOWN = {
    "pydocs": "prose of the docstrings of this Python installation, about 8 MB of English",
    "microworld": "stories from a small simulated world, in English and Chinese by turns",
    "microworld-en": "stories from a small simulated world, in English",
    "microworld-zh": "stories from a small simulated world, in Chinese",
}
OPTIONS = {"size": 10_000, "seed": 0}


@dataclass(frozen=True)
class Request:
    """A sample's name with its options read."""

    name: str
    options: dict[str, int]


def known() -> dict[str, str]:
    """Every built-in sample with one line for help."""
    return dict(KNOWN)


def documents(name: str) -> Iterator[str]:
    """The documents of a built-in sample, the same ones every time."""
    request = _read(name)
    size = request.options.get("size", OPTIONS["size"])
    if request.name == "pydocs":
        return islice(pydocs.documents(), request.options.get("size"))
    languages = microworld.LANGUAGES if request.name == "microworld" else (request.name.rpartition("-")[2],)
    seed = request.options.get("seed", OPTIONS["seed"])
    return (microworld.document(seed, number, languages[number % len(languages)]) for number in range(size))


def digest(name: str) -> str:
    """A key that changes whenever `documents(name)` would give something else."""
    request = _read(name)
    given = {**({} if request.name == "pydocs" else OPTIONS), **request.options}
    state = pydocs.digest() if request.name == "pydocs" else f"{microworld.VERSION}"
    whole = "\n".join([request.name, state, *(f"{key}={given[key]}" for key in sorted(given))])
    return hashlib.blake2b(whole.encode(), digest_size=16).hexdigest()


def _read(name: str) -> Request:
    plain, _, query = name.partition("?")
    if plain not in KNOWN:
        raise MeristemError(f"builtin:{name}: no built-in sample {plain!r}{did_you_mean(plain, list(KNOWN))}")
    allowed = ["size"] if plain == "pydocs" else list(OPTIONS)
    options: dict[str, int] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in allowed:
            raise MeristemError(f"builtin:{name}: unknown option {key!r}{did_you_mean(key, allowed)}")
        if not value.isascii() or not value.isdigit() or (key == "size" and int(value) == 0):
            raise MeristemError(f"builtin:{name}: {key} is a whole number, for instance {plain}?{key}=500")
        options[key] = int(value)
    return Request(plain, options)
