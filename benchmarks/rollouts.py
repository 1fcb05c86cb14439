"""Texts written for rewards, ours against transformers' `generate` with sampling: same weights, same prompts, in turns.

    python -m benchmarks.rollouts [--prompts 16] [--count 4] [--tokens 48] [--repeats 5]

Both sides draw at temperature 1 from the whole vocabulary, `count` texts for every prompt, with key-value caches; no
text may end early, so that both write the same number of tokens. Ours gives the log-probability of each token as well.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from benchmarks.generation import ours, theirs
from benchmarks.side_by_side import alternate, ratio, table
from meristem.generation.given import Given
from meristem.generation.rolling import Way, roll

VOCABULARIES = (8192, 30522)


def line(vocabulary: int, given: argparse.Namespace) -> list[str]:
    """One vocabulary measured: a row of the table."""
    model = ours(vocabulary)
    other = theirs(model, vocabulary)
    seeded = torch.Generator().manual_seed(1)
    prompts = torch.randint(vocabulary, (given.prompts, given.prompt_tokens), generator=seeded)
    starts = [Given(prompt=prompt.tolist()) for prompt in prompts]
    numbers = [np.random.default_rng(n).random((given.count, given.tokens)) for n in range(given.prompts)]
    way = Way(most=given.tokens, end=None)

    def rolled() -> object:
        return roll(model, starts, numbers, way)

    @torch.inference_mode()
    def generated() -> object:
        return other.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=given.tokens,
                              do_sample=True, top_k=0, num_return_sequences=given.count, use_cache=True,
                              pad_token_id=0)  # fmt: skip

    took = alternate({"ours": rolled, "theirs": generated}, repeats=given.repeats)
    middle, low, high = ratio(took, "ours", "theirs")
    written = given.prompts * given.count * given.tokens
    speeds = [f"{written / took[side].median:,.0f}" for side in ("theirs", "ours")]
    return [f"{vocabulary:,}", *speeds, f"{middle:.2f}×", f"{low:.2f} – {high:.2f}"]


def main() -> None:
    """Measure every vocabulary and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("prompts", 16), ("count", 4), ("tokens", 48), ("repeats", 5), ("prompt-tokens", 16)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    rows = [line(vocabulary, given) for vocabulary in VOCABULARIES]
    print(table(["vocabulary", "transformers, tokens/s", "ours, tokens/s", "ratio", "quartiles"], rows))


if __name__ == "__main__":
    main()
