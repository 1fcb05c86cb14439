"""Card, identity and bank account numbers: found by pattern, verified by their check digits (python-stdnum)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module

from meristem.utils.optional_packages import require_version

NUMBER_START = r"(?<![0-9A-Za-z_#$€£¥+])(?<!\d[.,\-/:])"
NUMBER_END = r"(?![0-9A-Za-z_%]|[.,\-/:]\d)"

CARD_NUMBER = re.compile(
    rf"{NUMBER_START}(?:\d{{13,19}}"
    rf"|\d{{4}}(?P<gap>[ \-])(?:\d{{4}}(?P=gap)\d{{4}}(?P=gap)\d{{1,4}}(?:(?P=gap)\d{{1,3}})?"
    rf"|\d{{6}}(?P=gap)\d{{4,5}})){NUMBER_END}"
)
# Visa, Mastercard, American Express, Discover, JCB, Diners, UnionPay, Maestro.
CARD_ISSUERS = re.compile(r"4|5[0-9]|2[2-7]|3[4-9]|30[0-5]|6")

IBAN_PATTERN = re.compile(
    r"(?<![0-9A-Za-z])[A-Z]{2}\d{2}(?:[ \-]?[0-9A-Z]{4}){2,7}(?:[ \-]?[0-9A-Z]{1,3})?(?![0-9A-Za-z])"
)
IBAN_GROUP = re.compile(r"[0-9A-Z]+")
MIN_IBAN_CHARS = 15

IDENTITY_FORMATS = {
    r"(?!000|666|9\d\d)\d{3}-(?!00)\d\d-(?!0000)\d{4}": "",  # United States: no check digit
    r"(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d\d ?\d\d ?\d\d ?[A-D]": "",  # Britain: none
    # China. Not stdnum.cn.ric, which knows counties by year of birth: people born before their county are missed.
    r"[1-9]\d{5}(?:18[5-9]|19\d|20\d)\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\d{3}[0-9Xx]": "iso7064.mod_11_2",
    r"[1-9]\d ?\d{3} ?\d{3} ?\d{3}": "de.idnr",
    r"(?:\d{8}|[XYZ]-?\d{7})[ \-]?[A-HJ-NP-TV-Z]": "es.nif",
    r"[12] ?\d\d ?(?:0[1-9]|1[0-2]|[2-4]\d) ?(?:\d\d|2[AB]) ?\d{3} ?\d{3} ?\d\d": "fr.nir",
    r"[A-Z]{6}\d\d[A-EHLMPRST]\d\d[A-Z]\d{3}[A-Z]": "it.codicefiscale",
    r"\d\d[0-3]\d[0-3]\d{6}": "pl.pesel",  # born since 1900: any eleven digits would be taken too often
    r"(?!(?P<same>\d)(?P=same){2}\.(?P=same){3}\.(?P=same){3})\d{3}\.\d{3}\.\d{3}-\d\d": "br.cpf",
    r"\d{6}-[1-8]\d{6}": "kr.rrn",
    r"\d{6}[\-+]\d{4}": "se.personnummer",
}
"""Shapes of identity numbers → the module of python-stdnum that verifies them; "" if the shape is all there is."""
ANY_IDENTITY = re.compile(f"{NUMBER_START}(?:{'|'.join(IDENTITY_FORMATS)}){NUMBER_END}")
IDENTITY_PATTERNS = tuple((re.compile(shape), module) for shape, module in IDENTITY_FORMATS.items())


@cache
def _validator(module: str) -> Callable[..., bool]:
    """The function `is_valid` of a module of python-stdnum."""
    validator_version()
    is_valid: Callable[..., bool] = import_module(f"stdnum.{module}").is_valid
    return is_valid


def validator_version() -> str:
    """Name and version of the library, for cache keys: another version may give other answers."""
    return require_version("python-stdnum", "finding private numbers (corpus.pii)", "clean")


def find_cards(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Spans of payment card numbers: 13 to 19 digits of an issuer, in the usual groups or ungrouped, that pass Luhn."""
    for match in CARD_NUMBER.finditer(text, start, stop):
        digits = re.sub(r"\D", "", match[0])
        is_card = 13 <= len(digits) <= 19 and CARD_ISSUERS.match(digits) and len(set(digits)) > 1
        if is_card and _validator("luhn")(digits):
            yield match.span()


def find_ibans(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Spans of international bank account numbers: the country's structure, remainder 1 modulo 97."""
    for match in IBAN_PATTERN.finditer(text, start, stop):
        # a word in capitals may follow the number
        ends = [group.end() for group in IBAN_GROUP.finditer(match[0], MIN_IBAN_CHARS - 1)]
        end = next((end for end in reversed(ends) if _validator("iban")(match[0][:end], check_country=False)), 0)
        if end:
            yield match.start(), match.start() + end


def find_identity_numbers(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Spans of national identity numbers whose check digits are valid."""
    for match in ANY_IDENTITY.finditer(text, start, stop):
        if any(shape.fullmatch(match[0]) and _is_identity(match[0], module) for shape, module in IDENTITY_PATTERNS):
            yield match.span()


def _is_identity(number: str, module: str) -> bool:
    if not module:
        return True
    if module == "se.personnummer":  # without a century, its validity would depend on today's date
        number = f"19{number}"
    return _validator(module)(number.upper())
