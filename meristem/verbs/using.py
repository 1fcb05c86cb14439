"""Verbs that use a run."""

from __future__ import annotations

from typing import Any

from meristem import options
from meristem.terminal import emit
from meristem.verbs import rewarding
from meristem.verbs.screen import opened, print_json, print_measured, say


def predict(
    run: options.Run,
    text: options.Asked = None,
    text_b: options.TextB = None,
    question: options.Question = None,
    passage: options.Passage = None,
    choices: options.Choices = None,
    image: options.Picture = None,
    file: options.Samples = None,
    top: options.TopAnswers = None,
    out: options.PredictionsOut = None,
    which: options.Which = None,
    json_: options.Json = False,
) -> None:
    """What a fine-tuned run says to a text, a file or a pipe.

    meristem predict runs/reviews "What a film!"
    meristem predict runs/squad --question "Who?" --passage "It was Ada."
    meristem predict runs/reviews --file new.csv --out answered.csv
    meristem predict runs/reviews --file new.csv --json > answers.jsonl
    cat lines.txt | meristem predict runs/reviews

    A file with columns is read like the run's own data, any other a sample a line: a text, its parts with tabs between,
    or a JSON object. Answers come in the order of the samples. What cannot be answered is named and the rest goes on;
    with --json it is {"error": …} in its place, and the exit code is 1. --out keeps the columns that were read and adds
    the answer as predicted_label, predicted_score and the like.
    """
    from meristem.verbs import predicting

    named = {"text": text, "text_b": text_b, "question": question, "passage": passage, "choices": choices}
    parts = {name: value for name, value in {**named, "picture": image}.items() if value is not None}
    predicting.predict(opened(run, which), parts, file, top=top, as_json=json_, out=out)


def evaluate(
    run: options.Run,
    data: options.Data = None,
    pairs: options.Pairs = None,
    limit: options.Limit = None,
    pll: options.Pll = False,
    template: options.Template = None,
    words: options.LabelWords = None,
    shots: options.Shots = 0,
    shot_data: options.ShotData = None,
    seed: options.ShotSeed = 0,
    calibrate: options.Calibrate = False,
    per_token: options.PerToken = False,
    columns: options.Columns = None,
    report: options.Page = None,
    trust_paths: options.TrustPaths = False,
    which: options.Which = None,
    json_: options.Json = False,
) -> None:
    """Loss, perplexity, bits per byte, accuracies; minimal pairs. Of a task run, the task's numbers with intervals.

    With --template a model that was never taught a task is asked in words:
    meristem evaluate runs/gpt2-mini --data dev.tsv --template "{text} It was {label}." --words 0=bad,1=good
    """
    named = {"columns": options.equations("--columns", columns)}
    shown = {"shots": shots, "shot_data": shot_data, "seed": seed, "words": options.equations("--words", words)}
    told = {**shown, "calibrate": calibrate, "per_token": per_token}
    asked = options.asked(template, told, {"--pairs": pairs, "--pll": pll})
    plain = {"pairs": str(pairs) if pairs else None, "pll": pll, "trust_paths": trust_paths}
    how = plain if template is None else asked
    found = opened(run, which).evaluate(data=data, limit=limit, report=report, **named, **how)
    if json_:
        print_json(found)
    else:
        print_measured(found)
        if report is not None:
            say(f"The report: {report}")


def generate(
    run: options.Run,
    prompt: options.Prompt = "",
    file: options.Prompts = None,
    image: options.Image = None,
    source: options.WrittenFrom = None,
    count: options.Count = 1,
    max_tokens: options.MaxTokens = 100,
    temperature: options.Temperature = 0.8,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    repetition_penalty: options.Penalty = 1.0,
    beams: options.Beams = 1,
    stop: options.Stop = None,
    seed: options.Seed = 0,
    best_of: options.BestOf = None,
    reward: options.Judges = None,
    reference: options.References = None,
    which: options.Which = None,
    json_: options.Json = False,
) -> None:
    """Write text: causal models go on from a prompt, encoder-decoders turn it into another, masked ones fill masks.

    XLNet and ELMo go on from left to right too. A model that can both go on from a text and turn one into another
    goes on from --prompt and reads --source or --image with its encoder.

    With --best-of several texts are written for each prompt, and the best ones kept, as rewards have it:
    meristem generate runs/gpt2-mini --prompt "The old" --best-of 8 --reward length,target=20 --reward repetition
    """
    from meristem.errors import RecipeError
    from meristem.generation.write import UNMASKED

    loaded = opened(run, which)
    if source is not None and (file or image or prompt):
        raise RecipeError("--source: is what the text is written from; leave out --prompt, --file and --image")
    prompts: list[Any] = options.lines(file) if file else [source or image or prompt]
    sampling: dict[str, Any] = {
        "max_tokens": max_tokens,
        "temperature": temperature or 1.0,
        "greedy": temperature == 0,
        "top_k": top_k,
        "top_p": top_p,
        "repetition_penalty": repetition_penalty,
        "beams": beams,
        "stop": tuple(stop or ()),
        "seed": seed,
    }
    if best_of is not None or reward or reference:
        rewarding.best(loaded, prompts, sampling, best_of, reward or [], reference or [], keep=count, as_json=json_)
        return
    streaming = not json_ and len(prompts) == 1 and count == 1 and beams == 1
    streaming = streaming and (source is not None or image is not None or loaded.way not in UNMASKED)
    reads_source = loaded.way == "source" or source is not None or image is not None
    goes_on = not reads_source  # a source is no part of what is written from it
    if streaming and goes_on:
        emit(prompts[0], end="", flush=True)
    written = loaded.generate(
        prompts,
        count=count,
        source=source is not None,
        on_text=(lambda _, text: emit(text, end="", flush=True)) if streaming else None,
        **sampling,
    )
    texts = [(first, one) for first, some in zip(prompts, written, strict=True) for one in some]
    if json_:
        print_json([{"prompt": str(p), "text": w.text, "score": w.score, "finished": w.finished} for p, w in texts])
    elif streaming:
        emit()
    else:
        for first, one in texts:
            emit(first + one.text if goes_on else one.text)


def fill(
    run: options.Run,
    text: options.Masked,
    top: options.Top = 5,
    which: options.Which = None,
    json_: options.Json = False,
) -> None:
    """Rank the words that could stand in place of [MASK]."""
    found = opened(run, which).fill(text, top=top)
    if json_:
        shown = [[{"token": c.token, "score": c.probability, "sequence": c.text} for c in f.candidates] for f in found]
        print_json([{"mask": f.mask, "candidates": some} for f, some in zip(found, shown, strict=True)])
        return
    for one in found:
        if len(found) > 1:
            emit(f"mask {one.mask + 1}")
        for candidate in one.candidates:
            emit(f"{candidate.probability:7.2%}  {candidate.token:<16} {candidate.text}")
