"""Bounds on what a tokenizer.json may ask for: own ids, few steps, short words, little growth, patterns that end.

Some patterns take time that grows with a power of the text's length without repeating a repetition; they are found by
trial, on probe texts that grow until a pattern is seen to be quick or slow.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Iterator
from typing import Any

import tokenizers

from meristem.errors import MeristemError

HIGHEST = 1 << 24
"""Of all ids; the library walks through every number up to the highest."""
GAPS = 1 << 16
"""Ids that no token has, beside three for each token that there is."""
STEPS = 256
"""Normalisers, cuts and decoders together; published tokenizers have a dozen."""
PATTERN = 16_384
"""Characters of a pattern."""
WORD = 256
"""Characters of a word that WordPiece cuts, which takes time that grows with their cube; published ones say 100."""
GROWTH = 64
"""How many times as long a text may become when it is normalised; NFKC makes 18 characters of one."""
PROBES = "aA1 \n.,'_-é中"
"""Characters that probe texts repeat, beside those a pattern names."""
PROBE_LENGTHS = (16, 24, 32, 64, 128, 256, 512, 1024, 2048)
PROBE_SECONDS = 0.1
"""Of the processor, for one probe text; published tokenizers take some three milliseconds for 2,048 characters."""
PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
UNBOUNDED = re.compile(r"[*+]|,\}")
"""Repetitions without an end; a single one is passed over a text in time that grows with its length."""
RECURSION = re.compile(r"\\g<|\(\?(R|&|P>|\d)|\(\?~")
"""Calls of a group from inside a pattern, and the absent operator."""
_PIECE = re.compile(r"\\[pPxk]\{[^}]*\}|\\.|\(\?[a-zA-Z<>!=:#-]*|[*+?]|\{\d*,?\d*\}|.", re.DOTALL)


def check(description: dict[str, Any], place: str) -> None:
    """Refuse what would cost time or memory without end, or give one id to two tokens."""
    _refuse_ids(description, place)
    steps = [one for part in PARTS for one in _inside(description.get(part))]
    if len(steps) > STEPS:
        raise MeristemError(f"{place}: {len(steps):,} steps to cut a text; no tokenizer has more than {STEPS}")
    for pattern in patterns(description):
        if len(pattern) > PATTERN or explodes(pattern):
            raise MeristemError(
                f"{place}: the pattern {_shown(pattern)} may take forever on some text: it repeats what repeats; "
                "write it without a repetition inside another"
            )
        if RECURSION.search(pattern):
            raise MeristemError(f"{place}: the pattern {_shown(pattern)} calls itself, which may never end")
    word = description["model"].get("max_input_chars_per_word")
    if isinstance(word, int) and word > WORD:
        raise MeristemError(
            f"{place}: max_input_chars_per_word is {word:,}, and cutting a word takes time that grows with its cube: "
            f"at most {WORD}; published tokenizers have 100"
        )
    if (times := growth(description.get("normalizer"))) > GROWTH:
        raise MeristemError(f"{place}: its normalizer may make a text {times:,.0f} times as long; at most {GROWTH}")


def patterns(description: dict[str, Any]) -> list[str]:
    """Every regular expression in a description."""
    steps = (one for part in PARTS for one in _inside(description.get(part)))
    return [step["Regex"] for step in steps if isinstance(step.get("Regex"), str)]


def growth(normalizer: Any) -> float:
    """How many times as long a text may become; one that is a character long, with what is put before and after it."""
    times, steps = 1.0, list(_inside(normalizer))
    for step in steps:
        match step.get("type"):
            case "Replace":
                pattern, content = step.get("pattern"), step.get("content")
                literal = pattern.get("String") if isinstance(pattern, dict) else None
                least = max(1, len(literal)) if isinstance(literal, str) else 1
                # what stands between two characters is matched too by a pattern that matches nothing
                times *= max(1.0, (len(content) if isinstance(content, str) else 0) / least + (literal is None))
            case "Prepend":
                times *= 1 + len(str(step.get("prepend", "")))
            case "Precompiled":
                times *= max(1.0, float(_longest_replacement(step.get("precompiled_charsmap"))))
    return times


def _longest_replacement(charsmap: Any) -> int:
    """Bytes of the longest text that SentencePiece's map puts in the place of a character."""
    if not isinstance(charsmap, str):
        return 0
    try:
        content = base64.b64decode(charsmap, validate=True)
    except (binascii.Error, ValueError):
        return 0  # the library refuses it
    # the size of a trie, the trie, and the replacements one after the other, each ended by a zero
    return max(map(len, content[4 + int.from_bytes(content[:4], "little") :].split(b"\0")), default=0)


