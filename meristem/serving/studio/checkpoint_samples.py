"""Samples per checkpoint: the same prompt for each checkpoint of a run, cached beyond the checkpoint's deletion."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from meristem.checkpoint import folder_layout
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.generation.fill import fill_many, parse_masked_text
from meristem.generation.generate import generate
from meristem.generation.settings import SamplingSettings
from meristem.serving.errors import RequestError
from meristem.serving.job_queue import LONG_JOB_TOKENS, RequestWork
from meristem.serving.model_registry import ServedRun, load_run_to_serve

MASK = "[MASK]"
MAX_NEW_TOKENS, TOP_CANDIDATES = 24, 3
CHECKPOINTS_PER_REQUEST, MAX_CACHED_PROMPTS = 4, 64
"""Checkpoints sampled per request, and prompts whose samples are cached."""


class CheckpointSamples:
    """Cached samples by run and prompt."""

    def __init__(self, *, allow_nonfinite: bool = False) -> None:
        self._allow_nonfinite = allow_nonfinite
        self._cache: OrderedDict[tuple[str, str], dict[int, dict[str, Any]]] = OrderedDict()

    def work(self, name: str, run: RunFolder) -> RequestWork:
        """A prompt → the sample of each checkpoint, earliest first; scheduled as a long job."""

        def compute(prompts: Sequence[str]) -> list[list[dict[str, Any]]]:
            return [self._sample_checkpoints(name, run, prompt) for prompt in prompts]

        return RequestWork(
            (name, "samples"), lambda prompt: (prompt, 1), compute, lambda inputs, size: LONG_JOB_TOKENS + 1
        )

    def _sample_checkpoints(self, name: str, run: RunFolder, prompt: str) -> list[dict[str, Any]]:
        samples = self._cache.setdefault((name, prompt), {})
        self._cache.move_to_end((name, prompt))
        while len(self._cache) > MAX_CACHED_PROMPTS:
            self._cache.popitem(last=False)
        steps = [step for step in folder_layout.list_steps(run.checkpoints) if step not in samples]
        for step in steps[:CHECKPOINTS_PER_REQUEST]:
            try:
                loaded_run = load_run_to_serve(run.path, allow_nonfinite=self._allow_nonfinite, step=step)
                samples[step] = {"step": step, **sample_prompt(ServedRun(name, loaded_run), prompt)}
            except RequestError:
                raise
            except MeristemError as error:  # a checkpoint that was just deleted, or that cannot be read
                samples[step] = {"step": step, "text": "", "notice": str(error)}
        return [samples[step] for step in sorted(samples)]


def sample_prompt(run: ServedRun, prompt: str) -> dict[str, Any]:
    """Candidates for the masks of a prompt, or its greedy continuation."""
    if "fill" in run.routes and MASK in prompt:
        (masks,) = fill_many(run.model, run.tokenizer, [parse_masked_text(run.tokenizer, prompt)], top=TOP_CANDIDATES)
        candidates = [
            [{"token": candidate.token, "score": candidate.probability} for candidate in mask.candidates]
            for mask in masks
        ]
        return {"text": prompt, "masks": candidates}
    if "generate" not in run.routes:
        hint = f": put {MASK} into the prompt" if "fill" in run.routes else " or fill masks"
        raise RequestError(422, f"{run.name} cannot generate text{hint}")
    settings = SamplingSettings.model_validate({"greedy": True, "max_tokens": MAX_NEW_TOKENS})
    ((generated,),) = generate(run.model, run.tokenizer, [prompt], settings)
    return {"text": generated.text}
