"""The import and export commands: weights from and for transformers, ONNX and AllenNLP's ELMo."""

from __future__ import annotations

from pathlib import Path

from meristem.cli import options
from meristem.cli.output import print_message


def import_(folder: options.WeightsFolder, out: options.Out = None) -> None:
    """Import published weights as a run: a transformers folder, a name on the Hugging Face hub, or AllenNLP ELMo files.

    meristem import bert-base-uncased/ --out runs/bert
    meristem import hub:bert-base-cased --out runs/bert           by name, from the local cache or the network
    meristem pretrain runs/bert my-texts/ --out runs/mine         continue pretraining on your text
    """
    from meristem import api

    source_name = folder.resolve().name if folder.exists() else str(folder).removeprefix("hub:").partition("@")[0]
    imported = api.import_folder(folder, out or Path("runs") / Path(source_name).name)
    print_message(imported.summary())


def export(
    run: options.RunPath,
    folder: options.ExportFolder,
    onnx: options.Onnx = False,
    sentence_transformers: options.SentenceTransformers = False,
    architecture: options.Architecture = None,
    drop_crf: options.DropCrf = False,
) -> None:
    """Export a run as a transformers folder, as ONNX graphs (--onnx), or for sentence-transformers."""
    from meristem import api

    exported = api.export(
        run,
        folder,
        onnx=onnx,
        sentence_transformers=sentence_transformers,
        architecture=architecture,
        drop_crf=drop_crf,
    )
    print_message(exported.summary())
