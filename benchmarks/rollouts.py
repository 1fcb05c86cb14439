"""Rollouts for policy gradients compared with transformers' `generate` with sampling: same weights, alternated.

    python -m benchmarks.rollouts [--prompts 16] [--count 4] [--tokens 48] [--repeats 5]

Both sides sample `count` texts per prompt at temperature 1 from the full vocabulary with KV caches; no text may end
early, so that both generate the same number of tokens. Ours also returns the log-probability of each token.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from benchmarks.generation import ours, theirs
from benchmarks.side_by_side import alternate, ratio, table
from meristem.generation.generation_inputs import GenerationInputs
from meristem.generation.rollout import RolloutConfig, sample_rollouts

VOCABULARIES = (8192, 30522)


def line(vocabulary: int, options: argparse.Namespace) -> list[str]:
    """Measure one vocabulary size; a row of the table."""
    model = ours(vocabulary)
    other = theirs(model, vocabulary)
    seeded = torch.Generator().manual_seed(1)
    prompts = torch.randint(vocabulary, (options.prompts, options.prompt_tokens), generator=seeded)
    starts = [GenerationInputs(prompt_ids=prompt.tolist()) for prompt in prompts]
    numbers = [np.random.default_rng(n).random((options.count, options.tokens)) for n in range(options.prompts)]
    rollout_config = RolloutConfig(max_new_tokens=options.tokens, end_id=None)

    def our_rollout() -> object:
        return sample_rollouts(model, starts, numbers, rollout_config)

    @torch.inference_mode()
    def generated() -> object:
        return other.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=options.tokens,
                              do_sample=True, top_k=0, num_return_sequences=options.count, use_cache=True,
                              pad_token_id=0)  # fmt: skip

    timings = alternate({"ours": our_rollout, "theirs": generated}, repeats=options.repeats)
    middle, low, high = ratio(timings, "ours", "theirs")
    num_tokens = options.prompts * options.count * options.tokens
    speeds = [f"{num_tokens / timings[side].median:,.0f}" for side in ("theirs", "ours")]
    return [f"{vocabulary:,}", *speeds, f"{middle:.2f}×", f"{low:.2f} – {high:.2f}"]


def main() -> None:
    """Measure every vocabulary size and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("prompts", 16), ("count", 4), ("tokens", 48), ("repeats", 5), ("prompt-tokens", 16)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    rows = [line(vocabulary, options) for vocabulary in VOCABULARIES]
    print(table(["vocabulary", "transformers, tokens/s", "ours, tokens/s", "ratio", "quartiles"], rows))


if __name__ == "__main__":
    main()
