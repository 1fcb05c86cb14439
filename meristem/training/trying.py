"""What to try on a finished run: commands with words of its own text, whatever its language."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from meristem.batch import Model
from meristem.generation.way import detects, ways, ways_for
from meristem.store.store import Store, Stream
from meristem.tokenizers.tokenizer import Tokenizer

TOKENS = 24  # of a document's beginning, at the most
WORDS, LETTERS = 3, 6  # of a prompt, in writing with spaces and without


def commands(place: str, model: Model, tokenizer: Tokenizer, stores: Mapping[str, Store]) -> list[str]:
    """One line for each thing the model can do; of a mix, texts of the source that has them."""
    streams = [store.split("train") for store in stores.values()]
    plain = next((one for one in streams if not one.pictured and not one.paired), streams[0])
    text = beginning(plain, tokenizer)
    fill = [f"meristem fill {place} {_quoted(with_gap(text))}"] if ways_for(model, "fill") else []
    goes_on = {"causal", "permutation", "bilm"} & set(ways(model))
    write = [f"meristem generate {place} --prompt {_quoted(first_words(text))}"] if goes_on else []
    detect = [f"meristem detect {place} {_quoted(text)}"] if detects(model) else []
    sources = [_source(one, tokenizer) for one in streams if not write or one.pictured]
    turn = [f"meristem generate {place} {source}" for source in dict.fromkeys(sources)]
    return [*fill, *write, *detect, *(turn if "seq2seq" in model.heads else []), f"meristem evaluate {place}"]


def _source(stream: Stream, tokenizer: Tokenizer) -> str:
    """What an encoder-decoder may be given: a picture, a source like those it learned from, or a text with a gap."""
    if stream.pictured:
        return "--image picture.png"
    if not stream.paired:
        return f"--prompt {_quoted(with_gap(beginning(stream, tokenizer)))}"
    ids = stream.tokens(stream.document(0).start, stream.middle(0))
    return f"--prompt {_quoted(' '.join(tokenizer.decode(ids.tolist()).split()))}"


def beginning(stream: Stream, tokenizer: Tokenizer) -> str:
    """The first sentence of the first document, or as much of it as makes an example."""
    span = stream.document(0)
    stop = min(span.text_stop, span.start + TOKENS)
    sentences = stream.sentences(span.start, stop)
    ends = [int(at) for at in sentences if at >= span.start + TOKENS // 4]
    return " ".join(tokenizer.decode(stream.tokens(span.start, ends[0] if ends else stop).tolist()).split())


def with_gap(text: str) -> str:
    """A text whose middle word is missing; where words are not set apart, its middle character."""
    words = text.split(" ")
    if len(words) < 4:
        middle = len(text) // 2
        return f"{text[:middle]}[MASK]{text[middle + 1 :]}"
    words[len(words) // 2] = "[MASK]"
    return " ".join(words)


def first_words(text: str) -> str:
    """A few words, or a few characters where words are not set apart."""
    words = text.split(" ")
    return text[:LETTERS] if len(words) < 4 else " ".join(words[:WORDS])


def _quoted(text: str) -> str:
    """As a shell reads it; in plain double quotes where that is safe."""
    return shlex.quote(text) if any(mark in text for mark in '"$`\\!') else f'"{text}"'
