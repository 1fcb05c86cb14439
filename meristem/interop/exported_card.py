"""The README.md of an exported folder: the run's model card, with commands that work in this folder."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from meristem.checkpoint.load_run import LoadedRun
from meristem.training.report.model_card import read_card, split_command

LOAD_CODE = """\
import torch
from transformers import AutoTokenizer, {cls}

model = {cls}.from_pretrained(".").eval()
tokenizer = AutoTokenizer.from_pretrained(".")
"""
FILL_CODE = """
inputs = tokenizer(f"The {{tokenizer.mask_token}} is here.", return_tensors="pt")
with torch.inference_mode():
    scores = model(**inputs).{logits}[0, inputs["input_ids"][0] == tokenizer.mask_token_id]
print([tokenizer.decode(token) for token in scores[0].topk(5).indices])
"""
GENERATE_CODE = """
inputs = tokenizer("The", return_tensors="pt")
output_ids = model.generate({model_input}, max_new_tokens=20, do_sample=False)
print(tokenizer.decode(output_ids[0], skip_special_tokens=True))
"""
SCORE_CODE = """
inputs = tokenizer("The book is here.", return_tensors="pt")
with torch.inference_mode():
    print(model(**inputs).{output}.shape)
"""
LABEL_CODE = """
from transformers import pipeline

print(pipeline("{name}", model=model, tokenizer=tokenizer{options})("The book is here."))
"""
ANSWER_CODE = """
inputs = tokenizer("Where is it?", "The book is on the table.", return_tensors="pt")
with torch.inference_mode():
    scores = model(**inputs)
first, last = int(scores.start_logits.argmax()), int(scores.end_logits.argmax())
print(first, last, tokenizer.decode(inputs["input_ids"][0, first : last + 1]))
"""
CHOICE_CODE = """
choices = ["on the table", "in the garden"]
inputs = tokenizer(["The book is"] * 2, choices, return_tensors="pt", padding=True)
with torch.inference_mode():
    scores = model(**{name: value[None] for name, value in inputs.items()}).logits
print(choices[int(scores.argmax())])
"""
CHOICE_LAST_TOKEN_CODE = """
choices = ["on the table", "in the garden"]
inputs = tokenizer(["The book is"] * 2, choices, return_tensors="pt", padding=True, padding_side="right")
last = inputs["attention_mask"].sum(1) - 1
with torch.inference_mode():
    scores = model(inputs["input_ids"][None], mc_token_ids=last[None]).mc_logits
print(choices[int(scores.argmax())])
"""
GENERATOR_CODE = """\
from transformers import AutoTokenizer, ElectraForMaskedLM

generator = ElectraForMaskedLM.from_pretrained(".", subfolder="{folder}")
"""


def build_exported_card(
    loaded: LoadedRun, architecture: str, heads: Sequence[str], notes: Sequence[str], subfolders: Sequence[str]
) -> str:
    """The card in Markdown; its Python code and commands run in the exported folder."""
    description, commands = _split_usage(read_card(loaded.run.path, loaded.recipe.name))
    name = re.sub(r"[^\w.-]+", "-", loaded.run.path.resolve().name)
    run_path = f"../{name}-again"
    usage = _fence("python", python_example(loaded, architecture, heads))
    for name in subfolders:
        usage += ["", f"`{name}/` is a separate model:", "", *_fence("python", GENERATOR_CODE.format(folder=name))]
    import_commands = [f"meristem import . --out {run_path}", *_retarget_commands(run_path, commands)]
    limitations = ["## Notes on this class", "", *(f"- {note}" for note in notes), ""] if notes else []
    return "\n".join(
        [
            "---",
            "library_name: transformers",
            "tags:",
            "- meristem",
            "---",
            "",
            description.rstrip(),
            "",
            *limitations,
            "## With transformers",
            "",
            "In this folder:",
            "",
            *usage,
            "",
            "## With Meristem",
            "",
            *_fence("bash", "\n".join(import_commands) + "\n"),
            "",
        ]
    )


def python_example(loaded: LoadedRun, architecture: str, heads: Sequence[str]) -> str:
    """A program that loads the model and uses what it was trained for."""
    load, ending = LOAD_CODE.format(cls=architecture), architecture.partition("For")[2]
    if {"mlm", "generator"} & set(heads) and loaded.tokenizer.mask is not None:
        logits = "prediction_logits" if ending == "PreTraining" else "logits"
        return load + FILL_CODE.format(logits=logits)
    if "choice" in heads and "clm" in heads:
        return load + CHOICE_LAST_TOKEN_CODE
    if {"clm", "seq2seq"} & set(heads):
        return load + GENERATE_CODE.format(model_input="**inputs" if "seq2seq" in heads else 'inputs["input_ids"]')
    match ending:
        case "SequenceClassification":
            return load + LABEL_CODE.format(name="text-classification", options="")
        case "TokenClassification":
            return load + LABEL_CODE.format(name="token-classification", options=', aggregation_strategy="first"')
        case "QuestionAnswering" | "QuestionAnsweringSimple":
            return load + ANSWER_CODE
        case "MultipleChoice":
            return load + CHOICE_CODE
    return load + SCORE_CODE.format(output="logits" if heads and "pooler" not in heads else "last_hidden_state")


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
    retargeted = []
    for command in commands:
        words = split_command(command)
        if len(words) > 2 and words[1] != "evaluate":
            retargeted.append(shlex.join([*words[:2], run_path, *words[3:]]))
    return retargeted


def _fence(language: str, code: str) -> list[str]:
    return [f"```{language}", *code.rstrip("\n").split("\n"), "```"]
