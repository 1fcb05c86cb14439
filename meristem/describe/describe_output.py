"""Output of `meristem describe`: tables for the terminal, or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table
from rich.text import Text

from meristem.checkpoint.load_run import load_recipe, load_run
from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError, RecipeError
from meristem.config.overrides import parse_overrides
from meristem.config.recipe import Recipe, ReinforceRecipe, parse_recipe_file, read_recipe, resolve_recipe
from meristem.describe.budget_recipes import BudgetRecipe, measure_source, recipe_name, recommend
from meristem.describe.describe_recipe import RecipeDescription, RecipeFit, describe_recipe, find_fits
from meristem.describe.describe_run import RunDescription, describe_run, run_table, two_column_table
from meristem.describe.loss_curve import read_points
from meristem.describe.parallel_memory import DeviceCost
from meristem.training.ignored_settings import refuse_ignored
from meristem.training.run_logger import format_duration
from meristem.utils import untrusted_files
from meristem.utils.console import TerminalConsole
from meristem.utils.terminal import emit

LOADED_PARTS = {
    "embeddings": "the embeddings of shared tokens",
    "encoder": "the encoder's weights",
    "nothing": "only its architecture",
}
"""Value of `from.load` → description of the weights that are loaded."""


def show_description(
    target: str,
    overrides: Sequence[str],
    hours: float | None,
    devices: int | None = None,
    *,
    source: str | None = None,
    as_json: bool,
) -> None:
    """Print the description of a recipe or run as tables or JSON; for a run its progress, then the cost of a step."""
    if source is not None and hours is None:
        raise RecipeError("--source: it is for --hours N, which says how often the text is read; give both")
    recipe, lines = _resolve_target(target, overrides)
    run_description = describe_run(RunFolder(Path(target))) if RunFolder(Path(target)).exists() else None
    console = TerminalConsole()
    if run_description is not None and not as_json:
        console.print(run_table(run_description))
    if isinstance(recipe, ReinforceRecipe):
        _show_reward_run(run_description, lines, hours, console, as_json=as_json)
        return
    with TerminalConsole(stderr=True).status(f"{recipe.name}: measuring steps on this machine, a few seconds …"):
        description = describe_recipe(
            recipe, vocab_size=None if run_description is None else run_description.vocabulary, devices=devices
        )
    speed = description.flops_per_token * description.tokens_per_step / description.seconds_per_step
    recipe_fits = find_fits(hours, speed) if hours else []
    budget_recipes = _recommend(hours, speed, source) if hours else []
    if as_json:
        trained = {} if run_description is None else {"trained": asdict(run_description)}
        emit(
            untrusted_files.to_json(
                {
                    **asdict(description),
                    **trained,
                    **({"fits": [asdict(fit) for fit in recipe_fits]} if hours else {}),
                    **({"recommended": [asdict(item) for item in budget_recipes]} if hours else {}),
                }
            )
        )
        return
    for line in lines:
        console.print(line, highlight=False, markup=False)
    console.print(_description_table(description))
    if hours:
        console.print(_fits_table(recipe_fits, hours))
        console.print(_fit_advice(recipe_fits, hours), highlight=False)
        _print_recommendation(console, budget_recipes, hours)


def show_recommendation(hours: float | None, source: str | None, *, as_json: bool) -> None:
    """Print the recommended recipe of each kind for so many hours on this machine, whose speed is measured."""
    if hours is None:
        raise RecipeError("describe: give a recipe or a run, or --hours N for the recipe to use")
    name = recipe_name("encoder", hours)
    recipe = resolve_recipe(*read_recipe(name))
    with TerminalConsole(stderr=True).status(f"{name}: measuring steps on this machine, a few seconds …"):
        description = describe_recipe(recipe)
        speed = description.flops_per_token * description.tokens_per_step / description.seconds_per_step
        budget_recipes = _recommend(hours, speed, source)
    if as_json:
        emit(untrusted_files.to_json({"hours": hours, "recommended": [asdict(item) for item in budget_recipes]}))
    else:
        _print_recommendation(TerminalConsole(), budget_recipes, hours)


def _recommend(hours: float, speed: float, source: str | None) -> list[BudgetRecipe]:
    return recommend(hours, speed, read_points(), None if source is None else measure_source(source))


def _print_recommendation(console: TerminalConsole, budget_recipes: Sequence[BudgetRecipe], hours: float) -> None:
    """The recommended recipes as a table, with what is known about their losses below it."""
    table = Table(title=f"Recommended for {hours:g} hours on this machine", title_justify="left")
    for name in ("recipe", "it", "parameters", "tokens", "passes over the text", "expected loss"):
        table.add_column(name, justify="left" if name in ("recipe", "it") else "right")
    for item in budget_recipes:
        expected = item.expected
        interval = "" if expected.loss is None else f"{expected.loss:.2f} ({expected.low:.2f}–{expected.high:.2f})"
        table.add_row(
            item.recipe,
            item.purpose,
            f"{item.parameters / 1e6:.1f} M",
            f"{item.tokens / 1e6:,.1f} M",
            "–" if item.epochs is None else f"{item.epochs:.2g}",
            interval or "not known",
        )
    console.print(table)
    for item in budget_recipes:
        console.print(f"{item.kind}: expected loss from {item.expected.note}", highlight=False, markup=False)
    for advice in dict.fromkeys(item.advice for item in budget_recipes if item.advice):
        console.print(advice, highlight=False, markup=False)


def _show_reward_run(
    run_description: RunDescription | None,
    lines: Sequence[str],
    hours: float | None,
    console: TerminalConsole,
    *,
    as_json: bool,
) -> None:
    """Print the progress of a reward run; the cost of its steps depends on its rollouts and is not estimated."""
    if run_description is None:
        raise MeristemError("describe: a reward run can be described once it has a checkpoint")
    if hours is not None:
        raise RecipeError("--hours: it is for pretraining recipes, and this is a reward run; leave it out")
    if as_json:
        print(untrusted_files.to_json({"trained": asdict(run_description)}))
        return
    for line in lines:
        console.print(line, highlight=False, markup=False)


def _resolve_target(target: str, overrides: Sequence[str]) -> tuple[Recipe, list[str]]:
    """The recipe of a target (recipe or run), and lines about the run and its initial weights."""
    run = RunFolder(Path(target))
    if not run.exists():
        name, mapping = read_recipe(target)
        if "policy" in mapping:
            raise RecipeError(
                f"describe: the cost of {target} depends on the texts it generates, and can only be measured by "
                "running it (meristem reinforce); a run of it can be described"
            )
        recipe = resolve_recipe(name, mapping, overrides)
        refuse_ignored(recipe, parse_overrides(overrides))
        return recipe, [_describe_start(recipe)] if recipe.start.path or recipe.start.word_vectors else []
    recipe = resolve_recipe(run.path.name, parse_recipe_file(run.recipe_path), overrides)
    refuse_ignored(recipe, parse_overrides(overrides))
    finish_record = run.finish_record or {}
    lines = [
        f"{run.path}: {'finished' if finish_record else 'not finished'}"
        + (f" at step {finish_record['step']:,}" if finish_record else "")
    ]
    return recipe, lines + (
        [_describe_start(load_recipe(run))] if recipe.start.path or recipe.start.word_vectors else []
    )


def _describe_start(recipe: Recipe) -> str:
    """One line on the initial weights of a recipe."""
    start = recipe.start
    if start.path is None:
        return f"starts with word vectors from {start.word_vectors}"
    start_run = load_run(Path(start.path))
    loaded_parts = LOADED_PARTS.get(start.load, "all weights that fit")
    keeps_tokenizer = start.tokenizer == "keep" and start.load in ("all", "encoder")
    tokenizer_phrase = "the same tokenizer" if keeps_tokenizer else "a new tokenizer"
    source = f"{start.path} ({start_run.recipe.model.family}, step {start_run.step:,})"
    return f"starts from {source}: {loaded_parts}, {tokenizer_phrase}"


def _description_table(description: RecipeDescription) -> Table:
    title = Text(f"{description.name}: {description.family}, {description.objective}")
    speed = description.tokens_per_step / description.seconds_per_step
    utilization = description.flops_per_token * speed / description.peak
    run_estimate = (
        f"{description.steps:,} steps, {format_duration(description.seconds)}"
        if description.steps
        else "depends on the size of the corpus"
    )
    trainable_note = "" if description.learning == description.parameters else f", {description.learning:,} trainable"
    without_heads = f"{description.backbone / 1e6:.1f} M without heads"
    rows = {
        "parameters": f"{description.parameters / 1e6:.1f} M ({without_heads}{trainable_note})",
        "vocabulary": f"{description.vocabulary:,} tokens",
        "FLOPs per token": f"{description.flops_per_token:.3g}",
        "tokens per step": f"{description.tokens_per_step:,}",
        "training memory": f"{description.memory / 2**20:,.0f} MiB above the idle process",
        "time per step": f"{description.seconds_per_step:.3g} s on {description.device} ({speed:,.0f} tokens/s)",
        "MFU": f"{utilization:.0%} of {description.peak / 1e9:,.0f} GFLOP/s",
        "the whole run": run_estimate,
        **(_device_rows(description.shared) if description.shared is not None else {}),
    }
    return two_column_table(title, rows, justify="right")


def _device_rows(device_cost: DeviceCost) -> dict[str, str]:
    """Memory and communication of one of several devices."""
    layout = "a shard of every weight (FSDP)" if device_cost.sharded else "a copy of the model (DDP)"
    send_time = (
        format_duration(device_cost.sent * 8 / 1e9)
        if device_cost.sent >= 125e6
        else f"{device_cost.sent * 8 / 1e6:,.0f} ms"
    )
    return {
        f"each of {device_cost.devices} devices": layout,
        "  holds": f"{device_cost.held / 2**20:,.0f} MiB of weights, gradients and optimizer",
        "  training memory": f"about {device_cost.memory / 2**20:,.0f} MiB above the idle process",
        "  sends per step": f"{device_cost.sent / 2**20:,.1f} MiB ({send_time} at 1 Gbit/s)",
    }


def _fits_table(recipe_fits: Sequence[RecipeFit], hours: float) -> Table:
    table = Table(title=f"In {hours:g} hours on this machine", title_justify="left")
    for name in ("recipe", "parameters", "tokens in that time", "useful text", "enough?"):
        table.add_column(name, justify="left" if name == "recipe" else "right")
    for fit in recipe_fits:
        table.add_row(
            fit.name,
            f"{fit.parameters / 1e6:.1f} M",
            f"{fit.tokens / 1e6:,.1f} M",
            f"{fit.megabytes:,.0f} MB",
            "yes" if fit.enough else "no",
        )
    return table


def _fit_advice(recipe_fits: Sequence[RecipeFit], hours: float) -> str:
    sufficient = [fit for fit in recipe_fits if fit.enough]
    choice = sufficient[-1] if sufficient else recipe_fits[0]
    choice_text = f"{choice.name}, with about {choice.megabytes:,.0f} MB of text"
    if not sufficient:
        return f"{hours:g} hours are too short for all of them; the best choice is {choice_text}"
    return f"The largest that {hours:g} hours suffice for (20 tokens per parameter): {choice_text}"
