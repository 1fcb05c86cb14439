"""Synthetic PII (e-mail addresses, phone numbers, cards, ids, keys) from a seed, and harmless look-alikes."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable

from stdnum import iban, luhn
from stdnum.cn import ric
from stdnum.es import dni
from stdnum.iso7064 import mod_11_10

Maker = Callable[[random.Random], str]

NAMES = ["anna", "li.wei", "j.smith", "maria_garcia", "o.becker", "tom+news", "k-ito", "sofia.rossi", "p.novak99", "x"]
HOSTS = ["example.org", "mail.example.com", "uni-example.de", "example.co.uk", "post.example.cn", "exemple.fr"]
IBAN_LENGTHS = {"DE": 22, "GB": 22, "FR": 27, "ES": 24, "IT": 27, "NL": 18, "AT": 20, "CH": 21, "PL": 28}
ALNUM = string.ascii_letters + string.digits


def digits(rng: random.Random, count: int, first: str = "") -> str:
    """A string of random digits."""
    return first + "".join(rng.choice(string.digits) for _ in range(count - len(first)))


def shaped(rng: random.Random, shape: str) -> str:
    """A pattern with # replaced by any digit and N by a digit from 2 to 9."""
    return "".join(rng.choice({"#": "0123456789", "N": "23456789"}.get(sign, sign)) for sign in shape)


def email(rng: random.Random) -> str:
    """An e-mail address, one in ten obfuscated (at, dot)."""
    name, host = f"{rng.choice(NAMES)}{rng.choice(['', digits(rng, 2)])}", rng.choice(HOSTS)
    if rng.random() < 0.1:
        return f"{name} [at] {host.replace('.', ' [dot] ')}" if rng.random() < 0.5 else f"{name}(at){host}"
    return f"{name}@{host}" if rng.random() < 0.8 else f"{name}@{host}".title()


PHONES = [
    "+1 N## N## ####",
    "+1-N##-N##-####",
    "(N##) N##-####",
    "N##-N##-####",
    "N##.N##.####",
    "1-N##-N##-####",
    "+44 20 #### ####",
    "+44 (0)20 #### ####",
    "020 #### ####",
    "0161 ### ####",
    "07### ######",
    "(020) #### ####",
    "07#########",
    "+49 30 ########",
    "+49 (0)30 ### ## ##",
    "030 ########",
    "030/#######",
    "0170 #######",
    "(030) ### ## ##",
    "0049 30 #######",
    "0151########",
    "+86 138 #### ####",
    "13#########",
    "159-####-####",
    "010-########",
    "0755 #### ####",
    "(021)6#######",
    "+33 6 ## ## ## ##",
    "06 ## ## ## ##",
    "01.##.##.##.##",
    "+39 06 ### #####",
    "+81-3-####-####",
    "+91 9#### #####",
    "+34 6## ### ###",
    "+7 (495) ###-##-##",
    "+55 11 9####-####",
]


def phone(rng: random.Random) -> str:
    """A phone number in a national format, or plain digits after a cue word."""
    if rng.random() < 0.1:
        cue = rng.choice(["Tel: ", "phone ", "Telefon ", "电话：", "call me at "])
        return cue + digits(rng, 10, rng.choice("23456789"))
    return shaped(rng, rng.choice(PHONES))


def card(rng: random.Random) -> str:
    """A payment card number with valid check digit, grouped or not."""
    first, size = rng.choice(
        [
            ("4", 16),
            ("51", 16),
            ("55", 16),
            ("2221", 16),
            ("34", 15),
            ("37", 15),
            ("6011", 16),
            ("3528", 16),
            ("36", 14),
            ("62", 16),
            ("4", 13),
            ("62", 19),
        ]
    )
    body = digits(rng, size - 1, first)
    number = body + luhn.calc_check_digit(body)
    gap = rng.choice(["", " ", "-"])
    if size == 15:
        return gap.join((number[:4], number[4:10], number[10:]))
    if size == 14:
        return gap.join((number[:4], number[4:10], number[10:]))
    return number if size == 13 else gap.join(number[index : index + 4] for index in range(0, size, 4))


def chinese_identity(rng: random.Random) -> str:
    """A Chinese identity number: eighteen characters, the last a checksum."""
    born = f"{rng.randint(1930, 2015)}{rng.randint(1, 12):02}{rng.randint(1, 28):02}"
    body = f"{rng.choice(['110105', '310101', '440305', '510104', '330106'])}{born}{digits(rng, 3)}"
    return body + ric.calc_check_digit(body + "0")


def german_identity(rng: random.Random) -> str:
    """A German tax id: one of the first ten digits occurs twice, then a checksum."""
    ten = rng.sample(string.digits, 9)
    ten.insert(rng.randrange(9), rng.choice(ten))
    while ten[0] == "0":
        rng.shuffle(ten)
    number = "".join(ten) + mod_11_10.calc_check_digit("".join(ten))
    spaced = f"{number[:2]} {number[2:5]} {number[5:8]} {number[8:]}"
    return spaced if number[0] == "1" and number[1] in "3456789" else rng.choice([number, spaced])


