"""Reinforcement learning with rewards: clicks (microworld and headlines), grammar and meaning on novels, three seeds.

    python -m benchmarks.rewards ../shared/data --work FOLDER [--only microworld grammar …] [--seeds 3]

Runs are folders in --work and are resumed; each cell's numbers are a file in docs/results/rewards, and an existing cell
is not run again. docs/results/rewards.md is generated from them. Prompts are beginnings of paragraphs of novels that
nothing was trained on. The judge of the reward is trained on one half of the training novels' paragraphs, the
independent judge, with another seed, on the other half. The free baseline: sampling the initial model at the lower
temperature at which its distinct-2 equals that of the trained model.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.rewards_headlines import headlines
from benchmarks.side_by_side import RESULTS, table
from meristem import api
from meristem.config.recipe_parts import parse_rewards as reward_settings
from meristem.metrics.distinct_ngrams import distinct_metrics
from meristem.reinforce.judge_model import JudgeModel
from meristem.reinforce.reward_base import PromptCompletion
from meristem.reinforce.reward_setup import build_rewards, rewards_cache

CELLS, PAGE = RESULTS / "rewards", RESULTS / "rewards.md"
SMALL = {"model.layers": 3, "model.hidden_size": 192, "model.heads": 4, "model.max_length": 96,
         "tokenizer.vocab_size": 4096,
         "train.batch_tokens": 3072}  # fmt: skip
STEPS, JUDGE_STEPS = 500, 1200
"""Training steps of the policy and of the judge: a judge should know more than the policy."""
TEMPERATURES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6)
PROMPT_WORDS, TOKENS, PROMPTS = 8, 32, 200
POLICY = {"policy.prompt_words": PROMPT_WORDS, "policy.num_generations": 4, "policy.max_new_tokens": TOKENS,
          "policy.eval_prompts": 64,
          "policy.kl.target": 8, "policy.kl.coefficient": 0.05, "policy.kl.adaptation_rate": 0.2, "train.steps": 150,
          "train.batch_samples": 16, "train.learning_rate": 2e-4}  # fmt: skip
GRAMMAR = {"policy.kl.target": 5, "policy.kl.coefficient": 0.15, "policy.kl.adaptation_rate": 0.05,
           "policy.entropy_coefficient": 0.4,
           "train.steps": 200, "train.learning_rate": 1e-4}  # fmt: skip
Numbers = dict[str, float]


def microworld(data: Path, work: Path, seed: int) -> Numbers:
    """Share of the optimal expected click rate reached by the policy, and by the initial model."""
    start = api.finetune("lines", {}, out=work / "lines", console=Console()).run
    settings = {"from": str(start), "train.seed": seed}
    run = api.reinforce("clicks-microworld", settings, out=work / f"microworld-{seed}", console=Console()).run
    report = json.loads((run / "report.json").read_bytes())
    (reward_number,) = (number for number in report["numbers"] if number["name"] == "judge: optimal_fraction")
    return {"start": reward_number["before"], "trained": reward_number["after"], "kl": report["kl"]}


def grammar(data: Path, work: Path, seed: int) -> Numbers:
    """Reward in standard deviations, surprise by an independent judge compared with cooler sampling, diversity, KL."""
    own_judge = _model(data, work / "judge-0", half=0, seed=10, steps=JUDGE_STEPS)
    outside = JudgeModel.from_run(str(_model(data, work / "judge-1", half=1, seed=11, steps=JUDGE_STEPS)), print)
    rewards: list[dict[str, Any]] = [{"name": "grammar", "run": str(own_judge)}, {"name": "repetition", "weight": 0.5}]
    start, run, prompts = _reinforced("grammar-microworld", data, work / f"grammar-{seed}", seed, rewards, GRAMMAR)
    prompt_texts = [prompt for prompt, _ in prompts]
    return _compare(start, run, prompts, rewards) | _cooler_sampling(start, run, prompt_texts, outside)


def meaning(data: Path, work: Path, seed: int) -> Numbers:
    """Cosine similarity to references on held-out prompts, by word vectors of the other half."""
    text = {"corpus": str(data / "english_novels/train.txt"), "document": "line"}
    rewards = [{"name": "meaning", **text, "half": 0, "alignment_weight": 0.0}, {"name": "repetition", "weight": 0.5}]
    start, run, prompts = _reinforced("meaning-microworld", data, work / f"meaning-{seed}", seed, rewards)
    comparison = _compare(start, run, prompts, rewards)
    other = _score_texts([{"name": "meaning", **text, "half": 1, "alignment_weight": 0.0}], start, run, prompts)
    return comparison | {f"cosine.{name}": float(values.mean()) for name, values in other.items()}


PARTS: dict[str, Callable[[Path, Path, int], Numbers]] = {
    "microworld": microworld, "grammar": grammar, "meaning": meaning, "headlines": headlines,
}  # fmt: skip


# ---------------------------------------------------------------- runs


def _model(data: Path, out: Path, *, half: int | None, seed: int, steps: int = STEPS) -> Path:
    """A small GPT-2 on the training novels, or on one half of their paragraphs."""
    source = str(data / "english_novels/train.txt")
    overrides = {**SMALL, "corpus.document": "line", "corpus.half": half, "train.seed": seed, "train.steps": steps}
    return api.pretrain("gpt2-mini", overrides, source=source, out=out, console=Console()).run


def _reinforced(
    recipe: str,
    data: Path,
    out: Path,
    seed: int,
    rewards: list[dict[str, Any]],
    extra: dict[str, Any] | None = None,
) -> tuple[Path, Path, list[tuple[str, str]]]:
    """The initial run, the trained run, and unseen prompts with their references."""
    start = _model(data, out.parent / "novels", half=0, seed=0)
    files = {name: str(_prompts(data, out.parent, name)) for name in ("valid", "test")}
    settings = {**POLICY, **(extra or {}), "from": str(start), "train.seed": seed, "rewards": rewards, "judge": None,
                "data.train": files["valid"], "data.validation": None, "data.test": None}  # fmt: skip
    run = api.reinforce(recipe, settings, out=out, console=Console()).run
    rows = [json.loads(line)["text"].split(" ") for line in Path(files["test"]).read_text("utf-8").splitlines()]
    pairs = [(" ".join(row[:PROMPT_WORDS]), " " + " ".join(row[PROMPT_WORDS:])) for row in rows[:PROMPTS]]
    return start, run, pairs


def _prompts(data: Path, work: Path, split: str) -> Path:
    """Distinct paragraphs of 20 to 60 words, shuffled."""
    out = work / f"prompts-{split}.jsonl"
    if not out.exists():
        lines = (data / f"english_novels/{split}.txt").read_text(encoding="utf-8").splitlines()
        candidate_lines = [line for line in dict.fromkeys(lines) if 20 <= len(line.split(" ")) <= 60]
        line_indices = np.random.default_rng(0).permutation(len(candidate_lines))[:2000]
        out.write_text(
            "".join(json.dumps({"text": candidate_lines[line_index]}) + "\n" for line_index in line_indices),
            encoding="utf-8",
        )
    return out


# ---------------------------------------------------------------- measuring


def _generate_texts(run: Path, prompts: Sequence[str], temperature: float) -> list[str]:
    """One sampled text for each prompt, with a seed not used in training."""
    completions = api.load(run).generate(list(prompts), max_tokens=TOKENS, temperature=temperature, seed=12345)
    return [texts_of_prompt[0].text for texts_of_prompt in completions]


def _score_texts(
    rewards: list[dict[str, Any]], start: Path, run: Path, pairs: Sequence[tuple[str, str]]
) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """Rewards of texts of the initial and of the trained model."""
    combined_reward, prompts = (
        build_rewards(reward_settings(rewards, "rewards"), rewards_cache(), Console()),
        [prompt for prompt, _ in pairs],
    )
    scores_by_model = {}
    for name, model in (("start", start), ("trained", run)):
        texts = _generate_texts(model, prompts, 1.0)
        tried = [PromptCompletion(prompt=p, text=t, references=(r,)) for (p, r), t in zip(pairs, texts, strict=True)]
        scores_by_model[name] = combined_reward.judge(tried).total
    return scores_by_model


def _compare(start: Path, run: Path, pairs: Sequence[tuple[str, str]], rewards: list[dict[str, Any]]) -> Numbers:
    """Reward before and after in standard deviations of before, diversity, and the KL of the run's report."""
    scores_by_model, prompts = _score_texts(rewards, start, run, pairs), [prompt for prompt, _ in pairs]
    distinct_shares = {name: distinct_metrics(_generate_texts(model, prompts, 1.0))["distinct2"]
              for name, model in (("start", start), ("trained", run))}  # fmt: skip
    return {
        "reward.start": float(scores_by_model["start"].mean()),
        "reward.trained": float(scores_by_model["trained"].mean()),
        "deviations": float(
            (scores_by_model["trained"].mean() - scores_by_model["start"].mean()) / scores_by_model["start"].std()
        ),
        "distinct2.start": distinct_shares["start"],
        "distinct2.trained": distinct_shares["trained"],
        "kl": float(json.loads((run / "report.json").read_bytes())["kl"]),
    }


