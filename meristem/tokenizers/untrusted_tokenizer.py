"""Limits on untrusted tokenizer.json files: ids, pipeline steps, word length, text growth, regular expressions.

Some patterns take polynomial time without nested repetition; they are found by timing them on probe texts of
increasing length.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Iterator
from typing import Any

import tokenizers

from meristem.config.errors import MeristemError

MAX_ID = 1 << 24
"""Highest id; the library iterates over all numbers up to it."""
MAX_UNUSED_IDS = 1 << 16
"""Unused ids allowed, in addition to three for each token."""
MAX_STEPS = 256
"""Normalizers, pre-tokenizers, processors and decoders together; published tokenizers have a dozen."""
MAX_PATTERN_LENGTH = 16_384
"""Length of a regular expression in characters."""
MAX_WORD_LENGTH = 256
"""Longest word of WordPiece, in characters: segmentation takes cubic time; published tokenizers have 100."""
MAX_GROWTH = 64
"""Factor by which normalization may lengthen a text; NFKC turns one character into up to 18."""
PROBE_CHARACTERS = "aA1 \n.,'_-é中"
"""Characters repeated in probe texts, besides those in a pattern."""
PROBE_LENGTHS = (16, 24, 32, 64, 128, 256, 512, 1024, 2048)
PROBE_SECONDS = 0.1
"""CPU time for one probe text; published tokenizers take about three milliseconds for 2,048 characters."""
PIPELINE_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
UNBOUNDED = re.compile(r"[*+]|,\}")
"""Unbounded repetitions; a pattern with only one of them takes linear time."""
RECURSION = re.compile(r"\\g<|\(\?(R|&|P>|\d)|\(\?~")
"""Subexpression calls, and the absent operator."""
_PIECE = re.compile(r"\\[pPxk]\{[^}]*\}|\\.|\(\?[a-zA-Z<>!=:#-]*|[*+?]|\{\d*,?\d*\}|.", re.DOTALL)


def check_description(description: dict[str, Any], source: str) -> None:
    """Raise if a description would take unbounded time or memory, or gives one id to two tokens."""
    _check_ids(description, source)
    steps = [step for part in PIPELINE_PARTS for step in _iter_steps(description.get(part))]
    if len(steps) > MAX_STEPS:
        raise MeristemError(f"{source}: {len(steps):,} pipeline steps; at most {MAX_STEPS} are allowed")
    for pattern in regex_patterns(description):
        if len(pattern) > MAX_PATTERN_LENGTH or has_nested_repetition(pattern):
            raise MeristemError(
                f"{source}: the pattern {_shorten(pattern)} may take exponential time on some text; "
                "rewrite it without nested repetition"
            )
        if RECURSION.search(pattern):
            raise MeristemError(f"{source}: the pattern {_shorten(pattern)} is recursive, which may never end")
    max_word_length = description["model"].get("max_input_chars_per_word")
    if isinstance(max_word_length, int) and max_word_length > MAX_WORD_LENGTH:
        raise MeristemError(
            f"{source}: max_input_chars_per_word is {max_word_length:,}, but segmenting a word takes cubic time: "
            f"at most {MAX_WORD_LENGTH} is allowed; published tokenizers have 100"
        )
    if (growth_factor := max_growth(description.get("normalizer"))) > MAX_GROWTH:
        raise MeristemError(
            f"{source}: its normalizer may make a text {growth_factor:,.0f} times as long; the limit is {MAX_GROWTH}"
        )


def regex_patterns(description: dict[str, Any]) -> list[str]:
    """Every regular expression in a description."""
    steps = (node for part in PIPELINE_PARTS for node in _iter_steps(description.get(part)))
    return [step["Regex"] for step in steps if isinstance(step.get("Regex"), str)]


def max_growth(normalizer: Any) -> float:
    """Upper bound of the factor by which a normalizer lengthens a text, for a text of one character."""
    factor, steps = 1.0, list(_iter_steps(normalizer))
    for step in steps:
        match step.get("type"):
            case "Replace":
                pattern, content = step.get("pattern"), step.get("content")
                literal = pattern.get("String") if isinstance(pattern, dict) else None
                min_match = max(1, len(literal)) if isinstance(literal, str) else 1
                # a pattern that matches the empty string also matches between characters
                factor *= max(1.0, (len(content) if isinstance(content, str) else 0) / min_match + (literal is None))
            case "Prepend":
                factor *= 1 + len(str(step.get("prepend", "")))
            case "Precompiled":
                factor *= max(1.0, float(_longest_replacement(step.get("precompiled_charsmap"))))
    return factor


def _longest_replacement(charsmap: Any) -> int:
    """Bytes of the longest replacement of a character in SentencePiece's character map."""
    if not isinstance(charsmap, str):
        return 0
    try:
        content = base64.b64decode(charsmap, validate=True)
    except (binascii.Error, ValueError):
        return 0  # the library will reject it
    # layout: the size of a trie, the trie, and the zero-terminated replacements
    return max(map(len, content[4 + int.from_bytes(content[:4], "little") :].split(b"\0")), default=0)


