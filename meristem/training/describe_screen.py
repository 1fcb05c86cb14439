"""What `meristem describe` shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table
from rich.text import Text

from meristem import bounded
from meristem.checkpoint.revive import recipe_of, revive
from meristem.checkpoint.run import Run
from meristem.console import TerminalConsole
from meristem.errors import MeristemError, RecipeError
from meristem.overrides import as_mapping
from meristem.recipe import Recipe, parse, read, resolve
from meristem.terminal import emit
from meristem.training.describe import Description, Fit, describe, fits
from meristem.training.describe_run import RunDescription, describe_run, run_table
from meristem.training.ignored_settings import refuse_ignored
from meristem.training.journal import duration
from meristem.training.sharing import Shared

TAKEN = {
    "embeddings": "the embeddings of tokens both know",
    "encoder": "the encoder's weights",
    "nothing": "its shape alone",
}
"""What is taken of another run, where that is not everything that fits."""


def show(
    what: str, overrides: Sequence[str], hours: float | None, devices: int | None = None, *, as_json: bool
) -> None:
    """A recipe or a run, described on the screen or as JSON: of a run what it has done, then what its steps cost."""
    recipe, lines = _resolved(what, overrides)
    own = describe_run(Run(Path(what))) if Run(Path(what)).exists() else None
    console = TerminalConsole()
    if own is not None and not as_json:
        console.print(run_table(own))
    if recipe.policy is not None:
        _show_rewards(own, lines, hours, console, as_json=as_json)
        return
    with TerminalConsole(stderr=True).status(f"{recipe.name}: measuring steps on this machine, some seconds …"):
        found = describe(recipe, vocabulary=None if own is None else own.vocabulary, devices=devices)
    fitting = fits(hours, found.flops_per_token * found.tokens_per_step / found.seconds_per_step) if hours else []
    if as_json:
        more = {} if own is None else {"trained": asdict(own)}
        emit(bounded.to_json({**asdict(found), **more, **({"fits": [asdict(f) for f in fitting]} if hours else {})}))
        return
    for line in lines:
        console.print(line, highlight=False, markup=False)
    console.print(_table(found))
    if hours:
        console.print(_fits(fitting, hours))
        console.print(_advice(fitting, hours), highlight=False)


def _show_rewards(
    own: RunDescription | None, lines: Sequence[str], hours: float | None, console: TerminalConsole, *, as_json: bool
) -> None:
    """A run that learned from rewards: what it has done; what a step costs follows from the texts that it writes."""
    if own is None:
        raise MeristemError("describe: a run that learns from rewards is described once it has a checkpoint")
    if hours is not None:
        raise RecipeError("--hours: says what recipes could read in that time, and rewards read no text; leave it out")
    if as_json:
        print(bounded.to_json({"trained": asdict(own)}))
        return
    for line in lines:
        console.print(line, highlight=False, markup=False)


def _resolved(what: str, overrides: Sequence[str]) -> tuple[Recipe, list[str]]:
    """The recipe meant, and what there is to say about a run or a start."""
    run = Run(Path(what))
    if not run.exists():
        name, mapping = read(what)
        if "policy" in mapping:
            raise RecipeError(
                f"describe: what {what} costs depends on the texts written for its rewards, and is measured by "
                "running it (meristem reinforce); a run that it made can be described"
            )
        recipe = resolve(name, mapping, overrides)
        refuse_ignored(recipe, as_mapping(overrides))
        return recipe, [_start(recipe)] if recipe.start.path or recipe.start.vectors else []
    recipe = resolve(run.path.name, parse(run.recipe_path), overrides)
    refuse_ignored(recipe, as_mapping(overrides))
    done = run.finished or {}
    lines = [f"{run.path}: {'finished' if done else 'not finished'}" + (f" at step {done['step']:,}" if done else "")]
    return recipe, lines + ([_start(recipe_of(run))] if recipe.start.path or recipe.start.vectors else [])


def _start(recipe: Recipe) -> str:
    """What a start would take, before it is taken."""
    start = recipe.start
    if start.path is None:
        return f"begins with word vectors from {start.vectors}"
    other = revive(Path(start.path))
    what = TAKEN.get(start.take, "all weights that fit")
    kept = start.tokenizer == "keep" and start.take in ("all", "encoder")
    same = "the same tokenizer" if kept else "a tokenizer of its own"
    return f"begins from {start.path} ({other.recipe.model.family}, step {other.step:,}): {what}, {same}"


def _table(found: Description) -> Table:
    title = Text(f"{found.name}: {found.family}, {found.objective}")
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    speed = found.tokens_per_step / found.seconds_per_step
    share = found.flops_per_token * speed / found.peak
    whole = f"{found.steps:,} steps, {duration(found.seconds)}" if found.steps else "depends on the size of the corpus"
    some = "" if found.learning == found.parameters else f", {found.learning:,} learn"
    rows = {
        "parameters": f"{found.parameters / 1e6:.1f} M ({found.backbone / 1e6:.1f} M without heads{some})",
        "vocabulary": f"{found.vocabulary:,} tokens",
        "operations per token": f"{found.flops_per_token:.3g} FLOPs",
        "tokens per step": f"{found.tokens_per_step:,}",
        "memory while training": f"{found.memory / 2**20:,.0f} MiB above the idle process",
        "one step here": f"{found.seconds_per_step:.3g} s on {found.device} ({speed:,.0f} tokens/s)",
        "used of this machine": f"{share:.0%} of {found.peak / 1e9:,.0f} GFLOP/s",
        "the whole run": whole,
        **(_shared(found.shared) if found.shared is not None else {}),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _shared(found: Shared) -> dict[str, str]:
    """What one of several devices holds and sends."""
    how = "a part of every weight" if found.sharded else "a copy of the model"
    slow = duration(found.sent * 8 / 1e9) if found.sent >= 125e6 else f"{found.sent * 8 / 1e6:,.0f} ms"
    return {
        f"each of {found.devices} devices": how,
        "  holds": f"{found.held / 2**20:,.0f} MiB of weights, gradients and optimizer",
        "  memory while training": f"about {found.memory / 2**20:,.0f} MiB above the idle process",
        "  sends in a step": f"{found.sent / 2**20:,.1f} MiB ({slow} at 1 Gbit/s)",
    }


def _fits(found: Sequence[Fit], hours: float) -> Table:
    table = Table(title=f"In {hours:g} hours on this machine", title_justify="left")
    for name in ("recipe", "parameters", "tokens it could read", "text worth giving", "enough?"):
        table.add_column(name, justify="left" if name == "recipe" else "right")
    for fit in found:
        table.add_row(
            fit.name,
            f"{fit.parameters / 1e6:.1f} M",
            f"{fit.tokens / 1e6:,.1f} M",
            f"{fit.megabytes:,.0f} MB",
            "yes" if fit.enough else "no",
        )
    return table


def _advice(found: Sequence[Fit], hours: float) -> str:
    enough = [fit for fit in found if fit.enough]
    best = enough[-1] if enough else found[0]
    text = f"{best.name}, with about {best.megabytes:,.0f} MB of text"
    if not enough:
        return f"{hours:g} hours are short for all of them; the most can be made of {text}"
    return f"The largest that {hours:g} hours can fill (20 tokens a parameter): {text}"
