"""The README.md of an exported folder: the run's model card, with commands that work in this folder."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from meristem.checkpoint.load_run import LoadedRun
from meristem.interop.card_metadata import (
    NO_OPTIONS,
    CardOptions,
    exposure_lines,
    front_matter,
    without_local_folders,
)
from meristem.interop.readme_templates import render_readme
from meristem.training.report.model_card import read_card, split_command


def build_exported_card(
    loaded: LoadedRun,
    architecture: str,
    heads: Sequence[str],
    notes: Sequence[str],
    subfolders: Sequence[str],
    options: CardOptions = NO_OPTIONS,
) -> str:
    """The card in Markdown; its Python code and commands run in the exported folder."""
    description, commands = _split_usage(read_card(loaded.run.path, loaded.recipe.name))
    name = re.sub(r"[^\w.-]+", "-", loaded.run.path.resolve().name)
    run_path = f"../{name}-again"
    return render_readme(
        "exported_card.md.jinja",
        metadata=front_matter(loaded, architecture, options),
        exposure=exposure_lines(loaded.run.path),
        description=without_local_folders(description.rstrip(), loaded),
        notes=notes,
        program=python_example(loaded, architecture, heads).rstrip("\n"),
        subfolders=subfolders,
        commands=[f"meristem import . --out {run_path}", *_retarget_commands(run_path, commands)],
    )


def python_example(loaded: LoadedRun, architecture: str, heads: Sequence[str]) -> str:
    """A program that loads the model and uses what it was trained for."""
    return render_readme(
        "transformers_example.py.jinja",
        architecture=architecture,
        ending=architecture.partition("For")[2],
        heads=heads,
        has_mask=loaded.tokenizer.mask is not None,
    )


def _split_usage(card: str) -> tuple[str, list[str]]:
    """A run's card up to its usage section, the part after that section, and the commands."""
    before, separator, usage = card.partition("\n## Use\n")
    if not separator:
        return card, []
    block = re.search(r"```bash\n(.*?)```\n", usage, re.DOTALL)
    if block is None:
        return before, []
    after = [part for part in usage[block.end() :].split("\n\n") if part.strip() and "`recipe.yaml`" not in part]
    return "\n\n".join([before.rstrip(), *(part.strip() for part in after)]) + "\n", block[1].splitlines()


def _retarget_commands(run_path: str, commands: Iterable[str]) -> list[str]:
    """The commands for the imported run, which has no data of its own to evaluate on."""
    words_of_commands = [split_command(command) for command in commands]
    return [
        shlex.join([*words[:2], run_path, *words[3:]])
        for words in words_of_commands
        if len(words) > 2 and words[1] != "evaluate"
    ]
