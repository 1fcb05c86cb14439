"""ctranslate2 models: the same logits and greedy tokens in ctranslate2 itself, refusals by name, a README that runs.

tests/integrations/test_format_consumers.py compares more families, with int8 weights too.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from transformers_models import run_card

from benchmarks.formats.runs import random_run
from meristem.api import export
from meristem.config.errors import MeristemError

pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")


def test_a_gpt2_computes_the_same_and_its_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.formats.ctranslate2_consumer import compare_ctranslate2

    run = random_run("gpt2-mini", tmp_path / "run")
    row = compare_ctranslate2(run, tmp_path / "exported")
    assert row.is_identical and row.difference <= 1e-4 * row.scale, row
    assert run_card(tmp_path / "exported", monkeypatch).strip()


@pytest.mark.parametrize(
    ("recipe", "settings", "reason"),
    [
        ("mamba-mini", [], "mamba is not written for ctranslate2; supported: transformer, gpt, gpt2, modern, bert"),
        ("gpt2-mini", ["model.attention_window=8"], "its models have no model.attention_window=8"),
        ("modern-mini", ["model.qk_norm=true"], "model.qk_norm=True"),
        ("gpt2-mini", ["model.activation=relu2"], "model.activation=relu2"),
        ("bert-mini-prenorm", [], "model.norm_position=pre with rotary positions"),
        ("modern-mini", ["objective=mlm"], "this run has no clm head"),
    ],
)
def test_what_ctranslate2_cannot_compute_is_refused_by_name(
    recipe: str, settings: list[str], reason: str, tmp_path: Path
) -> None:
    run = random_run(recipe, tmp_path / "run", settings)
    with pytest.raises(MeristemError, match=reason):
        export(run, tmp_path / "out", ctranslate2=True)
    assert not (tmp_path / "out").exists()


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(MeristemError, match=r'needs ctranslate2: pip install "meristem-lm\[export\]"'):
        export(tmp_path, tmp_path / "out", ctranslate2=True)
