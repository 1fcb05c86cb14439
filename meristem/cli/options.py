"""Arguments and options of the command line with their help texts, and the parsing of positional arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

RunPath = Annotated[
    Path, Argument(help="A run: a folder written by pretrain, finetune, reinforce or import.", show_default=False)
]
Json = Annotated[bool, Option("--json", help="Print JSON instead of text.")]
Checkpoint = Literal["latest", "best"] | None
WhichCheckpoint = Annotated[
    Checkpoint,
    Option(
        "--which",
        help="The checkpoint to load. Default: the best one if the run keeps it, otherwise the latest.",
        show_default=False,
    ),
]

Precision = Literal["auto", "float32", "bfloat16"]
InferencePrecision = Annotated[
    Precision,
    Option(
        "--precision",
        help="Precision of forward passes; auto: bfloat16 for many tokens where this processor multiplies it faster.",
    ),
]
Quantize = Literal["int8"] | None
Quantization = Annotated[
    Quantize,
    Option("--quantize", show_default=False, help="Round weights to int8: faster, slightly different answers."),
]

PretrainArguments = Annotated[
    list[str] | None,
    Argument(
        metavar="[RECIPE] [SOURCE] [KEY=VALUE]…",
        show_default=False,
        help="A recipe (name or YAML file); the text to train on (file, folder, glob or builtin:NAME); "
        "settings such as train.learning_rate=3e-4.",
    ),
]
FinetuneArguments = Annotated[
    list[str] | None,
    Argument(
        metavar="[RECIPE] [KEY=VALUE]…",
        show_default=False,
        help="A recipe (name or YAML file; each task has one of the same name); settings such as task=tagging, "
        "from=RUN, data.train=FILE, data.label=COLUMN.",
    ),
]
RewardRecipe = Annotated[
    str, Argument(metavar="RECIPE", help="A recipe with rewards: a name (clicks-microworld) or a YAML file.")
]
Out = Annotated[Path | None, Option(help="The run's folder. Default: runs/RECIPE.")]
Processes = Annotated[
    int | None,
    Option(
        min=1,
        show_default=False,
        help="Number of training processes on this machine; if one dies, all restart from the last checkpoint. "
        "For several machines: torchrun … -m meristem (docs/cluster.md).",
    ),
]
Fresh = Annotated[bool, Option("--fresh", help="Start from scratch; an existing run is renamed, never deleted.")]

WeightsFolder = Annotated[
    Path,
    Argument(
        help="A folder with config.json, weights and tokenizer, hub:NAME, a .gguf file, a checkpoint of nanoGPT or "
        "UER-py, or a folder with ELMo's options.json and .hdf5.",
        show_default=False,
    ),
]
ImportSource = Annotated[
    Literal["gguf", "nanogpt", "uer"] | None,
    Option("--from", show_default=False, help="The program that wrote a file, where its content does not show it."),
]
ImportTokenizer = Annotated[
    Path | None,
    Option(
        "--tokenizer",
        show_default=False,
        help="The tokenizer of a file that has none: tokenizer.json, vocab.txt, nanoGPT's meta.pkl, or a folder.",
    ),
]
ImportConfig = Annotated[
    Path | None, Option("--config", show_default=False, help="The configuration of a UER-py checkpoint, as JSON.")
]
ExportFolder = Annotated[Path, Argument(help="The output folder; it must not exist yet.", show_default=False)]
Onnx = Annotated[bool, Option("--onnx", help="Export ONNX graphs for onnxruntime instead.")]
Gguf = Annotated[bool, Option("--gguf", help="Export a GGUF file for llama.cpp instead.")]
Ctranslate2 = Annotated[bool, Option("--ctranslate2", help="Export a ctranslate2 model instead.")]
Int8 = Annotated[bool, Option("--int8", help="With --onnx, --gguf, --ctranslate2: weights rounded to 8 bits.")]
SentenceTransformers = Annotated[
    bool,
    Option("--sentence-transformers", help="Export a folder of text embeddings for sentence-transformers instead."),
]
Architecture = Annotated[
    str | None,
    Option(help="The transformers class to export, such as BertForMaskedLM; heads it does not have are left out."),
]
DropCrf = Annotated[
    bool, Option("--drop-crf", help="Export a tagger without its CRF layer, which transformers does not have.")
]
HubName = Annotated[str, Argument(metavar="OWNER/NAME", help="Its name on the hub.", show_default=False)]
Private = Annotated[bool, Option("--private", help="Only its owner sees it.")]
License = Annotated[
    str | None, Option("--license", help="License in the card, such as apache-2.0 or mit.", show_default=False)
]
Language = Annotated[
    list[str] | None,
    Option("--language", help="Language in the card, such as en; may be given several times.", show_default=False),
]
DryRun = Annotated[bool, Option("--dry-run", help="Show what would be published, and upload nothing.")]

CorpusSource = Annotated[
    str, Argument(help="A file, folder, glob, builtin:NAME or hub:OWNER/NAME.", show_default=False)
]
Overrides = Annotated[
    list[str] | None, Argument(metavar="[KEY=VALUE]…", help="Settings such as corpus.document=line or model.layers=6.")
]
CorpusReportPath = Annotated[Path | None, Option("--report", help="Write the report to this HTML file.")]
TokenizerPath = Annotated[
    Path | None,
    Option("--tokenizer", help="A run, or a tokenizer file or folder: also count tokens and unknown tokens."),
]
CorpusOut = Annotated[Path | None, Option("--out", help="Write the cleaned documents here as JSON lines.")]

Data = Annotated[
    str | None, Option(help="Text, or a labelled file for a fine-tuned run. Default: the run's test split.")
]
Pairs = Annotated[
    Path | None,
    Option(help="Minimal pairs in BLiMP format, optionally with a source: a .jsonl file, folder, .zip or .tar.gz."),
]
Limit = Annotated[int | None, Option(help="Maximum number of samples, or of pairs per phenomenon.")]
Pll = Annotated[bool, Option("--pll", help="Pseudo-log-likelihood of a masked language model: each token masked once.")]
TrustPaths = Annotated[
    bool,
    Option("--trust-paths", help="Read the files named in the run's recipe even if it was trained elsewhere."),
]
Template = Annotated[
    str | None,
    Option(
        help='Prompt template for zero-shot or few-shot evaluation: "{text}\\nSentiment: {label}"; '
        "{text_b} is the second text of a pair, {context} {choice} are for multiple choice."
    ),
]
LabelWords = Annotated[
    str | None, Option("--label-words", "--words", help="With --template: the word for each label, as in 0=bad,1=good.")
]
Shots = Annotated[int, Option(min=0, help="With --template: number of few-shot examples in the prompt.")]
ShotData = Annotated[str | None, Option(help="With --template: the labelled file the examples are drawn from.")]
ShotSeed = Annotated[int, Option("--seed", min=0, help="With --template: random seed of the examples.")]
Calibrate = Annotated[
    bool,
    Option(
        "--calibrate",
        help="With --template: contextual calibration, relative to a content-free text (Zhao et al., 2021).",
    ),
]
PerToken = Annotated[
    bool, Option("--per-token", help="With --template: divide label scores by their number of tokens.")
]
Columns = Annotated[
    str | None, Option(help="Column names of --data where they differ from the run's: text=review,label=stars.")
]

ReportPath = Annotated[
    Path | None,
    Option(
        "--report",
        help="Write a report with metrics, confusion matrix and most confident errors to FILE.html or FILE.json.",
    ),
]

Prompt = Annotated[str, Option(help="The prompt to continue; for an encoder-decoder, the source text.")]
PromptFile = Annotated[Path | None, Option("--file", help="A file of prompts, one per line.")]
EncoderSource = Annotated[
    str | None, Option("--source", help="A source text for the encoder, for models that can also continue a prompt.")
]
Image = Annotated[Path | None, Option(help="An image file for a captioning model.")]
Count = Annotated[int, Option(min=1, help="Number of texts per prompt.")]

BestOf = Annotated[
    int | None, Option("--best-of", min=1, help="Generate N texts per prompt and keep those with the highest --reward.")
]
RewardSpecs = Annotated[
    list[str] | None,
    Option(
        "--reward",
        help="NAME or NAME,key=value,… (meristem reward lists them), a YAML file with a rewards: section, or a run "
        "that was trained with rewards; may be given several times.",
    ),
]
References = Annotated[
    list[str] | None, Option("--reference", help="A reference text for the prompt; may be given several times.")
]
RewardArguments = Annotated[
    list[str] | None,
    Argument(
        metavar="[NAME] [KEY=VALUE]…",
        show_default=False,
        help="A reward's name, a YAML file with a rewards: section, or a run that was trained with rewards; settings.",
    ),
]
RewardTexts = Annotated[list[str] | None, Option("--text", help="A text to score; may be given several times.")]
RewardPrompt = Annotated[str, Option("--prompt", help="The prompt that the text completes.")]
RewardFile = Annotated[
    Path | None,
    Option("--file", help='A file with one text per line: plain, or {"text": …, "prompt": …, "references": […]}.'),
]
RewardColumns = Annotated[
    list[str] | None, Option("--column", help="NAME=VALUE: a further column of the prompt's row.")
]

FillText = Annotated[str, Argument(help="A text with one or more [MASK].", show_default=False)]
TopCandidates = Annotated[int, Option(min=1, help="Number of candidates per mask.")]

ScoreText = Annotated[
    str | None, Argument(help="The text to score; with --text-b the source or the prompt.", show_default=False)
]
ScoreTargets = Annotated[
    list[str] | None,
    Option(
        "--text-b",
        help="Score this given the text: the target of an encoder-decoder, or the continuation of the text (appended "
        "without a space); several are ranked, best first.",
    ),
]
ScoreFile = Annotated[
    Path | None, Option("--file", help="A file with one text per line, or with source TAB target on every line.")
]
ScoreImage = Annotated[Path | None, Option("--image", help="The image that the caption in --text-b is scored for.")]
ScoreOrder = Annotated[
    str | None, Option("--order", help="XLNet's factorization order, as in 2,0,1. Default: left to right.")
]
DetectText = Annotated[
    str | None, Argument(help="A text in which some tokens may have been replaced.", show_default=False)
]
TextFile = Annotated[Path | None, Option("--file", help="A file of texts, one per line.")]

PredictText = Annotated[str | None, Argument(help="The input text.", show_default=False)]
SampleFile = Annotated[
    str | None,
    Option("--file", help="A file of samples (text, tsv, csv, jsonl, CoNLL, …), builtin:NAME, or - for stdin."),
]
PredictionsOut = Annotated[
    Path | None,
    Option(
        "--out",
        show_default=False,
        help="The output file (.csv, .tsv or .jsonl): the input columns and the predictions.",
    ),
]
TopPredictions = Annotated[int | None, Option("--top", min=1, help="The K most likely predictions with their scores.")]
AbstainBelow = Annotated[
    float | None,
    Option(
        "--abstain-below",
        metavar="P",
        show_default=False,
        help="Withhold answers below this probability: abstain, with the probability.",
    ),
]

EmbedText = Annotated[str | None, Argument(help="A text to embed.", show_default=False)]
EmbedLevel = Annotated[
    Literal["text", "token", "word"],
    Option(help="One vector per text, per token or per word (the mean of its tokens)."),
]
EmbedLayer = Annotated[
    str | None,
    Option(
        "--layer",
        show_default=False,
        help="A layer: 0 is the embeddings, -1 the last; mix is the weighted sum of all layers with the weights a task "
        "learned (ELMo), otherwise equal weights. Default: the model's output.",
    ),
]
EmbedPooling = Annotated[
    Literal["mean", "first", "last"] | None,
    Option("--pooling", help="How token vectors are pooled into one text vector; as in training, else the mean."),
]
EmbedOut = Annotated[Path | None, Option("--out", help="The output file: .npy, .jsonl or .tsv.", show_default=False)]

AttentionText = Annotated[str | None, Argument(help="The input text.", show_default=False)]
AttentionOut = Annotated[
    Path | None,
    Option("--out", help="The output file (.png, .svg or .json); with --file a folder. Default: print a table."),
]
AttentionKind = Annotated[
    str | None,
    Option(help="self, cross, decoder, align, image, content or query. Default: the most informative one."),
]
AttentionLayer = Annotated[int | None, Option(help="One layer, numbered from 1.")]
AttentionHead = Annotated[
    int | None, Option("--head", help="One head, numbered from 1; of the last layer without --layer.")
]
GridView = Annotated[bool, Option("--grid", help="All layers and heads as small heatmaps.")]
MeanView = Annotated[bool, Option("--mean", help="The mean over all heads, of one layer or of all layers.")]
RolloutView = Annotated[
    bool, Option("--rollout", help="Attention rollout through all layers (Abnar and Zuidema, 2020).")
]
AttentionTarget = Annotated[
    str | None, Option("--target", help="The target text. Default: the model's own greedy output.")
]
MemoryText = Annotated[str | None, Option(help="The preceding text, for a model with segment memory (Transformer-XL).")]
FactorizationOrder = Annotated[
    str | None,
    Option("--order", help="XLNet's factorization order of words or tokens, as in 2,0,1. Default: random."),
]
AttentionFormat = Annotated[
    Literal["png", "svg", "json"], Option("--format", help="With --file: the format of the output files.")
]

Runs = Annotated[
    list[Path], Argument(help="Runs to serve; each is served under its folder's name.", show_default=False)
]
RunsFolder = Annotated[Path, Argument(help="The folder with the runs; new runs appear on the page.")]
SchemaPath = Annotated[Path | None, Option(help="Write a JSON schema of recipes, for editors, to this file.")]
RecipeOrRun = Annotated[
    str, Argument(metavar="RECIPE|RUN", help="A recipe's name or file, or a run.", show_default=False)
]
DescribedRecipeOrRun = Annotated[
    str | None,
    Argument(metavar="RECIPE|RUN", help="A recipe's name or file, or a run; none with --hours.", show_default=False),
]
BudgetSource = Annotated[
    str | None,
    Option(show_default=False, help="With --hours: the text to train on, a file or folder; says how often it is read."),
]
Devices = Annotated[
    int | None,
    Option(min=1, show_default=False, help="Memory and communication per device when training on N devices."),
]
Hours = Annotated[
    float | None, Option(min=0.001, help="Which recipe and how much text fit into this many hours on this machine.")
]


def parse_pretrain_arguments(arguments: Sequence[str]) -> tuple[str, str | None, list[str]]:
    """The recipe, the source (None if not given) and the overrides among positional arguments."""
    from meristem.config.errors import RecipeError, did_you_mean
    from meristem.config.recipe import builtin_recipes

    overrides = [argument for argument in arguments if re.match(r"[\w.-]+=", argument) and not Path(argument).exists()]
    positional = [argument for argument in arguments if argument not in overrides]
    if len(positional) > 2:
        raise RecipeError(
            f"{' '.join(positional)}: expected at most a recipe and a source; settings are given as key=value"
        )
    recipes = builtin_recipes()
    is_recipe = [
        argument in recipes or argument.endswith((".yaml", ".yml")) or (Path(argument) / "recipe.yaml").is_file()
        for argument in positional
    ]
    if len(positional) == 2:
        if not is_recipe[0]:
            raise RecipeError(f"no recipe {positional[0]!r}{did_you_mean(positional[0], list(recipes))}")
        return positional[0], positional[1], overrides
    if not positional or is_recipe[0]:
        return positional[0] if positional else "bert-mini", None, overrides
    if Path(positional[0]).exists() or any(character in positional[0] for character in ":/*?."):
        return "bert-mini", positional[0], overrides
    files = [path.name for path in Path().iterdir() if not path.name.startswith(".")][:1000]
    hint = did_you_mean(positional[0], [*recipes, *files])
    hint = did_you_mean(positional[0], list(recipes)) if hint.startswith(";") else hint
    raise RecipeError(f"{positional[0]!r} is neither a recipe nor a file{hint}")


def read_lines(path: Path) -> list[str]:
    """The lines of a file that are not blank."""
    return [line for _, line in read_numbered_lines(path)]


def read_numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(line number, line) of the lines of a file that are not blank, whatever its encoding."""
    from meristem.config.errors import MeristemError
    from meristem.data.sources import describe_missing_path
    from meristem.labelled.row_streams import iter_text_lines

    if not path.exists():
        raise MeristemError(describe_missing_path(path))
    numbered = iter_text_lines(path) if path.is_file() else _read_pipe(path)
    return ((number, line) for number, line in numbered if line.strip())


