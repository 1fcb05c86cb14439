"""A loaded run for inference: fill, generate, predict, score, embed, attention, evaluate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch

from meristem.api.formatted_predictions import predict_samples, predict_table
from meristem.checkpoint.load_run import LoadedRun, apply_inference_options, load_run
from meristem.config.errors import MeristemError
from meristem.config.validation import build_settings
from meristem.data import images
from meristem.drawing.attention_record import AttentionRecord
from meristem.evaluation.abstention import check_abstention, withhold_uncertain
from meristem.evaluation.attention_maps import attention_maps, no_attention_error
from meristem.evaluation.evaluate import evaluate as evaluate_run
from meristem.evaluation.held_out_loss import eval_mode
from meristem.evaluation.prediction_requests import TaskInput, parse_task_input
from meristem.evaluation.prompted_predictions import evaluate_prompted
from meristem.evaluation.run_tasks import run_tasks, select_task
from meristem.evaluation.text_embeddings import Layer, Pooling, embed, encode_text, hidden_states
from meristem.evaluation.token_embeddings import Level, TokenVectors, token_vectors
from meristem.generation.detect import DetectedToken, detect
from meristem.generation.fill import FilledMask, fill
from meristem.generation.generate import generate
from meristem.generation.generated_text import GeneratedText
from meristem.generation.generation_inputs import ImageArray, Prompt
from meristem.generation.head_selection import LMKind, lm_kind_for
from meristem.generation.score import TextScore, score
from meristem.generation.settings import SamplingSettings, new_seed
from meristem.in_memory_data import TableLike, as_file
from meristem.interfaces.task import Task
from meristem.learning.inference_options import InferencePrecision
from meristem.learning.quantization import Quantization
from meristem.reinforce import best_of_n
from meristem.reinforce.best_of_n import RankedText
from meristem.reinforce.reward_setup import build_rewards, rewards_cache
from meristem.reinforce.reward_specs import RewardSpec, parse_reward_specs
from meristem.utils.console import TerminalConsole
from meristem.utils.result_tables import EvaluationResult, ResultList


def load(
    run: str | Path,
    *,
    which: Literal["latest", "best"] | None = None,
    step: int | None = None,
    device: str | None = None,
    precision: InferencePrecision = "auto",
    quantize: Quantization | None = None,
) -> LoadedModel:
    """Load a run for inference.

    Args:
        run: A run's folder.
        which: The checkpoint, latest or best; default: the best one if the run keeps it, otherwise the latest.
        step: The checkpoint of this step.
        device: cpu, cuda, …; default: the CPU.
        precision: Of embedding, scoring and predicting many tokens: `auto` takes bfloat16 where this processor
            multiplies it faster; generating is float32.
        quantize: int8 rounds weights to 8 bits.
    """
    loaded_run = load_run(Path(run), which=which, step=step)
    if device is not None:
        loaded_run.learner.to(device)
    return LoadedModel(apply_inference_options(loaded_run, precision, quantize))


class LoadedModel:
    """A loaded run: fill, generate, best, score, detect, embed, attention, look, predict, evaluate."""

    def __init__(self, loaded_run: LoadedRun) -> None:
        self.loaded_run = loaded_run
        self.model, self.tokenizer, self.recipe = loaded_run.learner.model, loaded_run.tokenizer, loaded_run.recipe

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        objectives = ", ".join(objective.name for source in self.recipe.objectives.values() for objective in source)
        summary = f"{self.recipe.model.family}, {parameters / 1e6:.1f} M parameters, step {self.loaded_run.step:,}"
        return f"LoadedModel({self.loaded_run.run.path}: {summary}, trained for {objectives})"

    @property
    def lm_kind(self) -> LMKind:
        """How the model generates text: causal, masked, from a source, …"""
        return lm_kind_for(self.model, "generate")

    def fill(self, text: str, *, top: int = 5) -> list[FilledMask]:
        """The most likely tokens for every [MASK].

        Args:
            text: A text with one [MASK] or several.
            top: Candidates for each.
        """
        return ResultList(fill(self.model, self.tokenizer, text, top=top))

    def generate(
        self,
        prompt: Prompt | Path | Sequence[Prompt | Path] = "",
        *,
        count: int = 1,
        max_tokens: int = 100,
        min_tokens: int = 0,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        greedy: bool = False,
        beams: int = 1,
        length_penalty: float = 1.0,
        early_stopping: bool = False,
        repetition_penalty: float = 1.0,
        no_repeat_ngram_size: int | None = None,
        stop: Sequence[str] = (),
        seed: int | None = None,
        source: bool = False,
        on_text: Callable[[int, str], None] | None = None,
    ) -> list[list[GeneratedText]]:
        """Generate texts for each prompt: continuations, or by iterative unmasking for a masked model.

        For an encoder-decoder the prompts are the sources; for a captioning model they may be images: paths, or arrays
        [P, P, 3].

        Args:
            prompt: A prompt, or several.
            count: Texts for each prompt.
            max_tokens: Maximum number of new tokens.
            min_tokens: Minimum number of new tokens.
            temperature: Sampling temperature; 0 is greedy.
            top_k: Sample from the k most likely tokens.
            top_p: Sample from the nucleus with this total probability.
            greedy: Always take the most likely token.
            beams: Number of beams.
            length_penalty: Beams are ranked by log-probability / tokens ** length_penalty.
            early_stopping: Stop the search when no active beam would overtake the best finished one if it ended now.
            repetition_penalty: Values above 1 make tokens that already occur less likely.
            no_repeat_ngram_size: No n-gram of this many tokens occurs twice.
            stop: Stop strings.
            seed: The same seed generates the same text; without one every call draws a new one, which the texts return
                as `seed`.
            source: Encode the prompt as the source, for a model that can also continue it.
            on_text: Called with the index of a text and the text just added to it (streaming).
        """
        settings: dict[str, Any] = {
            name: value for name, value in locals().items() if name in SamplingSettings.model_fields
        }
        prompt_list = [prompt] if isinstance(prompt, str | Path | np.ndarray) else list(prompt)
        image_size = self.recipe.image_size
        prompts = [images.load_image_file(item, image_size) if isinstance(item, Path) else item for item in prompt_list]
        sampling = build_settings(SamplingSettings, {**settings, "stop": tuple(stop)}, "generate")
        assert isinstance(sampling, SamplingSettings)
        return ResultList(
            generate(self.model, self.tokenizer, prompts, sampling, count=count, on_text=on_text, as_source=source)
        )

    def best(
        self,
        prompt: str | Path | Sequence[str | Path] = "",
        *,
        rewards: RewardSpec | Sequence[RewardSpec],
        of: int = 8,
        keep: int = 1,
        references: Sequence[Any] = (),
        folder: str | Path | None = None,
        **settings: Any,
    ) -> list[list[RankedText]]:
        """Best-of-n sampling: generate several texts per prompt, return those with the highest reward.

        Args:
            prompt: A prompt, or several.
            rewards: Rewards by name, or mappings with settings.
            of: Texts generated for each prompt.
            keep: Texts returned for each prompt.
            references: Reference texts of the prompt or, for a list of prompts, one list per prompt.
            folder: Where models that a reward must fit first are cached.
            settings: Those of `generate`.
        """
        is_single = isinstance(prompt, str | Path)
        prompts = [prompt] if isinstance(prompt, str | Path) else list(prompt)
        if settings.get("seed") is None:
            settings["seed"] = new_seed()
        reward_prompts = best_of_n.build_prompts(
            prompts, [references] if is_single else references, seed=settings["seed"]
        )
        combined_reward = build_rewards(
            parse_reward_specs(rewards), Path(folder) if folder else rewards_cache(), TerminalConsole(stderr=True)
        )

        def generate_texts(count: int) -> list[list[GeneratedText]]:
            return self.generate(prompts, count=count, **settings)

        return ResultList(best_of_n.best_of_n(generate_texts, reward_prompts, combined_reward, count=of, keep=keep))

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """The tasks of the run by name: the one it was fine-tuned for, or those of imported heads."""
        return run_tasks(self.loaded_run)

    def task(self, name: str | None = None) -> Task:
        """A task of the run; raises an error that says what the run can do instead.

        Args:
            name: Its name; default: the run's only task.
        """
        return select_task(self.tasks, self.loaded_run, name)

    def predict(
        self,
        inputs: TaskInput | Sequence[TaskInput] | TableLike,
        *,
        task: str | None = None,
        top: int | None = None,
        abstain_below: float | None = None,
    ) -> Any:
        """Predictions of the task for one input, or a list with `to_pandas()` for several.

        Args:
            inputs: A text, a mapping by field (question, passage), several of them, or a DataFrame with columns like
                those of the run's training data.
            task: The task; default: the run's only one.
            top: Return this many of the most likely answers for each input.
            abstain_below: Answers of a lower probability are "abstain".
        """
        chosen_task, learner = self.task(task), self.loaded_run.learner
        if abstain_below is not None:
            check_abstention(chosen_task, abstain_below)
            if top is not None:
                raise MeristemError("abstain_below: cannot be combined with top, which gives several answers")
        if hasattr(inputs, "columns"):
            outputs = predict_table(learner, chosen_task, inputs, self.recipe.data_settings, top=top)
        elif isinstance(inputs, str | Mapping):
            sample = parse_task_input(chosen_task, inputs)
            outputs = predict_samples(learner, chosen_task, [sample], top=top)
        else:
            samples = [parse_task_input(chosen_task, item, f"text {number}") for number, item in enumerate(inputs, 1)]
            outputs = predict_samples(learner, chosen_task, samples, top=top)
        if abstain_below is not None:
            kind = chosen_task.parts.output.kind
            outputs = ResultList(withhold_uncertain(kind, output, abstain_below) for output in outputs)
        return outputs[0] if isinstance(inputs, str | Mapping) else outputs

    def score(
        self,
        texts: Prompt | Path | Iterable[Prompt | Path],
        text_b: str | Sequence[str] | None = None,
        order: Sequence[int] | None = None,
    ) -> list[TextScore]:
        """Log-probabilities of texts, or of each `text_b` given its text (see docs/using.md for each model family).

        An encoder-decoder scores targets given the texts as sources; other models score continuations, appended without
        a space. Several `text_b` of one text are ranked, best first.

        Args:
            texts: A text, or several; images for a captioning model: paths or arrays [P, P, 3].
            text_b: The text to be scored given the first, or several.
            order: XLNet's factorization order: token indices in order of prediction.
        """
        is_single = isinstance(texts, str | Path | np.ndarray)
        sources: list[Any] = [texts] if isinstance(texts, str | Path | np.ndarray) else list(texts)
        targets = [text_b] if isinstance(text_b, str) else None if text_b is None else list(text_b)
        if is_single and targets is not None:
            sources *= len(targets)
        image_size = self.recipe.image_size
        source_inputs = [
            images.load_image_file(item, image_size) if isinstance(item, Path) else item for item in sources
        ]
        scored = score(self.model, self.tokenizer, source_inputs, text_b=targets, order=order)
        return ResultList(
            sorted(scored, key=lambda item: -item.logprob) if is_single and targets is not None else scored
        )

    @overload
    def detect(self, text: str) -> list[DetectedToken]: ...

    @overload
    def detect(self, text: list[str]) -> list[list[DetectedToken]]: ...

    def detect(self, text: str | list[str]) -> list[DetectedToken] | list[list[DetectedToken]]:
        """The probability of each token that it was replaced, from an ELECTRA discriminator.

        Args:
            text: A text, or a list of texts.
        """
        texts = [text] if isinstance(text, str) else text
        detections: ResultList[list[DetectedToken]] = ResultList(
            map(ResultList, detect(self.model, self.tokenizer, texts))
        )
        return detections[0] if isinstance(text, str) else detections

    @overload
    def embed(
        self,
        texts: str | Sequence[str],
        *,
        level: Literal["text"] = "text",
        layer: Layer = None,
        pooling: Pooling | None = None,
    ) -> torch.Tensor: ...

    @overload
    def embed(
        self, texts: str | Sequence[str], *, level: Literal["token", "word"], layer: Layer = None
    ) -> list[TokenVectors]: ...

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        level: Level = "text",
        layer: Layer = None,
        pooling: Pooling | None = None,
    ) -> torch.Tensor | list[TokenVectors]:
        """Embeddings of texts: a tensor [texts, hidden size], or the vectors of tokens or words.

        An encoder-decoder uses its encoder's states.

        Args:
            texts: A text, or several.
            level: text, token or word.
            layer: A number (0 the embeddings, −1 the last) or "mix": the sum of all layers with the weights that a task
                learned, otherwise with equal weights; default: the model's output.
            pooling: Of token vectors: their mean, the first or the last; default: as in training, else the mean.
        """
        text_list = [texts] if isinstance(texts, str) else list(texts)
        encoded = [encode_text(self.model, self.tokenizer, text) for text in text_list]
        if level == "text":
            return embed(self.model, self.tokenizer, encoded, pooling, layer=layer)
        return token_vectors(self.model, self.tokenizer, text_list, encoded, level=level, layer=layer)

    def count_truncated_tokens(self, text: str) -> int:
        """Number of tokens that `embed` truncates from a text longer than the model's maximum length.

        Args:
            text: The text.
        """
        return encode_text(self.model, self.tokenizer, text).num_truncated

    def attention(self, text: str) -> tuple[list[str], list[torch.Tensor]]:
        """The tokens of a text, and the attention weights per layer (of the encoder, if any) [heads, queries, keys].

        Args:
            text: The text.
        """
        encoded = encode_text(self.model, self.tokenizer, text)
        with eval_mode(self.model):
            hidden = hidden_states(self.model, self.tokenizer, [encoded], extra_outputs=("attention",))
        tokens = self.tokenizer.token_texts(encoded.ids.tolist())
        layers = hidden.extra.get("encoder_attention", hidden.attention)
        if not layers and self.model.backbone.has_attention:
            raise MeristemError("this model has no self-attention; look(text) gives the attention of its decoder")
        if not layers:
            raise no_attention_error(self.model)
        return tokens, [layer[0].clone() for layer in layers]

    def look(
        self,
        text: TaskInput = "",
        *,
        target: str | None = None,
        picture: Path | ImageArray | None = None,
        order: Sequence[int] | None = None,
        before: str | None = None,
    ) -> AttentionRecord:
        """Attention weights of every kind the model has (self, cross, decoder, …), with readable token labels.

        Args:
            text: A text; for a fine-tuned run an input of its task: a text, or a mapping by field.
            target: The target text; default: greedy output.
            picture: The image for a captioning model.
            order: XLNet's factorization order; default: random.
            before: The preceding text, for a model with segment memory.
        """
        image_size = self.recipe.image_size
        pixels = images.load_image_file(picture, image_size) if isinstance(picture, Path) else picture
        tasks = (objective for objective in self.loaded_run.learner.objectives.values() if isinstance(objective, Task))
        return attention_maps(
            self.model,
            self.tokenizer,
            text,
            run=self.loaded_run.run.path.name,
            task=next(tasks, None),
            target=target,
            image=pixels,
            order=order,
            previous_text=before,
        )

    def look_many(self, texts: Iterable[TaskInput]) -> Iterator[AttentionRecord]:
        """`look` for each text, lazily: one record is in memory at a time.

        Args:
            texts: Texts, or mappings by field.
        """
        return (self.look(text) for text in texts)

    def evaluate(self, *, data: str | Path | TableLike | None = None, **options: Any) -> EvaluationResult:
        """Loss, perplexity, bits per byte, accuracy and minimal pairs; for a fine-tuned run, the metrics of its task.

        The metrics are in "metrics" and in `to_pandas()`.

        Args:
            data: Text, a labelled file, a list of mappings or a DataFrame; default: the run's test split.
            options: `limit`, `pairs`, `pll`, `columns` and `report` as options of `meristem evaluate`. With a
                `template`, labelled samples are evaluated zero-shot or few-shot with a prompt: `label_words`, `shots`
                from `shot_data`, `calibrate` and the other prompt settings.
        """
        with as_file(data) as path:
            if options.get("template") is not None:
                return EvaluationResult(evaluate_prompted(self.loaded_run, data=path, **options))
            return EvaluationResult(
                evaluate_run(self.loaded_run, console=TerminalConsole(stderr=True), data=path, **options)
            )
