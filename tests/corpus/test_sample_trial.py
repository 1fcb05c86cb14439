"""Settings tried on a sample of the corpus."""

import random
from collections.abc import Sequence

import pytest

from meristem.corpus.document import Document
from meristem.corpus.report import sample_trial as module
from meristem.corpus.report.sample_trial import BottomKSample, CorpusSampler, SampleFindings, SettingTrial
from meristem.corpus.settings import CorpusSettings

WORDS = (
    "river",
    "stone",
    "garden",
    "light",
    "house",
    "letter",
    "brother",
    "morning",
    "rain",
    "field",
    "bread",
    "winter",
)
COOKIES = "We use cookies to give you the best experience on our website."


def prose(seed: int, sentences: int = 12) -> str:
    rng = random.Random(seed)
    word_runs = [
        " ".join(["the", *rng.choices(WORDS, k=11), "and", "of", "that"]).capitalize() + "." for _ in range(sentences)
    ]
    return " ".join(word_runs)


def run_trial(texts: Sequence[str], **settings: object) -> tuple[CorpusSampler, SampleFindings]:
    corpus_sampler = CorpusSampler(CorpusSettings(source="x.txt", **settings))  # type: ignore[arg-type]
    documents = [Document(text, f"x.txt:{line}") for line, text in enumerate(texts)]
    assert list(corpus_sampler.observe(documents)) == documents
    return corpus_sampler, corpus_sampler.findings()


def changed(text: str) -> str:
    words = text.split()
    words[len(words) // 2] = "changed"
    return " ".join(words)


def test_near_copies_are_noticed_where_nobody_asked_for_them() -> None:
    texts = [prose(n) for n in range(80)]
    copies = [changed(text) for text in texts[:20]]
    _, findings = run_trial([*texts, *copies])
    assert (findings.compared, findings.alike) == (100, 20)
    _, findings = run_trial([*texts, *copies], near_dedup=True)
    assert (findings.compared, findings.alike) == (0, 0)


def test_copies_come_together_in_a_small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [prose(n) for n in range(1500)]
    monkeypatch.setattr(module, "SAMPLE_DOCUMENTS", 300)
    _, findings = run_trial([*texts, *map(changed, texts)])
    assert findings.compared == 300
    assert findings.alike > 60  # chance would bring about 15 of the 1,500 pairs into one sample
    _, unrelated = run_trial([prose(n) for n in range(3000)])
    assert unrelated.alike == 0


def test_what_is_off_is_tried_and_what_is_on_is_not() -> None:
    texts = [f"{COOKIES}\n{prose(n)}\nWrite to ada.{n}@example.org" for n in range(30)] + ["x " * 40] * 1
    _, findings = run_trial(texts)
    assert findings.private.removed == {"e-mail": 30}
    assert findings.private.affected == 30
    assert findings.boilerplate.affected == 30
    assert findings.quality.dropped.total() > 0
    _, findings = run_trial(texts, pii=True, boilerplate=True, quality=True)
    assert findings.private == findings.boilerplate == findings.quality == SettingTrial()


def test_languages_of_the_sample() -> None:
    german = "Der alte Gärtner ging am Morgen durch den Garten und sah, dass die Rosen nicht mehr blühten. "
    english = "The old gardener went through the garden in the morning and saw that the roses did not bloom. "
    _, findings = run_trial([german * n for n in range(1, 4)] + [english * n for n in range(1, 8)])
    assert findings.languages == {"de": 3, "en": 7}


def test_repeated_lines_are_the_lines_of_many_documents() -> None:
    trial, _ = run_trial([f"{COOKIES}\n{prose(n, 2)}" for n in range(30)] + ["twice " * 10] * 2)
    assert trial.repeated_lines == {COOKIES: 30}


def test_text_that_was_decoded_wrongly_is_seen() -> None:
    _, findings = run_trial([prose(1), "It was the grocerâ€™s cafÃ©.", "El Niño comió ñandú"])
    assert findings.garbled == 1


def test_a_sample_does_not_depend_on_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLE_DOCUMENTS", 10)
    offers = [(key * 7919 % 1000, f"text {key}") for key in range(100)]
    samples = []
    for seed in range(3):
        sample = BottomKSample()
        for key, text in random.Random(seed).sample(offers, 100):
            sample.offer(key, text)
        samples.append(sample.texts)
    assert samples[0] == samples[1] == samples[2] == [text for _, text in sorted(offers)[:10]]


def test_long_documents_are_not_held_whole() -> None:
    sample = BottomKSample()
    sample.offer(1, "a" * 1_000_000)
    assert [len(text) for text in sample.texts] == [module.SAMPLE_CHARS]


def test_two_sided_documents_are_sampled_by_their_target() -> None:
    corpus_sampler = CorpusSampler(CorpusSettings(source="a.tsv", target="de"))
    list(corpus_sampler.observe([Document(f"given {n}\x1e{COOKIES}", "a.tsv#1") for n in range(5)]))
    assert corpus_sampler.repeated_lines == {COOKIES: 5}
    assert corpus_sampler.findings().documents == 5


def test_what_cannot_be_tried_without_a_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{prose(n)} ada{n}@example.org" for n in range(30)]
    _, findings = run_trial(texts)
    assert findings.languages == {"en": 30} and findings.private.affected == 30 and findings.not_tried == ()
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    _, findings = run_trial(texts)
    assert not findings.languages and not findings.private.affected and not findings.quality.affected
    assert findings.not_tried == ("languages and quality", "personal data")
