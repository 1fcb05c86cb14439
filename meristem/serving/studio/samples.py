"""Samples as they improve: the same prompt given to each checkpoint that a run still has, and remembered after that."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from meristem.checkpoint import layout
from meristem.checkpoint.run import Run
from meristem.errors import MeristemError
from meristem.generation.fill import fill_many, masked
from meristem.generation.sampling import SamplingSettings
from meristem.generation.write import write
from meristem.serving.errors import Refused
from meristem.serving.hub import Served, revive_to_serve
from meristem.serving.jobs import LONG, Work

MASK = "[MASK]"
TOKENS, TOP = 24, 3
AT_ONCE, REMEMBERED = 4, 64
"""Checkpoints that one request reads, and prompts whose samples are kept."""


class Samples:
    """What was said, by run and prompt."""

    def __init__(self, *, allow_nonfinite: bool = False) -> None:
        self._allow_nonfinite = allow_nonfinite
        self._known: OrderedDict[tuple[str, str], dict[int, dict[str, Any]]] = OrderedDict()

    def work(self, name: str, run: Run) -> Work:
        """A prompt → what each checkpoint makes of it, the earliest first; computed where nobody else waits."""

        def answers(prompts: Sequence[str]) -> list[list[dict[str, Any]]]:
            return [self._said(name, run, prompt) for prompt in prompts]

        return Work((name, "samples"), lambda prompt: (prompt, 1), answers, lambda read, size: LONG + 1)

    def _said(self, name: str, run: Run, prompt: str) -> list[dict[str, Any]]:
        known = self._known.setdefault((name, prompt), {})
        self._known.move_to_end((name, prompt))
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        there = [step for step in layout.steps(run.checkpoints) if step not in known][:AT_ONCE]
        for step in there:
            try:
                revived = revive_to_serve(run.path, allow_nonfinite=self._allow_nonfinite, step=step)
                known[step] = {"step": step, **sample(Served(name, revived), prompt)}
            except Refused:
                raise
            except MeristemError as error:  # a checkpoint that has just gone, or one that cannot be read
                known[step] = {"step": step, "text": "", "notice": str(error)}
        return [known[step] for step in sorted(known)]


def sample(run: Served, prompt: str) -> dict[str, Any]:
    """What a model makes of a prompt: words for its masks, or how it goes on, the likeliest way."""
    if "fill" in run.can and MASK in prompt:
        (found,) = fill_many(run.model, run.tokenizer, [masked(run.tokenizer, prompt)], top=TOP)
        words = [[{"token": c.token, "score": c.probability} for c in one.candidates] for one in found]
        return {"text": prompt, "masks": words}
    if "generate" not in run.can:
        told = f": leave a word out as {MASK}" if "fill" in run.can else ", and neither fills nor writes"
        raise Refused(422, f"{run.name} cannot go on from a text{told}")
    settings = SamplingSettings.model_validate({"greedy": True, "max_tokens": TOKENS})
    ((written,),) = write(run.model, run.tokenizer, [prompt], settings)
    return {"text": written.text}
