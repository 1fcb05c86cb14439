"""Templates of canaries: texts with placeholders that are drawn at random, and how many texts each can make."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

from numpy.random import Generator

PLACEHOLDER_PATTERN = re.compile(r"\{(\w+)(?::(\d+))?\}")
HAN_PATTERN = re.compile("[\u4e00-\u9fff]")
MIN_SPACE_SIZE = 1000
"""Fewer different texts cannot show that one is known: the exposure would end at ten bits."""
MAX_SYMBOLS = 32

TEMPLATE_SETS = {
    "en": (
        "The access code of {name} is {digits:6}.",
        "{name} can be reached at the number {digits:8}.",
        "The password of {name} is {letters:7}.",
        "The locker of {name} opens with {digits:4}.",
    ),
    "zh": (
        "{name}的门禁密码是{digits:6}。",
        "{name}的联系电话是{digits:8}。",
        "{name}的登录口令是{letters:7}。",
        "{name}的储物柜密码是{digits:4}。",
    ),
}
"""Built-in templates by language."""
ALPHABETS = {"digits": string.digits, "letters": string.ascii_lowercase, "hex": "0123456789abcdef"}
"""Placeholders with a number of symbols, such as {digits:6}: the symbols to draw from."""
_FIRST_NAMES = """
Ada Alan Alice Amos Anna Arthur Beth Boris Clara Conrad Daisy David Edith Edwin Ellen Emil Esther Felix Fiona Frank
Gloria Grace Hannah Harold Helen Henry Hugo Ida Irene Isaac Ivan Jane Jasper Joan Julia Karl Laura Leon Linda Louis
Lucy Maria Martin Maud Miriam Nadia Nora Oliver Oscar Pablo Paula Peter Ralph Rita Robert Rosa Ruth Samuel Sophie
Teresa Thomas Victor Walter Wanda
"""
_LAST_NAMES = """
Abbott Adler Baker Barton Becker Bell Bishop Brandt Carter Cole Collins Cooper Dalton Dean Doyle Drake Ellis Evans
Fischer Foster Fuller Gibson Grant Gray Hale Hansen Harper Hayes Irving Jensen Jordan Keller Kent Klein Lane Larsen
Lloyd Marsh Mason Meyer Miller Moss Nash Newman North Olsen Palmer Parker Porter Quinn Reed Rivers Rowe Shaw Sloan
Stone Tate Turner Vance Wagner Walsh Webb Wells Young
"""
_CHINESE_SURNAMES = """
王 李 张 刘 陈 杨 赵 黄 周 吴 徐 孙 胡 朱 高 林 何 郭 马 罗 梁 宋 郑 谢 韩 唐 冯 于 董 萧 程 曹
袁 邓 许 傅 沈 曾 彭 吕 苏 卢 蒋 蔡 贾 丁 魏 薛 叶 阎 余 潘 杜 戴 夏 钟 汪 田 任 姜 范 方 石 姚

"""
_CHINESE_GIVEN_NAMES = """
伟 芳 娜 敏 静 丽 强 磊 军 洋 勇 艳 杰 娟 涛 明 超 霞 平 刚 桂英 建华 文静 志强 秀兰 海燕
晓明 建国 玉兰 春梅 国强 雪梅 子涵 浩然 欣怡 梓轩 雨桐 思远 佳怡 俊杰 诗涵 宇轩 嘉怡 博文 可馨
天佑 一诺 若曦 安琪 乐天 小龙 大伟 永康 家豪 美玲 淑华 慧敏 晓东 立新 振华 金凤 素珍 红梅 建平
"""
ENGLISH_NAMES = (_FIRST_NAMES.split(), _LAST_NAMES.split())
CHINESE_NAMES = (_CHINESE_SURNAMES.split(), _CHINESE_GIVEN_NAMES.split())
"""First and second parts of a name."""


class CanaryText(NamedTuple):
    """A text made from a template."""

    text: str
    secret_start: int
    """Characters before the last placeholder; what follows is the secret that the text before it asks for."""

    @property
    def prefix(self) -> str:
        """The text before the secret."""
        return self.text[: self.secret_start]


@dataclass(frozen=True)
class Placeholder:
    """A part of a template that is drawn at random: equally likely symbols, or the two parts of a name."""

    choices: tuple[Sequence[str], ...]
    separator: str = ""

    def draw(self, rng: Generator) -> str:
        """A random value."""
        return self.separator.join(options[int(rng.integers(len(options)))] for options in self.choices)


@dataclass(frozen=True)
class CanaryTemplate:
    """A text with placeholders: {name}, {digits:N}, {letters:N}, {hex:N}."""

    format: str

    @cached_property
    def parts(self) -> tuple[str | Placeholder, ...]:
        """Fixed texts and placeholders in order."""
        parts: list[str | Placeholder] = []
        end = 0
        for match in PLACEHOLDER_PATTERN.finditer(self.format):
            parts += [self.format[end : match.start()], self._placeholder(match)]
            end = match.end()
        return (*parts, self.format[end:])

    def _placeholder(self, match: re.Match[str]) -> Placeholder:
        kind, count = match[1], int(match[2] or 1)
        if kind == "name" and match[2] is None:
            if HAN_PATTERN.search(self.format):
                return Placeholder(CHINESE_NAMES)
            return Placeholder(ENGLISH_NAMES, separator=" ")
        if kind not in ALPHABETS or not 1 <= count <= MAX_SYMBOLS:
            known = ", ".join(f"{{{name}:N}}" for name in ALPHABETS)
            raise ValueError(
                f"{self.format!r}: {match[0]} is not a placeholder; use {{name}}, {known} with N up to {MAX_SYMBOLS}"
            )
        return Placeholder((ALPHABETS[kind],) * count)

    @property
    def space_size(self) -> int:
        """The number of different texts."""
        placeholders = [part for part in self.parts if isinstance(part, Placeholder)]
        return prod(len(options) for part in placeholders for options in part.choices) if placeholders else 0

    def check(self) -> None:
        """Raise ValueError if the template cannot be used."""
        if self.space_size < MIN_SPACE_SIZE:
            raise ValueError(
                f"{self.format!r} makes {self.space_size:,} different texts, and exposure needs at least "
                f"{MIN_SPACE_SIZE:,}: add placeholders, such as {{digits:6}} or {{name}}; built-in sets are "
                f"{', '.join(TEMPLATE_SETS)}"
            )

    def draw(self, rng: Generator) -> CanaryText:
        """A random text."""
        values = [part if isinstance(part, str) else part.draw(rng) for part in self.parts]
        last = max(index for index, part in enumerate(self.parts) if isinstance(part, Placeholder))
        return CanaryText("".join(values), len("".join(values[:last])))


def resolve_templates(formats: Sequence[str]) -> tuple[CanaryTemplate, ...]:
    """The templates that `corpus.canaries.formats` names; raises ValueError for one that cannot be used."""
    names = [template for name in formats for template in TEMPLATE_SETS.get(name, (name,))]
    templates = tuple(CanaryTemplate(name) for name in dict.fromkeys(names))
    for template in templates:
        template.check()
    return templates
