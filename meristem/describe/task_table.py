"""The table of all tasks in docs/tasks.md, rendered from their signatures: `python -m meristem.describe.task_table`."""

from __future__ import annotations

from meristem.interfaces.task import TASKS
from meristem.interfaces.task_signature import TaskSignature

HEADER = """| task | inputs | on the command line | output | HTTP | exported as a model with |
| --- | --- | --- | --- | --- | --- |"""


def render_table() -> str:
    """The table in Markdown, one row per task of the package."""
    rows = [_row(name, task.signature) for name, task in TASKS.items() if task.__module__.startswith("meristem.")]
    return "\n".join([HEADER, *rows])


def _row(name: str, signature: TaskSignature) -> str:
    inputs = ", ".join(f"`{field.name}`" + ("" if field.required else " (optional)") for field in signature.inputs)
    usage = " ".join(field.usage for field in signature.inputs if field.required)
    outputs = ", ".join(f"`{field}`" for field in signature.output_fields)
    head = f"the {signature.export_head} head" if signature.export_head else "–"
    exported = "the language-model head" if signature.output == "text" else head
    return f"| {name} | {inputs} | `{usage}` | {outputs} | `POST /{signature.route.name}` | {exported} |"


if __name__ == "__main__":
    print(render_table())
