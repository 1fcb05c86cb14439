"""The command line: verbs only. Everything heavy is imported inside the verb that needs it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from meristem import options

if TYPE_CHECKING:
    from rich.console import Console

    from meristem.api import Loaded

app = typer.Typer(
    name="meristem",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Raw text in, a pretrained language model out.\n\n"
    "First steps: [bold]meristem pretrain[/bold] trains a small BERT on built-in text in three minutes; "
    "[bold]meristem pretrain gpt2-mini my-texts/[/bold] a small GPT-2 on yours.",
)


def console() -> Console:
    """Progress and messages go to the error stream, answers to the output."""
    from rich.console import Console

    return Console(stderr=True)


def say(text: str) -> None:
    """A message as it stands: no colours guessed, no lines broken."""
    console().print(text, highlight=False, markup=False, soft_wrap=True)


@app.command()
def pretrain(words: options.Words = None, out: options.Out = None, fresh: options.Fresh = False) -> None:
    """Train a model on text; running it again goes on where it stopped.

    meristem pretrain                                 a small BERT on built-in text, three minutes
    meristem pretrain gpt2-mini my-texts/             a small GPT-2 on a folder of yours
    meristem pretrain bert-mini novel.txt train.minutes=10 model.layers=6 --out runs/novel
    """
    recipe, source, overrides = options.sort_words(words or [])
    from meristem import api

    screen = console()
    resolved = api.recipe_for(recipe, overrides, source)
    folder = out or Path("runs") / resolved.name
    if not words:
        kind, value = resolved.train.budget
        say(f"No recipe given: {resolved.name} on {resolved.corpus.source}, {value:g} {kind}, into {folder}")
    ended = api.pretrain(recipe, overrides, source=source, out=folder, fresh=fresh, console=screen)
    say("\n  ".join(["Try it:", *ended.tries]))


@app.command()
def finetune(words: options.TaskWords = None, out: options.Out = None, fresh: options.Fresh = False) -> None:
    """Teach a model a task from labelled data; running it again goes on where it stopped.

    meristem finetune classification from=runs/bert-mini data.train=reviews.tsv data.label=stars
    meristem finetune tagging from=runs/bert-mini data.train=train.conll data.test=test.conll
    """
    from meristem import api

    recipe, overrides = options.task_words(words or [])
    ended = api.finetune(recipe, overrides, out=out, fresh=fresh, console=console())
    say("\n  ".join(["Try it:", *ended.tries]))


@app.command()
def predict(
    run: options.Run, text: options.Text = None, file: options.Texts = None, which: options.Which = None
) -> None:
    """A task's answers, as JSON."""
    loaded = _loaded(run, which)
    if text is not None:
        _print_json(loaded.predict(text))
    else:
        for answer in loaded.predict(options.lines(file) if file else sys.stdin.read().splitlines()):
            _print_json(answer)


@app.command()
def corpus(
    source: options.Source,
    overrides: options.Overrides = None,
    out: options.Cleaned = None,
    json_: options.Json = False,
) -> None:
    """Read, clean and deduplicate text, and account for every document."""
    from meristem.corpus.command import report

    account = report(source, overrides or [], out, console())
    if json_:
        _print_json(vars(account))
    else:
        from rich.console import Console

        Console().print(account.table())


@app.command()
def evaluate(
    run: options.Run,
    data: options.Data = None,
    pairs: options.Pairs = None,
    limit: options.Limit = None,
    pll: options.Pll = False,
    which: options.Which = None,
    json_: options.Json = False,
) -> None:
    """Loss, perplexity, bits per byte, accuracies; minimal pairs."""
    found = _loaded(run, which).evaluate(data=data, pairs=str(pairs) if pairs else None, limit=limit, pll=pll)
    if json_:
        _print_json(found)
    else:
        for name, value in found["metrics"].items():
            print(f"{name:<24} {value:.6g}")


@app.command()
def generate(
    run: options.Run,
    prompt: options.Prompt = "",
    file: options.Prompts = None,
    image: options.Image = None,
    count: options.Count = 1,
    max_tokens: options.MaxTokens = 100,
    temperature: options.Temperature = 0.8,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    repetition_penalty: options.Penalty = 1.0,
    beams: options.Beams = 1,
    stop: options.Stop = None,
    seed: options.Seed = 0,
    which: options.Which = None,
    json_: options.Json = False,
) -> None:
    """Write text: causal models go on from a prompt, encoder-decoders turn it into another, masked ones fill masks."""
    loaded = _loaded(run, which)
    prompts: list[Any] = options.lines(file) if file else [image or prompt]
    streaming = not json_ and len(prompts) == 1 and count == 1 and beams == 1 and loaded.way != "masked"
    goes_on = loaded.way != "source"  # a source is no part of what is written from it
    if streaming and goes_on:
        print(prompts[0], end="", flush=True)
    written = loaded.generate(
        prompts,
        count=count,
        on_text=(lambda _, text: print(text, end="", flush=True)) if streaming else None,
        max_tokens=max_tokens,
        temperature=temperature or 1.0,
        greedy=temperature == 0,
        top_k=top_k,
        top_p=top_p,
        repetition_penalty=repetition_penalty,
        beams=beams,
        stop=tuple(stop or ()),
        seed=seed,
    )
    texts = [(first, one) for first, some in zip(prompts, written, strict=True) for one in some]
    if json_:
        _print_json([{"prompt": str(p), "text": w.text, "score": w.score, "finished": w.finished} for p, w in texts])
    elif streaming:
        print()
    else:
        for first, one in texts:
            print(first + one.text if goes_on else one.text)


