"""The computation behind each route: how a request becomes model inputs, and how a batch of inputs becomes results."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from meristem.config.errors import MeristemError
from meristem.data.images import decode_image
from meristem.evaluation.attention_maps import attention_maps
from meristem.evaluation.prediction_requests import parse_task_input
from meristem.evaluation.task_predictions import predict
from meristem.evaluation.text_embeddings import Layer, Pooling, embed, encode_text
from meristem.evaluation.token_embeddings import Level, token_vectors
from meristem.generation.cancellation import check_cancelled
from meristem.generation.continuous_batching import SampledToken
from meristem.generation.detect import DetectedToken, detect_encoded
from meristem.generation.fill import FilledMask, MaskedText, fill_many, parse_masked_text
from meristem.generation.generate import UNMASKING_KINDS, generate
from meristem.generation.generation_inputs import GenerationInputs, build_generation_inputs, input_template
from meristem.generation.head_selection import lm_kind_for, text_lm_kinds
from meristem.generation.iterative_unmasking import MAX_ROUNDS
from meristem.generation.prompt_logprobs import score_prompt_tokens
from meristem.generation.score import TextScore, score
from meristem.generation.settings import SamplingSettings
from meristem.inputs.encoded_input import EncodedInput
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.serving.errors import RequestError
from meristem.serving.job_queue import SHORT_TEXT_CHARS, RequestWork
from meristem.serving.model_registry import ServedRun
from meristem.tasks.components.sequence_generator import generator_of
from meristem.tokenizers.tokenizer import Encoding
from meristem.utils import untrusted_files

MAX_PIXELS = 1 << 24
"""Maximum pixels of a decoded image."""
MAX_ATTENTION_WEIGHTS = 1 << 20
"""Maximum attention weights per response."""
MAX_VECTOR_VALUES = 1 << 20
"""Maximum values of token and word vectors per response."""
MAX_PLL_TOKENS = 512
"""Maximum tokens of a text scored by pseudo-log-likelihood, which masks each token once."""
TopCount = int | None


def _estimate_tokens(text: str) -> int:
    """A rough number of tokens, without tokenization."""
    return len(text) // 4 + 2


def _count_tokens(run: ServedRun, text: str) -> int:
    """How many tokens a text has; only those of a long one are counted."""
    return _estimate_tokens(text) if len(text) <= SHORT_TEXT_CHARS else run.tokenizer.count(text)


def _windowed_tokens(run: ServedRun, num_tokens: int) -> int:
    """Tokens processed for a text: sliding windows of a text longer than the model's maximum length overlap by half."""
    return num_tokens if num_tokens <= run.model.backbone.max_length else 2 * num_tokens


def task_work(run: ServedRun, route: str, task: Task) -> RequestWork:
    """(input fields, number of predictions or None) → the formatted prediction of a task."""

    def prepare(request: tuple[dict[str, Any], TopCount]) -> tuple[tuple[Sample, TopCount], int]:
        parts, top = request
        images = [field for field in task.signature.served if field.kind == "image"]
        if images:
            size = task.settings.image_size
            pixels = {field.name: decode_base64_image(parts[field.request_name], size) for field in images}
            return (Sample(inputs=pixels), top), 1
        return (parse_task_input(task, parts), top), sum(_count_tokens(run, str(part)) for part in parts.values())

    def count_tokens(inputs: tuple[Sample, TopCount], num_tokens: int) -> int:
        if task.signature.output == "text":
            sampling = generator_of(task).sampling
            return num_tokens + sampling.beams * sampling.max_tokens
        choices = inputs[0].inputs.get("choices", ())  # the text is encoded with each choice
        return max(_windowed_tokens(run, num_tokens), num_tokens * len(choices))

    def compute(inputs: Sequence[tuple[Sample, TopCount]]) -> list[Any]:
        predictions = predict(run.learner, [sample for sample, _ in inputs], task=task).predictions
        return [
            task.format_output(prediction, sample) if top is None else task.format_top_outputs(prediction, sample, top)
            for prediction, (sample, top) in zip(predictions, inputs, strict=True)
        ]

    return RequestWork((run, route, task.name), prepare, compute, count_tokens)


