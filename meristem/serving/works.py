"""How each route asks a run: what a request becomes before it is read, and what is made of what was read."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from meristem import bounded
from meristem.corpus.pictures import decoded
from meristem.errors import MeristemError
from meristem.evaluation.answering import answer
from meristem.evaluation.asking import asked
from meristem.evaluation.embedding import Framed, Layer, Pooling, embed, frame
from meristem.evaluation.looking import look
from meristem.evaluation.token_vectors import Level, token_vectors
from meristem.generation.detect import DetectedToken, detect_encoded
from meristem.generation.echoed import echoed
from meristem.generation.fill import Filled, Masked, fill_many, masked
from meristem.generation.given import Given, given, opening
from meristem.generation.pool import Chosen
from meristem.generation.sampling import SamplingSettings
from meristem.generation.score import Scored, score
from meristem.generation.unmask import ROUNDS
from meristem.generation.watching import go_on
from meristem.generation.way import text_ways, way_for
from meristem.generation.write import UNMASKED, write
from meristem.serving.errors import Refused
from meristem.serving.hub import Served
from meristem.serving.jobs import SHORT, Work
from meristem.task import Sample, Task
from meristem.tasks._writing import Writing as WritingTask
from meristem.tokenizers.tokenizer import Encoding

PIXELS = 1 << 24
"""Of a picture that is unpacked."""
WEIGHTS = 1 << 20
"""Of attention that are sent at once."""
NUMBERS = 1 << 20
"""Of token and word vectors that are sent at once."""
HIDDEN = 512
"""Tokens of a text whose score hides each of them once."""
Top = int | None


def _size(text: str) -> int:
    """About how many tokens a text has, where counting them can wait."""
    return len(text) // 4 + 2


def _counted(run: Served, text: str) -> int:
    """How many tokens a text has; only those of a long one are counted."""
    return _size(text) if len(text) <= SHORT else run.tokenizer.count(text)


def _in_windows(run: Served, size: int) -> int:
    """Tokens that are read of a text: windows of one longer than the model overlap by half."""
    return size if size <= run.model.backbone.length else 2 * size


def task_work(run: Served, verb: str, task: Task) -> Work:
    """Parts by name and how many answers are wanted → the answer as its task shows it."""

    def ready(given: tuple[dict[str, Any], Top]) -> tuple[tuple[Sample, Top], int]:
        parts, top = given
        if verb == "caption":
            sample = Sample(given={"picture": pixels(parts["image"], task.settings.picture)})
            return (sample, top), 1
        return (asked(task, parts), top), sum(_counted(run, str(part)) for part in parts.values())

    def tokens(read: tuple[Sample, Top], size: int) -> int:
        if isinstance(task, WritingTask):
            return size + task.sampling.beams * task.sampling.max_tokens
        choices = read[0].given.get("choices", ())  # the text is read with each of them
        return max(_in_windows(run, size), size * len(choices))

    def answers(read: Sequence[tuple[Sample, Top]]) -> list[Any]:
        found = answer(run.learner, [sample for sample, _ in read], task=task).answers
        return [
            task.shown(one, sample) if top is None else task.ranked(one, sample, top)
            for one, (sample, top) in zip(found, read, strict=True)
        ]

    return Work((run, verb, task.name), ready, answers, tokens)


def fill_work(run: Served) -> Work:
    """A text with masks and how many candidates are wanted → those of each mask."""

    def ready(given: tuple[str, int]) -> tuple[tuple[Masked, int], int]:
        found = masked(run.tokenizer, given[0])
        if len(found.places) > 64:
            raise Refused(422, f"text: {len(found.places)} masks are too many for one request, 64 are filled")
        return (found, given[1]), len(found.encoding.ids)

    def answers(read: Sequence[tuple[Masked, int]]) -> list[list[Filled]]:
        most = max(top for _, top in read)
        found = fill_many(run.model, run.tokenizer, [one for one, _ in read], top=most)
        return [
            [Filled(mask=mask.mask, candidates=mask.candidates[:top]) for mask in one]
            for one, (_, top) in zip(found, read, strict=True)
        ]

    def tokens(read: tuple[Masked, int], size: int) -> int:
        return len(read[0].places) * min(size, run.model.backbone.length)

    return Work((run, "fill"), ready, answers, tokens)


def embed_work(run: Served, pooling: Pooling, layer: Layer = None) -> Work:
    """A text → its vector and how many tokens it has."""

    def ready(text: str) -> tuple[Framed, int]:
        found = frame(run.model, run.tokenizer, text)
        return found, found.size

    def answers(read: Sequence[Framed]) -> list[tuple[list[float], int]]:
        vectors = embed(run.model, read, pooling, layer=layer).float().cpu().tolist()
        return [(vector, one.size) for vector, one in zip(vectors, read, strict=True)]

    return Work((run, "embed", pooling, layer), ready, answers)


def token_vectors_work(run: Served, level: Level, layer: Layer, texts: int) -> Work:
    """One of so many texts → the vectors of its tokens or words; together they stay within what is sent at once."""

    def ready(text: str) -> tuple[tuple[str, Framed], int]:
        found = frame(run.model, run.tokenizer, text)
        most = NUMBERS // texts // run.model.backbone.width
        if found.size > most:
            told = (
                f"text: {level} vectors of {texts} texts are sent for {most} tokens each at the most, and this one has "
                f"{found.size}: ask for fewer or shorter texts"
            )
            raise Refused(422, told, param="text")
        return (text, found), found.size

    def answers(read: Sequence[tuple[str, Framed]]) -> list[list[dict[str, Any]]]:
        given, framed = [text for text, _ in read], [one for _, one in read]
        found = token_vectors(run.model, run.tokenizer, given, framed, level=level, layer=layer)
        return [one.plain() for one in found]

    return Work((run, "embed", level, layer), ready, answers)


def score_work(run: Served, *, image: bool = False, targets: bool = False) -> Work:
    """A text → its log-probability; with `targets` (source, targets) → those of the targets, best first.

    A masked model reads a text once for each token it scores, so that those must be few.
    """
    way = way_for(run.model, "score", source=targets and (image or "source" in text_ways(run.model)))

    def ready(asked: tuple[str, list[str]]) -> tuple[tuple[Any, list[str]], int]:
        source, scored = asked if targets else ("", list(asked[:1]))
        before = 0 if image else _counted(run, source)
        if way in UNMASKED:
            sizes = [run.tokenizer.count(text) for text in scored]
            if (most := max(sizes)) > HIDDEN:
                raise Refused(422, f"text: a masked model scores {HIDDEN} tokens at the most, and there are {most}")
            size = sum(one * min(before + one + 2, run.model.backbone.length) for one in sizes)
        else:
            size = sum(_in_windows(run, before + _counted(run, text)) for text in scored)
        side = run.recipe.model.model_dump().get("picture", run.recipe.store.picture)
        return (pixels(source, side) if image else source, scored), size

    def answers(read: Sequence[tuple[Any, list[str]]]) -> list[list[Scored]]:
        flat = [text for _, scored in read for text in scored]
        sources = [source for source, scored in read for _ in scored]
        texts = (sources, flat) if targets else (flat, None)
        found = iter(score(run.model, run.tokenizer, texts[0], text_b=texts[1]))
        every = [[next(found) for _ in scored] for _, scored in read]
        return [sorted(some, key=lambda one: -one.logprob) for some in every]

    return Work((run, "score", image, targets), ready, answers)


def detect_work(run: Served) -> Work:
    """A text → its tokens, each with the probability that it was replaced."""

    def ready(text: str) -> tuple[Encoding, int]:
        found = run.tokenizer.encode(text)
        return found, len(found.ids)

    def answers(read: Sequence[Encoding]) -> list[list[DetectedToken]]:
        return detect_encoded(run.model, run.tokenizer, read)

    return Work((run, "detect"), ready, answers, lambda read, size: _in_windows(run, size))


def start_of_prompt(run: Served, prompt: str | list[int]) -> tuple[Given, int]:
    """Where a text begins that goes on from a prompt or its tokens, and how many tokens stand before those given."""
    if isinstance(prompt, str):
        start = given(run.model, run.tokenizer, prompt)
        way = start.way(run.model)
        return start, 0 if way == "source" else len(opening(run.model, run.tokenizer, way))
    if run.way("generate") != "causal":
        raise Refused(422, "prompt: tokens are read by causal models; give this one a text", param="prompt")
    if (highest := max(prompt)) >= run.tokenizer.size:
        told = f"prompt: token {highest} is none of {run.name}, which has {run.tokenizer.size:,}"
        raise Refused(422, told, param="prompt")
    before = opening(run.model, run.tokenizer)
    if prompt[: len(before)] == before:  # it brings the token that begins a document
        return Given(prompt=list(prompt)), 0
    return Given(prompt=[*before, *prompt]), len(before)


@dataclass(frozen=True)
class Echo:
    """A prompt given back: its text, its tokens, and what the model says of each that something comes before."""

    text: str
    ids: list[int]
    said: list[Chosen | None]


def echo_work(run: Served, top: int) -> Work:
    """A prompt or its tokens → its echo."""

    def ready(prompt: str | list[int]) -> tuple[tuple[list[int], int], int]:
        start, added = start_of_prompt(run, prompt)
        return (start.prompt, added), len(start.prompt)

    def answers(read: Sequence[tuple[list[int], int]]) -> list[Echo]:
        found = echoed(run.model, [ids for ids, _ in read], top=top)
        return [
            Echo(run.tokenizer.decode(ids[added:]), ids[added:], [None, *said][added:])
            for (ids, added), said in zip(read, found, strict=True)
        ]

    return Work((run, "echo", top), ready, answers, lambda read, size: _in_windows(run, size))


def starts_work(run: Served) -> Work:
    """How long prompts are cut into tokens: what makes the starts of texts, and the prompts → the starts."""

    def ready(asked: tuple[Callable[[], Sequence[Given]], Sequence[Any]]) -> tuple[Sequence[Given], int]:
        starts = asked[0]()
        return starts, sum(start.size for start in starts)

    return Work((run, "prompts"), ready, list)


def write_work(run: Served, settings: SamplingSettings, count: int, *, source: bool = False) -> Work:
    """A prompt → its texts, for what is not written token by token: beams, and masked models."""

    def answers(read: Sequence[Any]) -> list[Any]:
        return write(run.model, run.tokenizer, read, settings, count=count, source=source)

    def tokens(read: Any, size: int) -> int:
        if run.way("generate") in UNMASKED and not source:  # every round reads the whole text
            return count * min(ROUNDS, settings.max_tokens) * min(size + settings.max_tokens, run.model.backbone.length)
        return size + max(settings.beams, count) * settings.max_tokens

    def ready(prompt: Any) -> tuple[Any, int]:
        return prompt, _counted(run, prompt)

    return Work((run, "generate", settings, count, source), ready, answers, tokens)


def caption_work(run: Served) -> Work:
    """A picture → the likeliest caption of a captioner that was taught no task."""
    told = run.recipe.model.model_dump().get("picture", run.recipe.store.picture)
    settings = SamplingSettings.model_validate({"greedy": True})

    def answers(read: Sequence[Any]) -> list[Any]:
        return [
            {"generated_text": one.text.strip()} for (one,) in write(run.model, run.tokenizer, list(read), settings)
        ]

    return Work((run, "caption"), lambda given: (pixels(given[0]["image"], told), 1), answers)


def attention_work(run: Served) -> Work:
    """What is looked at → where, as JSON: so much is written out where nobody else waits."""
    return Work((run, "attention"), lambda given: (given, 1), partial(map_each, partial(_attended, run)))


def map_each(one: Callable[[Any], Any], read: Sequence[Any]) -> list[Any]:
    """What cannot be read together, one by one."""
    return [one(each) for each in read]


def _attended(run: Served, given: dict[str, Any]) -> bytes:
    parts = given["parts"]
    text: Any = parts.get("text", "") if set(parts) <= {"text"} else parts
    picture = None
    if given["image"] is not None:
        size = run.recipe.model.model_dump().get("picture", run.recipe.store.picture)
        picture = pixels(given["image"], size)
    own = next((one for one in run.learner.objectives.values() if isinstance(one, Task)), None)
    found = look(run.model, run.tokenizer, text, run=run.name, task=own, target=given["target"], picture=picture)
    chosen = found.kinds if given["kind"] is None else dict([found.kind(given["kind"])])
    if (many := sum(seen.weights.size for seen in chosen.values())) > WEIGHTS:
        raise MeristemError(
            f"{many:,} weights are too many to send, at most {WEIGHTS:,}: give a shorter text or a kind"
        )
    parts = []
    for part in bounded.json_parts(found.plain(given["kind"])):
        go_on()
        parts.append(part)
    return "".join(parts).encode("utf-8", "replace")


def pixels(data: str, size: int) -> Any:
    """The picture in a text of base64, perhaps behind data:image/png;base64, as pages have it."""
    plain = data.partition(",")[2] if data.startswith("data:") else data
    try:
        found = base64.b64decode(plain, validate=True)
    except (binascii.Error, ValueError):
        raise MeristemError("image: not base64; send the bytes of a picture, as with base64 -w0 FILE") from None
    return decoded(found, size, most=PIXELS)