def check_speed(description: dict[str, Any], library: tokenizers.Tokenizer, source: str) -> None:
    """Raise if a pattern is slow on a probe text (polynomial time)."""
    risky_patterns = [pattern for pattern in regex_patterns(description) if len(UNBOUNDED.findall(pattern)) > 1]
    printable = {character for pattern in risky_patterns for character in pattern if character.isprintable()}
    literals = sorted(printable)[:64]
    prefix = "".join(literals)  # literals come first, or the regex engine would not even try to match
    for character in dict.fromkeys([*PROBE_CHARACTERS, *literals]) if risky_patterns else ():
        for length in PROBE_LENGTHS:
            start_time = time.thread_time()
            try:
                library.encode(prefix + character * length + "\x01")
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:  # a panic of the library, which has its own limits
                seconds = PROBE_SECONDS
            else:
                seconds = time.thread_time() - start_time
            if seconds >= PROBE_SECONDS:
                raise MeristemError(
                    f"{source}: its patterns ({_shorten(risky_patterns[0])}) take too long on {length} times "
                    f"{character!r}, and far longer on longer texts; rewrite them without overlapping repetitions"
                )


def _shorten(pattern: str) -> str:
    return repr(pattern if len(pattern) < 80 else f"{pattern[:80]}…")


def check_unknown(description: dict[str, Any], source: str) -> None:
    """Raise if a WordPiece or WordLevel vocabulary does not contain its unknown token."""
    model = description["model"]
    unknown, vocabulary = model.get("unk_token"), model.get("vocab")
    if model.get("type") in ("WordPiece", "WordLevel") and isinstance(vocabulary, dict) and unknown not in vocabulary:
        raise MeristemError(f"{source}: its unknown token {unknown!r:.60} is not in its vocabulary")


def _check_ids(description: dict[str, Any], source: str) -> None:
    vocabulary, added_tokens = description["model"].get("vocab"), description.get("added_tokens")
    if not isinstance(added_tokens or [], list):
        raise MeristemError(f"{source}: added_tokens is {added_tokens!r:.60}, not a list of tokens")
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    ids = [token_id for token_id in ids if isinstance(token_id, int)]
    added_ids = {token.get("content"): token.get("id") for token in added_tokens or () if isinstance(token, dict)}
    all_ids = {*ids, *(token_id for token_id in added_ids.values() if isinstance(token_id, int))}
    if (highest := max(all_ids, default=0)) > MAX_ID or highest > 4 * len(all_ids) + MAX_UNUSED_IDS:
        raise MeristemError(f"{source}: its highest id is {highest}, but it has only {len(all_ids):,} tokens")
    if len(set(ids)) < len(ids) or len(set(map(str, added_ids.values()))) < len(added_ids):
        raise MeristemError(f"{source}: two of its tokens have the same id")


def _iter_steps(node: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in a part of the description that is a pipeline step or a pattern."""
    pending = [node]
    while pending:
        child = pending.pop()
        if isinstance(child, dict):
            if "type" in child or "Regex" in child:
                yield child
            pending += [value for key, value in child.items() if key != "special_tokens"]
        elif isinstance(child, list):
            pending += child


def has_nested_repetition(pattern: str) -> bool:
    """Whether a repeated group contains a repetition or an alternative: matching may then take exponential time."""
    varies, last_varies = [False], False  # of each open group, and of the item that a repetition would repeat
    pieces = [match[0] for match in _PIECE.finditer(pattern)]
    index = 0
    while index < len(pieces):
        piece = pieces[index]
        if piece == "[":
            index, last_varies = _class_end(pieces, index), False
        elif piece.startswith("("):
            varies.append(False)
        elif piece == ")" and len(varies) > 1:
            last_varies = varies.pop()
            varies[-1] |= last_varies
        elif piece == "|":
            varies[-1], last_varies = True, False
        elif piece[0] in "*+?" or re.fullmatch(r"\{(\d+,?\d*|,\d+)\}", piece):
            if last_varies and _repeats_often(piece):
                return True
            varies[-1] |= re.fullmatch(r"\{\d+\}", piece) is None
            index += pieces[index + 1 : index + 2] in (["?"], ["+"])  # lazy, or possessive
        else:
            last_varies = False
        index += 1
    return False


def _repeats_often(piece: str) -> bool:
    """Whether a quantifier allows many repetitions."""
    return piece in "*+" or (piece[0] == "{" and (piece.endswith(",}") or int(re.findall(r"\d+", piece)[-1]) > 8))


def _class_end(pieces: list[str], start: int) -> int:
    """Index of the bracket that closes the character class opened at `start`; classes may be nested."""
    depth = 0
    for index in range(start, len(pieces)):
        depth += (pieces[index] == "[") - (pieces[index] == "]")
        if depth == 0:
            return index
    return len(pieces)
