"""Model inputs for reward prompts: texts to continue, sources or pictures, laid out as the model was trained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meristem.batch import Array
from meristem.corpus.pictures import pixels
from meristem.errors import MeristemError
from meristem.generation.laid import GoingOn, Laid, OneLine, TwoSides
from meristem.objectives.caption import Caption, CaptionSettings
from meristem.objectives.clm import CLM, CLMSettings
from meristem.objectives.seq2seq import Seq2Seq, Seq2SeqSettings
from meristem.reinforce.reward import Attempt
from meristem.reinforce.settings import PolicySettings
from meristem.task import Sample
from meristem.tokenizers.tokenizer import Tokenizer


def layout_of(settings: PolicySettings, tokenizer: Tokenizer) -> Laid:
    """Where a prompt and the text written for it stand in a row, by `policy.way`."""
    s = settings
    if s.way is None or s.length is None or (s.way == "image" and s.picture is None):
        raise MeristemError("policy: how the model writes is not known yet; it comes from the run it starts as")
    if s.way == "causal":
        clm = CLM(CLMSettings.model_validate({}), tokenizer)
        clm.begin_ids = s.begin
        kind = OneLine if s.framed else GoingOn
        return kind(clm, tokenizer, s.length, s.max_tokens)
    begin = {"begin": s.begin or ("start",)}
    if s.way == "image":
        captions = Caption(CaptionSettings.model_validate(begin), tokenizer)
        return TwoSides(captions, tokenizer, s.length, s.max_tokens, key="image")
    return TwoSides(Seq2Seq(Seq2SeqSettings.model_validate(begin), tokenizer), tokenizer, s.length, s.max_tokens)


def inputs_of(attempts: Sequence[Attempt], settings: PolicySettings, tokenizer: Tokenizer) -> list[Array]:
    """What the model reads of each prompt: token ids [T], or pixels [side, side, 3]."""
    side = settings.picture
    if settings.way != "image" or side is None:
        return [ids.astype(np.int64) for ids in tokenizer.ids_many([one.prompt for one in attempts])]
    found = []
    for one in attempts:
        try:
            found.append(pixels(one.picture, side))
        except MeristemError as error:
            raise MeristemError(f"{one.place}: {error}" if one.place else str(error)) from None
    return found


def attempt_of(sample: Sample, words: int | None) -> Attempt:
    """A sample as a prompt without a text yet; of a longer text only the first `words` are the prompt."""
    references, columns = tuple(sample.gold or ()), sample.given.get("columns", {})
    if "picture" in sample.given:
        return Attempt(
            prompt="",
            text="",
            references=references,
            columns=columns,
            place=sample.place,
            picture=sample.given["picture"],
        )
    prompt = sample.given["prompt"]
    if words is not None:
        parts = prompt.split(" ")
        prompt, rest = " ".join(parts[:words]), " ".join(parts[words:])
        references = references or ((" " + rest,) if rest else ())
    return Attempt(prompt=prompt, text="", references=references, columns=columns, place=sample.place)
