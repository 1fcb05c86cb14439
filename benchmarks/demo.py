"""`make demo`: trains a GPT-2, an entity tagger and a BERT from scratch on built-in text, and shows their output.

python -m benchmarks.demo [--minutes 2.5] [--out runs/demo]

Every number is measured on held-out text.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.console import Console, Group
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

import meristem
from meristem.api import resolve_pretrain_recipe
from meristem.checkpoint.run_folder import RunFolder
from meristem.training.data.pretraining_data import load_pretraining_data

T = TypeVar("T")
SHARES = {"writer": 0.35, "tagger": 0.12, "masks": 0.53}
"""Share of the minutes of each model."""
PROMPTS = ("One morning", "Anna went to the market", "It was raining in the harbour")
ENTITIES = (
    "Trenor cooked a spinach quiche in the café in Mugan.",
    "Yesterday Anna sold an old blue bicycle in Thornbury.",
    "A tall stranger forgot his umbrella at the harbour.",
)
MASKS = (
    "Return True if the object is a [MASK].",
    "Raise an exception if the [MASK] is not found.",
    "This method is called when the [MASK] is closed.",
)
"""Three of eight sentences that a first model was asked; the prompts above were chosen before any was trained."""
MASKED_MODEL = {"objective": "mlm", "model.layers": 3, "model.hidden_size": 128, "model.heads": 2}
"""Smaller than bert-mini: in little more than a minute it reads four times as much text, and learns more."""
COLOURS = {"person": "cyan", "town": "green", "place": "yellow", "thing": "magenta", "dish": "red"}
QUIET = Console(quiet=True)


@contextmanager
def watched(console: Console, title: str, out: Path) -> Iterator[None]:
    """A live progress line while a run trains: elapsed time, step and loss."""
    columns = (
        TextColumn("  {task.description:<37}"),  # the whole line fits into 80 columns
        BarColumn(6),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}"),
    )
    event = threading.Event()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=None, now="reading text")

        def watch() -> None:
            while not event.wait(0.5):
                if line := last_line(out / "metrics.jsonl"):
                    progress.update(task, now=f"step {line['step']:,}, loss {line.get('loss', 0):.2f}")

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            event.set()
            thread.join()
        progress.update(task, total=1, completed=1)


def last_line(path: Path) -> Mapping[str, Any] | None:
    """The last training line of a run's metrics."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):  # not there yet, or an incomplete line
        return None
    return next((line for line in reversed(lines) if line["kind"] == "train"), None)


def trained(console: Console, title: str, out: Path, train: Callable[[], T]) -> T:
    """The result of training, with a live progress line."""
    with watched(console, title, out):
        return train()


def writer(console: Console, out: Path, minutes: float) -> Panel:
    """A small GPT-2 trained on microworld stories, and its continuations of three prompts."""
    settings = {"train.minutes": minutes, "corpus.source": "builtin:microworld-en?size=4000"}
    result = trained(
        console, "writer: GPT-2 on 4,000 short stories", out,
        lambda: meristem.pretrain("stories", settings, out=out, console=QUIET),
    )  # fmt: skip
    texts = meristem.load(out).generate(list(PROMPTS), max_tokens=45, temperature=0.7, top_p=0.9, seed=1)
    lines = [
        Text.assemble((prompt, "bold"), first_sentences(completion.text))
        for prompt, (completion,) in zip(PROMPTS, texts, strict=True)
    ]
    subtitle = f"perplexity {np.exp(result.test['loss']):.1f} a token on stories it never saw"
    return panel("It writes", subtitle, spaced(lines))


def first_sentences(text: str, max_sentences: int = 2) -> str:
    """The first complete sentences of a generated text."""
    ends = [index + 1 for index, letter in enumerate(text) if letter in ".!?"]
    return text[: ends[min(max_sentences, len(ends)) - 1]] if ends else f"{text} …"


