"""What `make demo` runs: a writer, an entity tagger and a filler of masks, trained from nothing on built-in text.

python -m benchmarks.demo [--minutes 2.5] [--out runs/demo]

The prompts and sentences were chosen before any of these models existed; every number is of text that was held out.
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
from meristem.api import recipe_for
from meristem.checkpoint.run import Run
from meristem.training.shards import gather

T = TypeVar("T")
SHARES = {"writer": 0.35, "tagger": 0.12, "masks": 0.53}
"""Of the minutes."""
PROMPTS = ("One morning", "Anna went to the market", "It was raining in the harbour")
ENTITIES = (
    "Trenor cooked a spinach quiche in the café in Mugan.",
    "Yesterday Anna sold an old blue bicycle in Thornbury.",
    "A tall stranger forgot his umbrella at the harbour.",
)
MASKS = (
    "Return the [MASK] of the given array.",
    "This method is called when the [MASK] is closed.",
    "If the file does not [MASK], an error is raised.",
)
COLOURS = {"person": "cyan", "town": "green", "place": "yellow", "thing": "magenta", "dish": "red"}
QUIET = Console(quiet=True)


@contextmanager
def watched(console: Console, title: str, out: Path) -> Iterator[None]:
    """A line that lives while a run trains: the time it has taken, its step and its loss."""
    columns = (
        TextColumn("  {task.description:<37}"),  # the whole line fits into 80 columns
        BarColumn(6),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}"),
    )
    ended = threading.Event()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=None, now="reading text")

        def watch() -> None:
            while not ended.wait(0.5):
                if line := last_line(out / "metrics.jsonl"):
                    progress.update(task, now=f"step {line['step']:,}, loss {line.get('loss', 0):.2f}")

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        progress.update(task, total=1, completed=1)


def last_line(path: Path) -> Mapping[str, Any] | None:
    """The newest training numbers of a run."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):  # not there yet, or half a line
        return None
    return next((line for line in reversed(lines) if line["kind"] == "train"), None)


def trained(console: Console, title: str, out: Path, train: Callable[[], T]) -> T:
    """What training gives, watched."""
    with watched(console, title, out):
        return train()


def writer(console: Console, out: Path, minutes: float) -> Panel:
    """A small GPT-2 that tells of the small world, and how it goes on from three beginnings."""
    settings = {"train.minutes": minutes, "corpus.source": "builtin:microworld-en?size=4000"}
    result = trained(
        console, "writer: GPT-2 on 4,000 short stories", out,
        lambda: meristem.pretrain("stories", settings, out=out, console=QUIET),
    )  # fmt: skip
    texts = meristem.load(out).generate(list(PROMPTS), max_tokens=45, temperature=0.7, top_p=0.9, seed=1)
    lines = [
        Text.assemble((prompt, "bold"), first_sentences(one.text))
        for prompt, (one,) in zip(PROMPTS, texts, strict=True)
    ]
    told = f"perplexity {np.exp(result.test['loss']):.1f} a token on stories it never saw"
    return panel("It writes", told, spaced(lines))


def first_sentences(text: str, most: int = 2) -> str:
    """The first sentences of a text that may have been cut off in the middle of one."""
    ends = [at + 1 for at, letter in enumerate(text) if letter in ".!?"]
    return text[: ends[min(most, len(ends)) - 1]] if ends else f"{text} …"


def tagger(console: Console, out: Path, minutes: float) -> Panel:
    """A small tagger, its F1, and what it finds in three sentences."""
    settings = {"train.minutes": minutes, "model.layers": 2, "model.width": 128, "task.crf": False, "train.rate": 2e-3}
    result = trained(
        console, "tagger: 1,000 sentences with entities", out,
        lambda: meristem.finetune("entities", settings, out=out, console=QUIET),
    )  # fmt: skip
    found = meristem.load(out).predict(list(ENTITIES))
    lines = [marked(text, some) for text, some in zip(ENTITIES, found, strict=True)]
    lines.append(Text("  ".join(COLOURS), style="dim"))
    for name, colour in COLOURS.items():
        lines[-1].highlight_words([name], colour)
    told = f"F1 {result.test['f1']:.2f} on 400 sentences it never saw"
    return panel("It finds people, towns, places, things and dishes", told, spaced(lines))


def marked(text: str, entities: Sequence[Mapping[str, Any]]) -> Text:
    """A sentence with its entities in their colours."""
    line = Text(text)
    for one in entities:
        kind = one["entity_group"]
        line.stylize(f"bold underline {COLOURS.get(kind, 'white')}", one["start"], one["end"])
    named = ", ".join(f"{text[one['start'] : one['end']]} = {one['entity_group']}" for one in entities)
    return line.append(f"\n    {named or 'nothing'}", style="dim")


def masks(console: Console, out: Path, minutes: float) -> Panel:
    """A small BERT on the prose of this Python installation, its accuracy beside a guess, and three masks filled."""
    result = trained(
        console, "BERT on the prose of your own Python", out,
        lambda: meristem.pretrain(
            "bert-mini-prenorm", {"objective": "mlm", "train.minutes": minutes}, out=out, console=QUIET
        ),
    )  # fmt: skip
    guess, right = commonest_share(out), result.test["mlm.top1"]
    model, table = meristem.load(out), Table.grid(padding=(0, 2))
    for sentence in MASKS:
        best = model.fill(sentence, top=3)[0].candidates
        table.add_row(Text(sentence), Text(", ".join(f"{c.token} {c.probability:.0%}" for c in best), style="bold"))
    told = (
        f"{right:.1%} of hidden words found in text it never saw; always the commonest token: {guess:.1%} "
        f"({right / guess:.1f} times as many)"
    )
    return panel("It fills in what is missing", told, table)


def commonest_share(out: Path) -> float:
    """How often always guessing the commonest token of the training text would be right on the test text."""
    material = gather(recipe_for("bert-mini-prenorm", ["objective=mlm"]), Run.open(out), QUIET)
    store = material.stores["main"]
    train, test = store.split("train"), store.split("test")
    counts = np.bincount(train.tokens(0, len(train)), minlength=material.tokenizer.size)
    counts[material.tokenizer.specials] = 0
    held = test.tokens(0, len(test))
    return float((held == counts.argmax()).sum() / (~material.tokenizer.specials[held]).sum())


def spaced(lines: Sequence[Text]) -> Group:
    """Lines with room between them."""
    return Group(*(Text.assemble(line, "\n" if number + 1 < len(lines) else "") for number, line in enumerate(lines)))


def panel(title: str, told: str, inside: Any) -> Panel:
    """One result: what it is, its number, and what it does."""
    return Panel(
        Group(Text(told, style="dim"), Text(), inside), title=f"[bold]{title}", title_align="left", padding=(1, 2)
    )


def main() -> None:
    """Train three models, and show what each can do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.5, help="of training, for all three together")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    options = parser.parse_args()
    console, began = Console(highlight=False), time.monotonic()
    console.print("\n[bold]Three models from nothing, on text that is on this machine[/bold]\n")
    acts = {"writer": writer, "tagger": tagger, "masks": masks}
    for name, act in acts.items():
        console.print(act(console, options.out / name, options.minutes * SHARES[name]))
    console.print(f"\nAll of it took {time.monotonic() - began:.0f} s. Now yours:\n")
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
    except meristem.MeristemError as error:  # stopped, or something a person can act on
        raise SystemExit(f"demo: {error}") from None
