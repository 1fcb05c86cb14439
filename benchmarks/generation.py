"""Generation with a KV cache compared with transformers' `generate`: same weights and prompts, alternated.

    python -m benchmarks.generation --vocabulary 8192 30522 --prompts 1 16 --repeats 5 [--sampled] [--processor-time]

Prints a markdown table of medians. Both sides use the same number of threads, a key-value cache, SDPA attention and no
gradient; greedy tokens in float32 must be the same. Ours with int8 weights is timed as well, and transformers under
bfloat16 autocast; ratios are against the faster side of transformers.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.side_by_side import alternate, ratio, table
from meristem.generation.continuous_batching import ContinuousBatch, SequenceState, TokenSampler
from meristem.generation.generation_inputs import GenerationInputs
from meristem.generation.sampling import seeded_uniforms
from meristem.generation.settings import SamplingSettings
from meristem.interfaces.backbone import Head, Model
from meristem.learning.quantization import quantize_model
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


HEADER = [
    "vocabulary", "prompts", "ours", "ours, int8", "transformers", "transformers, bfloat16 autocast",
    "ours against the better", "int8 against the better", "same greedy tokens",
]  # fmt: skip


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


def write(model: Model, prompts: Tensor, number: int, *, sampled: bool = False) -> Tensor:
    """Decoding with our decode engine, its construction included."""
    sampler = TokenSampler.from_settings(SamplingSettings.model_validate({"greedy": not sampled}), (), None)
    sequences = [
        SequenceState(GenerationInputs(prompt_ids=prompt), sampler, seeded_uniforms(0, index), number)
        for index, prompt in enumerate(prompts.tolist())
    ]
    batch = ContinuousBatch(model)
    for sequence in sequences:
        batch.add(sequence)
    batch.run()
    return torch.tensor([sequence.token_ids for sequence in sequences])


@torch.inference_mode()
def generate(
    model: GPT2LMHeadModel, prompts: Tensor, number: int, *, sampled: bool = False, bfloat16: bool = False
) -> Tensor:
    """Decoding with transformers."""
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        out = model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=number,
            do_sample=sampled,
            top_k=0 if sampled else None,
            use_cache=True,
            pad_token_id=0,
        )
    return out[:, prompts.shape[1] :]


def line(vocabulary: int, rows: int, options: argparse.Namespace) -> list[str]:
    """Measure one combination; a row of the table."""
    model, quantized = ours(vocabulary), ours(vocabulary)
    quantize_model(quantized)
    other, sampled = theirs(model, vocabulary), options.sampled
    prompts = torch.randint(vocabulary, (rows, options.prompt_tokens), generator=torch.Generator().manual_seed(rows))
    arguments = prompts, options.tokens
    is_same = torch.equal(write(model, *arguments), generate(other, *arguments))
    timings = alternate(
        {
            "float32": partial(write, model, *arguments, sampled=sampled),
            "int8": partial(write, quantized, *arguments, sampled=sampled),
            "transformers": partial(generate, other, *arguments, sampled=sampled),
            "autocast": partial(generate, other, *arguments, sampled=sampled, bfloat16=True),
        },
        repeats=options.repeats,
        clock=time.process_time if options.processor_time else time.perf_counter,
    )
    best = min(("transformers", "autocast"), key=lambda side: timings[side].median)
    speeds = [f"{rows * options.tokens / timing.median:,.0f}" for timing in timings.values()]
    ratios = ["{:.2f}× ({:.2f}–{:.2f})".format(*ratio(timings, side, best)) for side in ("float32", "int8")]
    return [f"{vocabulary:,}", str(rows), *speeds, *ratios, "yes" if is_same else "NO"]


def main() -> None:
    """Measure every combination and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[8192, 30522])
    parser.add_argument("--prompts", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--prompt-tokens", type=int, default=16)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--sampled", action="store_true", help="sample at temperature 1")
    parser.add_argument("--processor-time", action="store_true", help="for a busy machine")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{LAYERS} × {WIDTH}, {options.tokens} new tokens, {options.threads} threads, medians of {options.repeats}\n")
    print("Tokens per second.\n")
    rows = [line(vocabulary, prompts, options) for vocabulary in options.vocabulary for prompts in options.prompts]
    print(table(HEADER, rows))


if __name__ == "__main__":
    main()
