"""Suggested commands for a finished pretraining run, with words from its training text."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from meristem.dataset.token_dataset import TokenDataset, TokenStream
from meristem.generation.head_selection import can_detect, lm_kinds, lm_kinds_for
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

MAX_EXAMPLE_TOKENS = 24  # from the beginning of a document
PROMPT_WORDS, PROMPT_CHARS = 3, 6  # length of a prompt in scripts with spaces, and without


def suggest_commands(
    run_path: str, model: Model, tokenizer: Tokenizer, datasets: Mapping[str, TokenDataset]
) -> list[str]:
    """One command for each thing the model can do; in a mix, with text from a suitable source."""
    streams = [dataset.split("train") for dataset in datasets.values()]
    plain_stream = next((stream for stream in streams if not stream.has_images and not stream.has_pairs), streams[0])
    text = first_sentence(plain_stream, tokenizer)
    fill = [f"meristem fill {run_path} {_shell_quote(mask_middle(text))}"] if lm_kinds_for(model, "fill") else []
    can_continue = {"causal", "permutation", "bilm"} & set(lm_kinds(model))
    generate = [f"meristem generate {run_path} --prompt {_shell_quote(prompt_start(text))}"] if can_continue else []
    detect = [f"meristem detect {run_path} {_shell_quote(text)}"] if can_detect(model) else []
    sources = [_source_option(stream, tokenizer) for stream in streams if not generate or stream.has_images]
    translate = [f"meristem generate {run_path} {source}" for source in dict.fromkeys(sources)]
    translate = translate if "seq2seq" in model.heads else []
    return [*fill, *generate, *detect, *translate, f"meristem evaluate {run_path}"]


def _source_option(stream: TokenStream, tokenizer: Tokenizer) -> str:
    """Option with an input of an encoder-decoder: an image, a source text, or a text with a mask."""
    if stream.has_images:
        return "--image picture.png"
    if not stream.has_pairs:
        return f"--prompt {_shell_quote(mask_middle(first_sentence(stream, tokenizer)))}"
    ids = stream.tokens(stream.document(0).start, stream.target_start(0))
    return f"--prompt {_shell_quote(' '.join(tokenizer.decode(ids.tolist()).split()))}"


def first_sentence(stream: TokenStream, tokenizer: Tokenizer) -> str:
    """The first sentence of the first document, up to `MAX_EXAMPLE_TOKENS` tokens."""
    span = stream.document(0)
    stop = min(span.text_stop, span.start + MAX_EXAMPLE_TOKENS)
    sentences = stream.sentences(span.start, stop)
    ends = [int(position) for position in sentences if position >= span.start + MAX_EXAMPLE_TOKENS // 4]
    return " ".join(tokenizer.decode(stream.tokens(span.start, ends[0] if ends else stop).tolist()).split())


def mask_middle(text: str) -> str:
    """The text with [MASK] for its middle word, or its middle character in scripts without spaces."""
    words = text.split(" ")
    if len(words) < 4:
        middle = len(text) // 2
        return f"{text[:middle]}[MASK]{text[middle + 1 :]}"
    words[len(words) // 2] = "[MASK]"
    return " ".join(words)


def prompt_start(text: str) -> str:
    """The first few words, or the first few characters in scripts without spaces."""
    words = text.split(" ")
    return text[:PROMPT_CHARS] if len(words) < 4 else " ".join(words[:PROMPT_WORDS])


def _shell_quote(text: str) -> str:
    """The text quoted for a shell; in plain double quotes where that is safe."""
    return shlex.quote(text) if any(char in text for char in '"$`\\!') else f'"{text}"'
