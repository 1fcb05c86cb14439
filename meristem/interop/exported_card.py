"""The README.md of an exported folder: the run's model card, with commands that work in this folder."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from meristem.checkpoint.revive import Revived
from meristem.training.card import command_words, read_card

LOAD = """\
import torch
from transformers import AutoTokenizer, {cls}

model = {cls}.from_pretrained(".").eval()
tokenizer = AutoTokenizer.from_pretrained(".")
"""
FILL = """
inputs = tokenizer(f"The {{tokenizer.mask_token}} is here.", return_tensors="pt")
with torch.inference_mode():
    scores = model(**inputs).{logits}[0, inputs["input_ids"][0] == tokenizer.mask_token_id]
print([tokenizer.decode(token) for token in scores[0].topk(5).indices])
"""
WRITE = """
inputs = tokenizer("The", return_tensors="pt")
written = model.generate({given}, max_new_tokens=20, do_sample=False)
print(tokenizer.decode(written[0], skip_special_tokens=True))
"""
SCORE = """
inputs = tokenizer("The book is here.", return_tensors="pt")
with torch.inference_mode():
    print(model(**inputs).{output}.shape)
"""
LABEL = """
from transformers import pipeline

print(pipeline("{name}", model=model, tokenizer=tokenizer{options})("The book is here."))
"""
ANSWER = """
inputs = tokenizer("Where is it?", "The book is on the table.", return_tensors="pt")
with torch.inference_mode():
    scores = model(**inputs)
first, last = int(scores.start_logits.argmax()), int(scores.end_logits.argmax())
print(first, last, tokenizer.decode(inputs["input_ids"][0, first : last + 1]))
"""
CHOOSE = """
choices = ["on the table", "in the garden"]
inputs = tokenizer(["The book is"] * 2, choices, return_tensors="pt", padding=True)
with torch.inference_mode():
    scores = model(**{name: value[None] for name, value in inputs.items()}).logits
print(choices[int(scores.argmax())])
"""
CHOOSE_LAST = """
choices = ["on the table", "in the garden"]
inputs = tokenizer(["The book is"] * 2, choices, return_tensors="pt", padding=True, padding_side="right")
last = inputs["attention_mask"].sum(1) - 1
with torch.inference_mode():
    scores = model(inputs["input_ids"][None], mc_token_ids=last[None]).mc_logits
print(choices[int(scores.argmax())])
"""
GENERATOR = """\
from transformers import AutoTokenizer, ElectraForMaskedLM

generator = ElectraForMaskedLM.from_pretrained(".", subfolder="{folder}")
"""


def exported_card(
    revived: Revived, architecture: str, heads: Sequence[str], notes: Sequence[str], subfolders: Sequence[str]
) -> str:
    """The card in Markdown; its Python runs in the exported folder, and so do its commands."""
    about, commands = _without_use(read_card(revived.run.path, revived.recipe.name))
    name = re.sub(r"[^\w.-]+", "-", revived.run.path.resolve().name)
    place = f"../{name}-again"
    use = _fenced("python", python_example(revived, architecture, heads))
    for name in subfolders:
        use += ["", f"`{name}/` is a model of its own:", "", *_fenced("python", GENERATOR.format(folder=name))]
    again = [f"meristem import . --out {place}", *_at(place, commands)]
    left = ["## What this class does not say", "", *(f"- {note}" for note in notes), ""] if notes else []
    return "\n".join([
        "---", "library_name: transformers", "tags:", "- meristem", "---", "",
        about.rstrip(), "",
        *left,
        "## With transformers", "", "In this folder:", "", *use, "",
        "## With Meristem", "", *_fenced("bash", "\n".join(again) + "\n"), "",
    ])  # fmt: skip


def python_example(revived: Revived, architecture: str, heads: Sequence[str]) -> str:
    """A program that loads the model and uses what it was trained for."""
    load, ending = LOAD.format(cls=architecture), architecture.partition("For")[2]
    if {"mlm", "generator"} & set(heads) and revived.tokenizer.mask is not None:
        logits = "prediction_logits" if ending == "PreTraining" else "logits"
        return load + FILL.format(logits=logits)
    if "choice" in heads and "clm" in heads:
        return load + CHOOSE_LAST
    if {"clm", "seq2seq"} & set(heads):
        return load + WRITE.format(given="**inputs" if "seq2seq" in heads else 'inputs["input_ids"]')
    match ending:
        case "SequenceClassification":
            return load + LABEL.format(name="text-classification", options="")
        case "TokenClassification":
            return load + LABEL.format(name="token-classification", options=', aggregation_strategy="first"')
        case "QuestionAnswering" | "QuestionAnsweringSimple":
            return load + ANSWER
        case "MultipleChoice":
            return load + CHOOSE
    return load + SCORE.format(output="logits" if heads and "pooler" not in heads else "last_hidden_state")


def _without_use(card: str) -> tuple[str, list[str]]:
    """A run's card up to its section of commands, what follows that section, and the commands."""
    before, found, use = card.partition("\n## Use\n")
    if not found:
        return card, []
    block = re.search(r"```bash\n(.*?)```\n", use, re.DOTALL)
    if block is None:
        return before, []
    after = [part for part in use[block.end() :].split("\n\n") if part.strip() and "`recipe.yaml`" not in part]
    return "\n\n".join([before.rstrip(), *(part.strip() for part in after)]) + "\n", block[1].splitlines()


def _at(place: str, commands: Iterable[str]) -> list[str]:
    """Commands on the run that an import makes; it has no data of its own to be evaluated on."""
    out = []
    for command in commands:
        words = command_words(command)
        if len(words) > 2 and words[1] != "evaluate":
            out.append(shlex.join([*words[:2], place, *words[3:]]))
    return out


def _fenced(language: str, code: str) -> list[str]:
    return [f"```{language}", *code.rstrip("\n").split("\n"), "```"]
