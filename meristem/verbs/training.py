"""Verbs that make models, or say what it would take."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from meristem import bounded, options
from meristem.terminal import emit
from meristem.verbs.screen import console, say


def pretrain(
    words: options.Words = None,
    out: options.Out = None,
    fresh: options.Fresh = False,
    processes: options.Processes = None,
) -> None:
    """Train a model on text; running it again goes on where it stopped.

    meristem pretrain                                 a small BERT on built-in text, three minutes
    meristem pretrain gpt2-mini my-texts/             a small GPT-2 on a folder of yours
    meristem pretrain bert-mini novel.txt train.minutes=10 model.layers=6 --out runs/novel
    meristem pretrain gpt2-mini big.txt --processes 4         four processes on this machine
    """
    recipe, source, overrides = options.sort_words(words or [])
    from meristem import api
    from meristem.resolving import recipe_for

    screen = console()
    resolved = recipe_for(recipe, overrides, source)
    folder = out or Path("runs") / resolved.name
    if not words:
        kind, value = resolved.train.budget
        say(f"No recipe given: {resolved.name} on {resolved.corpus.source}, {value:g} {kind}, into {folder}")
    _together(processes, resolved.train.threads)
    ended = api.pretrain(recipe, overrides, source=source, out=folder, fresh=fresh, console=screen)
    _told(ended.tries)


def finetune(
    words: options.TaskWords = None,
    out: options.Out = None,
    fresh: options.Fresh = False,
    processes: options.Processes = None,
) -> None:
    """Teach a model a task from labelled data; running it again goes on where it stopped.

    meristem finetune classification                  from scratch on built-in data, a minute or two
    meristem finetune classification from=runs/bert-mini data.train=reviews.tsv data.label=stars --out runs/reviews
    meristem finetune tagging from=runs/bert-mini data.train=train.conll data.test=test.conll
    meristem finetune span from=bert-base-uncased/ data.train=train-v2.0.json train.epochs=2

    Then: meristem predict runs/reviews "What a film!"  and  meristem evaluate runs/reviews --data more.tsv

    A recipe is named like each task: classification, pair, tagging, span, choice, translation, summary, dialogue,
    commands, caption, probe (meristem recipes lists them). from= takes a run or a folder as transformers saves it.
    """
    from meristem import api
    from meristem.resolving import task_recipe

    recipe, overrides = options.task_words(words or [])
    if processes is not None:
        _together(processes, task_recipe(recipe, overrides).train.threads)
    ended = api.finetune(recipe, overrides, out=out, fresh=fresh, console=console())
    _told(ended.tries)


def reinforce(
    recipe: options.RewardRecipe,
    overrides: options.Overrides = None,
    out: options.Out = None,
    fresh: options.Fresh = False,
    processes: options.Processes = None,
) -> None:
    """Improve a model that writes with rewards, held near where it started; running it again goes on.

    meristem reinforce clicks-microworld              from nothing: a writer, a click model, and a policy, in minutes
    meristem reinforce grammar-microworld from=runs/gpt2-mini data.train=prompts.txt rewards.grammar.corpus=my.txt
    meristem reinforce my.yaml policy.kl.target=4 train.steps=300 --out runs/better

    It leaves a report (report.html): rewards, distance, texts before and after, what an independent judge prefers,
    and warnings where the reward may have been fooled. docs/rewards.md tells how to write a recipe and a reward.
    """
    from meristem import api
    from meristem.resolving import made_ready
    from meristem.training.launching import launched

    if processes is not None and processes > 1 and not launched():
        made_ready(recipe, overrides or [], out or Path("runs") / Path(recipe).stem, console())  # once for all
    _together(processes, None)
    ended = api.reinforce(recipe, overrides or [], out=out, fresh=fresh, console=console())
    _told(ended.tries)


def _together(processes: int | None, threads: int | None) -> None:
    """Hand the command over to several processes, where they are asked for and this is not one of them."""
    from meristem.training.launching import condemned, launch, launched

    if condemned():
        raise typer.Exit(0)
    if processes is None or processes == 1 or launched():
        return
    raise typer.Exit(launch(sys.argv[1:], processes, threads=threads))


def _told(tries: Sequence[str]) -> None:
    """Commands that show what was made; of several processes one says it."""
    from meristem.training.launching import speaks

    if speaks():
        say("\n  ".join(["Try it:", *tries]))


def corpus(
    source: options.Source,
    overrides: options.Overrides = None,
    out: options.Cleaned = None,
    page: options.CorpusPage = None,
    tokenizer: options.CountTokens = None,
    json_: options.Json = False,
) -> None:
    """Read, clean and deduplicate text; account for every document, and say what could be done about the corpus.

    meristem corpus crawl/                                        what is in it, and which settings would help
    meristem corpus crawl/ corpus.near=true --report crawl.html   the same as a page, with examples of what goes
    meristem corpus crawl/ corpus.quality=true --out clean/       cleaned documents, one JSON line each
    meristem corpus crawl/ --tokenizer runs/bert                  whether that run's tokenizer fits the text
    """
    from meristem.corpus.command import report
    from meristem.corpus.report import as_json
    from meristem.corpus.report_screen import sections

    counter = None
    if tokenizer is not None:
        from meristem.corpus.tokens import TokenCounter
        from meristem.store.unknown import counter_of
        from meristem.tokenizers.tokenizer import Tokenizer

        counter = TokenCounter(str(tokenizer), counter_of(Tokenizer.load(tokenizer)))
    told = report(source, overrides or [], console(), out=out, page=page, tokens=counter)
    if json_:
        emit(as_json(told))
    else:
        from meristem.console import TerminalConsole

        for section in sections(told):
            TerminalConsole().print(section)
    for path in filter(None, (page, out)):
        say(f"wrote {path}")


def recipes(schema: options.Schema = None) -> None:
    """List the recipes, one line each."""
    from meristem.recipe import shipped, shipped_rewards, shipped_tasks, summary
    from meristem.schema import schema as schema_of

    if schema is not None:
        schema.write_text(bounded.to_json(schema_of(), indent=1) + "\n", encoding="utf-8")
        emit(f"wrote {schema}; begin a recipe with  # yaml-language-server: $schema={schema}")
        return
    for name, path in shipped().items():
        emit(f"{name:<20} {summary(path)}")
    emit("\nfor tasks, with meristem finetune:")
    for name, path in shipped_tasks().items():
        emit(f"{name:<20} {summary(path)}")
    emit("\nfor rewards, with meristem reinforce:")
    for name, path in shipped_rewards().items():
        emit(f"{name:<20} {summary(path)}")


def describe(
    what: options.What,
    overrides: options.Overrides = None,
    hours: options.Hours = None,
    devices: options.Devices = None,
    json_: options.Json = False,
) -> None:
    """Parameters, operations, memory, and the time it would take on this machine (measured now).

    With --devices, also what each of so many would hold and send: a copy of the model, or with train.shard=true a part.
    """
    from meristem.training.describe_screen import show

    show(what, overrides or [], hours, devices, as_json=json_)