def identity(rng: random.Random) -> str:
    """A personal identity number of one of six countries."""
    kind = rng.randrange(6)
    if kind == 0:
        return f"{rng.randint(1, 665):03}-{rng.randint(1, 99):02}-{rng.randint(1, 9999):04}"
    if kind == 1:
        return chinese_identity(rng)
    if kind == 2:
        return german_identity(rng)
    if kind == 3:
        gap = rng.choice(["", " "])
        return gap.join((rng.choice(["AB", "JX", "PW", "SE"]), *(digits(rng, 2) for _ in range(3)), rng.choice("ABCD")))
    if kind == 4:
        number = digits(rng, 8)
        return f"{number}{rng.choice(['', '-'])}{dni.calc_check_digit(number)}"
    body = f"{rng.choice('12')}{digits(rng, 2)}{rng.randint(1, 12):02}{rng.randint(1, 95):02}{digits(rng, 6)}"
    return body + f"{97 - int(body) % 97:02}"


def account(rng: random.Random) -> str:
    """An IBAN of one of several countries, grouped or not."""
    country = rng.choice(list(IBAN_LENGTHS))
    bank = {"GB": "WEST", "NL": "ABNA", "IT": "X"}.get(country, "")
    body = bank + digits(rng, IBAN_LENGTHS[country] - 4 - len(bank))
    iban_text = f"{country}{iban.calc_check_digits(f'{country}00{body}')}{body}"
    return (
        iban_text
        if rng.random() < 0.5
        else " ".join(iban_text[index : index + 4] for index in range(0, len(iban_text), 4))
    )


def ip(rng: random.Random) -> str:
    """A public IPv4 or IPv6 address."""
    if rng.random() < 0.25:
        return (
            f"2a0{rng.randint(0, 9)}:"
            + ":".join(f"{rng.randrange(1, 65536):x}" for _ in range(3))
            + "::"
            + digits(rng, 2, "1")
        )
    first = rng.choice([n for n in range(11, 220) if n not in (100, 127, 169, 172, 192, 198, 203)])
    return f"{first}." + ".".join(str(rng.randint(1, 254)) for _ in range(3))


def key(rng: random.Random) -> str:
    """An API key, a token, a named secret, or a private key block."""

    def random_text(count: int, letters: str = ALNUM) -> str:
        return "".join(rng.choice(letters) for _ in range(count))

    def encoded(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return rng.choice(
        [
            lambda: "AKIA" + random_text(16, string.ascii_uppercase + "234567"),
            lambda: "ghp_" + random_text(36),
            lambda: "AIza" + random_text(35),
            lambda: "sk_live_" + random_text(24),
            lambda: f"xoxb-{digits(rng, 12)}-{random_text(24)}",
            lambda: ".".join((encoded({"alg": "HS256"}), encoded({"sub": digits(rng, 10)}), random_text(43))),
            lambda: f'api_key = "{random_text(32)}"',
            lambda: f"API-Key: {random_text(40, '0123456789abcdef')}",
            lambda: f"secret_key={random_text(40, ALNUM + '+/')}",
            lambda: f"password: {random_text(9)}7aB!",
            lambda: f"Authorization: Bearer {random_text(40)}",
            lambda: f"-----BEGIN PRIVATE KEY-----\n{random_text(64)}\n{random_text(64)}\n-----END PRIVATE KEY-----",
        ]
    )()


PLANTERS: dict[str, Maker] = {
    "e-mail": email,
    "phone": phone,
    "card": card,
    "identity": identity,
    "account": account,
    "ip": ip,
    "key": key,
}


def isbn(rng: random.Random) -> str:
    """An ISBN, grouped or not."""
    body = digits(rng, 12, "978")
    number = body + str(-sum(int(d) * (1 + 2 * (index % 2)) for index, d in enumerate(body)) % 10)
    return rng.choice([number, f"ISBN {number[:3]}-{number[3]}-{number[4:7]}-{number[7:12]}-{number[12]}"])


HARMLESS: dict[str, Maker] = {
    "date": lambda rng: rng.choice(
        [
            f"{rng.randint(1, 28):02}.{rng.randint(1, 12):02}.{rng.randint(1900, 2030)}",
            f"{rng.randint(1900, 2030)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02} {rng.randint(10, 23)}:30:00",
            f"{rng.randint(1, 12)}/{rng.randint(1, 28)}/{rng.randint(1900, 2030)}",
            f"{rng.randint(1900, 1950)}-{rng.randint(1951, 2030)}",
        ]
    ),
    "price": lambda rng: rng.choice(
        [
            f"${rng.randint(1, 999)},{digits(rng, 3)},{digits(rng, 3)}.{digits(rng, 2)}",
            f"{rng.randint(1, 999)} {digits(rng, 3)} {digits(rng, 3)} €",
            f"£{digits(rng, 7, '9')}",
        ]
    ),
    "isbn": isbn,
    "version": lambda rng: (
        rng.choice(["version ", "v", "release "]) + ".".join(str(rng.randint(0, 40)) for _ in range(4))
    ),
    "long number": lambda rng: digits(rng, rng.choice([6, 7, 8, 9, 12, 13, 14, 20, 22]), rng.choice("123456789")),
    "hash": lambda rng: "".join(rng.choice("0123456789abcdef") for _ in range(rng.choice([7, 32, 40, 64]))),
    "order": lambda rng: rng.choice(
        [
            f"#{digits(rng, 8)}",
            f"ORD-{rng.randint(2015, 2026)}-{digits(rng, 6)}",
            f"{digits(rng, 3, '1')}-{digits(rng, 7)}-{digits(rng, 7)}",
            f"INV{digits(rng, 9)}",
        ]
    ),
    "decimal": lambda rng: f"{rng.randint(0, 99)}.{digits(rng, rng.randint(6, 15))}",
}
