"""The commands predict, evaluate, generate and fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meristem.cli import options, reward_command
from meristem.cli.output import generated_text_json, load_model, print_evaluation, print_json, print_message
from meristem.cli.settings_options import takes_settings
from meristem.cli.task_fields import takes_task_fields
from meristem.utils.terminal import emit

if TYPE_CHECKING:
    from meristem.generation.settings import SamplingSettings


@takes_task_fields
def predict(
    run: options.RunPath,
    text: options.PredictText = None,
    file: options.SampleFile = None,
    top: options.TopPredictions = None,
    abstain_below: options.AbstainBelow = None,
    out: options.PredictionsOut = None,
    precision: options.InferencePrecision = "auto",
    quantize: options.Quantization = None,
    which: options.WhichCheckpoint = None,
    json_: options.Json = False,
    *,
    fields: dict[str, Any],
) -> None:
    """Predictions of a fine-tuned run for a text, a file or standard input.

    meristem predict runs/reviews "What a film!"
    meristem predict runs/squad --question "Who?" --passage "It was Ada."
    meristem predict runs/squad --help                lists the fields of its task
    meristem predict runs/reviews --file new.csv --out predictions.csv
    meristem predict runs/reviews "What a film!" --abstain-below 0.8
    meristem predict runs/reviews --file new.csv --json > predictions.jsonl
    cat lines.txt | meristem predict runs/reviews

    A file with columns is read like the run's training data. Any other file has one sample per line: a text, its fields
    separated by tabs, or a JSON object. Predictions are in the order of the samples. Samples that fail are reported and
    skipped (with --json printed as {"error": …}), and the exit code is 1. --out keeps the input columns and adds
    predicted_label, predicted_score and so on.
    """
    from meristem.cli import predict

    parts = fields if text is None else {"text": text, **fields}
    loaded = load_model(run, which, precision=precision, quantize=quantize)
    predict.predict(loaded, parts, file, top=top, as_json=json_, out=out, abstain_below=abstain_below)


def evaluate(
    run: options.RunPath,
    data: options.Data = None,
    pairs: options.Pairs = None,
    limit: options.Limit = None,
    pll: options.Pll = False,
    template: options.Template = None,
    label_words: options.LabelWords = None,
    shots: options.Shots = 0,
    shot_data: options.ShotData = None,
    seed: options.ShotSeed = 0,
    calibrate: options.Calibrate = False,
    per_token: options.PerToken = False,
    columns: options.Columns = None,
    report: options.ReportPath = None,
    trust_paths: options.TrustPaths = False,
    precision: options.InferencePrecision = "auto",
    quantize: options.Quantization = None,
    which: options.WhichCheckpoint = None,
    json_: options.Json = False,
) -> None:
    """Loss, perplexity, bits per byte, accuracy and minimal pairs; for a fine-tuned run, task metrics with intervals.

    With --template, zero-shot or few-shot evaluation of a model that was not fine-tuned:
    meristem evaluate runs/gpt2-mini --data dev.tsv --template "{text} It was {label}." --label-words 0=bad,1=good
    """
    prompt_options = {
        "shots": shots,
        "shot_data": shot_data,
        "seed": seed,
        "label_words": options.parse_key_values("--label-words", label_words),
        "calibrate": calibrate,
        "per_token": per_token,
    }
    run_options = options.template_options(template, prompt_options, {"--pairs": pairs, "--pll": pll})
    if template is None:
        run_options = {"pairs": str(pairs) if pairs else None, "pll": pll, "trust_paths": trust_paths}
    column_names = options.parse_key_values("--columns", columns)
    loaded = load_model(run, which, precision=precision, quantize=quantize)
    evaluation = loaded.evaluate(data=data, limit=limit, report=report, columns=column_names, **run_options)
    if json_:
        print_json(evaluation)
    else:
        print_evaluation(evaluation)
        if report is not None:
            print_message(f"wrote {report}")


@takes_settings("settings", "generation.settings", "SamplingSettings", "Sampling")
def generate(
    run: options.RunPath,
    prompt: options.Prompt = "",
    file: options.PromptFile = None,
    image: options.Image = None,
    source: options.EncoderSource = None,
    count: options.Count = 1,
    best_of: options.BestOf = None,
    reward: options.RewardSpecs = None,
    reference: options.References = None,
    quantize: options.Quantization = None,
    which: options.WhichCheckpoint = None,
    json_: options.Json = False,
    *,
    settings: SamplingSettings,
) -> None:
    """Generate text: continue a prompt, generate from a source (encoder-decoders), or unmask iteratively (masked LMs).

    XLNet and ELMo also continue a prompt from left to right. A model that can do both continues --prompt and encodes
    --source or --image.

    With --best-of, N texts are generated per prompt and those with the highest reward are printed:
    meristem generate runs/gpt2-mini --prompt "The old" --best-of 8 --reward length,target=20 --reward repetition
    """
    from meristem.config.errors import RecipeError
    from meristem.generation.generate import UNMASKING_KINDS

    loaded = load_model(run, which, quantize=quantize)
    if source is not None and (file or image or prompt):
        raise RecipeError("--source: cannot be combined with --prompt, --file or --image")
    prompts: list[Any] = options.read_lines(file) if file else [source or image or prompt]
    sampling = settings.model_dump()
    if best_of is not None or reward or reference:
        reward_command.print_best_of(
            loaded, prompts, sampling, best_of, reward or [], reference or [], keep=count, as_json=json_
        )
        return
    streaming = not json_ and len(prompts) == 1 and count == 1 and not settings.uses_beam_search
    streaming = streaming and (source is not None or image is not None or loaded.lm_kind not in UNMASKING_KINDS)
    reads_source = loaded.lm_kind == "source" or source is not None or image is not None
    continues_prompt = not reads_source  # a source is not part of the generated text
    if streaming and continues_prompt:
        emit(prompts[0], end="", flush=True)
    outputs = loaded.generate(
        prompts,
        count=count,
        source=source is not None,
        on_text=(lambda _, text: emit(text, end="", flush=True)) if streaming else None,
        **sampling,
    )
    texts = [(prompt, text) for prompt, prompt_texts in zip(prompts, outputs, strict=True) for text in prompt_texts]
    if json_:
        print_json([generated_text_json(prompt, generated) for prompt, generated in texts])
    elif streaming:
        emit()
    else:
        for prompt, generated in texts:
            emit(f"{prompt}{generated.text}" if continues_prompt else generated.text)


def fill(
    run: options.RunPath,
    text: options.FillText,
    top: options.TopCandidates = 5,
    which: options.WhichCheckpoint = None,
    json_: options.Json = False,
) -> None:
    """The most likely tokens for each [MASK] in a text."""
    masks = load_model(run, which).fill(text, top=top)
    if json_:
        print_json([mask.to_dict() for mask in masks])
        return
    for mask in masks:
        if len(masks) > 1:
            emit(f"mask {mask.mask + 1}")
        for candidate in mask.candidates:
            emit(f"{candidate.probability:7.2%}  {candidate.token:<16} {candidate.text}")
