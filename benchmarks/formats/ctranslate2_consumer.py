"""ctranslate2 as the consumer of exported runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.formats import our_outputs
from benchmarks.formats.comparison import Comparison
from benchmarks.formats.runs import SENTENCES
from meristem.checkpoint.load_run import LoadedRun, load_run
from meristem.generation.generation_inputs import input_template
from meristem.interop.ctranslate2_export import export_ctranslate2

STEPS = 12


def compare_ctranslate2(run: Path, folder: Path, *, int8: bool = False) -> Comparison:
    """Export a run, open it with ctranslate2, and compare scores or states and greedy tokens."""
    import ctranslate2

    export_ctranslate2(run, folder, int8=int8)
    loaded = load_run(run)
    family = loaded.recipe.name + (" int8" if int8 else "")
    compare = _compare_encoder
    if "seq2seq" in loaded.learner.model.heads:
        compare = _compare_translator
    elif "clm" in loaded.learner.model.heads:
        compare = _compare_generator
    compared, difference, scale, identical = compare(ctranslate2, loaded, folder)
    return Comparison(
        consumer=f"ctranslate2 {ctranslate2.__version__}",
        family=family,
        compared=compared,
        difference=difference,
        scale=scale,
        identical=identical,
    )


def export_vocabulary(folder: Path) -> list[str]:
    """The tokens of an exported model by id."""
    path = next(folder.glob("*vocabulary.json"))
    tokens: list[str] = json.loads(path.read_text(encoding="utf-8"))
    return tokens


def _compare_translator(library: Any, run: LoadedRun, folder: Path) -> tuple[str, float, float, str]:
    """Scores of a given target, and greedy translations."""
    translator = library.Translator(str(folder), inter_threads=1, intra_threads=1)
    tokens = export_vocabulary(folder)
    start = input_template(run.learner.model, run.tokenizer, "source").decoder_start_ids
    differences, values, same = [], [], 0
    for text in SENTENCES:
        source = our_outputs.source_ids(run, text)
        names = [[tokens[number] for number in source]]
        prefix = [[tokens[number] for number in start[1:]]] if start[1:] else None
        (result,) = translator.translate_batch(
            names,
            target_prefix=prefix,
            beam_size=1,
            max_decoding_length=STEPS + len(start) - 1,
            return_end_token=True,
            return_logits_vocab=True,
        )
        theirs = [tokens.index(name) for name in result.hypotheses[0]][len(start) - 1 :]
        ours = our_outputs.greedy_target(run, source, start, STEPS)
        same += theirs == ours
        logits = our_outputs.decoder_logits(run, source, [*start, *ours[:-1]])
        log_probs = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
        log_probs = log_probs - logits.max(-1, keepdims=True)
        target = [tokens[number] for number in ours]
        (scores,) = translator.score_batch(names, [[*(prefix or [[]])[0], *target]])
        their_scores = scores.log_probs[len(start) - 1 : len(start) - 1 + len(ours)]
        ours_scored = log_probs[np.arange(len(ours)), ours][len(start) - 1 :]
        differences.append(np.abs(np.array(their_scores[: len(ours)]) - ours_scored[: len(their_scores)]).max())
        values.append(ours_scored)
    return (
        "log-probabilities of targets",
        float(max(differences)),
        our_outputs.relative(values),
        f"{same} of {len(SENTENCES)}",
    )


def _compare_generator(library: Any, run: LoadedRun, folder: Path) -> tuple[str, float, float, str]:
    """Logits at every position, and greedy continuations."""
    generator = library.Generator(str(folder), inter_threads=1, intra_threads=1)
    tokens = export_vocabulary(folder)
    differences, values, same = [], [], 0
    start = list(input_template(run.learner.model, run.tokenizer, "causal").prompt_start_ids)
    for text in SENTENCES:
        ids = [*start, *run.tokenizer.encode(text).ids.tolist()]
        theirs = np.array(generator.forward_batch([[tokens[number] for number in ids]]))[0]
        ours = our_outputs.causal_logits(run, ids)
        differences.append(np.abs(theirs - ours).max())
        values.append(ours)
        (result,) = generator.generate_batch(
            [[tokens[number] for number in ids]],
            max_length=STEPS,
            sampling_topk=1,
            end_token=[],
            include_prompt_in_result=False,
        )
        same += result.sequences_ids[0] == our_outputs.greedy_causal(run, ids, STEPS)
    return "logits", float(max(differences)), our_outputs.relative(values), f"{same} of {len(SENTENCES)}"


def _compare_encoder(library: Any, run: LoadedRun, folder: Path) -> tuple[str, float, float, str]:
    """States of every token."""
    encoder = library.Encoder(str(folder), inter_threads=1, intra_threads=1)
    differences, values = [], []
    for text in SENTENCES:
        ids = our_outputs.encoder_ids(run, text)
        theirs = np.array(encoder.forward_batch([ids]).last_hidden_state)[0]
        ours = our_outputs.encoder_states(run, ids)
        differences.append(np.abs(theirs - ours).max())
        values.append(ours)
    return "states", float(max(differences)), our_outputs.relative(values), "–"
