"""The Python API: pretrain, finetune, reinforce, load a run, import and export weights, score texts with rewards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from rich.console import Console

from meristem.checkpoint.load_run import LoadedRun, apply_inference_options, load_run
from meristem.compare.comparison_report import ComparisonReport
from meristem.compare.comparison_settings import comparison_of_recipes, read_comparison
from meristem.compare.run_claims import ClaimsReport, run_claims
from meristem.compare.run_comparison import run_comparison
from meristem.config.errors import MeristemError
from meristem.config.overrides import parse_overrides
from meristem.config.recipe import read_recipe
from meristem.config.validation import build_settings
from meristem.data import images
from meristem.describe import describe_recipe as recipe_description
from meristem.describe import doctor as machine_report
from meristem.drawing.attention_record import AttentionRecord
from meristem.evaluation.abstention import check_abstention, withhold_uncertain
from meristem.evaluation.attention_maps import attention_maps, no_attention_error
from meristem.evaluation.evaluate import evaluate as evaluate_run
from meristem.evaluation.held_out_loss import eval_mode
from meristem.evaluation.prediction_requests import TaskInput, parse_task_input
from meristem.evaluation.prompted_predictions import evaluate_prompted
from meristem.evaluation.run_tasks import run_tasks, select_task
from meristem.evaluation.task_predictions import predict
from meristem.evaluation.text_embeddings import Layer, Pooling, embed, encode_text, hidden_states
from meristem.evaluation.token_embeddings import Level, TokenVectors, token_vectors
from meristem.finetune import finetuning
from meristem.generation.detect import DetectedToken, detect
from meristem.generation.fill import FilledMask, fill
from meristem.generation.generate import generate
from meristem.generation.generated_text import GeneratedText
from meristem.generation.generation_inputs import ImageArray, Prompt
from meristem.generation.head_selection import LMKind, lm_kind_for
from meristem.generation.score import TextScore, score
from meristem.generation.settings import SamplingSettings, new_seed
from meristem.in_memory_data import TableLike, as_file, store_data, store_source
from meristem.interfaces.sample import Sample
from meristem.interfaces.task import Task
from meristem.interop import cached_import, hub_upload, import_weights
from meristem.interop.card_metadata import CardOptions
from meristem.interop.export_folder import ExportResult
from meristem.interop.hub_upload import PushResult
from meristem.interop.import_weights import ImportResult
from meristem.labelled.load import stream_samples
from meristem.learning.inference_options import InferencePrecision
from meristem.learning.quantization import Quantization
from meristem.recipe_resolution import Overrides, resolve_pretrain_recipe, resolve_task_recipe, task_run_name
from meristem.reinforce import best_of_n, reinforcement
from meristem.reinforce.best_of_n import RankedText
from meristem.reinforce.reward_base import PromptCompletion
from meristem.reinforce.reward_setup import build_rewards, rewards_cache
from meristem.reinforce.reward_specs import RewardSpec, parse_reward_specs
from meristem.reinforce_resolution import prepare_reinforce
from meristem.training import pretraining
from meristem.training.run_result import RunResult
from meristem.trust.exposure.exposure_files import check_out, write_exposure
from meristem.trust.exposure.exposure_options import ExposureOptions
from meristem.trust.exposure.exposure_report import ExposureReport
from meristem.trust.exposure.run_exposure import measure_exposure
from meristem.trust.label_noise.label_noise_report import LabelNoiseReport
from meristem.trust.label_noise.run_label_noise import measure_label_noise
from meristem.trust.robustness.robustness_report import RobustnessReport
from meristem.trust.robustness.run_robustness import DEFAULT_SEVERITIES, RobustnessOptions, measure_robustness
from meristem.trust.robustness.write_robustness import write_robustness
from meristem.utils.console import TerminalConsole
from meristem.utils.result_tables import EvaluationResult, ResultList


def pretrain(
    recipe: str | Path = "bert-mini",
    overrides: Overrides = (),
    *,
    source: str | Path | TableLike | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    console: Console | None = None,
) -> RunResult:
    """Pretrain a model on text; the same call again resumes an interrupted run.

    Args:
        recipe: A recipe's name or YAML file, or a run to continue from.
        overrides: Settings, {"train.minutes": 3} or ["train.minutes=3"].
        source: A file, folder, glob, builtin:NAME or hub:OWNER/NAME, or the texts themselves: a list of strings, a list
            of mappings with a column `text`, or a DataFrame; these are stored in the run's folder, so that it can
            resume.
        out: The run's folder; default: runs/ and the recipe's name.
        fresh: Start from scratch; an existing run is renamed, never deleted.
        console: Where progress is printed; default: standard error, or the notebook's cell.
    """
    folder = Path(out) if out is not None else Path("runs") / read_recipe(recipe)[0]
    source_path, fresh = store_source(source, folder, fresh=fresh)
    resolved = resolve_pretrain_recipe(recipe, overrides, source_path)
    return pretraining.pretrain(resolved, folder, fresh=fresh, console=console or TerminalConsole(stderr=True))


def finetune(
    recipe: str | Path | None = None,
    overrides: Overrides = (),
    *,
    data: TableLike | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    console: Console | None = None,
) -> RunResult:
    """Fine-tune a model on labelled data; the same call again resumes an interrupted run.

    Args:
        recipe: A task's name (classification, tagging, …) or a YAML file.
        overrides: Settings; {"from": "runs/bert-mini"} starts from a run or a folder of transformers.
        data: Splits, {"train": …, "validation": …, "test": …}, each a file, a list of mappings or a DataFrame, and the
            names of columns, {"text": "review", "label": "stars"}; or the training split alone. Data in memory are
            stored in the run's folder, so that the run can resume.
        out: The run's folder; default: runs/ and the recipe's name.
        fresh: Start from scratch; an existing run is renamed, never deleted.
        console: Where progress is printed; default: standard error, or the notebook's cell.
    """
    folder = Path(out) if out is not None else Path("runs") / task_run_name(recipe, overrides)
    overrides, fresh = store_data(data, overrides, folder, fresh=fresh)
    resolved = resolve_task_recipe(recipe, overrides)
    return finetuning.finetune(resolved, folder, fresh=fresh, console=console or TerminalConsole(stderr=True))


def reinforce(
    recipe: str | Path,
    overrides: Overrides = (),
    *,
    data: TableLike | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    console: Console | None = None,
) -> RunResult:
    """Fine-tune a generative model with rewards (policy gradients); the same call again resumes an interrupted run.

    A start model given as a recipe is trained first, and rewards that need fitting are fitted first.

    Args:
        recipe: A recipe with rewards: its name or YAML file.
        overrides: Settings, {"train.minutes": 3} or ["train.minutes=3"].
        data: The prompts, in the same forms as in `finetune`.
        out: The run's folder; default: runs/ and the recipe's name.
        fresh: Start from scratch; an existing run is renamed, never deleted.
        console: Where progress is printed; default: standard error, or the notebook's cell.
    """
    folder = Path(out) if out is not None else Path("runs") / read_recipe(recipe)[0]
    overrides, fresh = store_data(data, overrides, folder, fresh=fresh)
    console = console or TerminalConsole(stderr=True)
    setup = prepare_reinforce(recipe, overrides, folder, console)
    return reinforcement.reinforce(
        setup.recipe, folder, rewards=setup.rewards, judge=setup.judge, fresh=fresh, console=console
    )


def compare(
    recipes: str | Path | Sequence[str],
    overrides: Overrides = (),
    *,
    source: str | Path | None = None,
    seeds: int = 3,
    tasks: Sequence[str] = (),
    pairs: Sequence[str] = (),
    quick: bool = False,
    out: str | Path = "runs/comparison",
    parallel: int = 1,
    console: Console | None = None,
) -> ComparisonReport:
    """Compare recipes at equal budget, or the arms of a YAML file; the same call again resumes.

    Args:
        recipes: Two recipes or more, of which the first is the baseline, or a comparison's YAML file.
        overrides: Settings of all arms, among them the budget, {"train.flops": 1e13}.
        source: The text that all arms read: a file, folder, glob or builtin:NAME.
        seeds: Runs of each arm; fewer than three decide nothing.
        tasks: Labelled files that each model is fine-tuned on.
        pairs: Files or folders of minimal pairs.
        quick: Little of everything, to see that it works.
        out: The folder of runs and report.
        parallel: Processes that train runs at once; above one, a script needs `if __name__ == "__main__":`.
        console: Where progress is printed; default: standard error, or the notebook's cell.
    """
    if isinstance(recipes, str | Path):
        comparison = read_comparison(Path(recipes))
    else:
        comparison = comparison_of_recipes(
            recipes,
            parse_overrides(overrides),
            source=None if source is None else str(source),
            seeds=seeds,
            tasks=tasks,
            pairs=pairs,
            quick=quick,
        )
    return run_comparison(comparison, Path(out), console or TerminalConsole(stderr=True), parallel=parallel)


def compare_claims(
    names: Sequence[str] = (),
    overrides: Overrides = (),
    *,
    data: Mapping[str, Any] | None = None,
    seeds: int = 3,
    quick: bool = False,
    out: str | Path = "runs/claims",
    parallel: int = 1,
    console: Console | None = None,
) -> ClaimsReport:
    """Test published claims at small scale; the same call again resumes.

    Args:
        names: Names or files of claims; all if none are given.
        overrides: Settings of all arms.
        data: Data in place of the built-in ones: `{"text": "my-texts/", "sentiment": {"train": …, "test": …}}`.
        seeds: Runs of each arm.
        quick: Little of everything, to see that it works.
        out: The folder of runs and report.
        parallel: Processes that train runs at once.
        console: Where progress is printed; default: standard error, or the notebook's cell.
    """
    shown = console or TerminalConsole(stderr=True)
    return run_claims(
        names, Path(out), shown, data=data, overrides=overrides, seeds=seeds, quick=quick, parallel=parallel
    )


def robustness(
    run: str | Path | LoadedModel,
    data: str | Path | TableLike | None = None,
    *,
    severities: Sequence[float] = DEFAULT_SEVERITIES,
    only: Sequence[str] = (),
    seed: int = 0,
    limit: int | None = None,
    tests: str | Path | None = None,
    dictionary: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    out: str | Path | None = None,
) -> RobustnessReport:
    """How a fine-tuned run fails on noisy and hostile input.

    Args:
        run: A fine-tuned run, or one that is loaded.
        data: Labelled data; default: the samples the run held out.
        severities: Shares of the words that are changed.
        only: Names of perturbations; default: all that fit the task.
        seed: Seed of the noise.
        limit: Samples at most.
        tests: A file of one's own behaviour tests.
        dictionary: A dictionary for code switching.
        columns: Names of columns, {"text": "review"}.
        out: A folder for robustness.html and robustness.json.
    """
    loaded = run.loaded_run if isinstance(run, LoadedModel) else load(run).loaded_run
    options = RobustnessOptions(
        severities=tuple(severities),
        only=tuple(only),
        seed=seed,
        limit=limit,
        tests=None if tests is None else Path(tests),
        dictionary=None if dictionary is None else Path(dictionary),
    )
    with as_file(data) as path:
        report = measure_robustness(loaded, data=None if path is None else str(path), columns=columns, options=options)
    if out is not None:
        write_robustness(report, Path(out))
    return report


def label_noise(
    files: str | Path | Sequence[str | Path],
    *,
    run: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    folds: int = 5,
    seed: int = 0,
) -> LabelNoiseReport:
    """Labels that are probably wrong, near duplicates across files, and planted triggers of labelled files.

    Args:
        files: Labelled files.
        run: A run whose column names and frozen embeddings are used; default: words and pairs of words.
        columns: Names of columns, {"text": "review", "label": "stars"}.
        folds: Folds of the cross-validation.
        seed: Seed of the folds.
    """
    paths = [str(files)] if isinstance(files, str | Path) else [str(file) for file in files]
    loaded = None if run is None else load(run).loaded_run
    return measure_label_noise(paths, run=loaded, columns=columns, folds=folds, seed=seed)


def describe(recipe: str | Path, overrides: Overrides = ()) -> recipe_description.RecipeDescription:
    """Parameters, FLOPs, memory and measured speed of a recipe on this machine.

    Args:
        recipe: A recipe's name or YAML file, or a run.
        overrides: Settings, {"train.minutes": 3} or ["train.minutes=3"].
    """
    return recipe_description.describe_recipe(resolve_pretrain_recipe(recipe, overrides))


def doctor(*, speed: bool = True) -> machine_report.MachineReport:
    """Versions, processor, memory, disk, optional packages and speed of this machine.

    Args:
        speed: Measure the speed, which takes some seconds.
    """
    return machine_report.examine_machine(measure_speed=speed)


def import_folder(
    folder: str | Path,
    out: str | Path,
    *,
    source: str | None = None,
    tokenizer: str | Path | None = None,
    config: str | Path | None = None,
) -> ImportResult:
    """Import published weights as a run.

    Args:
        folder: A transformers folder, AllenNLP's ELMo files, a name on the Hugging Face hub, a GGUF file, or a
            checkpoint of another program.
        out: The run's folder, which must not exist yet.
        source: The program of a checkpoint, nanogpt or uer; default: known by its content.
        tokenizer: The tokenizer that belongs to a checkpoint.
        config: The config that belongs to a checkpoint.
    """
    path = Path(folder)
    if path.is_file() or source is not None:
        from meristem.interop import checkpoint_import

        return checkpoint_import.import_file(
            path,
            Path(out),
            source=source,
            tokenizer=None if tokenizer is None else Path(tokenizer),
            config=None if config is None else Path(config),
        )
    return import_weights.import_folder(cached_import.resolve_folder(folder), Path(out))


def export(
    run: str | Path,
    folder: str | Path,
    *,
    onnx: bool = False,
    gguf: bool = False,
    ctranslate2: bool = False,
    sentence_transformers: bool = False,
    int8: bool = False,
    architecture: str | None = None,
    drop_crf: bool = False,
) -> ExportResult:
    """Export a run; without a format, as a transformers folder.

    Args:
        run: The run.
        folder: The output folder, which must not exist yet.
        onnx: ONNX graphs for onnxruntime.
        gguf: A GGUF file for llama.cpp.
        ctranslate2: A folder for ctranslate2.
        sentence_transformers: A folder for sentence-transformers.
        int8: Round the weights of ONNX, GGUF or ctranslate2 to 8 bits.
        architecture: The transformers class; heads it does not have are left out.
        drop_crf: Leave out a tagger's CRF.
    """
    from meristem.interop import export_formats

    return export_formats.export_format(
        Path(run),
        Path(folder),
        export_formats.chosen_format(
            onnx=onnx, gguf=gguf, ctranslate2=ctranslate2, sentence_transformers=sentence_transformers
        ),
        int8=int8,
        architecture=architecture,
        drop_crf=drop_crf,
    )


def push(
    run: str | Path,
    name: str,
    *,
    private: bool = False,
    dry_run: bool = False,
    license: str | None = None,
    languages: Sequence[str] = (),
    architecture: str | None = None,
    drop_crf: bool = False,
) -> PushResult:
    """Publish a run on the Hugging Face hub, exported for transformers.

    Args:
        run: The run.
        name: OWNER/NAME on the hub.
        private: Only its owner sees it.
        dry_run: Upload nothing; show what would be.
        license: Licence of the weights, as apache-2.0, for the card.
        languages: Languages of the text, as en, for the card.
        architecture: The transformers class, as in `export`.
        drop_crf: Leave out a tagger's CRF.
    """
    return hub_upload.push_run(
        Path(run),
        name,
        private=private,
        dry_run=dry_run,
        options=CardOptions(license=license, languages=tuple(languages)),
        architecture=architecture,
        drop_crf=drop_crf,
    )


def reward(
    name: RewardSpec | Sequence[RewardSpec],
    *,
    text: str | Sequence[str],
    prompt: str = "",
    references: Sequence[str] = (),
    columns: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    console: Console | None = None,
    **settings: Any,
) -> Any:
    """Score a text, or each of several, with a reward: its value and the reasons for it.

    Args:
        name: A reward, or several: its name, or a mapping with settings, `{"name": "length", "target": 20}`.
        text: The text, or several.
        prompt: What the texts continue.
        references: Reference texts, for rewards that compare.
        columns: Columns of the prompt's row, for rewards that read them.
        folder: Where models that a reward must fit first are cached.
        console: Where progress is printed; default: standard error, or the notebook's cell.
        settings: Settings of the reward.
    """
    config = {"name": name, **settings} if isinstance(name, str) and settings else name
    rewards = build_rewards(
        parse_reward_specs(config), Path(folder) if folder else rewards_cache(), console or TerminalConsole(stderr=True)
    )
    texts = [text] if isinstance(text, str) else list(text)
    completions = [
        PromptCompletion(prompt=prompt, text=item, references=tuple(references), columns=columns or {})
        for item in texts
    ]
    rewards.check(completions)
    scores = ResultList(rewards.score(completions).reward_scores())
    return scores[0] if isinstance(text, str) else scores


def exposure(
    run: str | Path,
    *,
    reference: str | Path | None = None,
    canaries: str | Path | None = None,
    quick: bool = False,
    seed: int = 0,
    out: str | Path | None = None,
    which: Literal["latest", "best"] | None = None,
    trust_paths: bool = False,
    console: Console | None = None,
) -> ExposureReport:
    """What a pretrained run gives away of its text: canary exposure, verbatim extraction, membership inference.

    Writes exposure.json, exposure.html and a section of the model card into the run's folder.

    Args:
        run: The run.
        reference: A run trained on other text, whose loss is subtracted in membership inference.
        canaries: A file such as another run's canaries.json; default: those the run was trained with
            (`corpus.canaries`).
        quick: Fewer candidates and passages, wider intervals.
        seed: Seed of the candidates and passages.
        out: A folder for the two files, in place of the run's.
        which: The checkpoint: latest or best.
        trust_paths: Read files that the recipe of somebody else's run names.
        console: Where progress is printed; default: standard error, or the notebook's cell.
    """
    if out is not None:
        check_out(Path(out))
    options = ExposureOptions(seed=seed)
    loaded_run = load_run(Path(run), which=which)
    report = measure_exposure(
        loaded_run,
        options.quick() if quick else options,
        console or TerminalConsole(stderr=True),
        reference=None if reference is None else load_run(Path(reference)),
        canary_path=None if canaries is None else Path(canaries),
        trust_paths=trust_paths,
    )
    write_exposure(report, loaded_run.run, None if out is None else Path(out))
    return report


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
        if abstain_below is not None:
            check_abstention(self.task(task), abstain_below)
            if top is not None:
                raise MeristemError("abstain_below: cannot be combined with top, which gives several answers")
            outputs = self.predict(inputs, task=task)
            kind = self.task(task).parts.output.kind
            if isinstance(outputs, ResultList):
                return ResultList(withhold_uncertain(kind, output, abstain_below) for output in outputs)
            return withhold_uncertain(kind, outputs, abstain_below)
        if hasattr(inputs, "columns"):
            return self._predict_rows(inputs, task, top)
        chosen_task, is_single = self.task(task), isinstance(inputs, str | Mapping)
        input_list: Sequence[TaskInput] = [inputs] if isinstance(inputs, str | Mapping) else list(inputs)
        samples = [
            parse_task_input(chosen_task, item, "" if is_single else f"text {number}")
            for number, item in enumerate(input_list, 1)
        ]
        pairs = zip(predict(self.loaded_run.learner, samples, task=chosen_task).predictions, samples, strict=True)
        outputs = [
            chosen_task.format_output(*pair) if top is None else chosen_task.format_top_outputs(*pair, top)
            for pair in pairs
        ]
        return outputs[0] if is_single else ResultList(outputs)

    def _predict_rows(self, table: TableLike, task: str | None, top: int | None) -> ResultList[Any]:
        chosen_task, data = self.task(task), self.recipe.data_settings
        with as_file(table) as path:
            samples = list(
                stream_samples(str(path), data, chosen_task.sample_type, chosen_task.signature.column_fields)
            )
        if row_errors := [sample for sample in samples if isinstance(sample, MeristemError)]:
            raise row_errors[0]
        valid_samples = [sample for sample in samples if isinstance(sample, Sample)]
        pairs = zip(
            predict(self.loaded_run.learner, valid_samples, task=chosen_task).predictions, valid_samples, strict=True
        )
        return ResultList(
            chosen_task.format_output(*pair) if top is None else chosen_task.format_top_outputs(*pair, top)
            for pair in pairs
        )

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