def tagger(console: Console, out: Path, minutes: float) -> Panel:
    """A small entity tagger, its F1, and its output for three sentences."""
    settings = {
        "train.minutes": minutes,
        "model.layers": 2,
        "model.hidden_size": 128,
        "task.crf": False,
        "train.learning_rate": 2e-3,
    }
    result = trained(
        console, "tagger: 1,000 sentences with entities", out,
        lambda: meristem.finetune("entities", settings, out=out, console=QUIET),
    )  # fmt: skip
    predictions = meristem.load(out).predict(list(ENTITIES))
    lines = [marked(text, entities) for text, entities in zip(ENTITIES, predictions, strict=True)]
    lines.append(Text("  ".join(COLOURS), style="dim"))
    for name, colour in COLOURS.items():
        lines[-1].highlight_words([name], colour)
    subtitle = f"F1 {result.test['f1']:.2f} on 400 sentences it never saw"
    return panel("It finds people, towns, places, things and dishes", subtitle, spaced(lines))


def marked(text: str, entities: Sequence[Mapping[str, Any]]) -> Text:
    """A sentence with its entities highlighted."""
    line = Text(text)
    for entity in entities:
        kind = entity["entity_group"]
        line.stylize(f"bold underline {COLOURS.get(kind, 'white')}", entity["start"], entity["end"])
    named = ", ".join(f"{text[entity['start'] : entity['end']]} = {entity['entity_group']}" for entity in entities)
    return line.append(f"\n    {named or 'nothing'}", style="dim")


def masks(console: Console, out: Path, minutes: float) -> Panel:
    """A small BERT trained on the documentation of this Python installation: accuracy and three filled masks."""
    result = trained(
        console, "BERT on the prose of your own Python", out,
        lambda: meristem.pretrain(
            "bert-mini-prenorm", {**MASKED_MODEL, "train.minutes": minutes}, out=out, console=QUIET
        ),
    )  # fmt: skip
    guess, right = commonest_share(out), result.test["mlm.top1"]
    model, table = meristem.load(out), Table.grid(padding=(0, 2))
    for sentence in MASKS:
        best = model.fill(sentence, top=3)[0].candidates
        table.add_row(Text(sentence), Text(", ".join(f"{c.token} {c.probability:.0%}" for c in best), style="bold"))
    subtitle = (
        f"{right:.1%} of hidden words found in text it never saw; always the commonest token: {guess:.1%} "
        f"({right / guess:.1f} times as many)"
    )
    return panel("It fills in what is missing", subtitle, table)


def commonest_share(out: Path) -> float:
    """Accuracy on the test text of always guessing the most frequent token of the training text."""
    data = load_pretraining_data(
        resolve_pretrain_recipe("bert-mini-prenorm", ["objective=mlm"]), RunFolder.open(out), QUIET
    )
    store = data.datasets["main"]
    train, test = store.split("train"), store.split("test")
    counts = np.bincount(train.tokens(0, len(train)), minlength=data.tokenizer.vocab_size)
    counts[data.tokenizer.special_mask] = 0
    held_out = test.tokens(0, len(test))
    return float((held_out == counts.argmax()).sum() / (~data.tokenizer.special_mask[held_out]).sum())


def spaced(lines: Sequence[Text]) -> Group:
    """Lines separated by blank lines."""
    return Group(*(Text.assemble(line, "\n" if number + 1 < len(lines) else "") for number, line in enumerate(lines)))


def panel(title: str, subtitle: str, inside: Any) -> Panel:
    """A panel with title, subtitle and content."""
    return Panel(
        Group(Text(subtitle, style="dim"), Text(), inside), title=f"[bold]{title}", title_align="left", padding=(1, 2)
    )


def main() -> None:
    """Train three models and show their output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.5, help="training time of all three models together")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    options = parser.parse_args()
    console, start = Console(highlight=False), time.monotonic()
    console.print("\n[bold]Three models trained from scratch, on text of this machine[/bold]\n")
    demos = {"writer": writer, "tagger": tagger, "masks": masks}
    for name, demo in demos.items():
        console.print(demo(console, options.out / name, options.minutes * SHARES[name]))
    console.print(f"\nAll of it took {time.monotonic() - start:.0f} s. Now yours:\n")
    for line in (
        f'meristem generate {options.out / "writer"} --prompt "Yesterday"',
        f'meristem predict {options.out / "tagger"} "Diego lost his hat in Larkspur."',
        "meristem pretrain bert-mini my-texts/   # a file or folder of your own text",
        f"meristem studio {options.out}   # curves and a playground, in the browser",
    ):
        console.print(f"  {line}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except meristem.MeristemError as error:  # interrupted, or an error that the user can fix
        raise SystemExit(f"demo: {error}") from None
