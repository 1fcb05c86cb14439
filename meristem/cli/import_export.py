"""The import, export and push commands: weights from and for other programs and the hub."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from meristem.cli import options
from meristem.cli.output import print_json, print_message
from meristem.utils.terminal import emit


def import_(
    folder: options.WeightsFolder,
    out: options.Out = None,
    source: options.ImportSource = None,
    tokenizer: options.ImportTokenizer = None,
    config: options.ImportConfig = None,
) -> None:
    """Import published weights as a run: a transformers folder, a name on the Hugging Face hub, or another format.

    meristem import bert-base-uncased/ --out runs/bert
    meristem import hub:bert-base-cased --out runs/bert           by name, from the local cache or the network
    meristem import llama.gguf --out runs/llama                   a file of llama.cpp
    meristem import ckpt.pt --tokenizer meta.pkl --out runs/gpt   a checkpoint of nanoGPT
    meristem import model.bin --config base_config.json --tokenizer vocab.txt --out runs/zh   one of UER-py
    meristem pretrain runs/bert my-texts/ --out runs/mine         continue pretraining on your text
    """
    from meristem import api

    source_name = folder.resolve().name if folder.exists() else str(folder).removeprefix("hub:").partition("@")[0]
    run_name = Path(source_name).stem if folder.is_file() else Path(source_name).name
    imported = api.import_folder(
        folder, out or Path("runs") / run_name, source=source, tokenizer=tokenizer, config=config
    )
    print_message(imported.summary())


def export(
    run: options.RunPath,
    folder: options.ExportFolder,
    onnx: options.Onnx = False,
    gguf: options.Gguf = False,
    ctranslate2: options.Ctranslate2 = False,
    sentence_transformers: options.SentenceTransformers = False,
    int8: options.Int8 = False,
    architecture: options.Architecture = None,
    drop_crf: options.DropCrf = False,
) -> None:
    """Export a run as a transformers folder, or for onnxruntime, llama.cpp, ctranslate2 or sentence-transformers.

    meristem export runs/mine exported/                 for transformers
    meristem export runs/mine exported/ --gguf --int8   for llama.cpp, with weights rounded to 8 bits
    """
    from meristem import api

    exported = api.export(
        run,
        folder,
        onnx=onnx,
        gguf=gguf,
        ctranslate2=ctranslate2,
        sentence_transformers=sentence_transformers,
        int8=int8,
        architecture=architecture,
        drop_crf=drop_crf,
    )
    print_message(exported.summary())


def push(
    run: options.RunPath,
    name: options.HubName,
    private: options.Private = False,
    license: options.License = None,
    language: options.Language = None,
    dry_run: options.DryRun = False,
    architecture: options.Architecture = None,
    drop_crf: options.DropCrf = False,
    as_json: options.Json = False,
) -> None:
    """Publish a run on the Hugging Face hub: exported for transformers, with a model card.

    meristem push runs/bert-mini me/novels --dry-run            what would be published, without a network
    meristem push runs/bert-mini me/novels --license apache-2.0 --language en
    meristem import hub:me/novels                               and back
    """
    from meristem import api

    pushed = api.push(
        run,
        name,
        private=private,
        dry_run=dry_run,
        license=license,
        languages=language or (),
        architecture=architecture,
        drop_crf=drop_crf,
    )
    if as_json:
        print_json(asdict(pushed))
    elif dry_run:
        emit(pushed.summary())
    else:
        print_message(pushed.summary())
