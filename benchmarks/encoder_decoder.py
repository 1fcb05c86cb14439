"""Encoder-decoder training steps and generation compared with transformers' BART: 4 + 4 layers × 256, 128 tokens.

python -m benchmarks.encoder_decoder [--repeats 9] [--no-writing]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.side_by_side import alternate, ratio, table
from meristem.blocks.heads.vocabulary import VocabularyHead
from meristem.generation.incremental_decoder import DecodeSession, limit_threads
from meristem.interfaces.backbone import Head, Model
from meristem.models.transformer import Transformer, TransformerSettings

LAYERS, WIDTH, HEADS, INNER, LENGTH, ROWS = 4, 256, 4, 1024, 128, 16
BART = {
    "norm_position": "post",
    "position_encoding": "learned",
    "activation": "gelu",
    "scale_embeddings": False,
    "embedding_norm": True,
}
START = 2


def sides(vocabulary: int, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Source ids, decoder input ids and labels."""
    generator = torch.Generator().manual_seed(0)
    source, target = torch.randint(5, vocabulary, (2, rows, LENGTH), generator=generator)
    return source, torch.cat([torch.full((rows, 1), START), target[:, :-1]], 1), target


def ours(vocabulary: int) -> Model:
    """Our BART."""
    settings = TransformerSettings.model_validate(
        {**BART, "layers": LAYERS, "hidden_size": WIDTH, "heads": HEADS, "ffn_size": INNER, "max_length": LENGTH}
    )
    return Model(Transformer(settings, vocabulary), {"seq2seq": Head("vocabulary")})


def theirs(vocabulary: int) -> Any:
    """Transformers' BART of the same shape, SDPA attention."""
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(
        vocab_size=vocabulary,
        d_model=WIDTH,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=INNER,
        decoder_ffn_dim=INNER,
        max_position_embeddings=LENGTH,
        dropout=0.0,
        attn_implementation="sdpa",
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=None,
        decoder_start_token_id=START,
        forced_eos_token_id=None,
    )
    return BartForConditionalGeneration(config)


def our_step(vocabulary: int) -> Callable[[], object]:
    """Forward, loss, backward, fused AdamW."""
    model = ours(vocabulary).train()
    source, tokens, target = sides(vocabulary, ROWS)
    head = model.heads["seq2seq"]
    assert isinstance(head, VocabularyHead)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        hidden = model.backbone(source=source, tokens=tokens)
        (head.compute_loss(hidden.last_hidden_state.flatten(0, 1), target.flatten()).total / target.numel()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def their_step(vocabulary: int) -> Callable[[], object]:
    """The same step of theirs."""
    model = theirs(vocabulary).train()
    source, tokens, target = sides(vocabulary, ROWS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        model(input_ids=source, decoder_input_ids=tokens, labels=target, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def our_writing(vocabulary: int, rows: int, new: int) -> Callable[[], object]:
    """Greedy generation of `new` tokens from sources of full length."""
    model = ours(vocabulary).eval()
    source = sides(vocabulary, rows)[0]

    def write() -> None:
        with limit_threads(rows):
            session = DecodeSession(model, torch.full((rows, 1), START), capacity=new + 1, source=source)
            for _ in range(new):
                session.decode_step(session.logits.argmax(-1))

    return write


def their_writing(vocabulary: int, rows: int, new: int) -> Callable[[], object]:
    """The same with generate()."""
    model = theirs(vocabulary).eval()
    source = sides(vocabulary, rows)[0]

    def write() -> None:
        with limit_threads(rows):
            model.generate(
                input_ids=source,
                attention_mask=torch.ones_like(source),
                max_new_tokens=new,
                min_new_tokens=new,
                do_sample=False,
                num_beams=1,
            )

    return write


def main() -> None:
    """Every case, printed as a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--no-writing", action="store_true")
    options = parser.parse_args()
    cases: dict[str, tuple[dict[str, Callable[[], object]], int]] = {}
    for vocabulary in (30_522, 8_192):
        steps = {"ours": our_step(vocabulary), "theirs": their_step(vocabulary)}
        cases[f"step, {vocabulary:,} words"] = steps, 2 * ROWS * LENGTH
    for rows in () if options.no_writing else (1, 16):
        writing = {"ours": our_writing(30_522, rows, 64), "theirs": their_writing(30_522, rows, 64)}
        cases[f"writing, {rows} rows"] = writing, rows * 64
    lines = []
    for name, (implementations, tokens) in cases.items():
        timings = alternate(implementations, repeats=options.repeats, warmup=2)
        faster, low, high = ratio(timings, "ours", "theirs")
        speeds = [f"{tokens / timings[side].median:,.0f}" for side in ("ours", "theirs")]
        lines.append([name, *speeds, f"{faster:.2f}× ({low:.2f}–{high:.2f})"])
        print(lines[-1], flush=True)
    print(table(["case", "ours tok/s", "transformers tok/s", "ratio (quartiles)"], lines))


if __name__ == "__main__":
    main()
