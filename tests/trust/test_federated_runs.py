"""Federated runs of tiny simulated clients: results, resume after a kill, what leaves a client, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import util
from pathlib import Path

import pytest
import torch
import yaml
from cli_runner import Meristem
from rich.console import Console

import meristem as package
from meristem import samples
from meristem.checkpoint.load import load_checkpoint
from meristem.config.errors import MeristemError, RecipeError
from meristem.trust.federated.client_pool import ClientPool, RoundAnswers
from meristem.trust.federated.federate import FederatedPlan, FederatedRequest, make_plan, train_federated
from meristem.trust.federated.messages import REPORTED_METRICS, ClientReply, ClientTask
from meristem.trust.federated.run_federation import local_pool, run_federation
from meristem.trust.federated.sent_log import read_sent

QUIET = Console(quiet=True)
SMALL = [
    "model.layers=1",
    "model.hidden_size=16",
    "model.heads=2",
    "model.max_length=16",
    "train.batch_tokens=64",
    "train.evaluate_tokens=64",
    "train.threads=1",
    "train.trackers=[]",
    "corpus.processes=1",
    "corpus.validation=0.2",
    "federated.local_steps=2",
    "federated.engine=local",
]
NAMES = ("anna", "ben", "cleo")
SECRET = "Zanzibar"
"""A word that stands in every client's text and may stand in nothing that leaves it."""


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """clients.yaml of three owners with texts of their own; one cache for all tests."""
    folder = tmp_path_factory.mktemp("owners")
    for number, name in enumerate(NAMES):
        texts = [f"{SECRET} {text}" for text in samples.documents(f"microworld-en?size=12&seed={number}")]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    entries = [{"name": name, "source": str(folder / f"{name}.jsonl")} for name in NAMES]
    (folder / "clients.yaml").write_text(yaml.safe_dump(entries))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MERISTEM_CACHE", str(folder / "cache"))
        yield folder / "clients.yaml"


def plan(clients: Path, out: Path, *more: str, rounds: int = 4) -> FederatedPlan:
    """A federated run of a tiny GPT-2."""
    return make_plan(
        FederatedRequest(recipe="gpt2-mini", clients=clients, overrides=[*SMALL, *more], out=out, rounds=rounds), QUIET
    )


def train(plan: FederatedPlan) -> dict[str, torch.Tensor]:
    """Train to the end in a plain loop; returns the final weights."""
    train_federated(plan, lambda plan: local_pool(plan, QUIET), QUIET)
    return final_weights(plan)


def final_weights(plan: FederatedPlan) -> dict[str, torch.Tensor]:
    """The weights in the last checkpoint."""
    checkpoint = load_checkpoint(plan.out / "checkpoints")
    assert checkpoint is not None
    return checkpoint.snapshot.model


