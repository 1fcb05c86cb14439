"""Federated training of 20 clients with different text, 30 % of which drop out of each round, against pooled training.

    python -m benchmarks.federated [--arms fedavg pooled_steps …] [--splits even skewed] [--seeds 0 1 2] [--work DIR]
    python -m benchmarks.federated --tune        FedAdam's server learning rate, on validation text of seed 9
    python -m benchmarks.federated --page        write the table of docs/results/federated.md again

Each cell (split, arm, seed) is a file in docs/results/trust/, and a cell that is there is not run again. Every arm
reads as many tokens; the tokens of the federated arms are those of the clients that answered. `pooled_steps` trains one
model on all text with as many steps as a client takes, on the batches of all answering clients together; `pooled_batch`
takes the batch of one client, and as many more steps: what a federation gives up by talking only once in a round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import yaml
from rich.console import Console

import meristem
from benchmarks.side_by_side import RESULTS, table
from meristem.samples import documents
from meristem.trust.federated.federate import FederatedRequest, make_plan, train_federated
from meristem.trust.federated.participation import drops_out
from meristem.trust.federated.run_federation import local_pool
from meristem.trust.federated.settings import FederatedPrivacySettings
from meristem.trust.federated.update_privacy import spent_epsilon
from meristem.utils.randomness import generator

CELLS, PAGE = RESULTS / "trust", RESULTS / "federated.md"
CLIENTS, DROPOUT, ROUNDS, LOCAL_STEPS, BATCH = 20, 0.3, 10, 10, 256
FEDERATED = ("fedavg", "fedprox", "fedadam")
POOLED = ("pooled_steps", "pooled_batch")
SPLITS = ("even", "skewed")
HELD_OUT_EVERY = 10
"""One of so many documents is in the test text of all clients."""
MODEL = {
    "model.layers": 1,
    "model.hidden_size": 64,
    "model.heads": 2,
    "model.max_length": 64,
    "train.optimizer": "adamw",
    "train.threads": 1,
    "train.precision": "float32",
    "train.trackers": [],
}
LEARNING_RATES = dict.fromkeys((*FEDERATED, *POOLED), 5e-3)
"""The same for all arms; `--trial` tries others."""
TRIED = (5e-3, 1e-2, 2e-2)
SERVER_RATES, TUNING_SEED = (1e-3, 2e-3, 3e-3, 1e-2), 9
"""Server learning rates of FedAdam that are tried on a seed that is not reported."""
QUIET = Console(quiet=True)


def even_split(seed: int) -> list[list[str]]:
    """Docstrings of the standard library in random order, the same amount for each client."""
    texts = list(documents("pydocs"))
    order = generator(seed, "federated benchmark", 0, 0).permutation(len(texts))
    return [[texts[index] for index in order[client::CLIENTS]] for client in range(CLIENTS)]


def skewed_split(seed: int) -> list[list[str]]:
    """Other text at every client: whole modules, stories in English or in Chinese; sizes differ by a factor of 12."""
    texts, parts = list(documents("pydocs")), CLIENTS // 2
    sizes = [1.32**index for index in range(parts)]
    cuts = [round(len(texts) * sum(sizes[:index]) / sum(sizes)) for index in range(parts + 1)]
    clients = [texts[start:stop] for start, stop in pairwise(cuts)]
    for index in range(CLIENTS - parts):
        language = "en" if index % 2 else "zh"
        size = round(60 * 1.32**index)
        clients.append(list(documents(f"microworld-{language}?size={size}&seed={100 * seed + index}")))
    return clients


def write_texts(split: str, seed: int, folder: Path) -> tuple[list[Path], Path]:
    """One file per client, and one with held-out documents of all of them; written once, and the same for all arms."""
    test = folder / "test.jsonl"
    if test.is_file():
        return sorted(folder.glob("client*.jsonl")), test
    clients = even_split(seed) if split == "even" else skewed_split(seed)
    folder.mkdir(parents=True, exist_ok=True)
    paths, held_out = [], list[str]()
    for number, texts in enumerate(clients):
        path = folder / f"client{number:02d}.jsonl"
        _write(path, [text for index, text in enumerate(texts) if index % HELD_OUT_EVERY])
        held_out += texts[::HELD_OUT_EVERY]
        paths.append(path)
    _write(test, held_out)
    return paths, test


def _write(path: Path, texts: Sequence[str]) -> None:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


def overrides(arm: str, seed: int, learning_rate: float) -> dict[str, Any]:
    """The settings that all arms share."""
    return {**MODEL, "train.seed": seed, "train.learning_rate": learning_rate, "corpus.processes": 1}


def run_federated(
    arm: str, seed: int, paths: Sequence[Path], out: Path, rate: float, server_rate: float | None = None
) -> dict[str, Any]:
    """A federated cell: who answered, and the tokens read."""
    clients = [{"name": path.stem, "source": str(path)} for path in paths]
    settings = {"rounds": ROUNDS, "local_steps": LOCAL_STEPS, "dropout": DROPOUT, "strategy": arm}
    settings |= {"evaluate_every": ROUNDS, "engine": "local", "save_every": ROUNDS}
    settings |= {} if server_rate is None else {"server_learning_rate": server_rate}
    out.parent.mkdir(parents=True, exist_ok=True)
    file = out.parent / "clients.yaml"
    file.write_text(yaml.safe_dump({"clients": clients, "federated": settings}))
    given = [f"{key}={json.dumps(value)}" for key, value in overrides(arm, seed, rate).items()]
    request = FederatedRequest(
        recipe="gpt2-mini", clients=file, out=out, overrides=[*given, f"train.batch_tokens={BATCH}"]
    )
    plan = make_plan(request, QUIET)
    result = train_federated(plan, lambda plan: local_pool(plan, QUIET), QUIET)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    rounds = [line for line in lines if line["kind"] == "round"]
    return {
        "tokens": int(result.used["tokens"]),
        "server_learning_rate": server_rate,
        "answered": [len(line["answered"]) for line in rounds],
        "client_loss": {name: result.metrics[name] for name in ("loss", "loss_min", "loss_max")},
        "bytes_from_clients": sum(line["bytes_from_clients"] for line in rounds),
    }


def run_pooled(
    arm: str, seed: int, paths: Sequence[Path], out: Path, rate: float, tokens: int, tokenizer: Path
) -> dict[str, Any]:
    """A pooled cell: one model on all text, for as many tokens."""
    batch = round(tokens / (ROUNDS * LOCAL_STEPS)) if arm == "pooled_steps" else BATCH
    settings = overrides(arm, seed, rate) | {
        "train.batch_tokens": batch,
        "train.tokens": tokens,
        "tokenizer.kind": "bpe",
        "tokenizer.path": str(tokenizer),
        "train.evaluate_every": "none",
        "corpus.source": [str(path) for path in paths],
    }
    result = meristem.pretrain("gpt2-mini", settings, out=out, console=QUIET)
    return {"tokens": int(result.used["tokens"]), "steps": result.step, "batch_tokens": batch}


def run_cell(split: str, arm: str, seed: int, work: Path, rate: float | None = None) -> dict[str, Any]:
    """Train one cell and evaluate it on the held-out text of all clients."""
    torch.set_num_threads(1)
    rate, folder = rate or LEARNING_RATES[arm], work / f"{split}-{seed}"
    paths, test = write_texts(split, seed, folder / "texts")
    out, started = Path(tempfile.mkdtemp(dir=folder)) / arm, time.process_time()
    if arm in FEDERATED:
        measured = run_federated(
            arm, seed, paths, out, rate, server_rate=best_server_rate() if arm == "fedadam" else None
        )
    else:
        measured = run_pooled(arm, seed, paths, out, rate, federated_tokens(seed), byte_tokenizer(folder))
    seconds = time.process_time() - started
    metrics = meristem.load(out).evaluate(data=str(test))["metrics"]
    return {
        "split": split,
        "arm": arm,
        "seed": seed,
        "learning_rate": rate,
        "test_loss": metrics["loss"],
        "seconds": round(seconds, 1),
        "smallest_client_bytes": min(path.stat().st_size for path in paths),
        "largest_client_bytes": max(path.stat().st_size for path in paths),
        **measured,
    }


def tune_server_rate(work: Path) -> None:
    """Validation loss of the clients with each server learning rate that has not been tried."""
    for rate in SERVER_RATES:
        path = CELLS / f"federated-tune-fedadam-{rate:g}.json"
        if not path.is_file():
            folder = work / f"even-{TUNING_SEED}"
            paths, _ = write_texts("even", TUNING_SEED, folder / "texts")
            out = Path(tempfile.mkdtemp(dir=folder)) / "fedadam"
            measured = run_federated("fedadam", TUNING_SEED, paths, out, LEARNING_RATES["fedadam"], server_rate=rate)
            path.write_text(json.dumps(measured, indent=1) + "\n")
            print(f"server rate {rate:g}: validation loss {measured['client_loss']['loss']:.4f}", flush=True)


def read_tuning() -> dict[float, float]:
    """Server learning rate → mean validation loss of the clients."""
    cells = [json.loads(path.read_text()) for path in CELLS.glob("federated-tune-fedadam-*.json")]
    return {cell["server_learning_rate"]: cell["client_loss"]["loss"] for cell in cells}


def best_server_rate() -> float | None:
    """The server learning rate with the lowest validation loss; the default where none was tried."""
    losses = read_tuning()
    return min(losses, key=losses.__getitem__) if losses else None


def federated_tokens(seed: int) -> int:
    """Tokens that the clients read that do not drop out."""
    names = [f"client{number:02d}" for number in range(CLIENTS)]
    answered = sum(
        not drops_out(name, seed=seed, round_number=number, probability=DROPOUT)
        for number in range(ROUNDS)
        for name in names
    )
    return answered * LOCAL_STEPS * BATCH


def byte_tokenizer(folder: Path) -> Path:
    """The tokenizer.json that the federated arms use."""
    from meristem.tokenizers.settings import TokenizerSettings
    from meristem.tokenizers.train import train_tokenizer

    path = folder / "tokenizer.json"
    train_tokenizer(TokenizerSettings.model_validate({"kind": "bpe", "vocab_size": 261}), ["x"]).save(path)
    return path


def cell_path(split: str, arm: str, seed: int) -> Path:
    """The file of a cell."""
    return CELLS / f"federated-{split}-{arm}-{seed}.json"


def read_cells() -> list[dict[str, Any]]:
    """All cells that have been run, without those of the tuning."""
    paths = [cell_path(split, arm, seed) for split in SPLITS for arm in LEARNING_RATES for seed in range(10)]
    return [json.loads(path.read_text()) for path in paths if path.is_file()]


def rows(cells: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    """One row per split and arm: mean and range over the seeds, and the loss relative to the pooled arms."""
    losses = {(cell["split"], cell["arm"], cell["seed"]): cell["test_loss"] for cell in cells}
    for split in SPLITS:
        for arm in (*POOLED, *FEDERATED):
            own = [cell for cell in cells if (cell["split"], cell["arm"]) == (split, arm)]
            if not own:
                continue
            values = [cell["test_loss"] for cell in own]
            relative = [
                _mean_excess([(cell["test_loss"], losses.get((split, pooled, cell["seed"]))) for cell in own])
                for pooled in POOLED
            ]
            spread = [cell["client_loss"] for cell in own if "client_loss" in cell]
            between = "–"
            if spread:
                low, high = (statistics.mean(item[key] for item in spread) for key in ("loss_min", "loss_max"))
                between = f"{low:.3f} to {high:.3f}"
            loss = f"{statistics.mean(values):.4f} ({min(values):.4f} to {max(values):.4f})"
            yield [split, arm, str(len(own)), loss, *relative, between]


def _mean_excess(pairs: Sequence[tuple[float, float | None]]) -> str:
    """Mean of how much higher the first is than the second, in percent, over the pairs that are complete."""
    excesses = [100 * (own / other - 1) for own, other in pairs if other is not None]
    return f"{statistics.mean(excesses):+.1f} %" if excesses else "–"


def epsilon_rows() -> Iterator[list[str]]:
    """ε at δ = 1e-5 by noise multiplier and number of rounds; nothing is trained for it."""
    for noise in (0.5, 1.0, 2.0, 5.0, 10.0, 20.0):
        privacy = FederatedPrivacySettings.model_validate({"noise_multiplier": noise})
        yield [f"{noise:g}", *(f"{spent_epsilon(rounds, privacy):.3g}" for rounds in EPSILON_ROUNDS)]


EPSILON_ROUNDS = (1, 20, 100, 500)
HEADINGS = ("split", "arm", "seeds", "test loss (range)", "over pooled_steps", "over pooled_batch", "loss by client")


def write_page() -> None:
    """Replace the tables between the marks of the page."""
    headings = ["noise multiplier", *(f"{rounds} round{'s' * (rounds > 1)}" for rounds in EPSILON_ROUNDS)]
    tables = {
        "cells": table(list(HEADINGS), list(rows(read_cells()))),
        "epsilon": table(headings, list(epsilon_rows())),
        "tuning": table(
            ["server learning rate", "validation loss"],
            [[f"{rate:g}", f"{loss:.4f}"] for rate, loss in sorted(read_tuning().items())],
        ),
    }
    text = PAGE.read_text(encoding="utf-8")
    for name, body in tables.items():
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, rest = text.split(start)
        text = f"{before}{start}\n\n{body}\n\n{end}{rest.split(end)[1]}"
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    """Run the cells that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", nargs="+", choices=(*FEDERATED, *POOLED), default=[*FEDERATED, *POOLED])
    parser.add_argument("--splits", nargs="+", choices=SPLITS, default=list(SPLITS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "federated-benchmark")
    parser.add_argument("--trial", nargs="*", type=float, help="learning rates to try; nothing is stored")
    parser.add_argument("--tune", action="store_true", help="first try FedAdam's server learning rates")
    parser.add_argument("--page", action="store_true", help="only write the page")
    arguments = parser.parse_args()
    CELLS.mkdir(parents=True, exist_ok=True)
    if arguments.tune:
        torch.set_num_threads(1)
        tune_server_rate(arguments.work)
    for split in arguments.splits if not arguments.page else ():
        for seed in arguments.seeds:
            for arm in arguments.arms:
                if arguments.trial is not None:
                    for rate in arguments.trial or TRIED:
                        cell = run_cell(split, arm, seed, arguments.work, rate)
                        print(split, arm, seed, rate, round(cell["test_loss"], 4), cell["seconds"], flush=True)
                elif not cell_path(split, arm, seed).is_file():
                    cell = run_cell(split, arm, seed, arguments.work)
                    cell_path(split, arm, seed).write_text(json.dumps(cell, indent=1) + "\n")
                    print(split, arm, seed, round(cell["test_loss"], 4), cell["seconds"], flush=True)
    if PAGE.is_file():
        write_page()


if __name__ == "__main__":
    main()
