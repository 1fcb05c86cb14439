"""Corpus settings."""

import pytest

from meristem.config.errors import RecipeError
from meristem.config.validation import build_settings
from meristem.corpus.settings import CorpusSettings


def test_every_setting_has_its_help():
    assert all(field.description for field in CorpusSettings.model_fields.values())


def test_one_source_or_several():
    assert CorpusSettings(source="a").sources == ("a",)
    assert build_settings(CorpusSettings, {"source": ["a", "b"]}, "corpus").sources == ("a", "b")


@pytest.mark.parametrize(
    ("corpus_settings", "message"),
    [
        ({"source": ""}, "source is empty"),
        ({"source": []}, "source is empty"),
        ({"source": ["a", ""]}, "source is empty"),
        ({"validation": 0.5, "test": 0.5}, "nothing to train on"),
        ({"validation": -0.1}, "corpus.validation"),
        ({"processes": 0}, "corpus.processes"),
        ({"limit": 0}, "corpus.limit"),
        ({"document": "page"}, "corpus.document"),
        ({"sorce": "x"}, "did you mean source?"),
    ],
)
def test_impossible_settings_are_refused(corpus_settings, message):
    with pytest.raises(RecipeError, match=message.replace("?", r"\?")):
        build_settings(CorpusSettings, corpus_settings, "corpus")
