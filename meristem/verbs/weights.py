"""Verbs that carry weights in and out."""

from __future__ import annotations

from pathlib import Path

from meristem import options
from meristem.verbs.screen import say


def import_(folder: options.Folder, out: options.Out = None) -> None:
    """Make a run of published weights: a folder as transformers saves it, a name on the hub, or AllenNLP's ELMo files.

    meristem import bert-base-uncased/ --out runs/bert
    meristem import hub:bert-base-cased --out runs/bert           by name, from the local cache or the network
    meristem pretrain runs/bert my-texts/ --out runs/mine         go on training it on your text
    """
    from meristem import api

    named = folder.resolve().name if folder.exists() else str(folder).removeprefix("hub:").partition("@")[0]
    made = api.import_folder(folder, out or Path("runs") / Path(named).name)
    say(made.summary())


def export(
    run: options.Run,
    folder: options.Target,
    onnx: options.Onnx = False,
    architecture: options.Architecture = None,
    drop_crf: options.DropCrf = False,
) -> None:
    """Write a run as a folder that transformers opens; with --onnx for onnxruntime instead."""
    from meristem import api

    made = api.export(run, folder, onnx=onnx, architecture=architecture, drop_crf=drop_crf)
    say(made.summary())