def _read_pipe(path: Path) -> Iterator[tuple[int, str]]:
    """(line number, line) of the lines of a pipe, as they arrive."""
    from meristem.config.errors import MeristemError

    try:
        with path.open(encoding="utf-8") as stream:
            yield from enumerate((line.rstrip("\n") for line in stream), 1)
    except (OSError, UnicodeDecodeError) as error:
        raise MeristemError(f"{path}: {error}") from None


def parse_finetune_arguments(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """The recipe (None if not given) and the overrides among positional arguments."""
    from meristem.config.errors import RecipeError

    positional = [argument for argument in arguments if not re.match(r"[\w.-]+=", argument)]
    if len(positional) > 1:
        raise RecipeError(f"{' '.join(positional)}: expected at most one recipe; settings are given as key=value")
    return (positional[0] if positional else None), [argument for argument in arguments if argument not in positional]


def parse_key_values(option: str, text: str | None) -> dict[str, str]:
    """`0=bad,1=good` as a mapping from name to value."""
    from meristem.config.errors import RecipeError

    parts = [part.partition("=") for part in text.split(",")] if text else []
    for name, equals, value in parts:
        if not (name.strip() and equals and value.strip()):
            raise RecipeError(f"{option} {text}: expected NAME=VALUE,NAME=VALUE, as in 0=bad,1=good")
    return {name.strip(): value.strip() for name, _, value in parts}


def template_options(
    template: str | None, options: Mapping[str, Any], conflicting: Mapping[str, Any]
) -> dict[str, Any]:
    """The options for `--template`; refuses them without a template, and a template with options of other measures."""
    from meristem.config.errors import RecipeError

    set_options = {name: value for name, value in options.items() if value}
    if template is None and set_options:
        raise RecipeError(f"--{next(iter(set_options)).replace('_', '-')}: needs --template")
    if template is not None and (conflicts := [name for name, value in conflicting.items() if value]):
        raise RecipeError(f"--template and {conflicts[0]}: cannot be combined; measure one at a time")
    return {"template": template, **set_options}
