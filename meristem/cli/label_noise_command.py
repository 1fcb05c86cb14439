"""The label-noise command: wrong labels, near duplicates across files and planted triggers in labelled data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from meristem.cli import options
from meristem.cli.output import load_model, print_message
from meristem.utils.terminal import emit

LabelledFiles = Annotated[
    list[str],
    Argument(metavar="FILE…", show_default=False, help="Labelled files of classification, pair or tagging data."),
]
EmbeddingRun = Annotated[
    Path | None,
    Option("--from", help="A fine-tuned run: its column names, and its frozen embeddings instead of words."),
]
Folds = Annotated[int, Option("--folds", help="Folds of the cross-validation.")]
FoldSeed = Annotated[int, Option("--seed", min=0, help="Seed of the folds.")]
NoiseColumns = Annotated[
    str | None, Option("--columns", help="Column names: text=review,label=stars; text_b=… for pairs of texts.")
]
TaggedFiles = Annotated[
    bool, Option("--tags", help="Words with a tag each; without this only files such as F.conll are read so.")
]
NoisePage = Annotated[
    Path | None, Option("--out", metavar="FILE", help="Write the report to FILE.html or FILE.json, with all suspects.")
]


def label_noise(
    files: LabelledFiles,
    run: EmbeddingRun = None,
    folds: Folds = 5,
    seed: FoldSeed = 0,
    columns: NoiseColumns = None,
    tags: TaggedFiles = False,
    out: NoisePage = None,
    json_: options.Json = False,
) -> None:
    """Labels that are probably wrong, near duplicates across files, and planted triggers.

    meristem label-noise train.tsv dev.tsv
    meristem label-noise train.tsv --columns text=review,label=stars --out noise.html
    meristem label-noise train.tsv --from runs/reviews --json
    meristem label-noise train.conll

    Confident learning (Northcutt et al. 2021): each sample's label is compared with the probabilities of a model that
    was not trained on it. The most suspicious samples come first, with file and line. A suspect is a sample to look at.
    """
    from meristem.config.errors import RecipeError
    from meristem.trust.label_noise.label_noise_html import render_label_noise
    from meristem.trust.label_noise.label_noise_report import label_noise_json
    from meristem.trust.label_noise.label_noise_terminal import label_noise_tables
    from meristem.trust.label_noise.run_label_noise import measure_label_noise
    from meristem.utils.console import TerminalConsole

    renderers = {".html": render_label_noise, ".json": label_noise_json}
    if out is not None and out.suffix not in renderers:
        raise RecipeError(f"--out {out}: expected a file name that ends in .html or .json")
    report = measure_label_noise(
        files,
        run=None if run is None else load_model(run, None).loaded_run,
        columns=options.parse_key_values("--columns", columns),
        folds=folds,
        seed=seed,
        tags=tags,
        log=print_message,
    )
    if json_:
        emit(label_noise_json(report), end="")
    else:
        for notice in report.notices:
            print_message(notice)
        for table in label_noise_tables(report):
            TerminalConsole().print(table)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(renderers[out.suffix](report), encoding="utf-8", errors="replace")
        print_message(f"wrote {out}")
