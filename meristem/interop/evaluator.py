"""A run as a model of lm-eval (the extra `eval`), which knows hundreds of benchmarks.

From Python: `lm_eval.simple_evaluate(model=Evaluator("runs/x"), tasks=["arc_easy"])`. lm-eval looks for models in its
own package alone, so that its command line is begun from here: the same options, with `--model meristem` known to it.

    python -m meristem.interop.evaluator run --model meristem --model_args run=runs/x --tasks arc_easy

Causal runs answer exactly; masked ones by a pseudo-log-likelihood of the continuation, each of its tokens hidden once
while all others are seen; encoder-decoders read the context as their source.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from meristem.checkpoint.revive import revive
from meristem.errors import MeristemError
from meristem.generation.continued import continued
from meristem.generation.sampling import SamplingSettings
from meristem.generation.score import score
from meristem.generation.way import way_for
from meristem.generation.write import UNMASKED, write
from meristem.settings import build

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

try:  # a class of lm-eval's own kind cannot be told without it, and nothing else here imports this file
    from lm_eval.api.model import LM
    from lm_eval.api.registry import model_registry
except ImportError as error:
    raise MeristemError('evaluating with lm-eval needs it: pip install "meristem[eval]"') from error

NAME = "meristem"
LONGEST = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Names under which tasks say how much may be written."""


class Evaluator(LM):  # type: ignore[misc]  # lm-eval is untyped
    """A run that lm-eval asks for probabilities and texts."""

    def __init__(
        self,
        run: str | Path,
        *,
        which: Literal["latest", "best"] | None = None,
        step: int | None = None,
        device: str | None = None,
        longest: int = 256,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
    ) -> None:
        """Open a run; batch sizes are taken and not needed, since rows of like length are read together."""
        super().__init__()
        self.revived = revive(Path(run), which=which, step=step)
        self.model, self.tokenizer = self.revived.learner.model, self.revived.tokenizer
        if device is not None and (torch.cuda.is_available() or not device.startswith("cuda")):
            self.model.to(device)  # its command line asks for the first GPU, whether or not there is one
        self._longest = longest
        way_for(self.model, "score", source=True)  # one without a language-model head is refused before any task begins

    @property
    def tokenizer_name(self) -> str:
        """What lm-eval keeps its cached requests under."""
        return f"{NAME}-{self.tokenizer.digest[:12]}"

    def loglikelihood(self, requests: Sequence[Instance]) -> list[tuple[float, bool]]:
        """The log-probability of each continuation after its context, and whether it is the likeliest one."""
        found = continued(self.model, self.tokenizer, [request.args for request in requests])
        out = [(one.logprob, one.best) for one in found]
        for request, answer in zip(requests, out, strict=True):
            self.cache_hook.add_partial("loglikelihood", request.args, answer)
        return out

    def loglikelihood_rolling(self, requests: Sequence[Instance]) -> list[float]:
        """The log-probability of each text, in overlapping windows where it is longer than the model."""
        texts = [request.args[0] for request in requests]
        out = [one.logprob for one in score(self.model, self.tokenizer, texts)]
        for request, answer in zip(requests, out, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, answer)
        return out

    def generate_until(self, requests: Sequence[Instance]) -> list[str]:
        """What each context is gone on with, up to a stop string; those with the same settings are written together."""
        out = [""] * len(requests)
        alike: dict[SamplingSettings, list[int]] = defaultdict(list)
        for number, request in enumerate(requests):
            alike[self._settings(request.args[1])].append(number)
        for settings, numbers in alike.items():
            numbers.sort(key=lambda number: len(requests[number].args[0]))
            prompts = [requests[number].args[0] for number in numbers]
            for number, (written, *_) in zip(
                numbers, write(self.model, self.tokenizer, prompts, settings), strict=True
            ):
                out[number] = written.text
                self.cache_hook.add_partial("generate_until", requests[number].args, written.text)
        return out

    def _settings(self, told: dict[str, Any]) -> SamplingSettings:
        """Greedy unless a task asks to sample; a masked model leaves half of its length to the context."""
        until = told.get("until") or ()
        most = next((told[name] for name in LONGEST if told.get(name) is not None), self._longest)
        if way_for(self.model, "generate") in UNMASKED:
            most = min(most, self.model.backbone.length // 2)
        chosen: dict[str, Any] = {
            "stop": (until,) if isinstance(until, str) else tuple(until),
            "max_tokens": most,
            "greedy": not told.get("do_sample") or told.get("temperature") == 0,
        }
        if not chosen["greedy"]:
            chosen |= {key: told[key] for key in ("temperature", "top_k", "top_p") if told.get(key) is not None}
        settings = build(SamplingSettings, chosen, "generation_kwargs")
        assert isinstance(settings, SamplingSettings)
        return settings


model_registry.register(NAME, target="meristem.interop.evaluator:Evaluator")


def main() -> None:
    """The command line of lm-eval, which now knows a run."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
