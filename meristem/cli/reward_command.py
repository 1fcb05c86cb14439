"""The reward command (score texts with rewards), and best-of-n for the generate command."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meristem.cli import options
from meristem.cli.output import generated_text_json, print_json, print_message, stderr_console
from meristem.utils.terminal import emit

if TYPE_CHECKING:
    from meristem.api import LoadedModel
    from meristem.reinforce.combined_reward import CombinedScores
    from meristem.reinforce.reward_base import PromptCompletion

MAX_TEXT_CHARS = 60
"""Characters of a text shown in a table."""


def reward(
    words: options.RewardArguments = None,
    text: options.RewardTexts = None,
    prompt: options.RewardPrompt = "",
    reference: options.References = None,
    column: options.RewardColumns = None,
    file: options.RewardFile = None,
    json_: options.Json = False,
) -> None:
    """Score texts with a reward and explain the score; without a name, list the rewards.

    meristem reward                                               the rewards, one per line
    meristem reward grammar                                       its settings
    meristem reward length target=20 --text "A short one."
    meristem reward grammar run=runs/gpt2-mini --file texts.txt
    meristem reward meaning vectors=glove.txt --text "A boat." --reference "A ship." --json
    """
    if not words:
        _list_rewards()
    elif text is None and file is None:
        _print_reward_settings(words[0])
    else:
        from meristem.reinforce.reward_setup import build_rewards, rewards_cache
        from meristem.reinforce.reward_specs import parse_key_values, parse_reward_specs

        name, *settings = words
        config = {"name": name, **parse_key_values(settings)} if settings else name
        rewards = build_rewards(parse_reward_specs(config), rewards_cache(), stderr_console())
        shared_fields = {"prompt": prompt, "references": reference or [], **parse_key_values(column or [])}
        completions = [
            _build_completion({**shared_fields, **fields}, location)
            for location, fields in _read_texts(text or [], file)
        ]
        rewards.check(completions)
        scores = rewards.score(completions)
        if json_:
            _print_json(completions, scores)
        else:
            _print_table(completions, scores, rewards.weights)


def print_best_of(
    loaded: LoadedModel,
    prompts: Sequence[Any],
    sampling: Mapping[str, Any],
    best_of: int | None,
    rewards: Sequence[str],
    references: Sequence[str],
    *,
    keep: int,
    as_json: bool,
) -> None:
    """Generate `best_of` texts per prompt and print those with the highest reward."""
    from meristem.config.errors import RecipeError

    if best_of is None or not rewards:
        option = "--best-of" if best_of else "--reward" if rewards else "--reference"
        missing = ["--best-of N"] * (best_of is None) + ["--reward NAME (meristem reward lists them)"] * (not rewards)
        raise RecipeError(f"{option}: needs {' and '.join(missing)} as well")
    prompt_references = [references] * len(prompts)
    ranked = loaded.best(prompts, of=best_of, keep=keep, rewards=rewards, references=prompt_references, **sampling)
    pairs = [(prompt, best) for prompt, prompt_texts in zip(prompts, ranked, strict=True) for best in prompt_texts]
    if as_json:
        print_json(
            [
                {
                    **generated_text_json(prompt, best.output),
                    "text": best.text,
                    "value": best.value,
                    "parts": best.parts,
                }
                for prompt, best in pairs
            ]
        )
        return
    for prompt, best in pairs:
        parts = ", ".join(f"{name} {value:.3f}" for name, value in best.parts.items())
        print_message(f"{best.value:.3f}, best of {best_of}" + (f" ({parts})" if len(best.parts) > 1 else ""))
        emit(best.text if loaded.lm_kind == "source" else f"{prompt}{best.text}")


def _list_rewards() -> None:
    """Print every reward with the first line of its docstring, without importing the built-in modules."""
    from meristem.config.registry import ComponentKind, module_names
    from meristem.reinforce import rewards

    for name in ComponentKind.REWARD.plugins():
        emit(f"{name:<12} {ComponentKind.REWARD.origin(name)}")
    for name in module_names(ComponentKind.REWARD.package):
        source = Path(rewards.__path__[0], f"{name}.py").read_text(encoding="utf-8")
        first_line = (ast.get_docstring(ast.parse(source)) or "").splitlines()[0]
        summary = re.sub(r" \(SPEC \w+\)", "", first_line.partition(": ")[2] or first_line)
        emit(f"{name:<12} {summary.rstrip('.')}")
    emit('\nmeristem reward NAME shows its settings; meristem reward NAME key=value --text "…" scores a text')


def _print_reward_settings(name: str) -> None:
    """Print the settings of a reward with defaults and help."""
    from rich.table import Table

    from meristem.reinforce.reward_base import REWARDS
    from meristem.utils.console import TerminalConsole

    reward = REWARDS[name.partition(",")[0]]
    table = Table("setting", "default", "", box=None, pad_edge=False)
    for key, field in reward.Settings.model_fields.items():
        if key != "name":
            default = "required" if field.is_required() else field.get_default(call_default_factory=True)
            table.add_row(key, str(default), field.description)
    TerminalConsole().print(f"{name}: {(reward.__doc__ or '').strip()}\n", highlight=False, soft_wrap=True)
    TerminalConsole().print(table)


def _read_texts(texts: Sequence[str], file: Path | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """(location, fields) of each text; a line of a file may be a JSON object with further fields."""
    from meristem.config.errors import MeristemError
    from meristem.utils import untrusted_files

    yield from (("", {"text": text}) for text in texts)
    for line_number, line in enumerate(options.read_lines(file) if file is not None else (), 1):
        location = f"{file}:{line_number}"
        if not line.lstrip().startswith("{"):
            yield location, {"text": line}
            continue
        try:
            fields = untrusted_files.parse_json_line(line)
        except ValueError as error:
            raise MeristemError(f"{location}: {error}") from None
        if not isinstance(fields, dict) or not isinstance(fields.get("text"), str):
            raise MeristemError(f'{location}: expected {{"text": …}}, optionally with "prompt" and "references"')
        yield location, fields


def _build_completion(fields: Mapping[str, Any], location: str) -> PromptCompletion:
    """A completion with its prompt and references; other fields become columns."""
    from meristem.reinforce.reward_base import PromptCompletion

    references = fields["references"]
    columns = {key: value for key, value in fields.items() if key not in ("text", "prompt", "references")}
    reference_list = [references] if isinstance(references, str) else list(references or ())
    return PromptCompletion(
        prompt=str(fields["prompt"] or ""),
        text=fields["text"],
        references=tuple(map(str, reference_list)),
        columns=columns,
        location=location,
    )


def _print_json(completions: Sequence[PromptCompletion], scores: CombinedScores) -> None:
    """Print one JSON object per text."""
    for index, completion in enumerate(completions):
        parts = {name: float(values[index]) for name, values in scores.parts.items()}
        fields = {"text": completion.text, "prompt": completion.prompt, "value": float(scores.total[index])}
        print_json({**fields, "parts": parts, "why": scores.why[index]})


def _print_table(completions: Sequence[PromptCompletion], scores: CombinedScores, weights: Mapping[str, float]) -> None:
    """Print one row per text and reward, and a row with the weighted sum if there are several rewards."""
    from rich.table import Table

    from meristem.utils.console import TerminalConsole

    table = Table("value", "reward", "why", "text", box=None, pad_edge=False)
    for index, completion in enumerate(completions):
        short = " ".join(completion.text.split())
        short = short if len(short) <= MAX_TEXT_CHARS else short[: MAX_TEXT_CHARS - 1] + "…"
        for name, values in scores.parts.items():
            table.add_row(f"{values[index]:.4f}", name, _format_reasons(scores.why[index][name]), short)
            short = ""
        if len(scores.parts) > 1:
            formula = " + ".join(f"{weight:g} · {name}" for name, weight in weights.items())
            table.add_row(f"{scores.total[index]:.4f}", "sum", formula, "")
    TerminalConsole().print(table)


def _format_reasons(reasons: Mapping[str, float | str]) -> str:
    """The components of a score in one line."""
    return ", ".join(
        f"{key} {value:.3g}" if isinstance(value, float) else f"{key}: {value}" for key, value in reasons.items()
    )
