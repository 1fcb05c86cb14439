"""Card, identity and account numbers: found by shape, kept apart from other numbers by their check digits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date

ALONE = r"(?<![0-9A-Za-z_#$€£¥+])(?<!\d[.,\-/:])"
ENDS = r"(?![0-9A-Za-z_%]|[.,\-/:]\d)"

GROUPED = re.compile(
    rf"{ALONE}(?:\d{{13,19}}|\d{{4}}(?P<gap>[ \-])(?:\d{{4}}(?P=gap)\d{{4}}(?P=gap)\d{{1,4}}(?:(?P=gap)\d{{1,3}})?"
    rf"|\d{{6}}(?P=gap)\d{{4,5}})){ENDS}"
)
# Visa, Mastercard, American Express, Discover, JCB, Diners, UnionPay, Maestro.
ISSUERS = re.compile(r"4|5[0-9]|2[2-7]|3[4-9]|30[0-5]|6")

IBAN = re.compile(r"(?<![0-9A-Za-z])[A-Z]{2}\d{2}(?:[ \-]?[0-9A-Z]{4}){2,7}(?:[ \-]?[0-9A-Z]{1,3})?(?![0-9A-Za-z])")
LENGTHS = {
    "AD": 24,
    "AE": 23,
    "AL": 28,
    "AT": 20,
    "BA": 20,
    "BE": 16,
    "BG": 22,
    "BR": 29,
    "CH": 21,
    "CY": 28,
    "CZ": 24,
    "DE": 22,
    "DK": 18,
    "EE": 20,
    "ES": 24,
    "FI": 18,
    "FR": 27,
    "GB": 22,
    "GE": 22,
    "GR": 27,
    "HR": 21,
    "HU": 28,
    "IE": 22,
    "IL": 23,
    "IS": 26,
    "IT": 27,
    "KZ": 20,
    "LI": 21,
    "LT": 20,
    "LU": 20,
    "LV": 21,
    "MC": 27,
    "MD": 24,
    "ME": 22,
    "MK": 19,
    "MT": 31,
    "NL": 18,
    "NO": 15,
    "PK": 24,
    "PL": 28,
    "PT": 25,
    "QA": 29,
    "RO": 24,
    "RS": 22,
    "SA": 24,
    "SE": 24,
    "SI": 19,
    "SK": 24,
    "SM": 27,
    "TN": 24,
    "TR": 26,
    "UA": 29,
}

CHINESE_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
SPANISH_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"
ITALIAN_ODD = dict(
    zip(
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        [
            1,
            0,
            5,
            7,
            9,
            13,
            15,
            17,
            19,
            21,
            1,
            0,
            5,
            7,
            9,
            13,
            15,
            17,
            19,
            21,
            2,
            4,
            18,
            20,
            11,
            3,
            6,
            8,
            12,
            14,
            16,
            10,
            22,
            25,
            24,
            23,
        ],
        strict=True,
    )
)


def luhn(digits: str) -> bool:
    """The check of payment cards: every second digit doubled, its digits added."""
    odd, even = map(int, digits[-1::-2]), map(int, digits[-2::-2])
    return (sum(odd) + sum(sum(divmod(2 * digit, 10)) for digit in even)) % 10 == 0


def cards(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Payment cards: 13 to 19 digits of an issuer, in the groups cards are printed in or in one row, that check."""
    for match in GROUPED.finditer(text, start, stop):
        digits = re.sub(r"\D", "", match[0])
        if 13 <= len(digits) <= 19 and ISSUERS.match(digits) and luhn(digits) and len(set(digits)) > 1:
            yield match.span()


