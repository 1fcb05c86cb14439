"""What every room's tests share: one thread, a cache of their own, and a small store of fixed text."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: sums have one order, and two cores carry two workers
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"  # a test asks nobody, and what is not here is said at once
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's job in the background ignores what tests send
    signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.append(str(Path(__file__).parent))

import pytest
from cli_runner import meristem, small_peak  # noqa: F401  # fixtures

from meristem.corpus.document import Document
from meristem.dataset.build import build_dataset
from meristem.dataset.settings import DatasetSettings
from meristem.dataset.token_dataset import TokenDataset
from meristem.drawing.training_curves import can_draw
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training import budget, run_result

WHO = ["the old gardener", "a careful sailor", "my youngest sister", "nobody else", "the painter"]
DID = ["planted", "watered", "remembered", "painted", "carried", "sold"]
WHAT = ["the apple tree", "seventeen boats", "a small garden", "her letters", "the winter harvest", "the harbour"]
CUTS = {
    "gardener": ["garden", "##er"],
    "watered": ["water", "##ed"],
    "remembered": ["remember", "##ed"],
    "painted": ["paint", "##ed"],
    "planted": ["plant", "##ed"],
    "painter": ["paint", "##er"],
    "youngest": ["young", "##est"],
    "seventeen": ["seven", "##te", "##en"],
    "harbour": ["har", "##bo", "##ur"],
}


def _texts() -> list[str]:
    """Ninety documents of six sentences; neighbours differ in every word."""
    sentences = [
        f"{subject} {did} {object_phrase}." for subject, did, object_phrase in itertools.product(WHO, DID, WHAT)
    ]
    mixed = [sentences[(number * 77) % len(sentences)] for number in range(len(sentences) * 3)]
    return [" ".join(mixed[start : start + 6]) for start in range(0, len(mixed), 6)]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collecting makes a million objects that stay: looking for garbage among them took a third of its time.

    They are frozen, so that the collector does not look at them during the tests either.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _quick_runs() -> Iterator[None]:
    """No run measures the machine's peak on large products or draws its curves, which took most of a tiny run's time.

    `draws_curves` gives the curves back to a test that looks at them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "PEAK_SIZE", 64)
        patch.setattr(budget, "PEAK_SECONDS", 0.0)
        patch.setattr(run_result, "can_draw", lambda: False)
        yield


@pytest.fixture
def draws_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs draw their curves, as everywhere but in tests."""
    monkeypatch.setattr(run_result, "can_draw", can_draw)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["MERISTEM_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


@pytest.fixture(autouse=True)
def _own_interrupts() -> Iterator[None]:
    """The command line handles Ctrl-C in its own way until its process ends; a test that calls it gives it back."""
    handler, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    yield
    if signal.getsignal(signal.SIGINT) is not handler:
        signal.signal(signal.SIGINT, handler)
        sys.unraisablehook = hook


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """The documents of the small store."""
    return _texts()


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Tokenizer:
    """A WordPiece vocabulary written out, so that golden numbers do not follow how one is learned."""
    words = sorted({word for text in texts for word in text.replace(".", " .").split()} - set(CUTS))
    pieces = list(dict.fromkeys(piece for cut in CUTS.values() for piece in cut if piece not in words))
    path = tmp_path_factory.mktemp("tokenizer") / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *pieces]) + "\n", encoding="utf-8")
    return Tokenizer.load(path)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer, texts: list[str]) -> TokenDataset:
    """All documents, for training, in several shards."""
    documents = [Document(text, f"test:{number}") for number, text in enumerate(texts)]
    return build_dataset(
        documents, tokenizer, tmp_path_factory.mktemp("store"), DatasetSettings(shard_tokens=1500), processes=1
    )


@pytest.fixture(scope="session")
def golden() -> Path:
    """Where reference numbers are kept."""
    return Path(__file__).parent / "golden"
