"""A run as a model of lm-eval (the extra `eval`), for its hundreds of benchmarks.

From Python: `lm_eval.simple_evaluate(model=MeristemLM("runs/x"), tasks=["arc_easy"])`. lm-eval looks for models in its
own package only, so its command line is started from here: the same options, with `--model meristem` registered.

    python -m meristem.interop.lm_eval_model run --model meristem --model_args run=runs/x --tasks arc_easy

Causal runs give exact log-likelihoods; masked ones a pseudo-log-likelihood of the continuation, each of its tokens
masked once; encoder-decoders read the context as their source.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from meristem.checkpoint.load_run import load_run
from meristem.config.errors import MeristemError
from meristem.config.validation import build_settings
from meristem.generation.continuation_score import score_continuations
from meristem.generation.generate import UNMASKING_KINDS, generate
from meristem.generation.head_selection import lm_kind_for
from meristem.generation.score import score
from meristem.generation.settings import SamplingSettings

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

try:  # a subclass of lm-eval's class needs it, and nothing else here imports this file
    from lm_eval.api.model import LM
    from lm_eval.api.registry import model_registry
except ImportError as error:
    raise MeristemError('evaluating with lm-eval needs lm-eval: pip install "meristem-lm[eval]"') from error

NAME = "meristem"
MAX_TOKENS_KEYS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Names of the maximum number of new tokens in lm-eval tasks."""


class MeristemLM(LM):  # type: ignore[misc]  # lm-eval is untyped
    """The lm-eval interface of a run: log-likelihoods and generation."""

    def __init__(
        self,
        run: str | Path,
        *,
        which: Literal["latest", "best"] | None = None,
        step: int | None = None,
        device: str | None = None,
        max_new_tokens: int = 256,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
    ) -> None:
        """Open a run; batch sizes are accepted and ignored, since rows are batched by length."""
        super().__init__()
        self.loaded = load_run(Path(run), which=which, step=step)
        self.model, self.tokenizer = self.loaded.learner.model, self.loaded.tokenizer
        if device is not None and (torch.cuda.is_available() or not device.startswith("cuda")):
            self.model.to(device)  # its command line asks for the first GPU, whether or not there is one
        self._max_new_tokens = max_new_tokens
        # a run without a language-model head fails before any task starts
        lm_kind_for(self.model, "score", source=True)

    @property
    def tokenizer_name(self) -> str:
        """The key of lm-eval's request cache."""
        return f"{NAME}-{self.tokenizer.digest[:12]}"

    def loglikelihood(self, requests: Sequence[Instance]) -> list[tuple[float, bool]]:
        """The log-probability of each continuation given its context, and whether greedy decoding would produce it."""
        scores = score_continuations(self.model, self.tokenizer, [request.args for request in requests])
        out = [(scored.logprob, scored.best) for scored in scores]
        for request, answer in zip(requests, out, strict=True):
            self.cache_hook.add_partial("loglikelihood", request.args, answer)
        return out

    def loglikelihood_rolling(self, requests: Sequence[Instance]) -> list[float]:
        """The log-probability of each text, in overlapping windows if it is longer than the model."""
        texts = [request.args[0] for request in requests]
        out = [scored.logprob for scored in score(self.model, self.tokenizer, texts)]
        for request, answer in zip(requests, out, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, answer)
        return out

    def generate_until(self, requests: Sequence[Instance]) -> list[str]:
        """The continuation of each context up to a stop string; requests with the same settings are batched."""
        out = [""] * len(requests)
        by_settings: dict[SamplingSettings, list[int]] = defaultdict(list)
        for index, request in enumerate(requests):
            by_settings[self._sampling_settings(request.args[1])].append(index)
        for settings, indices in by_settings.items():
            indices.sort(key=lambda index: len(requests[index].args[0]))
            prompts = [requests[index].args[0] for index in indices]
            for index, (generated, *_) in zip(
                indices, generate(self.model, self.tokenizer, prompts, settings), strict=True
            ):
                out[index] = generated.text
                self.cache_hook.add_partial("generate_until", requests[index].args, generated.text)
        return out

    def _sampling_settings(self, generation_kwargs: dict[str, Any]) -> SamplingSettings:
        """Greedy unless a task asks for sampling; a masked model leaves half of its length to the context."""
        until = generation_kwargs.get("until") or ()
        max_tokens = next(
            (generation_kwargs[name] for name in MAX_TOKENS_KEYS if generation_kwargs.get(name) is not None),
            self._max_new_tokens,
        )
        if lm_kind_for(self.model, "generate") in UNMASKING_KINDS:
            max_tokens = min(max_tokens, self.model.backbone.max_length // 2)
        sampling: dict[str, Any] = {
            "stop": (until,) if isinstance(until, str) else tuple(until),
            "max_tokens": max_tokens,
            "greedy": not generation_kwargs.get("do_sample") or generation_kwargs.get("temperature") == 0,
            "seed": 0,  # an evaluation gives the same numbers again
        }
        if not sampling["greedy"]:
            sampling |= {
                key: generation_kwargs[key]
                for key in ("temperature", "top_k", "top_p")
                if generation_kwargs.get(key) is not None
            }
        settings = build_settings(SamplingSettings, sampling, "generation_kwargs")
        assert isinstance(settings, SamplingSettings)
        return settings


model_registry.register(NAME, target="meristem.interop.lm_eval_model:MeristemLM")


def main() -> None:
    """The command line of lm-eval with the model `meristem` registered."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
