"""The formats of `meristem export` and which options each of them takes."""

from __future__ import annotations

from pathlib import Path

from meristem.config.errors import RecipeError
from meristem.interop.export_folder import ExportResult, export_run

TRANSFORMERS = "transformers"
INT8_FORMATS = ("onnx", "gguf", "ctranslate2")


def chosen_format(**flags: bool) -> str:
    """The one format that is asked for; transformers if none is."""
    chosen = [name.replace("_", "-") for name, is_chosen in flags.items() if is_chosen]
    if len(chosen) > 1:
        raise RecipeError(f"{' and '.join(f'--{name}' for name in chosen)}: an export has one format; choose one")
    return chosen[0] if chosen else TRANSFORMERS


def export_format(
    run: Path,
    folder: Path,
    name: str,
    *,
    int8: bool = False,
    architecture: str | None = None,
    drop_crf: bool = False,
) -> ExportResult:
    """Export a run in a format; options that it does not take are refused."""
    if int8 and name not in INT8_FORMATS:
        raise RecipeError(f"--int8: {name} has no such weights here; it goes with --{', --'.join(INT8_FORMATS)}")
    if name != TRANSFORMERS and (architecture is not None or drop_crf):
        option = "--architecture" if architecture is not None else "--drop-crf"
        raise RecipeError(f"{option} chooses what is exported for transformers; --{name} does not take it")
    match name:
        case "onnx":
            from meristem.interop.onnx_export import export_onnx

            return export_onnx(run, folder, int8=int8)
        case "gguf":
            from meristem.interop.gguf_files.gguf_export import export_gguf

            return export_gguf(run, folder, int8=int8)
        case "ctranslate2":
            from meristem.interop.ctranslate2_export import export_ctranslate2

            return export_ctranslate2(run, folder, int8=int8)
        case "sentence-transformers":
            from meristem.interop.sentence_embedding_export import export_sentence_transformers

            return export_sentence_transformers(run, folder)
    return export_run(run, folder, architecture=architecture, drop_crf=drop_crf)
