"""GPT-BERT's second reading of a model: a masked token is predicted at the position before it, from both sides."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import tiny_loaded

import meristem
from meristem.generation.fill import fill
from meristem.generation.generation_inputs import input_template
from meristem.generation.head_selection import lm_kind_for, lm_kinds
from meristem.generation.score import score
from meristem.interfaces.backbone import Model
from meristem.tokenizers.tokenizer import Tokenizer

TEXT = "The old gardener planted the apple tree."


@pytest.fixture(scope="module")
def hybrid(make: Any, tokenizer: Tokenizer) -> Model:
    model: Model = make("modern", ("clm",), tokenizer.vocab_size)
    model.predicts_masked_next = True
    return model


def predictions(model: Model, tokenizer: Tokenizer, ids: list[int], position: int) -> torch.Tensor:
    """Log-probabilities of the token at this position of a text, masked, the plain way."""
    row = torch.tensor([[tokenizer.end, *ids]])
    row[0, position + 1] = tokenizer.mask
    with torch.no_grad():
        return model.heads["clm"](model.backbone(tokens=row).last_hidden_state)[0, position].log_softmax(-1)  # type: ignore[no-any-return]


def test_masks_are_filled_at_the_position_before(hybrid: Model, tokenizer: Tokenizer) -> None:
    for text in ("[MASK] old gardener planted the tree.", "The old [MASK] planted the [MASK] tree."):
        ids = tokenizer.encode(text, special=True).ids.tolist()
        positions = [index for index, token in enumerate(ids) if token == tokenizer.mask]
        for filled, position in zip(fill(hybrid, tokenizer, text, top=5), positions, strict=True):
            expected = predictions(hybrid, tokenizer, ids, position).exp()
            ranked = [n for n in expected.argsort(descending=True).tolist() if not tokenizer.special_mask[n]][:5]
            assert [candidate.token for candidate in filled.candidates] == [tokenizer.id_to_token(n) for n in ranked]
            assert filled.candidates[0].probability == pytest.approx(float(expected[ranked[0]]), abs=1e-6)


def test_scores_are_causal_or_brute_force_pseudo_log_likelihoods(hybrid: Model, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(TEXT).ids.tolist()
    expected = [float(predictions(hybrid, tokenizer, ids, n)[token]) for n, token in enumerate(ids)]
    (masked,) = score(hybrid, tokenizer, [TEXT], lm_kind="masked_next")
    assert [value for _, value in masked.per_token] == pytest.approx(expected, abs=1e-4)
    (causal,) = score(hybrid, tokenizer, [TEXT])
    assert causal.logprob == score(hybrid, tokenizer, [TEXT], lm_kind="causal")[0].logprob
    assert causal.logprob != pytest.approx(masked.logprob, abs=1e-2)


def test_a_causal_model_does_not_fill(make: Any, tokenizer: Tokenizer) -> None:
    model = make("modern", ("clm",), tokenizer.vocab_size)
    assert lm_kinds(model) == ("causal",)
    with pytest.raises(meristem.MeristemError, match="hybrid"):
        fill(model, tokenizer, "The [MASK] tree.")


def test_one_run_generates_fills_scores_embeds_and_is_evaluated(tmp_path: Path) -> None:
    loaded = tiny_loaded("gpt-bert-mini")
    model = loaded.model
    assert lm_kinds(model) == ("causal", "masked_next")
    assert [lm_kind_for(model, operation) for operation in ("generate", "fill", "score")] == [
        "causal",
        "masked_next",
        "causal",
    ]
    assert loaded.fill("The [MASK] walked home.")[0].candidates
    assert loaded.generate("The", max_tokens=3)[0][0].text
    assert math.isfinite(loaded.score(["The cat sleeps."])[0].logprob)
    assert input_template(model, loaded.tokenizer).mode == "bidirectional"
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"sentence_good": "The cat sleeps.", "sentence_bad": "The cat sleep."}) + "\n")
    assert loaded.evaluate(pairs=str(pairs))["metrics"]["pairs.accuracy"] in (0.0, 1.0)