def fill_work(run: ServedRun) -> RequestWork:
    """(text with masks, number of candidates) → the candidates of each mask."""

    def prepare(request: tuple[str, int]) -> tuple[tuple[MaskedText, int], int]:
        result = parse_masked_text(run.tokenizer, request[0])
        if len(result.mask_positions) > 64:
            raise RequestError(422, f"text: {len(result.mask_positions)} masks are too many for one request (limit 64)")
        return (result, request[1]), len(result.encoding.ids)

    def compute(inputs: Sequence[tuple[MaskedText, int]]) -> list[list[FilledMask]]:
        max_top = max(top for _, top in inputs)
        result = fill_many(run.model, run.tokenizer, [item for item, _ in inputs], top=max_top)
        return [
            [FilledMask(mask=mask.mask, candidates=mask.candidates[:top]) for mask in item]
            for item, (_, top) in zip(result, inputs, strict=True)
        ]

    def count_tokens(inputs: tuple[MaskedText, int], num_tokens: int) -> int:
        return len(inputs[0].mask_positions) * min(num_tokens, run.model.backbone.max_length)

    return RequestWork((run, "fill"), prepare, compute, count_tokens)


def embed_work(run: ServedRun, pooling: Pooling | None, layer: Layer = None) -> RequestWork:
    """A text → (its vector, its number of tokens)."""

    def prepare(text: str) -> tuple[EncodedInput, int]:
        encoded = encode_text(run.model, run.tokenizer, text)
        return encoded, encoded.num_tokens

    def compute(encoded_texts: Sequence[EncodedInput]) -> list[tuple[list[float], int]]:
        vectors = embed(run.model, run.tokenizer, encoded_texts, pooling, layer=layer).float().cpu().tolist()
        return [(vector, encoded_text.num_tokens) for vector, encoded_text in zip(vectors, encoded_texts, strict=True)]

    return RequestWork((run, "embed", pooling, layer), prepare, compute)


def token_vectors_work(run: ServedRun, level: Level, layer: Layer, num_texts: int) -> RequestWork:
    """One of `num_texts` texts → the vectors of its tokens or words, within the limit of the whole response."""

    def prepare(text: str) -> tuple[tuple[str, EncodedInput], int]:
        result = encode_text(run.model, run.tokenizer, text)
        max_tokens = MAX_VECTOR_VALUES // num_texts // run.model.backbone.hidden_size
        if result.num_tokens > max_tokens:
            message = (
                f"text: {level} vectors of {num_texts} texts are limited to {max_tokens} tokens per text, and this one "
                f"has {result.num_tokens}: send fewer or shorter texts"
            )
            raise RequestError(422, message, param="text")
        return (text, result), result.num_tokens

    def compute(inputs: Sequence[tuple[str, EncodedInput]]) -> list[list[dict[str, Any]]]:
        texts, encoded_texts = [text for text, _ in inputs], [item for _, item in inputs]
        result = token_vectors(run.model, run.tokenizer, texts, encoded_texts, level=level, layer=layer)
        return [item.plain() for item in result]

    return RequestWork((run, "embed", level, layer), prepare, compute)


def score_work(run: ServedRun, *, image: bool = False, targets: bool = False) -> RequestWork:
    """A text → its log-probability; with `targets`, (source, targets) → log-probabilities of the targets, best first.

    A masked model needs one forward pass per scored token, so their number is limited.
    """
    lm_kind = lm_kind_for(run.model, "score", source=targets and (image or "source" in text_lm_kinds(run.model)))

    def prepare(request: tuple[str, list[str]]) -> tuple[tuple[Any, list[str]], int]:
        source, scored_texts = request if targets else ("", list(request[:1]))
        source_tokens = 0 if image else _count_tokens(run, source)
        if lm_kind in UNMASKING_KINDS:
            sizes = [run.tokenizer.count(text) for text in scored_texts]
            if (max_tokens := max(sizes)) > MAX_PLL_TOKENS:
                raise RequestError(
                    422, f"text: a masked model scores at most {MAX_PLL_TOKENS} tokens, got {max_tokens}"
                )
            total_tokens = sum(item * min(source_tokens + item + 2, run.model.backbone.max_length) for item in sizes)
        else:
            total_tokens = sum(_windowed_tokens(run, source_tokens + _count_tokens(run, text)) for text in scored_texts)
        return (decode_base64_image(source, run.image_size) if image else source, scored_texts), total_tokens

    def compute(inputs: Sequence[tuple[Any, list[str]]]) -> list[list[TextScore]]:
        flat = [text for _, scored_texts in inputs for text in scored_texts]
        sources = [source for source, scored_texts in inputs for _ in scored_texts]
        texts = (sources, flat) if targets else (flat, None)
        scores = iter(score(run.model, run.tokenizer, texts[0], text_b=texts[1]))
        score_groups = [[next(scores) for _ in scored_texts] for _, scored_texts in inputs]
        return [sorted(group, key=lambda item: -item.logprob) for group in score_groups]

    return RequestWork((run, "score", image, targets), prepare, compute)


