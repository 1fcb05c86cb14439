"""Text generation: seeds, greedy decoding, streaming, stop strings, beam search and errors."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import torch

from meristem.config.errors import MeristemError
from meristem.generation.generate import generate
from meristem.generation.score import score, token_logprobs
from meristem.generation.settings import SamplingSettings
from meristem.interfaces.backbone import Head, Model
from meristem.models.bert import Bert
from meristem.tokenizers.tokenizer import Tokenizer

PROMPTS = ["The old gardener", "", "老园丁种下了", "My sister sold seventeen boats and a small"]


def test_same_seed_same_text_and_another_seed_another(causal: Model, tokenizer: Tokenizer) -> None:
    first_run, second_run, other = (
        generate(causal, tokenizer, PROMPTS, SamplingSettings(max_tokens=12, seed=seed)) for seed in (1, 1, 2)
    )
    assert first_run == second_run
    assert first_run != other


def test_a_text_does_not_depend_on_what_is_written_beside_it(causal: Model, tokenizer: Tokenizer) -> None:
    settings = SamplingSettings(max_tokens=30, top_k=20, temperature=0.8, seed=5)  # past the model's length of 24
    completions = generate(causal, tokenizer, PROMPTS, settings, count=3)
    for number, prompt in enumerate(PROMPTS):
        among = [prompt if index == number else "A small garden of my sister" for index in range(number + 1)]
        texts = generate(causal, tokenizer, among, settings, count=3)[number]
        assert [text.tokens for text in texts] == [text.tokens for text in completions[number]]
        assert len({text.tokens for text in texts}) == 3


def test_greedy_is_the_best_token_each_time(causal: Model, tokenizer: Tokenizer) -> None:
    ((completion,),) = generate(causal, tokenizer, ["The old"], SamplingSettings(max_tokens=6, greedy=True))
    text = [tokenizer.end, *tokenizer.encode("The old").ids.tolist()]
    for token in completion.tokens:
        with torch.no_grad():
            logits = causal.heads["clm"](
                causal.backbone(tokens=torch.tensor([text]), causal=True).last_hidden_state[0, -1]
            )
        logits[[n for n in tokenizer.special_mask.nonzero()[0].tolist() if n != tokenizer.end]] = -torch.inf
        assert int(logits.argmax()) == token
        text.append(token)


def test_score_is_the_log_probability(causal: Model, tokenizer: Tokenizer) -> None:
    ((completion,),) = generate(causal, tokenizer, [""], SamplingSettings(max_tokens=10, min_tokens=10, seed=3))
    logprobs = token_logprobs(causal, tokenizer, [torch.tensor(completion.tokens).numpy()])[0]
    assert completion.score == pytest.approx(float(logprobs.sum()), abs=1e-3)


def test_streaming_put_together_is_the_text(tokenizer: Tokenizer, bytes_tokenizer: Tokenizer, make: Any) -> None:
    for words in (tokenizer, bytes_tokenizer):
        model = make("gpt2", ("clm",), words.vocab_size)
        streamed: dict[int, str] = defaultdict(str)

        def hear(number: int, text: str, pieces: dict[int, str] = streamed) -> None:
            assert text
            pieces[number] += text

        completions = generate(
            model, words, PROMPTS, SamplingSettings(max_tokens=20, stop=("e",)), count=2, on_text=hear
        )
        assert {n: text.text for n, text in enumerate(text for texts in completions for text in texts)} == {
            n: streamed[n] for n in range(2 * len(PROMPTS))
        }


def test_the_text_is_what_decoding_prompt_and_tokens_adds(causal: Model, tokenizer: Tokenizer) -> None:
    texts = generate(causal, tokenizer, PROMPTS, SamplingSettings(max_tokens=15))
    for prompt, (completion,) in zip(PROMPTS, texts, strict=True):
        ids = tokenizer.encode(prompt).ids.tolist()
        assert tokenizer.decode(ids) + completion.text == tokenizer.decode([*ids, *completion.tokens])


def test_stop_strings_cut_exactly_and_across_tokens(causal: Model, tokenizer: Tokenizer) -> None:
    settings = SamplingSettings(max_tokens=20, seed=4)
    ((full,),) = generate(causal, tokenizer, ["The old"], settings)
    for start in range(2, len(full.text) - 5):
        stop = full.text[start : start + 4]
        cut = settings.model_copy(update={"stop": ("never this", stop)})
        ((completion,),) = generate(causal, tokenizer, ["The old"], cut)
        assert completion.text == full.text[: full.text.index(stop)]
        assert completion.finished == "stop"
        assert full.tokens[: len(completion.tokens)] == completion.tokens


def test_ends_at_the_end_of_a_document(make: Any, tokenizer: Tokenizer) -> None:
    model = make("gpt2", ("clm",), tokenizer.vocab_size)
    with torch.no_grad():
        model.backbone.stack.final_norm.weight.zero_()
        model.backbone.stack.final_norm.bias.copy_(model.backbone.embed.tokens.weight[tokenizer.end])
    settings = SamplingSettings(greedy=True, max_tokens=9)
    ((completion,),) = generate(model, tokenizer, ["The"], settings)
    assert (completion.finished, completion.tokens, completion.text) == ("end", (), "")
    ((longer,),) = generate(model, tokenizer, ["The"], settings.model_copy(update={"min_tokens": 4}))
    assert (longer.finished, len(longer.tokens)) == ("end", 4)


def test_no_special_token_is_written(causal: Model, tokenizer: Tokenizer) -> None:
    for texts in generate(causal, tokenizer, PROMPTS, SamplingSettings(max_tokens=40, temperature=5.0), count=4):
        assert all(not tokenizer.special_mask[token] for text in texts for token in text.tokens)


def test_repetition_penalty_makes_texts_more_various(causal: Model, tokenizer: Tokenizer) -> None:
    plain, various = (
        generate(causal, tokenizer, ["The"], SamplingSettings(max_tokens=40, temperature=0.5, repetition_penalty=p))[0][
            0
        ]
        for p in (1.0, 5.0)
    )
    assert len(set(various.tokens)) > len(set(plain.tokens))


def test_beams_find_likelier_texts_than_greedy(causal: Model, tokenizer: Tokenizer) -> None:
    ((greedy,),) = generate(causal, tokenizer, ["The old"], SamplingSettings(max_tokens=8, greedy=True))
    streamed: dict[int, str] = defaultdict(str)

    def hear(number: int, text: str) -> None:
        streamed[number] += text

    settings = SamplingSettings(max_tokens=8, beams=6, length_penalty=0)
    (completions,) = generate(causal, tokenizer, ["The old"], settings, count=3, on_text=hear)
    assert completions[0].score >= greedy.score - 1e-4
    assert [completion.score for completion in completions] == sorted(
        (completion.score for completion in completions), reverse=True
    )
    assert {n: completion.text for n, completion in enumerate(completions) if completion.text} == streamed


def test_beams_stop_at_stop_strings(causal: Model, tokenizer: Tokenizer) -> None:
    settings = SamplingSettings(max_tokens=10, beams=3)
    ((full,),) = generate(causal, tokenizer, ["The"], settings)
    stop = full.text[3:5]
    (texts,) = generate(causal, tokenizer, ["The"], settings.model_copy(update={"stop": (stop,)}), count=3)
    assert all(stop not in text.text for text in texts)
    assert any(text.finished == "stop" for text in texts)


def test_what_cannot_be_done_is_said(causal: Model, tokenizer: Tokenizer) -> None:
    with pytest.raises(MeristemError, match="beams=4"):
        generate(causal, tokenizer, ["a"], SamplingSettings(beams=2), count=4)
    with pytest.raises(MeristemError, match="at least 1"):
        generate(causal, tokenizer, ["a"], SamplingSettings(), count=0)
    backbone = Bert(Bert.Settings(layers=1, hidden_size=8, heads=1), tokenizer.vocab_size)
    wordless = Model(backbone, {"nsp": Head("pooled", (("classes", 2),))})
    with pytest.raises(MeristemError, match=r"trained for nsp and has no language-model head"):
        generate(wordless, tokenizer, ["a"], SamplingSettings())


def test_no_prompts_no_texts(causal: Model, tokenizer: Tokenizer) -> None:
    assert generate(causal, tokenizer, [], SamplingSettings()) == []
    assert score(causal, tokenizer, []) == []