@app.command()
def fill(
    run: options.Run,
    text: options.Masked,
    top: options.Top = 5,
    which: options.Which = None,
    json_: options.Json = False,
) -> None:
    """Rank the words that could stand in place of [MASK]."""
    found = _loaded(run, which).fill(text, top=top)
    if json_:
        shown = [[{"token": c.token, "score": c.probability, "sequence": c.text} for c in f.candidates] for f in found]
        _print_json([{"mask": f.mask, "candidates": some} for f, some in zip(found, shown, strict=True)])
        return
    for one in found:
        if len(found) > 1:
            print(f"mask {one.mask + 1}")
        for candidate in one.candidates:
            print(f"{candidate.probability:7.2%}  {candidate.token:<16} {candidate.text}")


@app.command()
def score(
    run: options.Run,
    text: options.Text = None,
    file: options.Texts = None,
    which: options.Which = None,
    json_: options.Json = False,
) -> None:
    """The log-probability of texts: exact for causal models, pseudo for masked ones."""
    from meristem.settings import RecipeError

    texts = options.lines(file) if file else [text] if text is not None else []
    if not texts:
        raise RecipeError("score: give a text, or --file with one text a line")
    scored = _loaded(run, which).score(texts)
    if json_:
        names = ("text", "logprob", "tokens", "per_token")
        _print_json([{name: getattr(one, name) for name in names} for one in scored])
    else:
        for one in scored:
            print(f"{one.logprob:10.3f}  {one.logprob / max(1, one.tokens):8.4f} per token  {one.text}")


@app.command(name="import")
def import_(folder: options.Folder, out: options.Out = None) -> None:
    """Make a run of published weights: a folder as transformers saves it, or AllenNLP's ELMo files.

    meristem import bert-base-uncased/ --out runs/bert
    meristem pretrain runs/bert my-texts/ --out runs/mine         go on training it on your text
    """
    from meristem import api

    made = api.import_folder(folder, out or Path("runs") / folder.resolve().name)
    say(made.summary())


@app.command()
def export(
    run: options.Run, folder: options.Target, onnx: options.Onnx = False, architecture: options.Architecture = None
) -> None:
    """Write a run as a folder that transformers opens; with --onnx for onnxruntime instead."""
    from meristem import api

    made = api.export(run, folder, onnx=onnx, architecture=architecture)
    say(made.summary())


@app.command()
def recipes(schema: options.Schema = None) -> None:
    """List the recipes, one line each."""
    from meristem.recipe import schema as schema_of
    from meristem.recipe import shipped, summary

    if schema is not None:
        schema.write_text(json.dumps(schema_of(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"wrote {schema}; begin a recipe with  # yaml-language-server: $schema={schema}")
        return
    for name, path in shipped().items():
        print(f"{name:<20} {summary(path)}")


@app.command()
def describe(
    what: options.What,
    overrides: options.Overrides = None,
    hours: options.Hours = None,
    json_: options.Json = False,
) -> None:
    """Parameters, operations, memory, and the time it would take on this machine (measured now)."""
    from meristem.training.describe_screen import show

    show(what, overrides or [], hours, as_json=json_)


def _loaded(run: Path, which: options.Checkpoint) -> Loaded:
    """The run, after saying what had to be passed over to open it."""
    from meristem import api

    loaded = api.load(run, which=which)
    for notice in loaded.revived.notices:
        say(notice)
    return loaded


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False))


def main() -> NoReturn:
    """Run the command; people get sentences, `--debug` gets tracebacks."""
    debug = "--debug" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--debug"]
    try:
        app(prog_name="meristem", standalone_mode=True)
        sys.exit(0)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os._exit(0)
    except Exception as error:
        if debug:
            raise
        sys.exit(_told(error))


def _told(error: Exception) -> int:
    """Print what a person can act on, and choose the exit code."""
    from meristem.settings import MeristemError, RecipeError

    if not isinstance(error, MeristemError):
        print(
            f"meristem: an unexpected {type(error).__name__}: {error}\n"
            "This is a fault in meristem; the same command with --debug shows where.",
            file=sys.stderr,
        )
        return 1
    print(f"meristem: {error}", file=sys.stderr)
    number = getattr(error, "number", None)
    if number is not None:
        return 128 + int(number)
    return 2 if isinstance(error, RecipeError) else 1