def detect_work(run: ServedRun) -> RequestWork:
    """A text → its tokens with the probability that each was replaced (ELECTRA)."""

    def prepare(text: str) -> tuple[Encoding, int]:
        encoding = run.tokenizer.encode(text)
        return encoding, len(encoding.ids)

    def compute(encodings: Sequence[Encoding]) -> list[list[DetectedToken]]:
        return detect_encoded(run.model, run.tokenizer, encodings)

    return RequestWork(
        (run, "detect"), prepare, compute, lambda encodings, num_tokens: _windowed_tokens(run, num_tokens)
    )


def encode_prompt(run: ServedRun, prompt: str | list[int]) -> tuple[GenerationInputs, int]:
    """Model inputs for a prompt (text or token ids), and the number of special tokens added in front of it."""
    if isinstance(prompt, str):
        inputs = build_generation_inputs(run.model, run.tokenizer, prompt)
        if (lm_kind := inputs.lm_kind(run.model)) == "source":
            return inputs, 0
        return inputs, len(input_template(run.model, run.tokenizer, lm_kind).prompt_start_ids)
    if run.lm_kind("generate") != "causal":
        raise RequestError(422, "prompt: only causal models accept token ids; send a text", param="prompt")
    if (max_id := max(prompt)) >= run.tokenizer.vocab_size:
        size = f"{run.tokenizer.vocab_size:,} tokens"
        message = f"prompt: token {max_id} is outside the vocabulary of {run.name} ({size})"
        raise RequestError(422, message, param="prompt")
    prefix_ids = list(input_template(run.model, run.tokenizer, "causal").prompt_start_ids)
    if prompt[: len(prefix_ids)] == prefix_ids:  # the prompt already starts with the document start token
        return GenerationInputs(prompt_ids=list(prompt)), 0
    return GenerationInputs(prompt_ids=[*prefix_ids, *prompt]), len(prefix_ids)


@dataclass(frozen=True)
class PromptEcho:
    """A prompt returned to the client: its text, token ids, and log-probabilities (None for the first token)."""

    text: str
    ids: list[int]
    token_logprobs: list[SampledToken | None]


def echo_work(run: ServedRun, top_logprobs: int) -> RequestWork:
    """A prompt (text or token ids) → its echo with log-probabilities."""

    def prepare(prompt: str | list[int]) -> tuple[tuple[list[int], int], int]:
        encoded, num_prefix = encode_prompt(run, prompt)
        return (encoded.prompt_ids, num_prefix), len(encoded.prompt_ids)

    def compute(inputs: Sequence[tuple[list[int], int]]) -> list[PromptEcho]:
        prompt_logprobs = score_prompt_tokens(run.model, [ids for ids, _ in inputs], top_logprobs=top_logprobs)
        return [
            PromptEcho(run.tokenizer.decode(ids[num_prefix:]), ids[num_prefix:], [None, *logprobs][num_prefix:])
            for (ids, num_prefix), logprobs in zip(inputs, prompt_logprobs, strict=True)
        ]

    return RequestWork(
        (run, "echo", top_logprobs), prepare, compute, lambda inputs, num_tokens: _windowed_tokens(run, num_tokens)
    )


