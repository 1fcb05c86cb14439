"""Fonts for texts in any script: the usual one, and for what it lacks those that are installed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

USUAL = "DejaVu Sans"
"""It comes with matplotlib."""
GOOD = (
    "notosanscjk", "notosanssc", "sourcehansans", "pingfang", "hiragino sans gb", "msyh", "wqy", "simhei", "droidsans",
    "arial unicode", "noto sans", "notosans", "unifont",
)  # fmt: skip
"""Files that are likely to hold ideographs, or anything at all, drawn plainly; the likeliest first."""
UNFIT = ("emoji", "bold", "italic", "oblique", "light", "thin", "black", "mono")


def families(text: Iterable[str]) -> tuple[list[str], str]:
    """The fonts that draw a text, each standing in for those before it, and the characters that none of them has."""
    from matplotlib import font_manager

    chosen = [USUAL]
    lacking = _lacking(set(text), font_manager.findfont(USUAL))
    for path in _installed() if lacking else ():
        left = _lacking(lacking, path)
        if len(left) < len(lacking):
            chosen.append(_named(path))
            lacking = left
        if not lacking:
            break
    return chosen, "".join(sorted(lacking))


def _lacking(characters: set[str], path: str) -> set[str]:
    """Those that a font has no shape for; one that cannot be opened has none."""
    from matplotlib import font_manager

    try:
        font = font_manager.get_font(path)
    except (OSError, RuntimeError):
        return characters
    return {one for one in characters if not one.isspace() and not font.get_char_index(ord(one))}


@cache
def _installed() -> tuple[str, ...]:
    """The machine's fonts now: matplotlib's own list is as old as its cache."""
    from matplotlib import font_manager

    def fitness(path: str) -> tuple[int, bool, str]:
        name = Path(path).stem.lower()
        likely = next((place for place, good in enumerate(GOOD) if name.startswith(good)), len(GOOD))
        return likely, any(word in name for word in UNFIT), path

    return tuple(sorted(map(str, font_manager.findSystemFonts()), key=fitness))


@cache
def _named(path: str) -> str:
    """A font under the name that matplotlib finds it by; of a collection for several countries the simplified one."""
    from matplotlib import font_manager

    font_manager.fontManager.addfont(path)
    names = [entry.name for entry in font_manager.fontManager.ttflist if entry.fname == path]
    return next((name for name in names if name.endswith(" SC") and "Mono" not in name), names[0])
