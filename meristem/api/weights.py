"""Weights of other programs through the Python API: import, export, publish."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from meristem.interop import cached_import, hub_upload, import_weights
from meristem.interop.card_metadata import CardOptions
from meristem.interop.export_folder import ExportResult
from meristem.interop.hub_upload import PushResult
from meristem.interop.import_weights import ImportResult


def import_folder(
    folder: str | Path,
    out: str | Path,
    *,
    source: str | None = None,
    tokenizer: str | Path | None = None,
    config: str | Path | None = None,
) -> ImportResult:
    """Import published weights as a run: a transformers folder, AllenNLP's ELMo files, or a Hugging Face hub name.

    Also a GGUF file, or a checkpoint of another program (`source`: nanogpt or uer, else known by its content) with the
    `tokenizer` and `config` that belong to it.
    """
    path = Path(folder)
    if path.is_file() or source is not None:
        from meristem.interop import checkpoint_import

        return checkpoint_import.import_file(
            path,
            Path(out),
            source=source,
            tokenizer=None if tokenizer is None else Path(tokenizer),
            config=None if config is None else Path(config),
        )
    return import_weights.import_folder(cached_import.resolve_folder(folder), Path(out))


def export(
    run: str | Path,
    folder: str | Path,
    *,
    onnx: bool = False,
    gguf: bool = False,
    ctranslate2: bool = False,
    sentence_transformers: bool = False,
    int8: bool = False,
    architecture: str | None = None,
    drop_crf: bool = False,
) -> ExportResult:
    """Export a run: a transformers folder, ONNX graphs, a GGUF file, or for ctranslate2 or sentence-transformers.

    `int8` rounds the weights of the first three others. `architecture` is the transformers class; heads it does not
    have are left out. `drop_crf` leaves out a tagger's CRF.
    """
    from meristem.interop import export_formats

    return export_formats.export_format(
        Path(run),
        Path(folder),
        export_formats.chosen_format(
            onnx=onnx, gguf=gguf, ctranslate2=ctranslate2, sentence_transformers=sentence_transformers
        ),
        int8=int8,
        architecture=architecture,
        drop_crf=drop_crf,
    )


def push(
    run: str | Path,
    name: str,
    *,
    private: bool = False,
    dry_run: bool = False,
    license: str | None = None,
    languages: Sequence[str] = (),
    architecture: str | None = None,
    drop_crf: bool = False,
) -> PushResult:
    """Publish a run on the Hugging Face hub as OWNER/NAME, exported for transformers; a dry run uploads nothing."""
    return hub_upload.push_run(
        Path(run),
        name,
        private=private,
        dry_run=dry_run,
        options=CardOptions(license=license, languages=tuple(languages)),
        architecture=architecture,
        drop_crf=drop_crf,
    )