def accounts(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """International bank account numbers: the country's length, and 1 as the remainder of 97."""
    for match in IBAN.finditer(text, start, stop):
        stop = _account_end(match[0])
        if stop:
            yield match.start(), match.start() + stop


def _account_end(written: str) -> int:
    """Where the account number ends in what looks like one (a word in capitals may follow it), or 0."""
    wanted, seen = LENGTHS.get(written[:2], 0), 0
    for at, sign in enumerate(written):
        seen += sign.isalnum()
        if seen == wanted:
            whole = re.sub(r"[ \-]", "", written[: at + 1])
            is_whole = at + 1 == len(written) or not written[at + 1].isalnum()
            checks = int("".join(str(int(sign, 36)) for sign in whole[4:] + whole[:4])) % 97 == 1
            return at + 1 if is_whole and checks else 0
    return 0


def _is_day(written: str) -> bool:
    try:
        date(int(written[:4]), int(written[4:6]), int(written[6:8]))
    except ValueError:
        return False
    return 1850 <= int(written[:4]) <= 2100


def chinese(number: str) -> bool:
    """Resident identity number: a birthday, and a check digit modulo 11."""
    total = sum(weight * int(digit) for weight, digit in zip(CHINESE_WEIGHTS, number, strict=False))
    return _is_day(number[6:14]) and "10X98765432"[total % 11] == number[17].upper()


def german(number: str) -> bool:
    """Tax number of a person: one digit comes twice or thrice among the first ten, and ISO 7064 modulo 11, 10."""
    counts = Counter(number[:10])
    if sorted(counts.values())[-2:] not in ([1, 2], [1, 3]) or number[0] == "0":
        return False
    product = 10
    for digit in number[:10]:
        product = ((int(digit) + product) % 10 or 10) * 2 % 11
    return (11 - product) % 10 == int(number[10])


def spanish(number: str) -> bool:
    """Identity number of citizens and residents: a letter by the remainder of 23."""
    plain = str("XYZ".index(number[0])) + number[1:8] if number[0] in "XYZ" else number[:8]
    return SPANISH_LETTERS[int(plain) % 23] == number[-1]


def french(number: str) -> bool:
    """Social security number: sex, year and month of birth, and a key modulo 97."""
    plain = number[:13].replace("2A", "19").replace("2B", "18")
    return 97 - int(plain) % 97 == int(number[13:])


def italian(number: str) -> bool:
    """Tax code: letters of the names, the birthday, and a check letter."""
    odd = sum(ITALIAN_ODD[sign] for sign in number[0:15:2])
    even = sum(int(sign) if sign.isdigit() else ord(sign) - ord("A") for sign in number[1:15:2])
    return chr(ord("A") + (odd + even) % 26) == number[15]


def polish(number: str) -> bool:
    """PESEL: a birthday whose month tells the century, and a check digit."""
    century = {0: "19", 1: "20", 2: "21", 4: "18"}.get(int(number[2]) // 2)
    month = f"{int(number[2]) % 2}{number[3]}"
    total = sum(int(digit) * (1, 3, 7, 9)[at % 4] for at, digit in enumerate(number[:10]))
    is_born = century is not None and _is_day(century + number[:2] + month + number[4:6])
    return is_born and -total % 10 == int(number[10])


def brazilian(number: str) -> bool:
    """CPF: two check digits modulo 11."""
    for size in (9, 10):
        total = sum((size + 1 - at) * int(digit) for at, digit in enumerate(number[:size]))
        if total * 10 % 11 % 10 != int(number[size]):
            return False
    return len(set(number)) > 1


def korean(number: str) -> bool:
    """Resident registration number: a birthday, a sex and century, and a check digit of the years it had one."""
    century = {"1": "19", "2": "19", "3": "20", "4": "20", "5": "19", "6": "19", "7": "20", "8": "20"}.get(number[6])
    total = sum(int(digit) * (at % 8 + 2) for at, digit in enumerate(number[:12]))
    return century is not None and _is_day(century + number[:6]) and (11 - total % 11) % 10 == int(number[12])


def swedish(number: str) -> bool:
    """Personal number: a birthday and a check digit as on cards."""
    return _is_day("19" + number[:6]) and luhn(number[:10])


def _always(number: str) -> bool:
    return True


IDENTITIES: dict[str, Callable[[str], bool]] = {
    r"(?!000|666|9\d\d)\d{3}-(?!00)\d\d-(?!0000)\d{4}": _always,  # United States
    r"(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d\d ?\d\d ?\d\d ?[A-D]": _always,  # Britain
    r"[1-9]\d{5}(?:18|19|20)\d{9}[0-9Xx]": chinese,
    r"[1-9]\d ?\d{3} ?\d{3} ?\d{3}": german,
    r"(?:\d{8}|[XYZ]-?\d{7})[ \-]?[A-HJ-NP-TV-Z]": spanish,
    r"[12] ?\d\d ?(?:0[1-9]|1[0-2]|[2-4]\d) ?(?:\d\d|2[AB]) ?\d{3} ?\d{3} ?\d\d": french,
    r"[A-Z]{6}\d\d[A-EHLMPRST]\d\d[A-Z]\d{3}[A-Z]": italian,
    r"\d{11}": polish,
    r"\d{3}\.\d{3}\.\d{3}-\d\d": brazilian,
    r"\d{6}-[1-8]\d{6}": korean,
    r"\d{6}[\-+]\d{4}": swedish,
}
ANY_IDENTITY = re.compile(f"{ALONE}(?:{'|'.join(IDENTITIES)}){ENDS}")
CHECKED = tuple((re.compile(shape), check) for shape, check in IDENTITIES.items())


def identities(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Numbers that states give to people, where their check digits hold."""
    for match in ANY_IDENTITY.finditer(text, start, stop):
        plain = re.sub(r"[ \-+.]", "", match[0])
        if any(shape.fullmatch(match[0]) and check(plain) for shape, check in CHECKED):
            yield match.span()
