"""What the command line's verbs can be told: every word and option with the line that explains it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

Run = Annotated[Path, Argument(help="A run: the folder that `meristem pretrain` wrote.", show_default=False)]
Json = Annotated[bool, Option("--json", help="Print JSON instead of text.")]
Checkpoint = Literal["latest", "best"] | None
Which = Annotated[
    Checkpoint,
    Option(
        "--which", help="Which checkpoint; the best where the run stops early, else the latest.", show_default=False
    ),
]

Words = Annotated[
    list[str] | None,
    Argument(
        metavar="[RECIPE] [SOURCE] [KEY=VALUE]…",
        show_default=False,
        help="A recipe's name or YAML file; a file, folder, glob or builtin:NAME to train on; "
        "settings such as train.rate=3e-4.",
    ),
]
TaskWords = Annotated[
    list[str] | None,
    Argument(
        metavar="[RECIPE] [KEY=VALUE]…",
        show_default=False,
        help="A recipe's name or YAML file (one is named like each task); settings such as task=tagging, "
        "from=RUN, data.train=FILE, data.label=COLUMN.",
    ),
]
RewardRecipe = Annotated[
    str, Argument(metavar="RECIPE", help="A recipe with rewards: its name (clicks-microworld) or a YAML file.")
]
Out = Annotated[Path | None, Option(help="The run's folder; runs/RECIPE unless given.")]
Processes = Annotated[
    int | None,
    Option(
        min=1,
        show_default=False,
        help="Train with so many processes on this machine; started anew from the last checkpoint when one dies. "
        "On several machines: torchrun … -m meristem (docs/cluster.md).",
    ),
]
Fresh = Annotated[bool, Option("--fresh", help="Begin anew; the old run is moved aside, never deleted.")]

Folder = Annotated[
    Path,
    Argument(
        help="A folder with config.json, weights and tokenizer, hub:NAME, or ELMo's options.json and .hdf5.",
        show_default=False,
    ),
]
Target = Annotated[Path, Argument(help="The folder to write; it must not exist yet.", show_default=False)]
Onnx = Annotated[bool, Option("--onnx", help="Write ONNX graphs for onnxruntime instead.")]
Architecture = Annotated[
    str | None,
    Option(help="The class to write, such as BertForMaskedLM, without heads that it has no place for."),
]
DropCrf = Annotated[bool, Option("--drop-crf", help="Write a tagger without its CRF, which transformers has none of.")]

Source = Annotated[str, Argument(help="A file, folder, glob, builtin:NAME or hub:OWNER/NAME.", show_default=False)]
Overrides = Annotated[
    list[str] | None, Argument(metavar="[KEY=VALUE]…", help="Settings such as corpus.document=line or model.layers=6.")
]
CorpusPage = Annotated[Path | None, Option("--report", help="Write the report as an HTML page to this file.")]
CountTokens = Annotated[
    Path | None,
    Option("--tokenizer", help="A run, or a tokenizer's file or folder: also count tokens, and those unknown to it."),
]
Cleaned = Annotated[Path | None, Option("--out", help="Write the cleaned text here, one JSON line per document.")]

Data = Annotated[str | None, Option(help="Text, or a task run's labelled file; the run's own test split unless given.")]
Pairs = Annotated[
    Path | None,
    Option(help="Minimal pairs in BLiMP's form, perhaps with a source: a .jsonl file, a folder, a .zip, a .tar.gz."),
]
Limit = Annotated[int | None, Option(help="Samples, or pairs of each phenomenon, at the most.")]
Pll = Annotated[bool, Option("--pll", help="Pseudo-log-likelihood of a masked model, each token hidden once.")]
TrustPaths = Annotated[
    bool,
    Option("--trust-paths", help="Read the files that the run's own recipe names, though it was made elsewhere."),
]
Template = Annotated[
    str | None,
    Option(
        help='Ask about labelled samples in words, without training, as "{text}\\nSentiment: {label}"; '
        "{text_b} is a pair's other text, {context} {choice} compare choices."
    ),
]
LabelWords = Annotated[str | None, Option("--words", help="The word for each label: 0=bad,1=good.")]
Shots = Annotated[int, Option(min=0, help="With --template: examples in front of each question.")]
ShotData = Annotated[str | None, Option(help="The labelled file that they are drawn from.")]
ShotSeed = Annotated[int, Option("--seed", min=0, help="Which ones are drawn.")]
Calibrate = Annotated[bool, Option("--calibrate", help="Take away what each word gets where there is no text.")]
PerToken = Annotated[bool, Option("--per-token", help="Words per token: long ones are not less likely.")]
Columns = Annotated[str | None, Option(help="The columns of --data where they differ: text=review,label=stars.")]

Page = Annotated[
    Path | None,
    Option(
        "--report",
        help="Write a page of numbers, confusions and the most confident mistakes: FILE.html; .json for programs.",
    ),
]

Prompt = Annotated[str, Option(help="What the text begins with, or, for an encoder-decoder, what it is made from.")]
Prompts = Annotated[Path | None, Option("--file", help="A file of prompts, one a line.")]
WrittenFrom = Annotated[
    str | None, Option("--source", help="A text for the encoder, for models that could also go on from it.")
]
Image = Annotated[Path | None, Option(help="A picture for a captioner to write about.")]
Count = Annotated[int, Option(min=1, help="Texts per prompt.")]
MaxTokens = Annotated[int, Option(min=1, help="Tokens to write at the most.")]
Temperature = Annotated[float, Option(min=0.0, help="Above 1 bolder, below 1 safer, 0 greedy.")]
TopK = Annotated[int | None, Option(min=1, help="Choose among the k likeliest tokens.")]
TopP = Annotated[
    float | None, Option(min=0.0, max=1.0, help="Choose among the likeliest tokens that hold p of the probability.")
]
Penalty = Annotated[float, Option(min=1.0, help="Above 1 makes tokens that were already used less likely.")]
Beams = Annotated[int, Option(min=1, help="Beam search with this many beams.")]
Stop = Annotated[list[str] | None, Option(help="End before this text; may be given several times.")]
Seed = Annotated[int, Option(help="The same seed writes the same text.")]

BestOf = Annotated[
    int | None, Option("--best-of", min=1, help="Write so many texts for each prompt; keep what --reward likes best.")
]
Judges = Annotated[
    list[str] | None,
    Option(
        "--reward",
        help="NAME or NAME,key=value,… (meristem reward lists them), a YAML file with rewards:, or a run that was "
        "trained by some; may be given several times.",
    ),
]
References = Annotated[
    list[str] | None, Option("--reference", help="A text that is right for the prompt; may be given several times.")
]
RewardWords = Annotated[
    list[str] | None,
    Argument(
        metavar="[NAME] [KEY=VALUE]…",
        show_default=False,
        help="A reward's name, a YAML file with rewards:, or a run that was trained by some; its settings.",
    ),
]
Judged = Annotated[list[str] | None, Option("--text", help="A text to judge; may be given several times.")]
Behind = Annotated[str, Option("--prompt", help="What the text was written for.")]
Attempts = Annotated[
    Path | None,
    Option("--file", help='A file of texts, one a line: as they are, or {"text": …, "prompt": …, "references": […]}.'),
]
Cells = Annotated[list[str] | None, Option("--column", help="NAME=VALUE: another column of the prompt's row.")]

Masked = Annotated[str, Argument(help="A text with [MASK] where a word is missing.", show_default=False)]
Top = Annotated[int, Option(min=1, help="Candidates for each mask.")]

Text = Annotated[
    str | None, Argument(help="A text to judge; with --text-b the source or the beginning.", show_default=False)
]
Targets = Annotated[
    list[str] | None,
    Option(
        "--text-b",
        help="Judge this given the text: an encoder-decoder's target, or, joined as it stands, what follows; several "
        "are ranked, the best first.",
    ),
]
ScoredFile = Annotated[
    Path | None, Option("--file", help="A file of texts, one a line; source TAB target where every line has one tab.")
]
TargetImage = Annotated[Path | None, Option("--image", help="A picture that a captioner's --text-b is judged given.")]
ScoreOrder = Annotated[
    str | None, Option("--order", help="XLNet's order of factorisation as 2,0,1; left to right unless given.")
]
Detected = Annotated[str | None, Argument(help="A text in which tokens may be replaced.", show_default=False)]
Texts = Annotated[Path | None, Option("--file", help="A file of texts, one a line.")]

Asked = Annotated[str | None, Argument(help="What is asked: a text.", show_default=False)]
TextB = Annotated[str | None, Option("--text-b", help="The second text of a pair.")]
Question = Annotated[str | None, Option(help="A question, with --passage; or one that choices answer.")]
Passage = Annotated[str | None, Option(help="The passage an answer is taken from.")]
Choices = Annotated[list[str] | None, Option(help="One of the choices; given several times.")]
Picture = Annotated[str | None, Option("--image", help="A picture to write about.")]
Samples = Annotated[
    str | None,
    Option("--file", help="A file of samples (text, tsv, csv, jsonl, CoNLL, …), builtin:NAME, or - for a pipe."),
]
PredictionsOut = Annotated[
    Path | None,
    Option("--out", show_default=False, help="The file to write: .csv, .tsv or .jsonl, each row with its own columns."),
]
TopAnswers = Annotated[int | None, Option("--top", min=1, help="The K likeliest answers with their scores.")]

Embedded = Annotated[str | None, Argument(help="A text to embed.", show_default=False)]
EmbedLevel = Annotated[
    Literal["text", "token", "word"],
    Option(help="One vector per text, per token or per word (the mean of its tokens)."),
]
EmbedLayer = Annotated[
    str | None,
    Option(
        "--layer",
        show_default=False,
        help="A layer: 0 is the embeddings, -1 the last; mix joins all layers by the weights a task learned (ELMo), or "
        "equally. The model's output unless given.",
    ),
]
EmbedPooling = Annotated[
    Literal["mean", "first", "last"], Option("--pooling", help="How a text's token vectors become one.")
]
EmbedOut = Annotated[
    Path | None, Option("--out", help="The file to write: .npy, .jsonl or .tsv.", show_default=False)
]

LookedAt = Annotated[str | None, Argument(help="The text that is looked at.", show_default=False)]
LookOut = Annotated[
    Path | None,
    Option("--out", help="The file to write: .png, .svg or .json; with --file a folder. Without it a table."),
]
Kind = Annotated[
    str | None,
    Option(help="self, cross, decoder, align, image, content or query; the most telling one there is unless given."),
]
Layer = Annotated[int | None, Option(help="One layer, numbered from 1.")]
OneHead = Annotated[int | None, Option("--head", help="One head, numbered from 1; of the last layer unless given.")]
GridView = Annotated[bool, Option("--grid", help="All layers and heads as small pictures.")]
MeanView = Annotated[bool, Option("--mean", help="The mean of all heads, of one layer or of all.")]
RolloutView = Annotated[bool, Option("--rollout", help="How much of each token reaches each other through all layers.")]
Written = Annotated[
    str | None, Option("--target", help="What is written from the text or picture; the model's own unless given.")
]
Before = Annotated[str | None, Option(help="A text that a model with memory has read just before.")]
Factorised = Annotated[
    str | None,
    Option("--order", help="The order of XLNet's two streams: its words or tokens as 2,0,1; drawn unless given."),
]
LookFormat = Annotated[
    Literal["png", "svg", "json"], Option("--format", help="What is written into a folder for each line of --file.")
]

Runs = Annotated[list[Path], Argument(help="Runs to serve; each is named after its folder.", show_default=False)]
RunsFolder = Annotated[Path, Argument(help="The folder whose runs are shown, also those that are yet to come.")]
Port = Annotated[int, Option(min=0, max=65535, help="The port; 0 takes a free one.")]
Host = Annotated[str, Option(help="The address; any other than this machine's own needs --key-file.")]
KeyFile = Annotated[Path | None, Option(help="A file with one key a line; requests must bring one.")]
Threads = Annotated[
    int | None, Option(min=1, show_default=False, help="Threads that read, a batch each; all cores unless given.")
]
AllowNonfinite = Annotated[bool, Option(help="Serve runs whose weights are not finite numbers too.")]
Queue = Annotated[int, Option(min=1, help="Requests in work or waiting; more are answered 429.")]
Deadline = Annotated[float, Option(min=0.001, help="Seconds that a request may take.")]

Schema = Annotated[Path | None, Option(help="Write a JSON schema for editors to this file.")]
What = Annotated[str, Argument(metavar="RECIPE|RUN", help="A recipe's name or file, or a run.", show_default=False)]
Devices = Annotated[
    int | None, Option(min=1, show_default=False, help="What each of so many devices would hold and send.")
]
Hours = Annotated[float | None, Option(min=0.001, help="Which recipe and how much text fit this many hours here.")]


def sort_words(words: Sequence[str]) -> tuple[str, str | None, list[str]]:
    """Which word is the recipe, which the source, which are settings."""
    from meristem.errors import RecipeError, did_you_mean
    from meristem.recipe import shipped

    overrides = [word for word in words if re.match(r"[\w.-]+=", word) and not Path(word).exists()]
    plain = [word for word in words if word not in overrides]
    if len(plain) > 2:
        raise RecipeError(f"{' '.join(plain)}: expected at most a recipe and a source; settings are given as key=value")
    known = shipped()
    is_recipe = [
        word in known or word.endswith((".yaml", ".yml")) or (Path(word) / "recipe.yaml").is_file() for word in plain
    ]
    if len(plain) == 2:
        if not is_recipe[0]:
            raise RecipeError(f"no recipe {plain[0]!r}{did_you_mean(plain[0], list(known))}")
        return plain[0], plain[1], overrides
    if not plain or is_recipe[0]:
        return plain[0] if plain else "bert-mini", None, overrides
    if Path(plain[0]).exists() or any(mark in plain[0] for mark in ":/*?."):
        return "bert-mini", plain[0], overrides
    files = [path.name for path in Path().iterdir() if not path.name.startswith(".")][:1000]
    hint = did_you_mean(plain[0], [*known, *files])
    hint = did_you_mean(plain[0], list(known)) if hint.startswith(";") else hint
    raise RecipeError(f"{plain[0]!r} is neither a recipe nor a file{hint}")


def lines(path: Path) -> list[str]:
    """The lines of a file that hold something."""
    return [line for _, line in numbered_lines(path)]


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that hold something, with their numbers, whatever its encoding; a missing file is named."""
    from meristem.corpus.sources import missing
    from meristem.errors import MeristemError
    from meristem.labelled.found import Notes
    from meristem.labelled.opening import file_of, lines

    if not path.exists():
        raise MeristemError(missing(path))
    found = lines(file_of(path), Notes()) if path.is_file() else _piped(path)
    return ((number, line) for number, line in found if line.strip())


