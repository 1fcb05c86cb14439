"""Font selection for plots: matplotlib's default, and installed fonts for the characters it lacks."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

DEFAULT_FONT = "DejaVu Sans"
"""Included with matplotlib."""
PREFERRED_FONTS = (
    "notosanscjk", "notosanssc", "sourcehansans", "pingfang", "hiragino sans gb", "msyh", "wqy", "simhei", "droidsans",
    "arial unicode", "noto sans", "notosans", "unifont",
)  # fmt: skip
"""File names of fonts that are likely to have ideographs or wide coverage, in order of preference."""
EXCLUDED_STYLES = ("emoji", "bold", "italic", "oblique", "light", "thin", "black", "mono")


def font_families(text: Iterable[str]) -> tuple[list[str], str]:
    """Font families for a text in fallback order, and the characters that none of them has."""
    from matplotlib import font_manager

    fonts = [DEFAULT_FONT]
    missing = _missing_characters(set(text), font_manager.findfont(DEFAULT_FONT))
    for path in _installed_fonts() if missing else ():
        still_missing = _missing_characters(missing, path)
        if len(still_missing) < len(missing):
            fonts.append(_font_name(path))
            missing = still_missing
        if not missing:
            break
    return fonts, "".join(sorted(missing))


def _missing_characters(characters: set[str], path: str) -> set[str]:
    """The characters without a glyph in a font; all of them if it cannot be opened."""
    from matplotlib import font_manager

    try:
        font = font_manager.get_font(path)
    except (OSError, RuntimeError):
        return characters
    return {
        character for character in characters if not character.isspace() and not font.get_char_index(ord(character))
    }


@cache
def _installed_fonts() -> tuple[str, ...]:
    """The fonts installed now: matplotlib's own list is as old as its cache."""
    from matplotlib import font_manager

    def sort_key(path: str) -> tuple[int, bool, str]:
        name = Path(path).stem.lower()
        preference = next(
            (rank for rank, prefix in enumerate(PREFERRED_FONTS) if name.startswith(prefix)), len(PREFERRED_FONTS)
        )
        return preference, any(word in name for word in EXCLUDED_STYLES), path

    return tuple(sorted(map(str, font_manager.findSystemFonts()), key=sort_key))


@cache
def _font_name(path: str) -> str:
    """The family name of a font as matplotlib knows it; of a CJK collection the simplified Chinese one."""
    from matplotlib import font_manager

    font_manager.fontManager.addfont(path)
    names = [entry.name for entry in font_manager.fontManager.ttflist if entry.fname == path]
    return next((name for name in names if name.endswith(" SC") and "Mono" not in name), names[0])
