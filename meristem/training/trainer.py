"""Trainer: from a resolved recipe to a finished run (data, model, initial weights, resume, training loop, results)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from rich.console import Console

from meristem.checkpoint import load, weight_transfer
from meristem.checkpoint.load_run import load_recipe, load_run
from meristem.checkpoint.run_folder import RunFolder, explain_write_errors, move_aside
from meristem.config.errors import MeristemError
from meristem.config.recipe import PretrainRecipe, Recipe, recipe_yaml
from meristem.dataset.feed import Feed
from meristem.dataset.step_ramp import StepWork
from meristem.distributed.initialization import init_distributed, is_restarted
from meristem.distributed.parallel import ParallelLearner
from meristem.distributed.process_group import DistributedContext
from meristem.learning.build import build_learner, check_recipe, describe_objectives
from meristem.training import default_learning_rate
from meristem.training.budget import peak_flops, step_flops
from meristem.training.data.training_data import (
    TrainingData,
    clear_unstarted,
    create_run,
    refuse_foreign_folder,
)
from meristem.training.freezing import UnfreezeSchedule, prepare_trainable
from meristem.training.init.initial_weights import load_start_weights
from meristem.training.init.word_vector_init import init_from_word_vectors
from meristem.training.launch import is_launch_ended
from meristem.training.layer_compilation import compile_layers, set_compilation
from meristem.training.loop import TrainingLoop
from meristem.training.missing_files import refuse_missing_files
from meristem.training.numerics import pin_threads, set_precision
from meristem.training.optim.param_groups import build_optimizers
from meristem.training.precision import product_dtype
from meristem.training.privacy.noise import erase_secret, run_noise_seed
from meristem.training.privacy.privacy_checks import refuse_shared_samples
from meristem.training.privacy.privacy_planning import plan_privacy, privacy_notices
from meristem.training.ramp_planning import flops_key
from meristem.training.resume_checks import (
    refuse_changed_settings,
    refuse_changed_tokenizer,
    refuse_edited_recipe,
    refuse_impossible_state,
)
from meristem.training.resume_state import restore_training
from meristem.training.run_evaluator import build_evaluator, unsharded_learner
from meristem.training.run_logger import RunLogger
from meristem.training.run_result import RunContext, RunResult, finish_run, finished_result
from meristem.training.step import Stepper, resolve_device
from meristem.training.step_planning import (
    build_mixture,
    part_batches,
    plan_steps,
    planned_tokens,
    ramped_feeds,
    refuse_changed_batches,
    step_work,
    steps_per_epoch,
)
from meristem.training.train_state import LAYERS, TrainState

R = TypeVar("R", bound=Recipe)
LoadTrainingData = Callable[[R, RunFolder | None, Console, DistributedContext], TrainingData]
"""Loads the training data of a new run, or the same data again for an existing one."""
QUIET_CONSOLE = Console(quiet=True)


def run_recipe(
    recipe: R,
    out: Path,
    *,
    load_data: LoadTrainingData[R],
    fresh: bool,
    console: Console,
    initial: Recipe | None = None,
) -> RunResult:
    """Train until the budget is used up, resuming if the run exists; with all processes that torchrun started.

    With `initial`, a new run starts from the random initialization of that recipe where names and shapes match.
    """
    check_recipe(recipe)
    refuse_shared_samples(recipe)
    if recipe.train.threads is not None:
        torch.set_num_threads(recipe.train.threads)
    with init_distributed(
        resolve_device(recipe.train),
        timeout_seconds=recipe.train.distributed_timeout,
        is_launch_ended=is_launch_ended,
    ) as distributed:
        with distributed.run_rank_zero_first():
            if distributed.is_rank_zero:
                existing_run = _find_existing_run(recipe, out, console, fresh=fresh and not is_restarted())
                training_data = load_data(recipe, existing_run, console, distributed)
                run = existing_run or create_run(out, recipe, training_data)
            else:
                run = RunFolder.open(out)
                training_data = load_data(recipe, run, QUIET_CONSOLE, distributed)
        with explain_write_errors(run.path), run.hold_lock() if distributed.is_rank_zero else nullcontext():
            checkpoint = load.load_checkpoint(run.checkpoints) if distributed.is_rank_zero else None
            step = distributed.broadcast(checkpoint.snapshot.step if checkpoint is not None else 0)
            if step and not distributed.is_rank_zero:
                checkpoint = load.load_checkpoint(run.checkpoints, step=step)
            if distributed.is_rank_zero:
                run.truncate_metrics(step)  # steps after the checkpoint are repeated
            with (
                RunLogger(run.path, console, last_step=step, trackers=recipe.train.trackers)
                if distributed.is_rank_zero
                else RunLogger(None, QUIET_CONSOLE) as logger
            ):
                return _train(recipe, run, training_data, checkpoint, logger, initial)


def _find_existing_run(recipe: Recipe, out: Path, console: Console, *, fresh: bool) -> RunFolder | None:
    """The run to resume, if there is one; with `fresh` an existing run is moved aside."""
    if fresh and out.exists():
        console.print(f"The old run is kept as {move_aside(out)}", highlight=False, markup=False, soft_wrap=True)
    existing_run = RunFolder(out) if RunFolder(out).exists() else None
    if existing_run is not None and clear_unstarted(existing_run):
        line = f"{out}: the run there never took a step; starting over"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
        existing_run = None
    if existing_run is not None:
        refuse_changed_settings(load_recipe(existing_run), recipe, out)
    else:
        refuse_missing_files(recipe)
        refuse_foreign_folder(out)
    return existing_run


def _train(
    recipe: Recipe,
    run: RunFolder,
    training_data: TrainingData,
    checkpoint: load.LoadedCheckpoint | None,
    logger: RunLogger,
    initial: Recipe | None = None,
) -> RunResult:
    settings, distributed = recipe.train, training_data.distributed
    device = resolve_device(settings) if distributed.world_size == 1 else distributed.device
    learner = build_learner(recipe, training_data.tokenizer)
    context = RunContext(
        recipe=recipe, run=run, training_data=training_data, learner=learner, state=TrainState(), logger=logger
    )
    if checkpoint is None:
        if initial is not None:
            weight_transfer.load_matching(
                learner.model, build_learner(initial, training_data.tokenizer).model.state_dict()
            )
        _init_weights(context)
    prepare_trainable(learner.model, recipe.start)
    if checkpoint is not None:
        for notice in checkpoint.notices:
            logger.log(notice)
        refuse_edited_recipe(run.path, checkpoint.path, recipe)
        refuse_changed_tokenizer(run.path, checkpoint)
        if nonfinite := weight_transfer.nonfinite_names(checkpoint.snapshot.model):
            raise MeristemError(f"{checkpoint.path}: weights that are not finite cannot be trained on: {nonfinite}")
        weight_transfer.load_exact(learner.model, checkpoint.snapshot.model)
        context.state = TrainState.from_dict(checkpoint.snapshot.state, step=checkpoint.snapshot.step)
        refuse_impossible_state(context.state, learner.objectives.values())
        if distributed.world_size == 1:
            pin_threads(context)
    set_precision(context, device)
    learner.to(device)
    noise_seed = run_noise_seed(run, settings.privacy, distributed)
    data_seed = settings.seed if settings.privacy is None else noise_seed or 0
    full_feeds = training_data.build_feeds(recipe, learner.objectives, split="train", seed=data_seed)
    if checkpoint is not None and isinstance(recipe, PretrainRecipe) and settings.privacy is None:
        refuse_changed_batches(context, ramped_feeds(context, full_feeds))
    count_flops = cache(lambda name, parts: step_flops(learner, name, part_batches(full_feeds[name], parts)))
    plan_steps(context, full_feeds, count_flops, device)
    feeds = ramped_feeds(context, full_feeds)
    context.planned_tokens = planned_tokens(context, feeds)
    if context.state.is_finished(settings.patience):
        record = run.finish_record  # None: it was killed after its last step
        return finish_run(context, None) if record is None else finished_result(context, record)
    private_step = plan_privacy(context, feeds, noise_seed)
    set_compilation(context, feeds, lambda name: count_flops(name, 1).per_token, device)
    _apply_runtime_settings(context)
    _log_start(context)
    for line in privacy_notices(context, private_step) if private_step is not None else ():
        context.logger.log(line)
    if distributed.is_rank_zero:
        run.clear_finished()
    row_kinds = {flops_key(name, parts): (name, parts) for name, feed in feeds.items() for parts in feed.ramp.all_parts}
    if context.state.flops_per_token.keys() != row_kinds.keys():  # counted before sharding, on a copy of the model
        context.state.flops_per_token = {key: count_flops(*kind).per_token for key, kind in row_kinds.items()}
    work = step_work(context, full_feeds, count_flops)
    parallel = ParallelLearner(learner, distributed, fsdp=settings.fsdp)
    optimizers = build_optimizers(learner.model, settings, distributed, muon_split=context.state.muon_split)
    stepper = Stepper(
        learner=learner,
        optimizers=optimizers,
        settings=settings,
        device=device,
        precision=context.precision,
        parallel=parallel,
        histories=context.state.histories,
        private=private_step,
    )
    if checkpoint is not None:
        restore_training(stepper, checkpoint.snapshot, feeds)
    metrics = _build_loop(context, stepper, feeds, device, work).fit()
    if stepper.weight_average is not None:
        stepper.weight_average.swap()  # the run ends with them: test metrics, reports
    if parallel.sharded:
        context.learner = unsharded_learner(context, device)
    result = finish_run(context, metrics)
    if distributed.is_rank_zero:
        erase_secret(run)
    return result


def _build_loop(
    context: RunContext, stepper: Stepper, feeds: Mapping[str, Feed], device: torch.device, work: StepWork
) -> TrainingLoop:
    recipe = context.recipe
    return TrainingLoop(
        run=context.run,
        recipe_yaml=recipe_yaml(recipe),
        settings=recipe.train,
        stepper=stepper,
        feeds=feeds,
        logger=context.logger,
        state=context.state,
        mix=build_mixture(context),
        work=work,
        flops_per_token=context.state.flops_per_token,
        peak_flops=peak_flops(device, dtype=product_dtype(context.precision)),
        evaluate=build_evaluator(context, stepper, device),
        evaluation_count=context.training_data.evaluation_count(context.evaluation_recipe, context.planned_tokens),
        selection_loss=context.training_data.selection_loss,
        preview_samples=lambda name, ids: context.training_data.preview_samples(feeds[name], ids),
        on_metrics=context.training_data.build_metrics_callback(context.learner, context.logger, context.state.total),
        unfreeze=UnfreezeSchedule(context.learner.model, recipe.start, steps_per_epoch(next(iter(feeds.values())))),
    )


def _init_weights(context: RunContext) -> None:
    """Load word vectors and weights of another run, where the recipe names them."""
    start, model, tokenizer = context.recipe.start, context.learner.model, context.training_data.tokenizer
    if start.word_vectors is not None:
        context.logger.log(
            init_from_word_vectors(model, tokenizer, Path(start.word_vectors), context.training_data.iter_texts())
        )
    if start.path is not None and start.load != "nothing":
        start_run = load_run(Path(start.path))
        for notice in start_run.notices:
            context.logger.log(f"{start.path}: {notice}")
        context.logger.log(load_start_weights(model, tokenizer, start_run, parts=start.load, recipe=context.recipe))
        if line := default_learning_rate.describe_learning_rate(context.recipe, start_run.recipe):
            context.logger.log(line)


def _apply_runtime_settings(context: RunContext) -> None:
    """Switch on gradient checkpointing and torch.compile, which change no more than rounding."""
    for module in context.learner.modules():
        if hasattr(module, "recompute"):
            cast(Any, module).recompute = context.recipe.train.gradient_checkpointing
    if context.state.compiled == LAYERS:
        compile_layers(context.learner)


def _log_start(context: RunContext) -> None:
    recipe, state, log = context.recipe, context.state, context.logger.log
    sizes = [(p.numel(), p.requires_grad) for p in context.learner.model.parameters()]
    parameters, trainable = sum(size for size, _ in sizes), sum(size for size, is_trainable in sizes if is_trainable)
    trainable_note = "" if trainable == parameters else f" ({trainable:,} trainable)"
    opening = f"Resuming from step {state.step:,} of" if state.step else "Training"
    objective = describe_objectives(recipe, context.learner.objectives)
    data_size, *data_lines = context.training_data.describe_data()
    distributed = context.training_data.distributed
    process_note = f" with {distributed.world_size} processes" if distributed.world_size > 1 else ""
    log(
        f"{opening} {recipe.name}: {recipe.model.family}, {parameters / 1e6:.1f} M parameters{trainable_note}, "
        f"{objective}, on {data_size}; {state.total:,} steps ({state.budget}) in {context.run.path}{process_note}"
    )
    for line in data_lines:
        log(line)