def check_speed(description: dict[str, Any], library: tokenizers.Tokenizer, place: str) -> None:
    """Refuse patterns that are slow on a probe text: their time grows with a power of the text's length."""
    found = [pattern for pattern in patterns(description) if len(UNBOUNDED.findall(pattern)) > 1]
    literal = sorted({character for pattern in found for character in pattern if character.isprintable()})[:64]
    needed = "".join(literal)  # what a pattern must hold stands in front, or the library does not even try
    for character in dict.fromkeys([*PROBES, *literal]) if found else ():
        for length in PROBE_LENGTHS:
            began = time.thread_time()
            try:
                library.encode(needed + character * length + "\x01")
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:  # a panic of the library: it has limits of its own
                taken = PROBE_SECONDS
            else:
                taken = time.thread_time() - began
            if taken >= PROBE_SECONDS:
                raise MeristemError(
                    f"{place}: its patterns ({_shown(found[0])}) take too long for {length} times {character!r}, "
                    "and longer texts would take far longer; write them without repetitions that overlap"
                )


def _shown(pattern: str) -> str:
    return repr(pattern if len(pattern) < 80 else f"{pattern[:80]}…")


def check_unknown(description: dict[str, Any], place: str) -> None:
    """Refuse a vocabulary that has no token for what it does not know, and needs one."""
    model = description["model"]
    unknown, vocabulary = model.get("unk_token"), model.get("vocab")
    if model.get("type") in ("WordPiece", "WordLevel") and isinstance(vocabulary, dict) and unknown not in vocabulary:
        raise MeristemError(f"{place}: its unknown token {unknown!r:.60} is not in its vocabulary")


def _refuse_ids(description: dict[str, Any], place: str) -> None:
    vocabulary, added = description["model"].get("vocab"), description.get("added_tokens")
    if not isinstance(added or [], list):
        raise MeristemError(f"{place}: added_tokens is {added!r:.60}, and not a list of tokens")
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    ids = [number for number in ids if isinstance(number, int)]
    later = {token.get("content"): token.get("id") for token in added or () if isinstance(token, dict)}
    every = {*ids, *(number for number in later.values() if isinstance(number, int))}
    if (highest := max(every, default=0)) > HIGHEST or highest > 4 * len(every) + GAPS:
        raise MeristemError(f"{place}: its ids reach {highest}, and it has {len(every):,} tokens")
    if len(set(ids)) < len(ids) or len(set(map(str, later.values()))) < len(later):
        raise MeristemError(f"{place}: two of its tokens have the same id")


def _inside(node: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in a part of the description that is a step or a pattern."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if "type" in one or "Regex" in one:
                yield one
            waiting += [value for key, value in one.items() if key != "special_tokens"]
        elif isinstance(one, list):
            waiting += one


def explodes(pattern: str) -> bool:
    """Whether a repeated group holds a repetition or a choice: matching may then try exponentially many ways."""
    varies, last = [False], False  # of each open group, and of what a repetition would repeat
    pieces = [match[0] for match in _PIECE.finditer(pattern)]
    at = 0
    while at < len(pieces):
        piece = pieces[at]
        if piece == "[":
            at, last = _class_end(pieces, at), False
        elif piece.startswith("("):
            varies.append(False)
        elif piece == ")" and len(varies) > 1:
            last = varies.pop()
            varies[-1] |= last
        elif piece == "|":
            varies[-1], last = True, False
        elif piece[0] in "*+?" or re.fullmatch(r"\{(\d+,?\d*|,\d+)\}", piece):
            if last and _many(piece):
                return True
            varies[-1] |= re.fullmatch(r"\{\d+\}", piece) is None
            at += pieces[at + 1 : at + 2] in (["?"], ["+"])  # lazy, or possessive
        else:
            last = False
        at += 1
    return False


def _many(piece: str) -> bool:
    """Whether a repetition may be long."""
    return piece in "*+" or (piece[0] == "{" and (piece.endswith(",}") or int(re.findall(r"\d+", piece)[-1]) > 8))


def _class_end(pieces: list[str], at: int) -> int:
    """Where the brackets close that open here; a class may hold others."""
    depth = 0
    for place in range(at, len(pieces)):
        depth += (pieces[place] == "[") - (pieces[place] == "]")
        if depth == 0:
            return place
    return len(pieces)
