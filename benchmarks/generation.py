"""Greedy generation with a KV cache compared with transformers' `generate`: same weights and prompts, alternated.

    python benchmarks/generation.py --vocabulary 8192 30522 --prompts 1 16 --repeats 5

Prints a markdown table of medians. Both sides use the same number of threads, a key-value cache, SDPA
attention and no gradient; the tokens must be the same.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from meristem.generation.continuous_batching import ContinuousBatch, SequenceState, TokenSampler
from meristem.generation.generation_inputs import GenerationInputs
from meristem.generation.sampling import SamplingSettings, seeded_uniforms
from meristem.interfaces.backbone import Head, Model
from meristem.models.gpt2 import GPT2, GPT2Settings

LAYERS, WIDTH, HEADS, LENGTH = 4, 256, 4, 512
NAMES = {
    "attention_norm": "ln_1",
    "feed_forward_norm": "ln_2",
    "attention.project": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "feed_forward.widen": "mlp.c_fc",
    "feed_forward.narrow": "mlp.c_proj",
}


def ours(vocabulary: int) -> Model:
    """A model with large random weights, so that greedy choices are clear and the text does not repeat."""
    torch.manual_seed(0)
    settings = GPT2Settings.model_validate(
        {
            "layers": LAYERS,
            "hidden_size": WIDTH,
            "heads": HEADS,
            "max_length": LENGTH,
            "init_std": 0.15,
            "output_init": "normal",
        }
    )
    return Model(GPT2(settings, vocabulary), {"clm": Head("vocabulary")}).eval()


def theirs(model: Model, vocabulary: int) -> GPT2LMHeadModel:
    """The same weights in transformers' model."""
    other = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocabulary,
            n_positions=LENGTH,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            attn_implementation="sdpa",
            bos_token_id=0,
            eos_token_id=None,
        )
    )
    state = model.state_dict()
    out = {
        "transformer.wte.weight": state["backbone.embed.tokens.weight"],
        "lm_head.weight": state["backbone.embed.tokens.weight"],
        "transformer.wpe.weight": state["backbone.embed.positions.weight"],
        "transformer.ln_f.weight": state["backbone.stack.final_norm.weight"],
        "transformer.ln_f.bias": state["backbone.stack.final_norm.bias"],
    }
    for layer in range(LAYERS):
        for our_name, other_name in NAMES.items():
            for kind in ("weight", "bias"):
                value = state[f"backbone.stack.layers.{layer}.{our_name}.{kind}"]
                out[f"transformer.h.{layer}.{other_name}.{kind}"] = value.t() if value.ndim == 2 else value
    other.load_state_dict(out)
    return other.eval()


def write(model: Model, prompts: Tensor, number: int) -> Tensor:
    """Greedy decoding with our decode engine, its construction included."""
    sampler = TokenSampler.from_settings(SamplingSettings.model_validate({"greedy": True}), (), None)
    sequences = [
        SequenceState(GenerationInputs(prompt_ids=prompt), sampler, seeded_uniforms(0), number)
        for prompt in prompts.tolist()
    ]
    batch = ContinuousBatch(model)
    for sequence in sequences:
        batch.add(sequence)
    batch.run()
    return torch.tensor([sequence.token_ids for sequence in sequences])


@torch.inference_mode()
def generate(model: GPT2LMHeadModel, prompts: Tensor, number: int) -> Tensor:
    """Greedy decoding with transformers."""
    out = model.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        max_new_tokens=number,
        do_sample=False,
        use_cache=True,
        pad_token_id=0,
    )
    return out[:, prompts.shape[1] :]


def seconds(write_all: Callable[[Tensor, int], Tensor], prompts: Tensor, number: int) -> float:
    """Wall-clock of one call."""
    start = time.perf_counter()
    write_all(prompts, number)
    return time.perf_counter() - start


def line(vocabulary: int, rows: int, options: argparse.Namespace) -> str:
    """Measure one combination; a row of the table."""
    model = ours(vocabulary)
    generate_ours, other = partial(write, model), partial(generate, theirs(model, vocabulary))
    seeded = torch.Generator().manual_seed(rows)
    prompts = torch.randint(vocabulary, (rows, options.prompt_tokens), generator=seeded)
    is_same = torch.equal(
        generate_ours(prompts, options.tokens), other(prompts, options.tokens)
    )  # this also warms both up
    pairs = [
        (seconds(other, prompts, options.tokens), seconds(generate_ours, prompts, options.tokens))
        for _ in range(options.repeats)
    ]
    slow, fast = (rows * options.tokens / statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = " ".join(f"{a / b:.2f}" for a, b in pairs)
    return (
        f"| {vocabulary:,} | {rows} | {slow:,.0f} | {fast:,.0f} | {fast / slow:.2f}× | {ratios} "
        f"| {'yes' if is_same else 'NO'} |"
    )


def main() -> None:
    """Measure every combination and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[8192, 30522])
    parser.add_argument("--prompts", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--prompt-tokens", type=int, default=16)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{LAYERS} × {WIDTH}, {options.tokens} new tokens, {options.threads} threads, medians of {options.repeats}\n")
    print("| vocabulary | prompts | transformers, tokens/s | ours, tokens/s | ratio | each repeat | same tokens |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for vocabulary in options.vocabulary:
        for rows in options.prompts:
            print(line(vocabulary, rows, options), flush=True)


if __name__ == "__main__":
    main()
