"""Timing of training steps in one or several processes on this machine: on placeholder text, or samples of a task.

`python -m meristem.describe.process_timing RECIPE.yaml` is one of these processes; the first prints the seconds.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from meristem.config.recipe import FinetuneRecipe, PretrainRecipe, read_recipe, recipe_yaml, resolve_recipe
from meristem.describe.describe_recipe import build_task_trial, build_trial
from meristem.distributed.initialization import init_distributed
from meristem.distributed.parallel import ParallelLearner
from meristem.distributed.process_group import DistributedContext
from meristem.training.optim.param_groups import build_optimizers
from meristem.training.precision import choose_precision
from meristem.training.step import Stepper
from meristem.training.step_planning import step_batches

CPU = torch.device("cpu")
MIN_TURNS, MAX_TURNS, TIMED_SECONDS = 3, 20, 3.0
TASK_STEPS = 4
"""Steps of a task that are timed together: its batches differ in length."""
COLLECTIVE_SECONDS = 60.0
"""How long a process waits for another one."""
LAUNCH_SECONDS = 300.0
"""How long the timing of one configuration may take."""


def step_seconds(recipe: PretrainRecipe | FinetuneRecipe, *, processes: int, threads: int) -> float | None:
    """Seconds of one optimizer step in this many processes with this many threads each; None if it did not work."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free_socket:
        recipe_file = Path(folder) / "recipe.yaml"
        recipe_file.write_text(recipe_yaml(recipe), encoding="utf-8")
        free_socket.bind(("127.0.0.1", 0))
        port = free_socket.getsockname()[1]
        free_socket.close()
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            "WORLD_SIZE": str(processes),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "TORCH_CPP_LOG_LEVEL": "ERROR",
        }
        children = [
            subprocess.Popen(
                [sys.executable, "-m", "meristem.describe.process_timing", str(recipe_file)],
                env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for rank in range(processes)
        ]
        try:
            outputs = [child.communicate(timeout=LAUNCH_SECONDS)[0] for child in children]
        except subprocess.TimeoutExpired:
            return None
        finally:
            for child in children:
                if child.poll() is None:
                    child.kill()
                    child.wait()
        return float(outputs[0]) if not any(child.returncode for child in children) else None


def time_steps(recipe: PretrainRecipe | FinetuneRecipe, distributed: DistributedContext) -> float:
    """Seconds of the fastest step, or of a task's fastest few, in this process: other programs only slow it down."""
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(recipe, FinetuneRecipe):
            learner, source, feed, _ = build_task_trial(recipe)
            steps_per_turn = TASK_STEPS
        else:
            learner, feeds = build_trial(recipe, recipe.tokenizer.vocab_size, Path(folder))
            source, feed = next(iter(feeds.items()))
            steps_per_turn = 1
        parallel = ParallelLearner(learner.train(), distributed)
        stepper = Stepper(
            learner=learner,
            optimizers=build_optimizers(learner.model, recipe.train, distributed),
            settings=recipe.train,
            device=CPU,
            precision=choose_precision(recipe, CPU, learner.model.backbone),
            parallel=parallel,
        )
        feed = replace(feed, distributed=distributed)
        durations: list[float] = []
        for turn in range(MAX_TURNS):
            step_inputs = [step_batches(feed, step) for step in range(steps_per_turn)]
            start = time.perf_counter()
            for batches in step_inputs:
                stepper.train_step(turn, 1000, source, batches)
            durations.append((time.perf_counter() - start) / steps_per_turn)
            timed = durations[1:]  # the first step allocates
            is_enough = len(timed) >= MIN_TURNS and steps_per_turn * sum(timed) >= TIMED_SECONDS
            if distributed.broadcast(int(is_enough)):
                break
    return min(timed)


def main() -> None:
    """Time the recipe of the command line in this process, and print the seconds in the first one."""
    recipe = resolve_recipe(*read_recipe(sys.argv[1]))
    assert isinstance(recipe, PretrainRecipe | FinetuneRecipe)  # written by step_seconds
    with init_distributed(CPU, timeout_seconds=COLLECTIVE_SECONDS) as distributed:
        seconds = time_steps(recipe, distributed)
        if distributed.is_rank_zero:
            print(seconds)


if __name__ == "__main__":
    main()