def encode_prompts_work(run: ServedRun) -> RequestWork:
    """(function that encodes the prompts, prompts) → model inputs; tokenizes long prompts in the batch worker."""

    def prepare(
        request: tuple[Callable[[], Sequence[GenerationInputs]], Sequence[Any]],
    ) -> tuple[Sequence[GenerationInputs], int]:
        prompt_inputs = request[0]()
        return prompt_inputs, sum(inputs.num_tokens for inputs in prompt_inputs)

    return RequestWork((run, "prompts"), prepare, list)


def generate_work(run: ServedRun, settings: SamplingSettings, num_samples: int, *, source: bool = False) -> RequestWork:
    """A prompt → generated texts, for beam search and iterative unmasking, which cannot be batched token by token."""

    def compute(inputs: Sequence[Any]) -> list[Any]:
        # one call draws other random numbers for each of its prompts, and requests must not depend on each other
        batches = [[prompt] for prompt in inputs] if settings.is_sampled else [inputs]
        generate_batch = partial(generate, run.model, run.tokenizer, count=num_samples, as_source=source)
        return [texts for prompts in batches for texts in generate_batch(prompts, settings)]

    def count_tokens(inputs: Any, num_tokens: int) -> int:
        if run.lm_kind("generate") in UNMASKING_KINDS and not source:  # every round processes the whole text
            text_tokens = min(num_tokens + settings.max_tokens, run.model.backbone.max_length)
            return num_samples * min(MAX_ROUNDS, settings.max_tokens) * text_tokens
        return num_tokens + max(settings.beams, num_samples) * settings.max_tokens

    def prepare(prompt: Any) -> tuple[Any, int]:
        return prompt, _count_tokens(run, prompt)

    return RequestWork((run, "generate", settings, num_samples, source), prepare, compute, count_tokens)


def caption_work(run: ServedRun) -> RequestWork:
    """An image → the greedy caption of a captioning model without a fine-tuned task."""
    settings = SamplingSettings.model_validate({"greedy": True})

    def compute(images: Sequence[Any]) -> list[Any]:
        generated_texts = generate(run.model, run.tokenizer, list(images), settings)
        return [{"generated_text": generated.text.strip()} for (generated,) in generated_texts]

    return RequestWork(
        (run, "caption"), lambda request: (decode_base64_image(request[0]["image"], run.image_size), 1), compute
    )


def attention_work(run: ServedRun) -> RequestWork:
    """Inputs → attention weights as encoded JSON; the large JSON is encoded in the worker thread."""
    return RequestWork(
        (run, "attention"), lambda request: (request, 1), partial(map_each, partial(_attention_json, run))
    )


def map_each(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Apply a function to each item, for work that cannot be batched."""
    return [function(item) for item in items]


def _attention_json(run: ServedRun, request: dict[str, Any]) -> bytes:
    parts = request["parts"]
    text: Any = parts.get("text", "") if set(parts) <= {"text"} else parts
    image = None if request["image"] is None else decode_base64_image(request["image"], run.image_size)
    task = next((objective for objective in run.learner.objectives.values() if isinstance(objective, Task)), None)
    record = attention_maps(
        run.model, run.tokenizer, text, run=run.name, task=task, target=request["target"], image=image
    )
    kinds = record.kinds if request["kind"] is None else dict([record.select_kind(request["kind"])])
    if (num_weights := sum(attention.weights.size for attention in kinds.values())) > MAX_ATTENTION_WEIGHTS:
        raise MeristemError(
            f"{num_weights:,} attention weights are too many (limit {MAX_ATTENTION_WEIGHTS:,}): "
            "send a shorter text, or set kind"
        )
    json_parts = []
    for part in untrusted_files.json_parts(record.to_dict(request["kind"])):
        check_cancelled()
        json_parts.append(part)
    return "".join(json_parts).encode("utf-8", "replace")


def decode_base64_image(data: str, image_size: int) -> Any:
    """The pixels of a base64-encoded image, optionally a data: URL."""
    encoded = data.partition(",")[2] if data.startswith("data:") else data
    try:
        image_bytes = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise MeristemError("image: not base64; send the bytes of an image file, as with base64 -w0 FILE") from None
    return decode_image(image_bytes, image_size, max_pixels=MAX_PIXELS)
