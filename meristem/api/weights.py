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
    """Import published weights as a run.

    Args:
        folder: A transformers folder, AllenNLP's ELMo files, a name on the Hugging Face hub, a GGUF file, or a
            checkpoint of another program.
        out: The run's folder, which must not exist yet.
        source: The program of a checkpoint, nanogpt or uer; default: known by its content.
        tokenizer: The tokenizer that belongs to a checkpoint.
        config: The config that belongs to a checkpoint.
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
    """Export a run; without a format, as a transformers folder.

    Args:
        run: The run.
        folder: The output folder, which must not exist yet.
        onnx: ONNX graphs for onnxruntime.
        gguf: A GGUF file for llama.cpp.
        ctranslate2: A folder for ctranslate2.
        sentence_transformers: A folder for sentence-transformers.
        int8: Round the weights of ONNX, GGUF or ctranslate2 to 8 bits.
        architecture: The transformers class; heads it does not have are left out.
        drop_crf: Leave out a tagger's CRF.
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
    """Publish a run on the Hugging Face hub, exported for transformers.

    Args:
        run: The run.
        name: OWNER/NAME on the hub.
        private: Only its owner sees it.
        dry_run: Upload nothing; show what would be.
        license: Licence of the weights, as apache-2.0, for the card.
        languages: Languages of the text, as en, for the card.
        architecture: The transformers class, as in `export`.
        drop_crf: Leave out a tagger's CRF.
    """
    return hub_upload.push_run(
        Path(run),
        name,
        private=private,
        dry_run=dry_run,
        options=CardOptions(license=license, languages=tuple(languages)),
        architecture=architecture,
        drop_crf=drop_crf,
    )
