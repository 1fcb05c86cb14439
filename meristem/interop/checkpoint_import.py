"""Import of single files: GGUF, and checkpoints of nanoGPT and UER-py, known by their content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from meristem.config.errors import MeristemError, RecipeError
from meristem.interop import nanogpt_checkpoint, torch_files, uer_checkpoint
from meristem.interop.foreign_checkpoint import ForeignCheckpoint
from meristem.interop.gguf_files.gguf_import import is_gguf, read_gguf
from meristem.interop.import_weights import ImportResult, import_checkpoint, refuse_existing


def import_file(
    path: Path, out: Path, *, source: str | None = None, tokenizer: Path | None = None, config: Path | None = None
) -> ImportResult:
    """Write the run of a file; `source` names the program that wrote it, where its content does not show that."""
    refuse_existing(out)
    if not path.is_file():
        raise MeristemError(
            f"{path}: no such file; --from reads one file, and a folder of transformers needs no --from"
        )
    if source == "gguf" or (source is None and is_gguf(path)):
        if config is not None:
            raise RecipeError("--config: a GGUF file has its own configuration")
        return import_checkpoint(read_gguf(path, tokenizer), out)
    content = torch_files.read_object(path)
    readers: dict[str, Callable[[], ForeignCheckpoint]] = {
        "nanogpt": lambda: nanogpt_checkpoint.read_nanogpt(path, content, tokenizer),
        "uer": lambda: uer_checkpoint.read_uer(path, content, tokenizer, config),
    }
    detected = source or (
        "nanogpt" if nanogpt_checkpoint.is_nanogpt(content) else "uer" if uer_checkpoint.is_uer(content) else None
    )
    if detected is None:
        raise MeristemError(
            f"{path}: neither a checkpoint of nanoGPT (model, model_args) nor one of UER-py (embedding…, encoder…); a "
            "pytorch_model.bin is imported by the name of its folder"
        )
    if detected != "uer" and config is not None:
        raise RecipeError("--config: only a UER-py checkpoint has its configuration in another file")
    return import_checkpoint(readers[detected](), out)