def _cooler_sampling(start: Path, run: Path, prompts: Sequence[str], judge: JudgeModel) -> Numbers:
    """Surprise (nats per token) by the independent judge of the initial model, the trained one, and cooler sampling."""

    def measured(model: Path, temperature: float) -> tuple[float, float]:
        texts = _generate_texts(model, prompts, temperature)
        surprise = judge.nats_per_token(list(zip(prompts, texts, strict=True)))
        return distinct_metrics(texts)["distinct2"], float(surprise[np.isfinite(surprise)].mean())

    variety, after = measured(run, 1.0)
    # diversity and surprise both grow with temperature
    ladder = sorted(measured(start, temperature) for temperature in TEMPERATURES)
    cooled = float(np.interp(variety, [temperature for temperature, _ in ladder], [score for _, score in ladder]))
    return {"surprise.start": measured(start, 1.0)[1], "surprise.trained": after, "surprise.cooled": cooled}


# ---------------------------------------------------------------- results


def page() -> str:
    """All cells as tables: mean and range over seeds."""
    parts = []
    for part in PARTS:
        cells = [json.loads(path.read_text()) for path in sorted(CELLS.glob(f"{part}-*.json"))]
        if not cells:
            continue
        rows = [[name, f"{statistics.mean(values):.3f}", f"{min(values):.3f} – {max(values):.3f}"]
                for name in cells[0] if (values := [cell[name] for cell in cells])]  # fmt: skip
        parts += [f"## {part}, {len(cells)} seeds", "", table(["metric", "mean", "lowest – highest"], rows), ""]
    command = "python -m benchmarks.rewards ../shared/data --work FOLDER"
    intro = f"`{command}`; surprisal in nats per token, under an independent judge."
    return "\n".join(["# Reward training", "", intro, "", *parts])


def main() -> None:
    """Run the missing cells and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    CELLS.mkdir(parents=True, exist_ok=True)
    for part in options.only:
        for seed in range(options.seeds):
            cell = CELLS / f"{part}-{seed}.json"
            if not cell.exists():
                cell.write_text(json.dumps(PARTS[part](options.data.resolve(), options.work, seed), indent=1) + "\n")
            PAGE.write_text(page(), encoding="utf-8")
    print(page())


if __name__ == "__main__":
    main()
