"""Verbs that make models, or say what it would take."""

from __future__ import annotations

import json
from pathlib import Path

from meristem import options
from meristem.verbs.screen import console, print_json, say


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


def finetune(words: options.TaskWords = None, out: options.Out = None, fresh: options.Fresh = False) -> None:
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

    recipe, overrides = options.task_words(words or [])
    ended = api.finetune(recipe, overrides, out=out, fresh=fresh, console=console())
    say("\n  ".join(["Try it:", *ended.tries]))


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
        print_json(vars(account))
    else:
        from rich.console import Console

        Console().print(account.table())


def recipes(schema: options.Schema = None) -> None:
    """List the recipes, one line each."""
    from meristem.recipe import schema as schema_of
    from meristem.recipe import shipped, shipped_tasks, summary

    if schema is not None:
        schema.write_text(json.dumps(schema_of(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"wrote {schema}; begin a recipe with  # yaml-language-server: $schema={schema}")
        return
    for name, path in shipped().items():
        print(f"{name:<20} {summary(path)}")
    print("\nfor tasks, with meristem finetune:")
    for name, path in shipped_tasks().items():
        print(f"{name:<20} {summary(path)}")


def describe(
    what: options.What,
    overrides: options.Overrides = None,
    hours: options.Hours = None,
    json_: options.Json = False,
) -> None:
    """Parameters, operations, memory, and the time it would take on this machine (measured now)."""
    from meristem.training.describe_screen import show

    show(what, overrides or [], hours, as_json=json_)
