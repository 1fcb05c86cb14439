"""The rows of the task benchmark: data, settings, initial weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import tasks_baselines as trivial
from benchmarks.tasks_pretraining import quickest

Numbers = dict[str, float]


@dataclass(frozen=True)
class Start:
    """Initial weights of a table row, and the best learning rate for them."""

    name: str
    settings: tuple[str, ...]
    before: str | None = None
    """A pretraining run other than the row's."""


PRETRAINED = Start("pretrained", ("from.load=all", "train.learning_rate=1e-3"))
PROBED = Start("pretrained", ("from.load=all", "train.learning_rate=1e-2"))  # only linear classifiers are trained
SCRATCH = Start("scratch", ("from.load=nothing", "train.learning_rate=5e-4"))


@dataclass(frozen=True)
class Row:
    """A task on its data, from a pretraining run and from scratch."""

    name: str
    task: str
    before: str | None
    metric: str
    reach: str
    data: Callable[[Path, Path], list[str]]
    settings: tuple[str, ...] = ()
    starts: tuple[Start, ...] = (PRETRAINED, SCRATCH)
    trivial: Callable[[Path], Numbers] | None = None
    split: str = "test"
    """The split that is reported: test, or validation if the test data have no labels."""
    beside: tuple[str, ...] = ()
    """Further metrics that are reported."""


def _files(folder: str, **splits: str) -> Callable[[Path, Path], list[str]]:
    return lambda data, work: [f"data.{name}={data / folder / file}" for name, file in splits.items()]


def _sst(data: Path, work: Path) -> list[str]:
    return _files("sst2", train="train.tsv", validation="dev.tsv")(data, work)


def _sts(data: Path, work: Path) -> list[str]:
    columns = ["data.header=false", "data.text='6'", "data.text_b='7'", "data.label='5'"]
    return [*_files("stsb", train="sts-train.csv", validation="sts-dev.csv")(data, work), *columns]


def _weibo(data: Path, work: Path) -> list[str]:
    """Without the position in the word that follows each character in the file."""
    out = []
    for split, file in (("train", "train"), ("validation", "dev"), ("test", "test")):
        plain = work / f"weibo-{file}.conll"
        if not plain.is_file():
            lines = (data / "weibo_ner" / f"weiboNER_2nd_conll.{file}").read_text(encoding="utf-8").splitlines()
            tagged_lines = (f"{line[0]}\t{line.split()[-1]}" if line.strip() else "" for line in lines)
            plain.write_text("\n".join(tagged_lines) + "\n", encoding="utf-8")
        out.append(f"data.{split}={plain}")
    return out


def _multi30k(data: Path, work: Path) -> list[str]:
    folder = data / "multi30k"
    names = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
    sides = {"train": "target", "validation": "validation_target", "test": "test_target"}
    sources = [f"data.{split}={folder / f'{name}.en'}" for split, name in names.items()]
    return [*sources, *(f"data.{sides[split]}={folder / f'{name}.de'}" for split, name in names.items())]


SHORT = ("train.batch_samples=32", "train.schedule=linear", "train.warmup=0.1")
QUICK = f"train.precision={quickest()}"
MEAN = "task.pooling=mean"  # without a sentence objective, the first state has no information
FEW = (*SHORT, MEAN, "data.limit=500", "train.epochs=8")
FAST = "train.learning_rate=2e-3"  # best for a pretrained encoder with few examples
READ = Start("pretrained, and on SST-2's sentences without labels", ("from.load=all", FAST), before="reviews")
SLOW = Start(
    "scratch at 2e-5", ("from.load=nothing", "train.learning_rate=2e-5")
)  # random embeddings act as word overlap
GLOVE = Start("GloVe", (*SCRATCH.settings, "from.word_vectors={data}/glove/glove.6B.50d.top40k.txt"))
RECURRENT = ("model={family: rnn, layers: 2, width: 256, length: 64, initial: 0.2}", "train.learning_rate=4e-3",
             "train.optimizer=adamw")  # fmt: skip
