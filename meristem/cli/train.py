"""The commands pretrain, finetune, reinforce, corpus, recipes and describe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from meristem.cli import options
from meristem.cli.output import print_message, stderr_console
from meristem.utils import untrusted_files
from meristem.utils.terminal import emit

if TYPE_CHECKING:
    from rich.console import Console

    from meristem.config.recipe import Recipe


def pretrain(
    words: options.PretrainArguments = None,
    out: options.Out = None,
    fresh: options.Fresh = False,
    processes: options.Processes = None,
) -> None:
    """Pretrain a model on text; the same command again resumes an interrupted run.

    meristem pretrain                                 a small BERT on built-in text, three minutes
    meristem pretrain gpt2-mini my-texts/             a small GPT-2 on your own folder
    meristem pretrain bert-mini novel.txt train.minutes=10 model.layers=6 --out runs/novel
    meristem pretrain gpt2-mini big.txt --processes 4         four processes on this machine
    """
    recipe, source, overrides = options.parse_pretrain_arguments(words or [])
    from meristem.config.recipe import PretrainRecipe
    from meristem.recipe_resolution import resolve_pretrain_recipe
    from meristem.training import pretraining

    progress_console = stderr_console()
    resolved = resolve_pretrain_recipe(recipe, overrides, source)
    folder = out or Path("runs") / resolved.name
    if not words and isinstance(resolved, PretrainRecipe):
        kind, value = resolved.train.budget
        print_message(f"No recipe given: {resolved.name} on {resolved.corpus.source}, {value:g} {kind}, into {folder}")
    _choose_and_launch(resolved, folder, processes, progress_console, fresh=fresh)
    result = pretraining.pretrain(resolved, folder, fresh=fresh, console=progress_console)
    _print_next_commands(result.example_commands)


def finetune(
    words: options.FinetuneArguments = None,
    out: options.Out = None,
    fresh: options.Fresh = False,
    processes: options.Processes = None,
) -> None:
    """Fine-tune a model on labelled data; the same command again resumes an interrupted run.

    meristem finetune classification                  from scratch on built-in data, a minute or two
    meristem finetune classification from=runs/bert-mini data.train=reviews.tsv data.label=stars --out runs/reviews
    meristem finetune tagging from=runs/bert-mini data.train=train.conll data.test=test.conll
    meristem finetune span from=bert-base-uncased/ data.train=train-v2.0.json train.epochs=2

    Then: meristem predict runs/reviews "What a film!"  and  meristem evaluate runs/reviews --data more.tsv

    Each task has a recipe of the same name: classification, pair, tagging, span, choice, translation, summary,
    dialogue, commands, caption, probe (meristem recipes lists them). from= takes a run or a transformers folder.
    """
    from meristem.finetune import finetuning
    from meristem.recipe_resolution import resolve_task_recipe

    resolved = resolve_task_recipe(*options.parse_finetune_arguments(words or []))
    folder, progress_console = out or Path("runs") / resolved.name, stderr_console()
    _choose_and_launch(resolved, folder, processes, progress_console, fresh=fresh)
    result = finetuning.finetune(resolved, folder, fresh=fresh, console=progress_console)
    _print_next_commands(result.example_commands)


def reinforce(
    recipe: options.RewardRecipe,
    overrides: options.Overrides = None,
    out: options.Out = None,
    fresh: options.Fresh = False,
    processes: options.Processes = None,
) -> None:
    """Fine-tune a generative model with rewards and a KL penalty; the same command again resumes an interrupted run.

    meristem reinforce clicks-microworld              from scratch: a language model, a click model, a policy
    meristem reinforce grammar-microworld from=runs/gpt2-mini data.train=prompts.txt rewards.grammar.corpus=my.txt
    meristem reinforce my.yaml policy.kl.target=4 train.steps=300 --out runs/better

    The run's report.html shows rewards, KL divergence, texts before and after, win rates of an independent judge, and
    warnings about possible reward hacking. docs/rewards.md explains how to write a recipe and a reward.
    """
    from meristem import api
    from meristem.reinforce_resolution import prepare_reinforce
    from meristem.training.launch import is_launched

    if processes is not None and processes > 1 and not is_launched():
        folder = out or Path("runs") / Path(recipe).stem
        prepare_reinforce(recipe, overrides or [], folder, stderr_console())  # once, before the processes start
    _launch_processes(processes, None)
    result = api.reinforce(recipe, overrides or [], out=out, fresh=fresh, console=stderr_console())
    _print_next_commands(result.example_commands)


def _choose_and_launch(recipe: Recipe, out: Path, processes: int | None, console: Console, *, fresh: bool) -> None:
    """As `_launch_processes`; without `--processes` with as many as are faster here."""
    from meristem.describe.process_choice import choose_processes
    from meristem.training.launch import can_relaunch

    if processes is None and can_relaunch():
        processes = choose_processes(recipe, out, console, fresh=fresh)
    _launch_processes(processes, recipe.train.threads)


def _launch_processes(processes: int | None, threads: int | None) -> None:
    """With `--processes`, run this command in that many processes and exit; returns in each of the processes."""
    from meristem.training.launch import is_launch_ended, is_launched, launch

    if is_launch_ended():
        raise typer.Exit(0)
    if processes is None or processes == 1 or is_launched():
        return
    raise typer.Exit(launch(sys.argv[1:], processes, threads=threads))


def _print_next_commands(commands: Sequence[str]) -> None:
    """Print example commands for the new run, on rank zero only."""
    from meristem.training.launch import is_rank_zero_process

    if is_rank_zero_process():
        print_message("\n  ".join(["Try it:", *commands]))


def corpus(
    source: options.CorpusSource,
    overrides: options.Overrides = None,
    out: options.CorpusOut = None,
    page: options.CorpusReportPath = None,
    tokenizer: options.TokenizerPath = None,
    json_: options.Json = False,
) -> None:
    """Read, clean and deduplicate text; report what happened to every document, and recommend settings.

    meristem corpus crawl/                                        statistics and recommended settings
    meristem corpus crawl/ corpus.near_dedup=true --report crawl.html   the same as HTML, with dropped examples
    meristem corpus crawl/ corpus.quality=true --out clean/       cleaned documents, one JSON line each
    meristem corpus crawl/ --tokenizer runs/bert                  how well that run's tokenizer fits the text
    """
    from meristem.corpus.corpus_command import run_corpus_command
    from meristem.corpus.report.corpus_report import report_to_json
    from meristem.corpus.report.report_terminal import report_sections

    counter = None
    if tokenizer is not None:
        from meristem.corpus.report.token_count import TokenCounter
        from meristem.dataset.unknown_tokens import make_token_counter
        from meristem.tokenizers.tokenizer import Tokenizer

        counter = TokenCounter(str(tokenizer), make_token_counter(Tokenizer.load(tokenizer)))
    corpus_report = run_corpus_command(
        source, overrides or [], stderr_console(), out=out, page_path=page, token_counter=counter
    )
    if json_:
        emit(report_to_json(corpus_report))
    else:
        from meristem.utils.console import TerminalConsole

        for section in report_sections(corpus_report):
            TerminalConsole().print(section)
    for path in filter(None, (page, out)):
        print_message(f"wrote {path}")


def recipes(schema: options.SchemaPath = None) -> None:
    """List the built-in recipes, one per line."""
    from meristem.config.recipe import (
        builtin_budget_recipes,
        builtin_recipes,
        builtin_reward_recipes,
        builtin_task_recipes,
        recipe_summary,
    )
    from meristem.config.schema import recipe_schema as schema_of

    if schema is not None:
        schema.write_text(untrusted_files.to_json(schema_of(), indent=1) + "\n", encoding="utf-8")
        emit(f"wrote {schema}; start a recipe with  # yaml-language-server: $schema={schema}")
        return
    by_budget = builtin_budget_recipes()
    groups = (
        ("", {name: path for name, path in builtin_recipes().items() if name not in by_budget}),
        ("\nby budget, with meristem pretrain (meristem describe --hours N says which):\n", by_budget),
        ("\nfor tasks, with meristem finetune:\n", builtin_task_recipes()),
        ("\nfor rewards, with meristem reinforce:\n", builtin_reward_recipes()),
    )
    for heading, paths in groups:
        emit(heading, end="")
        for name, path in paths.items():
            emit(f"{name:<21} {recipe_summary(path)}")


def describe(
    what: options.DescribedRecipeOrRun = None,
    overrides: options.Overrides = None,
    hours: options.Hours = None,
    source: options.BudgetSource = None,
    devices: options.Devices = None,
    json_: options.Json = False,
) -> None:
    """Parameters, FLOPs, memory, and training time of a recipe on this machine (measured now).

    With --devices, also memory and communication per device: a replica each, or with train.fsdp=true a shard (FSDP).
    With --hours, the recipe to use for that time, of each kind of model; alone or after a recipe.
    """
    from meristem.describe.describe_output import show_description, show_recommendation

    if what is None:
        show_recommendation(hours, source, as_json=json_)
    else:
        show_description(what, overrides or [], hours, devices, source=source, as_json=json_)