def _piped(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a pipe, as they come."""
    from meristem.errors import MeristemError

    try:
        with path.open(encoding="utf-8") as stream:
            yield from enumerate((line.rstrip("\n") for line in stream), 1)
    except (OSError, UnicodeDecodeError) as error:
        raise MeristemError(f"{path}: {error}") from None


def task_words(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Which word is the recipe, which are settings."""
    from meristem.errors import RecipeError

    plain = [word for word in words if not re.match(r"[\w.-]+=", word)]
    if len(plain) > 1:
        raise RecipeError(f"{' '.join(plain)}: expected at most a recipe; everything else is given as key=value")
    return (plain[0] if plain else None), [word for word in words if word not in plain]


def equations(option: str, text: str | None) -> dict[str, str]:
    """`0=bad,1=good` as names with what they stand for."""
    from meristem.errors import RecipeError

    parts = [part.partition("=") for part in text.split(",")] if text else []
    for name, sign, value in parts:
        if not (name.strip() and sign and value.strip()):
            raise RecipeError(f"{option} {text}: expected NAME=VALUE,NAME=VALUE, as in 0=bad,1=good")
    return {name.strip(): value.strip() for name, _, value in parts}


def asked(template: str | None, told: Mapping[str, Any], apart: Mapping[str, Any]) -> dict[str, Any]:
    """What a template is asked with; its options are refused without it, and it beside what measures other things."""
    from meristem.errors import RecipeError

    given = {name: value for name, value in told.items() if value}
    if template is None and given:
        raise RecipeError(f"--{next(iter(given)).replace('_', '-')}: belongs to --template")
    if template is not None and (other := [name for name, value in apart.items() if value]):
        raise RecipeError(f"--template and {other[0]}: measure one at a time")
    return {"template": template, **given}
