"""The golden runs: recipes, settings and inference requests.

Only `make_runs.py` uses the settings; the tests resume the runs from their own recipe files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

STEPS, STOP = 6, 3
"""The budget of every run, and the step after which it was interrupted."""
TEXTS = "builtin:microworld-en?size=30"
PAIRS = "builtin:microworld-pairs?size=30"
PICTURES = "builtin:microworld-pictures?size=30"

TRAIN: dict[str, Any] = {
    "train.steps": STEPS,
    "train.warmup": 1,
    "train.log_every": 2,
    "train.evaluate_every": STOP,
    "train.save_every": "none",
    "train.keep_checkpoints": 1,
    "train.threads": 1,
    "train.device": "cpu",
    "train.precision": "float32",
}
TEXT: dict[str, Any] = {
    **TRAIN,
    "model.layers": 1,
    "model.hidden_size": 16,
    "model.max_length": 16,
    "tokenizer.vocab_size": 300,
    "train.batch_tokens": 96,
    "train.evaluate_tokens": 96,
    "corpus.processes": 1,
    "corpus.validation": 0.1,
    "corpus.test": 0.1,
}
HEADS: dict[str, Any] = {"model.heads": 2}
WORDPIECE: dict[str, Any] = {"tokenizer.vocab_size": 160}


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One golden run."""

    recipe: str | dict[str, Any]
    """A shipped recipe, or a full one."""
    settings: dict[str, Any] = field(default_factory=dict)
    source: str | None = TEXTS
    command: Literal["pretrain", "finetune", "reinforce"] = "pretrain"
    start: str | None = None
    """The golden run that this one starts from."""
    questions: tuple[str, ...] = ("generate", "score")


PRETRAINED: dict[str, Spec] = {
    "bert": Spec(recipe="bert-mini", settings={**HEADS, **WORDPIECE}, questions=("fill", "score")),
    "roberta": Spec(recipe="roberta-mini", settings=HEADS, questions=("fill", "score")),
    "electra": Spec(
        recipe="electra-mini",
        settings={**HEADS, **WORDPIECE, "model.embedding_size": 8, "objective.generator_size": "1/2"},
        questions=("fill", "detect"),
    ),
    "gpt": Spec(recipe="gpt-mini", settings=HEADS),
    "gpt2": Spec(recipe="gpt2-mini", settings=HEADS),
    "modern": Spec(recipe="modern-mini", settings={**HEADS, "model.ffn_size": 24}),
    "xlnet": Spec(
        recipe="xlnet-mini", settings={**HEADS, **WORDPIECE, "model.memory_length": 8}, questions=("fill", "score")
    ),
    "transformer_xl": Spec(recipe="transformer-xl-mini", settings={**HEADS, "model.memory_length": 8}),
    "mamba": Spec(recipe="mamba-mini", settings={"model.state_size": 4, "model.carry_state": True}),
    "elmo": Spec(
        recipe="elmo-mini",
        settings={
            **WORDPIECE,
            "model.cell_size": 16,
            "model.char_filters": [[1, 4], [2, 4]],
            "model.char_embedding_size": 4,
            "objective.sampled_softmax": 16,
        },
        questions=("fill", "score"),
    ),
    "rnn": Spec(recipe="rnn-mini", settings=WORDPIECE, source=PAIRS, questions=("generate",)),
    "transformer": Spec(recipe="transformer-mini", settings=HEADS, source=PAIRS, questions=("generate",)),
    "bart": Spec(recipe="bart-mini", settings=HEADS, questions=("generate", "fill")),
    "t5": Spec(
        recipe="t5-mini",
        settings={**HEADS, "model.ffn_size": 24, "tokenizer.sentinels": 8},
        questions=("fill", "score"),
    ),
    "captioner": Spec(
        recipe="captioner-mini",
        settings={**HEADS, "model.image_size": 16, "dataset.image_size": 16, "model.patch_size": 8},
        source=PICTURES,
        questions=("caption",),
    ),
    "multitask": Spec(
        recipe="multitask-mini",
        settings={
            **HEADS,
            "model.decoder_layers": 1,
            "model.image_size": 16,
            "dataset.image_size": 16,
            "model.patch_size": 8,
            "train.single_task_baselines": False,
            "mix": [
                {"objective": ["mlm", "nsp"]},
                {"objective": "clm"},
                {"objective": "denoising"},
                {"objective": "caption", "corpus": PICTURES},
            ],
        },
        questions=("generate", "fill"),
    ),
}
TASK: dict[str, Any] = {**TRAIN, "train.batch_samples": 4}
SPECS: dict[str, Spec] = {
    **{name: Spec(**{**vars(spec), "settings": {**TEXT, **spec.settings}}) for name, spec in PRETRAINED.items()},
    "tagging": Spec(
        recipe="entities",
        command="finetune",
        start="bert",
        source=None,
        settings={
            **TASK,
            "from.unfreeze_every": 2,
            "data.train": "builtin:microworld-entities?size=24&seed=1",
            "data.validation": "builtin:microworld-entities?size=6&seed=2",
            "data.test": "builtin:microworld-entities?size=6&seed=3",
        },
        questions=("predict",),
    ),
    "rewards": Spec(
        recipe={
            "from": "gpt2",
            "data": {
                "train": "builtin:microworld-sentiment?size=24&seed=4",
                "validation": "builtin:microworld-sentiment?size=4&seed=5",
                "test": "builtin:microworld-sentiment?size=4&seed=6",
                "text": "text",
            },
            "rewards": [{"name": "length", "target": 3}, {"name": "repetition", "weight": 0.5}],
            "policy": {"prompt_words": 2, "num_generations": 3, "max_new_tokens": 6, "eval_prompts": 4},
            "train": {"learning_rate": 1e-3},
        },
        command="reinforce",
        start="gpt2",
        source=None,
        settings={**TRAIN, "train.batch_samples": 2},
    ),
}
