"""Generation with encoder-decoders: decode sessions, generated texts and errors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from meristem.config.errors import MeristemError
from meristem.generation.fill import fill
from meristem.generation.generate import generate
from meristem.generation.generation_inputs import build_generation_inputs, collate_inputs
from meristem.generation.head_selection import lm_kind_for
from meristem.generation.incremental_decoder import DecodeSession
from meristem.generation.score import score
from meristem.generation.settings import SamplingSettings
from meristem.inputs.template import InputTemplate
from meristem.interfaces.backbone import Model
from meristem.tokenizers.settings import TokenizerSettings
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.tokenizers.train import train_tokenizer

VOCABULARY, LENGTH = 61, 24
T5 = {
    "norm_position": "pre",
    "position_encoding": "none",
    "norm": "rms",
    "bias": False,
    "relative_buckets": 8,
    "relative_max_distance": 10,
    "scale_embeddings": False,
    "scale_attention": False,
    "scale_output": True,
}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "uneven": {"layers": 1, "decoder_layers": 3},
    "bart": {"position_encoding": "learned", "embedding_norm": True, "scale_embeddings": False, "activation": "gelu"},
    "t5": T5,
    "t5-banded": {**T5, "activation": "geglu", "tie_embeddings": False, "attention_window": 4},
    "rotary": {
        "position_encoding": "rotary",
        "norm_position": "pre",
        "kv_heads": 2,
        "attention_window": 3,
        "attention_window_every": 2,
        "qk_norm": True,
    },
}
SOURCES = ["The old gardener", "老园丁", "My sister sold seventeen boats and a small"]


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, make: Any) -> Model:
    return make("transformer", ("seq2seq",), VOCABULARY, **KINDS[request.param])  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def writer(tokenizer: Tokenizer, make: Any) -> Model:
    return make("transformer", ("seq2seq",), tokenizer.vocab_size)  # type: ignore[no-any-return]


def texts(sizes: list[int], seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(VOCABULARY, (size,), generator=generator).tolist() for size in sizes]


def padded(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, rows))
    return torch.tensor([row + [5] * (longest - len(row)) for row in rows]), torch.tensor([len(row) for row in rows])


def beside(rows: list[list[int]]) -> dict[str, Tensor]:
    """Sources as a session takes them, told apart from padding where they are ragged."""
    source, sizes = padded(rows)
    present = torch.arange(source.shape[1]) < sizes[:, None]
    return {"source": source} if present.all() else {"source": source, "source_present": present}


def agrees(session: DecodeSession, model: Model, sources: list[list[int]], rows: list[list[int]]) -> None:
    """The next token's logits the plain way: both sides read at once, each row alone, without any cache."""
    with torch.inference_mode():
        last = [
            model.backbone(source=torch.tensor([s]), tokens=torch.tensor([r])).last_hidden_state[0, -1]
            for s, r in zip(sources, rows, strict=True)
        ]
        expected = model.heads["seq2seq"](torch.stack(last))
    torch.testing.assert_close(session.logits, expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize(
    "sizes", [([5], [1]), ([7, 7, 7], [1, 1, 1]), ([3, 9, 1], [2, 1, 6])], ids=["one", "even", "ragged"]
)
def test_cached_is_uncached_after_every_decode_step(model: Model, sizes: tuple[list[int], list[int]]) -> None:
    sources, rows = texts(sizes[0], seed=100), texts(sizes[1])
    tokens, lengths = padded(rows)
    session = DecodeSession(model, tokens, lengths, capacity=5, **beside(sources))
    for step in range(8):
        agrees(session, model, sources, rows)
        new = texts([1] * len(rows), seed=step + 1)
        session.decode_step(torch.tensor(new)[:, 0])
        rows = [row + new_ids for row, new_ids in zip(rows, new, strict=True)]
    agrees(session, model, sources, rows)


def test_select_rows_keeps_each_rows_source(model: Model) -> None:
    sources, rows = texts([3, 8, 5], seed=100), texts([1, 4, 2])
    tokens, lengths = padded(rows)
    session = DecodeSession(model, tokens, lengths, capacity=20, **beside(sources))
    for step, selected_rows in enumerate([[2, 0, 1], [1, 1, 2, 0], [3], [0, 0]]):
        session.select_rows(torch.tensor(selected_rows))
        sources, rows = (
            [sources[row_index] for row_index in selected_rows],
            [rows[row_index] for row_index in selected_rows],
        )
        agrees(session, model, sources, rows)
        new = texts([1] * len(rows), seed=50 + step)
        session.decode_step(torch.tensor(new)[:, 0])
        rows = [row + new_ids for row, new_ids in zip(rows, new, strict=True)]
        agrees(session, model, sources, rows)


def test_a_target_longer_than_the_model_goes_on_from_its_last_half(make: Any) -> None:
    model = make("transformer", ("seq2seq",), VOCABULARY, max_length=8)
    sources, rows = texts([3, 8], seed=100), texts([2, 7])
    tokens, lengths = padded(rows)
    session = DecodeSession(model, tokens, lengths, capacity=4, **beside(sources))
    views = [list(row) for row in rows]
    for step in range(12):
        new = texts([1] * len(rows), seed=90 + step)
        views = [(view[-4:] if len(view) == 8 else view) + new_ids for view, new_ids in zip(views, new, strict=True)]
        session.decode_step(torch.tensor(new)[:, 0])
        agrees(session, model, sources, views)


def test_greedy_equals_transformers_bart(make: Any) -> None:
    transformers = pytest.importorskip("transformers")
    ours = make("transformer", ("seq2seq",), VOCABULARY, **KINDS["bart"])
    with torch.no_grad():
        ours.backbone.decoder.layers[1].cross.output.weight.mul_(0.1)  # so that a text does not repeat itself
        ours.backbone.decoder.layers[1].feed_forward.narrow.weight.mul_(0.1)
    theirs = transformers.BartForConditionalGeneration(
        transformers.BartConfig(
            vocab_size=VOCABULARY,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            dropout=0.0,
            decoder_attention_heads=4,
            encoder_ffn_dim=128,
            decoder_ffn_dim=128,
            max_position_embeddings=LENGTH,
            pad_token_id=1,
            bos_token_id=0,
            eos_token_id=None,
            decoder_start_token_id=2,
            forced_eos_token_id=None,
        )
    )
    theirs.load_state_dict(as_bart(ours), strict=False)
    theirs.eval()
    inputs = beside(texts([9, 4, 7, 1, 6, 8, 12, 3], seed=100))
    expected = theirs.generate(
        input_ids=inputs["source"],
        attention_mask=inputs["source_present"].long(),
        max_new_tokens=20,
        do_sample=False,
        num_beams=1,
    )
    session, token_columns = DecodeSession(ours, torch.full((8, 1), 2), capacity=21, **inputs), []
    for _ in range(20):
        token_columns.append(session.logits.argmax(-1))
        session.decode_step(token_columns[-1])
    assert torch.equal(torch.stack(token_columns, 1), expected[:, 1:])
    assert (
        len(set(torch.stack(token_columns, 1).flatten().tolist())) > 3
    )  # a text that repeats one token would show little


def as_bart(model: Model) -> dict[str, Tensor]:
    """Our weights under BART's published names."""
    renamed = {
        "attention_norm": "self_attn_layer_norm",
        "cross_norm": "encoder_attn_layer_norm",
        "feed_forward_norm": "final_layer_norm",
        "feed_forward.widen": "fc1",
        "feed_forward.narrow": "fc2",
        "cross.output": "encoder_attn.out_proj",
        "cross.query": "encoder_attn.q_proj",
        "attention.output": "self_attn.out_proj",
        "enter_source.norm": "encoder.layernorm_embedding",
        "enter_target.norm": "decoder.layernorm_embedding",
        "enter_source.positions": "encoder.embed_positions",
        "enter_target.positions": "decoder.embed_positions",
    }
    table = model.state_dict()["backbone.tokens.weight"]
    shared = ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
    out = {"lm_head.weight": table, **{f"model.{name}.weight": table for name in shared}}
    for name, value in model.backbone.state_dict().items():
        for our_name, their_name in renamed.items():
            name = name.replace(our_name, their_name)
        split = {"attention.project": ("self_attn", "qkv"), "cross.source": ("encoder_attn", "kv")}
        split_name = next(
            (split_name_candidate for split_name_candidate in split if split_name_candidate in name), None
        )
        if split_name is not None:
            their_prefix, parts = split[split_name]
            for part, piece in zip(parts, value.chunk(len(parts)), strict=True):
                out["model." + name.replace(split_name, f"{their_prefix}.{part}_proj")] = piece
        else:
            shift = torch.zeros(2, value.shape[-1]) if "embed_positions" in name else value[:0]
            out[f"model.{name}"] = torch.cat([shift, value])
    return out


# ---------------------------------------------------------------- texts


def test_greedy_is_the_best_token_each_time(writer: Model, tokenizer: Tokenizer) -> None:
    ((completion,),) = generate(writer, tokenizer, ["The old"], SamplingSettings(max_tokens=6, greedy=True))
    start = build_generation_inputs(writer, tokenizer, "The old")
    assert start.prompt_ids == [tokenizer.start]
    target = list(start.prompt_ids)
    for token in completion.tokens:
        with torch.no_grad():
            hidden = writer.backbone(source=start.inputs["source"][None], tokens=torch.tensor([target]))
        logits = writer.heads["seq2seq"](hidden.last_hidden_state[0, -1])
        logits[[n for n in tokenizer.special_mask.nonzero()[0].tolist() if n != tokenizer.end]] = -torch.inf
        assert int(logits.argmax()) == token
        target.append(token)
    assert completion.text == tokenizer.decode(completion.tokens)


def test_a_text_depends_on_its_own_source_and_on_no_other(writer: Model, tokenizer: Tokenizer) -> None:
    settings = SamplingSettings(max_tokens=12, seed=5, temperature=0.7)
    completions = generate(writer, tokenizer, SOURCES, settings, count=2)
    for number, source in enumerate(SOURCES):
        among = [source if index == number else "A small garden" for index in range(number + 1)]
        single = generate(writer, tokenizer, among, settings, count=2)[number]
        assert [text.tokens for text in single] == [text.tokens for text in completions[number]]
    assert len({texts[0].tokens for texts in completions}) == 3


def test_beams_find_what_is_likelier_than_greedy(writer: Model, tokenizer: Tokenizer) -> None:
    for source in SOURCES:
        ((greedy,),) = generate(writer, tokenizer, [source], SamplingSettings(max_tokens=4, min_tokens=4, greedy=True))
        (completions,) = generate(
            writer, tokenizer, [source], SamplingSettings(max_tokens=4, min_tokens=4, beams=8), count=3
        )
        assert completions[0].score >= greedy.score - 1e-4
        assert [hypothesis.score for hypothesis in completions] == sorted(
            (hypothesis.score for hypothesis in completions), reverse=True
        )
        for completion in completions:  # the score is the model's own log-probability of these tokens
            start = build_generation_inputs(writer, tokenizer, source)
            decoder_ids = torch.tensor([[*start.prompt_ids, *completion.tokens[:-1]]])
            with torch.no_grad():
                hidden = writer.backbone(source=start.inputs["source"][None], tokens=decoder_ids)
                logprobs = writer.heads["seq2seq"](hidden.last_hidden_state[0]).log_softmax(-1)
            assert float(logprobs[range(4), completion.tokens].sum()) == pytest.approx(completion.score, abs=1e-3)


def test_sources_are_cut_to_the_models_length(writer: Model, tokenizer: Tokenizer) -> None:
    long = build_generation_inputs(writer, tokenizer, "The old gardener sold boats " * 30).inputs["source"]
    assert len(long) == LENGTH
    starts = [
        build_generation_inputs(writer, tokenizer, text) for text in ("The old", "My sister sold seventeen boats")
    ]
    tokens, sizes, inputs = collate_inputs(starts, torch.device("cpu"))
    assert tokens.tolist() == [[tokenizer.start]] * 2
    assert sizes.tolist() == [1, 1]
    assert inputs["source_present"].sum(1).tolist() == [len(start.inputs["source"]) for start in starts]


def test_a_tokenizer_without_a_start_begins_with_its_end() -> None:
    with_both: Any = SimpleNamespace(start=2, end=3, single_template=None)
    without: Any = SimpleNamespace(start=None, end=3, single_template=None)
    starts = [
        InputTemplate(tokenizer_variant, "encoder_decoder").decoder_start_ids
        for tokenizer_variant in (with_both, without)
    ]
    assert starts == [(2,), (3,)]
    assert InputTemplate(with_both, "encoder_decoder", decoder_start_ids=(3, 2)).decoder_start_ids == (3, 2)


def test_a_start_that_nothing_begins_after_may_be_written(writer: Model, tokenizer: Tokenizer, make: Any) -> None:
    """BART's targets begin after the end token, and the model itself says the start."""
    model = make("transformer", ("seq2seq",), tokenizer.vocab_size)
    with torch.no_grad():  # whatever it reads, this model wants to say the mask, and after it the start
        for parameter in model.backbone.decoder.parameters():
            parameter.zero_()
        model.heads["seq2seq"].weight = torch.nn.Parameter(torch.zeros(tokenizer.vocab_size, 32))
        model.backbone.decoder.layers[1].feed_forward_norm.bias.fill_(1.0)
        model.heads["seq2seq"].weight[tokenizer.start] = 1.0
        model.heads["seq2seq"].weight[tokenizer.mask] = 2.0
    settings = SamplingSettings(max_tokens=2, greedy=True)
    for start_ids, can_be_generated in (
        ((tokenizer.end,), True),
        ((tokenizer.end, tokenizer.start), False),
        (None, False),
    ):
        model.decoder_start_ids = start_ids
        ((completion,),) = generate(model, tokenizer, ["The old"], settings)
        assert (tokenizer.start in completion.tokens) is can_be_generated
        assert tokenizer.mask not in completion.tokens
        assert completion.text == tokenizer.decode(completion.tokens)
    starts = [build_generation_inputs(model, tokenizer, source) for source in SOURCES]
    assert [start.prompt_ids for start in starts] == [[tokenizer.start]] * 3
    model.decoder_start_ids = (tokenizer.end, tokenizer.start)
    assert build_generation_inputs(model, tokenizer, SOURCES[0]).prompt_ids == [tokenizer.end, tokenizer.start]


def test_a_number_beyond_the_vocabulary_spells_nothing(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("The old").ids.tolist()
    beyond = [tokenizer.vocab_size, *ids[:1], tokenizer.vocab_size + 7, *ids[1:]]
    assert tokenizer.decode(beyond) == tokenizer.decode(ids)


def test_gaps_are_masks_or_numbered_sentinels(writer: Model, tokenizer: Tokenizer, make: Any) -> None:
    text = "The [MASK] gardener sold [MASK]"
    ids = build_generation_inputs(writer, tokenizer, text).inputs["source"].tolist()
    assert ids.count(tokenizer.mask) == 2
    assert ids[-1] == tokenizer.end
    settings = TokenizerSettings.model_validate({"kind": "wordpiece", "vocab_size": 200, "sentinels": 3})
    numbered = train_tokenizer(settings, ["The old gardener sold seventeen boats."] * 3)
    model = make("transformer", ("seq2seq",), numbered.vocab_size)
    ids = build_generation_inputs(model, numbered, text).inputs["source"].tolist()
    assert [token for token in ids if token in numbered.sentinels] == list(numbered.sentinels[:2])
    assert numbered.mask not in ids
    with torch.no_grad():  # whatever it reads, this model wants to say its second sentinel, and after it its mask
        for parameter in model.backbone.decoder.parameters():
            parameter.zero_()
        model.heads["seq2seq"].weight = torch.nn.Parameter(torch.zeros(numbered.vocab_size, 32))
        model.backbone.decoder.layers[1].feed_forward_norm.bias.fill_(1.0)
        model.heads["seq2seq"].weight[numbered.sentinels[1]] = 1.0
        model.heads["seq2seq"].weight[numbered.mask] = 2.0
    ((completion,),) = generate(model, numbered, [text], SamplingSettings(max_tokens=2, greedy=True))
    assert completion.tokens == (numbered.sentinels[1],) * 2


def test_what_it_cannot_do_is_refused(writer: Model, causal: Model, tokenizer: Tokenizer) -> None:
    assert lm_kind_for(writer, "generate") == "source"
    settings, picture = SamplingSettings(max_tokens=3), np.zeros((32, 32, 3), np.uint8)
    with pytest.raises(MeristemError, match=r"generates from a source text, and the prompt is empty: give --prompt"):
        generate(writer, tokenizer, [""], settings)
    with pytest.raises(MeristemError, match=r"has no image encoder; a captioner has one \(model.family=captioner\)"):
        generate(writer, tokenizer, [picture], settings)
    with pytest.raises(MeristemError, match=r"GPT2 has no image encoder; give a text"):
        generate(causal, tokenizer, [picture], settings)
    with pytest.raises(
        MeristemError,
        match=r"fill: this model was trained on pairs, .* meristem score RUN SOURCE --text-b TARGET",
    ):
        fill(writer, tokenizer, "The [MASK] gardener")
    with pytest.raises(MeristemError, match="its predictions depend on a source"):
        score(writer, tokenizer, ["The old gardener"])
