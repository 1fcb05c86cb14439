"""Export of text embeddings for sentence-transformers: a transformers folder with its modules and their settings."""

from __future__ import annotations

from pathlib import Path

from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.config.errors import MeristemError
from meristem.evaluation.text_embeddings import default_pooling
from meristem.generation.generation_inputs import input_template
from meristem.interop.export_folder import ExportResult, export_run, find_export_type
from meristem.utils import untrusted_files

POOLING_KEYS = {
    "mean": "pooling_mode_mean_tokens",
    "first": "pooling_mode_cls_token",
    "last": "pooling_mode_lasttoken",
}
"""Our pooling → the key of 1_Pooling/config.json that switches it on."""
MODULES = (("", "Transformer"), ("1_Pooling", "Pooling"))


def export_sentence_transformers(run: Path, out: Path) -> ExportResult:
    """Write a folder that `SentenceTransformer(out)` opens; its vectors are those of `meristem embed`."""
    loaded = load_run(run)
    mode = input_template(loaded.learner.model, loaded.tokenizer).mode
    if mode != "bidirectional":
        raise MeristemError(
            f"--sentence-transformers: this {loaded.recipe.model.family} reads texts {mode.replace('_', '-')}; "
            "train an encoder (objective=contrastive, mlm, …), whose vectors are the same there"
        )
    architecture = next(iter(find_export_type(loaded).architectures))  # the class without heads
    return export_run(run, out, architecture=architecture, extra_files=_module_files(loaded))


def _module_files(loaded: LoadedRun) -> dict[str, str]:
    """Path → content of the files that sentence-transformers reads besides those of transformers."""
    pooling = default_pooling(loaded.learner.model)
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{name}"}
        for index, (path, name) in enumerate(MODULES)
    ]
    pooling_config = {
        "word_embedding_dimension": loaded.recipe.model.hidden_size,
        **{key: name == pooling for name, key in POOLING_KEYS.items()},
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
        "pooling_mode_weightedmean_tokens": False,
        "include_prompt": True,
    }
    contents = {
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": loaded.recipe.model.max_length, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
        "1_Pooling/config.json": pooling_config,
    }
    return {path: untrusted_files.to_json(content, indent=2) + "\n" for path, content in contents.items()}
