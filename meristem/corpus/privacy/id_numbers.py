"""Card, identity and bank account numbers: found by pattern, verified by their check digits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date

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
IBAN_LENGTHS = {
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


def is_luhn_valid(digits: str) -> bool:
    """The Luhn check of payment cards: every second digit doubled, digit sums added, divisible by 10."""
    odd, even = map(int, digits[-1::-2]), map(int, digits[-2::-2])
    return (sum(odd) + sum(sum(divmod(2 * digit, 10)) for digit in even)) % 10 == 0


def find_cards(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Spans of payment card numbers: 13 to 19 digits of an issuer, in the usual groups or ungrouped, that pass Luhn."""
    for match in CARD_NUMBER.finditer(text, start, stop):
        digits = re.sub(r"\D", "", match[0])
        if 13 <= len(digits) <= 19 and CARD_ISSUERS.match(digits) and is_luhn_valid(digits) and len(set(digits)) > 1:
            yield match.span()


def find_ibans(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Spans of international bank account numbers: the country's length, remainder 1 modulo 97."""
    for match in IBAN_PATTERN.finditer(text, start, stop):
        stop = _iban_end(match[0])
        if stop:
            yield match.start(), match.start() + stop


def _iban_end(candidate: str) -> int:
    """The end of the account number in a candidate (a word in capitals may follow it), or 0."""
    iban_length, num_chars = IBAN_LENGTHS.get(candidate[:2], 0), 0
    for index, char in enumerate(candidate):
        num_chars += char.isalnum()
        if num_chars == iban_length:
            iban = re.sub(r"[ \-]", "", candidate[: index + 1])
            is_end = index + 1 == len(candidate) or not candidate[index + 1].isalnum()
            is_valid = int("".join(str(int(char, 36)) for char in iban[4:] + iban[:4])) % 97 == 1
            return index + 1 if is_end and is_valid else 0
    return 0


def _is_date(digits: str) -> bool:
    try:
        date(int(digits[:4]), int(digits[4:6]), int(digits[6:8]))
    except ValueError:
        return False
    return 1850 <= int(digits[:4]) <= 2100


def is_chinese_id(number: str) -> bool:
    """Resident identity number: a date of birth, and a check digit modulo 11."""
    total = sum(weight * int(digit) for weight, digit in zip(CHINESE_WEIGHTS, number, strict=False))
    return _is_date(number[6:14]) and "10X98765432"[total % 11] == number[17].upper()


def is_german_tax_id(number: str) -> bool:
    """Personal tax number: one digit occurs two or three times among the first ten; ISO 7064 modulo 11, 10."""
    counts = Counter(number[:10])
    if sorted(counts.values())[-2:] not in ([1, 2], [1, 3]) or number[0] == "0":
        return False
    product = 10
    for digit in number[:10]:
        product = ((int(digit) + product) % 10 or 10) * 2 % 11
    return (11 - product) % 10 == int(number[10])


def is_spanish_id(number: str) -> bool:
    """Identity number of citizens and residents: a check letter modulo 23."""
    digits = str("XYZ".index(number[0])) + number[1:8] if number[0] in "XYZ" else number[:8]
    return SPANISH_LETTERS[int(digits) % 23] == number[-1]


def is_french_id(number: str) -> bool:
    """Social security number: sex, year and month of birth, and a key modulo 97."""
    digits = number[:13].replace("2A", "19").replace("2B", "18")
    return 97 - int(digits) % 97 == int(number[13:])


def is_italian_tax_code(number: str) -> bool:
    """Tax code: letters of the names, the date of birth, and a check letter."""
    odd = sum(ITALIAN_ODD[char] for char in number[0:15:2])
    even = sum(int(char) if char.isdigit() else ord(char) - ord("A") for char in number[1:15:2])
    return chr(ord("A") + (odd + even) % 26) == number[15]


def is_pesel(number: str) -> bool:
    """PESEL: a date of birth whose month encodes the century, and a check digit."""
    century = {0: "19", 1: "20", 2: "21", 4: "18"}.get(int(number[2]) // 2)
    month = f"{int(number[2]) % 2}{number[3]}"
    total = sum(int(digit) * (1, 3, 7, 9)[index % 4] for index, digit in enumerate(number[:10]))
    is_birthday = century is not None and _is_date(century + number[:2] + month + number[4:6])
    return is_birthday and -total % 10 == int(number[10])


def is_cpf(number: str) -> bool:
    """CPF: two check digits modulo 11."""
    for size in (9, 10):
        total = sum((size + 1 - index) * int(digit) for index, digit in enumerate(number[:size]))
        if total * 10 % 11 % 10 != int(number[size]):
            return False
    return len(set(number)) > 1


def is_korean_id(number: str) -> bool:
    """Resident registration number: date of birth, sex and century, and a check digit (issued until 2020)."""
    century = {"1": "19", "2": "19", "3": "20", "4": "20", "5": "19", "6": "19", "7": "20", "8": "20"}.get(number[6])
    total = sum(int(digit) * (index % 8 + 2) for index, digit in enumerate(number[:12]))
    return century is not None and _is_date(century + number[:6]) and (11 - total % 11) % 10 == int(number[12])


def is_swedish_id(number: str) -> bool:
    """Personal number: a date of birth and a Luhn check digit."""
    return _is_date("19" + number[:6]) and is_luhn_valid(number[:10])


def _accept_any(number: str) -> bool:
    return True


IDENTITY_CHECKS: dict[str, Callable[[str], bool]] = {
    r"(?!000|666|9\d\d)\d{3}-(?!00)\d\d-(?!0000)\d{4}": _accept_any,  # United States
    r"(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d\d ?\d\d ?\d\d ?[A-D]": _accept_any,  # Britain
    r"[1-9]\d{5}(?:18|19|20)\d{9}[0-9Xx]": is_chinese_id,
    r"[1-9]\d ?\d{3} ?\d{3} ?\d{3}": is_german_tax_id,
    r"(?:\d{8}|[XYZ]-?\d{7})[ \-]?[A-HJ-NP-TV-Z]": is_spanish_id,
    r"[12] ?\d\d ?(?:0[1-9]|1[0-2]|[2-4]\d) ?(?:\d\d|2[AB]) ?\d{3} ?\d{3} ?\d\d": is_french_id,
    r"[A-Z]{6}\d\d[A-EHLMPRST]\d\d[A-Z]\d{3}[A-Z]": is_italian_tax_code,
    r"\d{11}": is_pesel,
    r"\d{3}\.\d{3}\.\d{3}-\d\d": is_cpf,
    r"\d{6}-[1-8]\d{6}": is_korean_id,
    r"\d{6}[\-+]\d{4}": is_swedish_id,
}
ANY_IDENTITY = re.compile(f"{NUMBER_START}(?:{'|'.join(IDENTITY_CHECKS)}){NUMBER_END}")
IDENTITY_PATTERNS = tuple((re.compile(shape), check) for shape, check in IDENTITY_CHECKS.items())


def find_identity_numbers(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Spans of national identity numbers whose check digits are valid."""
    for match in ANY_IDENTITY.finditer(text, start, stop):
        digits = re.sub(r"[ \-+.]", "", match[0])
        if any(shape.fullmatch(match[0]) and check(digits) for shape, check in IDENTITY_PATTERNS):
            yield match.span()
