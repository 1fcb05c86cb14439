"""Files of other programs as sources: the runs that an import makes of them, compared with what the files hold."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from benchmarks.formats import nanogpt_layout, uer_layout
from benchmarks.formats.comparison import Comparison
from meristem.api import export, import_folder
from meristem.checkpoint.load_run import LoadedRun, load_run


def compare_gguf_import(run: Path, folder: Path) -> Comparison:
    """A GGUF file as a run again: the largest difference of any tensor that the file holds."""
    export(run, folder / "gguf", gguf=True)
    again = load_run(import_folder(folder / "gguf" / "model.gguf", folder / "again").run)
    return _compare_tensors(load_run(run), again, f"from GGUF (gguf {version('gguf')})")


def compare_folder_import(run: Path, folder: Path) -> Comparison:
    """A folder of transformers as a run again: the largest difference of any tensor."""
    export(run, folder / "folder")
    again = load_run(import_folder(folder / "folder", folder / "again").run)
    return _compare_tensors(load_run(run), again, f"from a folder (transformers {version('transformers')})")


def _compare_tensors(exported: LoadedRun, imported: LoadedRun, consumer: str) -> Comparison:
    first, second = (run.learner.model.backbone.state_dict() for run in (exported, imported))
    same = sum(torch.equal(tensor, second[name]) for name, tensor in first.items())
    return Comparison(
        consumer=consumer,
        family=exported.recipe.name,
        compared="tensors",
        difference=max(float((tensor - second[name]).abs().max()) for name, tensor in first.items()),
        scale=max(float(tensor.abs().max()) for tensor in first.values()),
        identical=f"{same} of {len(first)}",
    )


@torch.no_grad()
def compare_nanogpt(folder: Path, *, bias: bool) -> Comparison:
    """A checkpoint in nanoGPT's layout as a run: its logits beside the forward pass of nanoGPT's model.py."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = nanogpt_layout.nanogpt_checkpoint(bias=bias, compiled=not bias)
    torch.save(checkpoint, folder / "ckpt.pt")
    meta = nanogpt_layout.write_meta(folder / "meta.pkl")
    run = load_run(import_folder(folder / "ckpt.pt", folder / "run", tokenizer=meta).run)
    ids = torch.tensor([run.tokenizer.encode(nanogpt_layout.TEXT).ids.tolist()])
    model = run.learner.model.eval()
    ours = model.heads["clm"](model.backbone(tokens=ids, causal=True).last_hidden_state)
    return _compare_outputs(
        [ours[..., : len(nanogpt_layout.CHARACTERS)]], [nanogpt_layout.nanogpt_logits(checkpoint, ids)],
        "from nanoGPT's ckpt.pt", "GPT-2 with biases" if bias else "GPT-2 without biases, compiled", "logits",
    )  # fmt: skip


@torch.no_grad()
def compare_uer(folder: Path, *, later_names: bool) -> Comparison:
    """A checkpoint in UER-py's layout as a run: its logits beside UER-py's formulas."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint, config, vocabulary = uer_layout.write_uer(folder, later_names=later_names)
    run = load_run(import_folder(checkpoint, folder / "run", tokenizer=vocabulary, config=config).run)
    model = run.learner.model.eval()
    states = model.backbone(tokens=uer_layout.IDS, segments=uer_layout.SEGMENTS).last_hidden_state
    theirs = uer_layout.uer_outputs(
        uer_layout.uer_checkpoint(later_names=False), uer_layout.IDS, uer_layout.SEGMENTS + 1
    )
    return _compare_outputs(
        [model.heads["mlm"](states), model.heads["nsp"](states[:, 0])], theirs, "from UER-py's model.bin",
        f"BERT, {'later' if later_names else 'first'} names", "masked-LM and next-sentence logits",
    )  # fmt: skip


def _compare_outputs(
    ours: list[torch.Tensor], theirs: Sequence[torch.Tensor], consumer: str, family: str, compared: str
) -> Comparison:
    pairs = [(mine.numpy(), expected.numpy()) for mine, expected in zip(ours, theirs, strict=True)]
    same = [(mine.argmax(-1) == expected.argmax(-1)).ravel() for mine, expected in pairs]
    return Comparison(
        consumer=consumer,
        family=family,
        compared=f"{compared}, most probable classes",
        difference=max(float(np.abs(mine - expected).max()) for mine, expected in pairs),
        scale=max(float(np.abs(expected).max()) for _, expected in pairs),
        identical=f"{sum(int(part.sum()) for part in same)} of {sum(part.size for part in same)}",
    )