def metric_lines(out: Path, *kinds: str) -> list[dict[str, object]]:
    """Lines of metrics.jsonl of these kinds."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] in kinds]


@dataclass
class Wrapped:
    """A pool whose answers a test changes, or which ends like a killed process."""

    inner: ClientPool
    change: Callable[[ClientTask, RoundAnswers], RoundAnswers]
    asked: list[int] = field(default_factory=list)

    def reachable(self) -> Sequence[str]:
        """Those of the other pool."""
        return self.inner.reachable()

    def ask(self, task: ClientTask, names: Sequence[str]) -> RoundAnswers:
        """The changed answers."""
        self.asked.append(task.round_number)
        return self.change(task, self.inner.ask(task, names))


def test_a_run_learns_and_is_a_run_like_any_other(
    clients: Path, tmp_path: Path, meristem: Meristem, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    words = ["federate", "gpt2-mini", clients, *SMALL, "train.learning_rate=0.02", "federated.dropout=0.3"]
    answer = meristem(*words, "--rounds", 8, "--out", out, "--json")
    assert answer.code == 0, answer.err
    result = answer.answers[0]
    evaluations = metric_lines(out, "evaluation")
    assert result["metrics"]["loss"] < float(str(evaluations[0]["loss"])) - 0.3
    assert [entry["client"] for entry in result["sent"]] == list(NAMES)
    rounds = metric_lines(out, "round")
    assert len(rounds) == 8
    assert any(line["failed"] for line in rounds)  # somebody dropped out
    for name in ("recipe.yaml", "tokenizer.json", "README.md", "report.html", "report.json", "finished.json"):
        assert (out / name).is_file(), name
    assert "byte vocabulary" in (out / "log.txt").read_text()
    (tmp_path / "other.txt").write_text("The cat sat on the mat. " * 40)
    assert meristem("evaluate", out, "--data", tmp_path / "other.txt", "--json").answers[0]["metrics"]["loss"] > 0
    assert package.load(out).generate("The", max_tokens=3)
    refused = meristem("evaluate", out)
    assert refused.code == 1
    assert "--data FILE" in refused.err
    again = meristem(*words, "--rounds", 8, "--out", out)
    assert "nothing to do" in again.err


@pytest.mark.parametrize("strategy", ["fedavg", "fedadam"])
def test_a_killed_server_resumes_and_ends_bit_for_bit_the_same(clients: Path, tmp_path: Path, strategy: str) -> None:
    more = (f"federated.strategy={strategy}", "federated.dropout=0.3", "federated.save_every=2")
    whole, broken = (plan(clients, tmp_path / name, *more, rounds=5) for name in ("whole", "broken"))
    expected = train(whole)

    def kill(task: ClientTask, answers: RoundAnswers) -> RoundAnswers:
        if task.round_number == 3:  # after the checkpoint of round 2 and the update of round 3
            raise KeyboardInterrupt
        return answers

    with pytest.raises(KeyboardInterrupt):
        train_federated(broken, lambda plan: Wrapped(local_pool(plan, QUIET), kill), QUIET)
    resumed = Wrapped(local_pool(broken, QUIET), lambda _, answers: answers)
    train_federated(broken, lambda _: resumed, QUIET)
    assert resumed.asked[0] == 2  # from the checkpoint, not from the start
    weights = final_weights(broken)
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    kinds = ("train", "round", "evaluation")
    assert metric_lines(broken.out, *kinds) == metric_lines(whole.out, *kinds)


def test_everything_that_leaves_a_client_is_logged_and_nothing_else_leaves(clients: Path, tmp_path: Path) -> None:
    federated_plan, received = plan(clients, tmp_path / "run", rounds=2), list[ClientReply]()

    def keep(_: ClientTask, answers: RoundAnswers) -> RoundAnswers:
        received.extend(answers.replies)
        return answers

    train_federated(federated_plan, lambda plan: Wrapped(local_pool(plan, QUIET), keep), QUIET)
    logs = sorted((federated_plan.folder / "sent").glob("*.jsonl"))
    logged = {(entry["client"], entry["round"], entry["kind"]): entry for entry in read_sent(logs)}
    assert len(logged) == len(received) == 3 * (2 + 2)  # two rounds, and evaluations at the start and the end
    for reply in received:
        entry = logged[reply.client, reply.round_number, reply.kind]
        assert entry["tensors"] == list(reply.update)
        assert entry["bytes"] == sum(tensor.numel() * tensor.element_size() for tensor in reply.update.values())
        assert (entry["samples"], entry["tokens"], entry["weight"]) == (reply.samples, reply.tokens, reply.weight)
        assert entry["metrics"] == dict(reply.metrics)
        assert set(entry["metrics"]) <= REPORTED_METRICS
    for path in federated_plan.out.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    with pytest.raises(ValueError, match="may leave"):
        ClientReply(client="anna", kind="train", round_number=0, metrics={"text": 1.0})


def test_with_privacy_only_clipped_updates_leave_and_the_budget_is_shown(clients: Path, tmp_path: Path) -> None:
    more = ("federated.privacy.clip=0.05", "federated.privacy.noise_multiplier=2")
    federated_plan, received = plan(clients, tmp_path / "run", *more, rounds=2), list[ClientReply]()

    def keep(_: ClientTask, answers: RoundAnswers) -> RoundAnswers:
        received.extend(answers.replies)
        return answers

    train_federated(federated_plan, lambda plan: Wrapped(local_pool(plan, QUIET), keep), QUIET)
    for reply in received:
        assert not reply.metrics and not reply.tokens and reply.weight == 1
        norm = sum(float(tensor.double().square().sum()) for tensor in reply.update.values()) ** 0.5
        assert norm <= 0.05
    train_lines = metric_lines(federated_plan.out, "train")
    assert [line["epsilon"] for line in train_lines] == sorted(float(str(line["epsilon"])) for line in train_lines)
    assert train_lines[-1]["epsilon"] == federated_plan.planned_epsilon
    size = sum(tensor.numel() for tensor in received[-4].update.values())  # the last round; then an evaluation
    expected = 2 * 0.05 / 3 * size**0.5  # the noise is far larger than three updates of norm 0.05
    assert float(str(train_lines[-1]["update_norm"])) == pytest.approx(expected, rel=0.1)


def test_the_proximal_term_holds_clients_back_after_their_first_step(clients: Path, tmp_path: Path) -> None:
    norms = {}
    for mu in (0.0, 1.0):
        more = ("federated.strategy=fedprox", f"federated.proximal_mu={mu}", "federated.local_steps=8")
        federated_plan = plan(clients, tmp_path / f"mu-{mu}", *more, "train.max_grad_norm=none", rounds=1)
        train(federated_plan)
        norms[mu] = float(str(metric_lines(federated_plan.out, "train")[0]["update_norm"]))
    assert norms[1.0] < 0.97 * norms[0.0]


def test_broken_answers_and_failing_clients_do_not_reach_the_weights(clients: Path, tmp_path: Path) -> None:
    federated_plan = plan(clients, tmp_path / "run", rounds=2)

    def spoil(task: ClientTask, answers: RoundAnswers) -> RoundAnswers:
        if task.kind == "train":
            name = next(iter(answers.replies[0].update))
            answers.replies[0].update[name][...] = torch.nan
        return answers

    train_federated(federated_plan, lambda plan: Wrapped(local_pool(plan, QUIET), spoil), QUIET)
    assert all(tensor.isfinite().all() for tensor in final_weights(federated_plan).values())
    for line in metric_lines(federated_plan.out, "round"):
        assert "not finite" in str(line["failed"])
        assert len(line["answered"]) == 2  # type: ignore[arg-type]


def test_rounds_with_too_few_answers_change_nothing_and_then_end_the_run(clients: Path, tmp_path: Path) -> None:
    owners = yaml.safe_load(clients.read_text())
    owners[0]["source"], owners[1]["source"] = "nowhere-1", "nowhere-2"
    (tmp_path / "clients.yaml").write_text(yaml.safe_dump(owners))
    federated_plan = plan(tmp_path / "clients.yaml", tmp_path / "run", "federated.max_failed_rounds=3")
    with pytest.raises(MeristemError, match=r"1 of 3 clients answered.*nowhere-1.*3 rounds in a row"):
        train(federated_plan)
    assert not metric_lines(federated_plan.out, "train")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train.steps=9"], r"federated\.rounds × federated\.local_steps"),
        (["corpus.source=x.txt"], "clients.yaml"),
        (["train.patience=2"], r"train\.patience: not in federated training"),
        (["federated.roundz=2"], "roundz"),
        (["federated.min_clients=4"], "3 clients"),
        (["federated.secure_aggregation=true", "federated.min_clients=1"], "min_clients of at least 2"),
        (["federated.privacy.noise_multiplier=1", "federated.privacy.epsilon=1"], "noise_multiplier="),
    ],
)
def test_what_cannot_work_is_refused_before_any_work(
    clients: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        plan(clients, tmp_path / "run", *words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{name: anna}", "expected a list of clients"),
        ("- anna", "a client is a mapping"),
        ("- {name: anna}\n- {name: ben, source: b}", "anna has no source"),
        ("- {name: anna, source: a}\n- {name: anna, source: b}", "two clients are called anna"),
        ("- {name: ../x, source: a}\n- {name: b, source: b}", "name"),
        ("clients: [{name: a, source: a}, {name: b, source: b}]\nother: 1", "unknown section"),
        ("clients: [{name: a, source: a}, {name: b}]\nsuperlink: {address: x}", "remove source"),
    ],
)
def test_faults_in_clients_yaml_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "clients.yaml").write_text(text)
    with pytest.raises(RecipeError, match=message):
        plan(tmp_path / "clients.yaml", tmp_path / "run")


def test_changed_settings_and_foreign_folders_are_refused(clients: Path, tmp_path: Path) -> None:
    train(plan(clients, tmp_path / "run", rounds=1))
    with pytest.raises(RecipeError, match=r"federated\.local_steps|train\.steps|started with different settings"):
        train(plan(clients, tmp_path / "run", "federated.local_steps=3", rounds=1))
    with pytest.raises(RecipeError, match=r"federated\.dropout: 0\.0 .* 0\.5 now"):
        train(plan(clients, tmp_path / "run", "federated.dropout=0.5", rounds=1))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(MeristemError, match="choose another folder"):
        train(plan(clients, tmp_path / "mine", rounds=1))


@pytest.mark.skipif(util.find_spec("flwr") is not None, reason="Flower is installed here")
def test_without_flower_what_needs_it_says_how_to_get_it(clients: Path, tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text("superlink: {address: '127.0.0.1:9093'}\nclients: [{name: anna}, {name: ben}]\n")
    for file, more in ((clients, ["federated.engine=flower"]), (nodes, [])):
        request = FederatedRequest(recipe="gpt2-mini", clients=file, overrides=[*SMALL[:-1], *more], out=tmp_path / "x")
        with pytest.raises(MeristemError, match="make federated-test"):
            run_federation(request, QUIET)


def test_a_public_sample_gives_the_tokenizer(clients: Path, tmp_path: Path) -> None:
    sample = tmp_path / "public.txt"
    sample.write_text("\n\n".join(samples.documents("microworld-en?size=20&seed=77")))
    more = (f"tokenizer.source={sample}", "tokenizer.vocab_size=300")
    federated_plan = plan(clients, tmp_path / "run", *more, rounds=1)
    assert federated_plan.tokenizer.vocab_size == 300
    assert str(sample) in federated_plan.tokenizer_description
    assert SECRET not in federated_plan.tokenizer.json_text