UD = _files("ud_ewt", train="train.tsv", validation="dev.tsv", test="test.tsv")
SQUAD = _files("squad", train="dev-v1.1.part1-24articles.json", test="dev-v1.1.part2-24articles.json")
COPA = _files("copa", train="train.jsonl", validation="val.jsonl")
TLDR = _files("scitldr", train="train.jsonl", validation="dev.jsonl", test="test.jsonl")
ROWS = [
    Row("SST-2", "classification", "encoder", "accuracy", "≥ 81 %", _sst, (*SHORT, MEAN, "train.epochs=1"),
        trivial=trivial.commonest_label, split="validation"),
    Row("SST-2, 500 examples", "classification", "encoder", "accuracy", "≥ 4 points above scratch; GloVe above it",
        _sst, FEW,
        starts=(Start("pretrained", ("from.load=all", FAST)), READ, SCRATCH, GLOVE), trivial=trivial.commonest_label,
        split="validation"),
    Row("STS-B, siamese", "pair", "encoder", "spearman", "≥ 0.55, ≥ 0.10 above scratch", _sts,
        (*SHORT, MEAN, "task.siamese=true", "train.epochs=3"), starts=(PRETRAINED, SCRATCH, SLOW),
        trivial=trivial.shared_words, split="validation"),
    Row("UD English POS", "tagging", "encoder", "accuracy", "≥ 92 %", UD, (*SHORT, "train.epochs=2"),
        trivial=trivial.usual_tags),
    Row("Weibo NER", "tagging", "chinese", "f1", "above scratch", _weibo, (*SHORT, "train.epochs=8"),
        trivial=trivial.usual_characters),
    Row("SQuAD, part 1 → part 2", "span", "encoder", "f1", "≥ 3 F1 above scratch", SQUAD,
        (*SHORT, QUICK, "data.held_out=0.05", "model.max_length=256", "task.max_length=256", "train.epochs=2"),
        starts=(Start("pretrained", ("from.load=all", "train.learning_rate=5e-4")), SCRATCH),
                trivial=trivial.first_words),
    Row("COPA", "choice", "causal", "accuracy", "reported", COPA,
        (*SHORT, "train.epochs=6"),
        starts=(Start("pretrained", (*PRETRAINED.settings, "task.lm_weight=0")),
                Start("pretrained, λ = 0.5", (*PRETRAINED.settings, "task.lm_weight=0.5")),
                Start("scratch", (*SCRATCH.settings, "task.lm_weight=0"))),
        trivial=trivial.commonest_choice, split="validation"),
    Row("Multi30k en→de", "translation", None, "bleu", "≥ 26 for the better one", _multi30k,
        ("train.minutes=8", "model.layers=2", QUICK),
        starts=(Start("Transformer", ()), Start("recurrent + attention", RECURRENT)), trivial=trivial.copied),
    Row("SciTLDR", "summary", "writer", "rouge1", "beside the lead sentence", TLDR, (*SHORT, QUICK, "train.epochs=4"),
        trivial=trivial.lead, beside=("rouge2", "rougeL")),
    Row("UD English POS by layer (ELMo)", "probe", "elmo", "accuracy", "a table", UD, (*SHORT, "train.epochs=4"),
        starts=(PROBED,), trivial=trivial.usual_tags),
    Row("word senses by layer (ELMo)", "probe", "elmo", "accuracy", "a table",
        lambda data, work: [f"data.{split}=builtin:microworld-senses?size={size}&seed={seed}"
                            for split, size, seed in (("train", 2000, 1), ("validation", 500, 2), ("test", 500, 3))],
        (*SHORT, "train.epochs=8"), starts=(PROBED,), trivial=trivial.usual_senses),
]  # fmt: skip
PAIRS = {"BLiMP, causal": "causal", "BLiMP, masked": "encoder"}
"""Zero-shot minimal pairs, 200 of each phenomenon, scored by pretrained runs."""
