"""transformers as the consumer of exported folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.formats import our_outputs
from benchmarks.formats.comparison import Comparison
from benchmarks.formats.runs import SENTENCES
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.generation.generation_inputs import input_template
from meristem.interop.export_folder import export_run

STEPS = 12
Result = tuple[str, float, float, str]
"""What was compared, the largest difference, the largest value, and how many discrete outputs are identical."""


def compare_transformers(run: Path, folder: Path) -> Comparison:
    """Export a run, open it with transformers, and compare token ids, logits or states, and greedy tokens."""
    import transformers

    architecture = export_run(run, folder).architecture
    loaded = load_run(run)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    heads = loaded.learner.model.heads
    if "seq2seq" in heads:
        model, compare = transformers.AutoModelForSeq2SeqLM, _compare_targets
    elif "clm" in heads:
        model, compare = transformers.AutoModelForCausalLM, _compare_logits
    else:
        model, compare = transformers.AutoModel, _compare_states
    opened = model.from_pretrained(folder).eval()
    compared, difference, scale, identical = compare(loaded, opened, tokenizer)
    return Comparison(
        consumer=f"transformers {transformers.__version__}",
        family=f"{loaded.recipe.name}: {architecture}",
        compared=compared,
        difference=difference,
        scale=scale,
        identical=identical,
    )


@torch.no_grad()
def _compare_logits(run: LoadedRun, model: Any, tokenizer: Any) -> Result:
    start = list(input_template(run.learner.model, run.tokenizer, "causal").prompt_start_ids)
    differences, values, same = [], [], 0
    for text in SENTENCES:
        ids = [*start, *run.tokenizer.encode(text).ids.tolist()]
        ours = our_outputs.causal_logits(run, ids)
        theirs = model(torch.tensor([ids])).logits[0].numpy()
        differences.append(float(np.abs(ours - theirs).max()))
        values.append(ours)
        written = model.generate(
            torch.tensor([ids]), max_new_tokens=STEPS, do_sample=False, num_beams=1, eos_token_id=None, pad_token_id=0
        )
        is_same = written[0].tolist()[len(ids) :] == our_outputs.greedy_causal(run, ids, STEPS)
        same += is_same and tokenizer(text, add_special_tokens=False).input_ids == ids[len(start) :]
    return "ids, logits, greedy tokens", max(differences), our_outputs.relative(values), f"{same} of {len(SENTENCES)}"


@torch.no_grad()
def _compare_states(run: LoadedRun, model: Any, tokenizer: Any) -> Result:
    differences, values, same = [], [], 0
    for text in SENTENCES:
        ids = our_outputs.encoder_ids(run, text)
        ours = our_outputs.encoder_states(run, ids)
        theirs = model(torch.tensor([ids])).last_hidden_state[0].numpy()
        differences.append(float(np.abs(ours - theirs).max()))
        values.append(ours)
        same += tokenizer(text).input_ids == ids
    return "ids, states", max(differences), our_outputs.relative(values), f"{same} of {len(SENTENCES)}"


@torch.no_grad()
def _compare_targets(run: LoadedRun, model: Any, tokenizer: Any) -> Result:
    start = list(input_template(run.learner.model, run.tokenizer, "source").decoder_start_ids)
    differences, values, same = [], [], 0
    for text in SENTENCES:
        source = our_outputs.source_ids(run, text)
        target = our_outputs.greedy_target(run, source, start, STEPS)
        inputs = [*start, *target[:-1]]
        ours = our_outputs.decoder_logits(run, source, inputs)
        sources = torch.tensor([source])
        theirs = model(input_ids=sources, decoder_input_ids=torch.tensor([inputs])).logits[0].numpy()
        differences.append(float(np.abs(ours - theirs).max()))
        values.append(ours)
        written = model.generate(
            sources, decoder_input_ids=torch.tensor([start]), max_new_tokens=STEPS, do_sample=False, num_beams=1,
            forced_eos_token_id=None, forced_bos_token_id=None, suppress_tokens=None,
        )  # fmt: skip
        same += tokenizer(text).input_ids == source and written[0].tolist()[len(start) :] == target
    return "ids, logits, greedy tokens", max(differences), our_outputs.relative(values), f"{same} of {len(SENTENCES)}"
