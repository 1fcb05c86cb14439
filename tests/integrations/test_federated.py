"""Federated training on Flower 1.41, in its own environment (`make federated-test`): the same result as a plain loop,
secure aggregation, and real nodes on loopback with certificates, one of which is killed and one that comes back."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from rich.console import Console

from meristem import samples
from meristem.checkpoint.load import load_checkpoint
from meristem.trust.federated.federate import FederatedRequest, make_plan
from meristem.trust.federated.run_federation import run_federation
from meristem.trust.federated.sent_log import read_sent

pytest.importorskip("flwr", reason="Flower needs an environment of its own: make federated-test")
pytest.importorskip("cryptography")

QUIET = Console(quiet=True)
NAMES = ("anna", "ben", "cleo", "dora", "emil")
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
]


@pytest.fixture(scope="module")
def owners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Texts of five owners, and clients.yaml."""
    folder = tmp_path_factory.mktemp("owners")
    for number, name in enumerate(NAMES):
        texts = samples.documents(f"microworld-en?size=12&seed={number}")
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    entries = [{"name": name, "source": str(folder / f"{name}.jsonl")} for name in NAMES]
    (folder / "clients.yaml").write_text(yaml.safe_dump(entries))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MERISTEM_CACHE", str(folder / "cache"))
        yield folder


def run(owners: Path, out: Path, *more: str, rounds: int = 3) -> dict[str, torch.Tensor]:
    """A federated run with simulated clients; returns the final weights."""
    overrides = [*SMALL, *more]
    request = FederatedRequest(
        recipe="gpt2-mini", clients=owners / "clients.yaml", overrides=overrides, out=out, rounds=rounds
    )
    run_federation(request, QUIET)
    return weights(out)


def weights(out: Path) -> dict[str, torch.Tensor]:
    """The weights in the last checkpoint of a run."""
    checkpoint = load_checkpoint(out / "checkpoints")
    assert checkpoint is not None
    return checkpoint.snapshot.model


def distance(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    """Largest difference between two sets of weights."""
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def test_flower_and_a_plain_loop_give_the_same_weights_bit_for_bit(owners: Path, tmp_path: Path) -> None:
    more = ("federated.dropout=0.3", "federated.strategy=fedadam")
    local = run(owners, tmp_path / "local", *more, "federated.engine=local")
    flower = run(owners, tmp_path / "flower", *more, "federated.engine=flower")
    assert distance(local, flower) == 0
    logs = [read_sent(sorted((tmp_path / name / "federated" / "sent").glob("*"))) for name in ("local", "flower")]
    assert logs[0] == logs[1]


def test_the_mean_is_that_of_flower(owners: Path) -> None:
    from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
    from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords

    from meristem.trust.federated.aggregation import weighted_mean

    draw = torch.Generator().manual_seed(0)
    updates = [({"a": torch.randn(40, 7, generator=draw)}, weight) for weight in (3.0, 10.0, 1.5)]
    records = [
        RecordDict(
            {
                "arrays": ArrayRecord({"a": Array(update["a"].numpy())}),
                "metrics": MetricRecord({"num-examples": weight}),
            }
        )
        for update, weight in updates
    ]
    theirs = aggregate_arrayrecords(records, "num-examples")["a"].numpy()
    assert abs(weighted_mean(updates)["a"].numpy() - theirs).max() < 1e-6


@pytest.mark.parametrize("engine", ["local", "flower"])
def test_secure_aggregation_gives_the_same_mean_though_clients_drop_out(
    owners: Path, tmp_path: Path, engine: str
) -> None:
    more = ("federated.dropout=0.25", "federated.weighting=equal", f"federated.engine={engine}")
    plain = run(owners, tmp_path / "plain", *more)
    secure = run(owners, tmp_path / "secure", *more, "federated.secure_aggregation=true")
    assert distance(plain, secure) < 1e-6
    lines = [json.loads(line) for line in (tmp_path / "secure" / "metrics.jsonl").read_text().splitlines()]
    assert any(line["failed"] for line in lines if line["kind"] == "round")  # masks of absent clients were removed
    entries = read_sent(sorted((tmp_path / "secure" / "federated" / "sent").glob("*")))
    assert {entry["masked"] for entry in entries if entry["kind"] == "train"} == {True}


def test_a_masked_update_looks_random_and_shares_are_given_once() -> None:
    from meristem.config.errors import MeristemError
    from meristem.trust.federated.secure_client import SecureClientRound

    clients = [SecureClientRound(name=name, round_number=4) for name in NAMES]
    keys = {client.name: client.keys() for client in clients}
    sealed = {client.name: client.shares(keys, 3) for client in clients}
    received = {name: {sender: sealed[sender][name] for sender in NAMES} for name in NAMES}
    update = {"a": torch.zeros(1 << 15)}
    masked = clients[0].masked(update, 1.0, received["anna"])["a"]
    assert abs(float((masked < 0).double().mean()) - 0.5) < 0.02
    clients[1] = SecureClientRound.from_json(clients[1].to_json())  # as a node that handles each message anew
    clients[1].masked(update, 1.0, received["ben"])
    given = clients[1].unmask(["anna", "ben", "cleo"])
    assert {name: list(share) for name, share in given.items()} == {
        **{name: ["seed"] for name in ("anna", "ben", "cleo")},
        **{name: ["key"] for name in ("dora", "emil")},
    }
    with pytest.raises(MeristemError, match="given already"):
        clients[1].unmask(["anna", "dora", "emil"])
    with pytest.raises(MeristemError, match="no majority"):
        SecureClientRound(name="anna", round_number=4).shares(keys, 2)


def test_an_answer_of_the_superlink_for_a_node_that_has_gone_is_a_missing_answer(owners: Path, tmp_path: Path) -> None:
    from flwr.app import Context, Error, Message, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    from meristem.trust.federated.client_pool import simulated_clients
    from meristem.trust.federated.flower_clients import FlowerClientPool, make_client_app
    from meristem.trust.federated.flower_simulation import InProcessGrid
    from meristem.trust.federated.local_training import build_trainable_learner, shared_tensors
    from meristem.trust.federated.messages import ClientTask

    request = FederatedRequest(
        recipe="gpt2-mini", clients=owners / "clients.yaml", overrides=SMALL, out=tmp_path / "run", rounds=1
    )
    plan = make_plan(request, QUIET)
    clients, names = simulated_clients(plan.federation, plan.folder, QUIET), dict(enumerate(NAMES, 2))
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

    class GridWithoutAnna(InProcessGrid):
        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Any]:
            messages = list(messages)
            there = [message for message in messages if message.metadata.dst_node_id != 2]
            gone = [message for message in messages if message.metadata.message_type == "evaluate"]
            answers = [Message(Error(code=3, reason="gone"), reply_to=message) for message in gone[:1]]
            for answer in answers:
                answer.metadata.__dict__["_src_node_id"] = 1  # the SuperLink's
            return [*super().send_and_receive(there if gone else messages, timeout=timeout), *answers]

    contexts = {node: Context(1, node, {}, RecordDict(), {}) for node in names}
    app = make_client_app(lambda context: clients[names[context.node_id]], lambda _, error: str(error))
    grid = GridWithoutAnna(app=app, contexts=contexts, names=names, seed=0, dropout=0.0)
    pool = FlowerClientPool(grid=grid, known=frozenset(NAMES), timeout=5.0)
    assert pool.reachable() == list(NAMES)
    global_weights = shared_tensors(build_trainable_learner(plan.recipe, plan.tokenizer).model)
    task = ClientTask(
        kind="evaluate",
        round_number=0,
        weights=global_weights,
        recipe=plan.recipe,
        tokenizer=plan.tokenizer,
        settings=plan.federation.settings,
    )
    answers = pool.ask(task, NAMES)
    assert [reply.client for reply in answers.replies] == list(NAMES[1:])
    assert [(failure.client, failure.reason) for failure in answers.failures] == [("anna", "no answer within 5 s")]


# ------------------------------------------------------------ nodes with certificates


def write_certificates(folder: Path) -> tuple[Path, Path, Path]:
    """A certificate authority, and a certificate of 127.0.0.1 that it signed: (authority, certificate, key)."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def certificate(subject: str, key: Any, issuer: str, signing_key: Any, *, is_authority: bool) -> Any:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named(issuer))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if not is_authority:
            names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(signing_key, hashes.SHA256())

    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = certificate("test authority", authority_key, "test authority", authority_key, is_authority=True)
    server = certificate("localhost", server_key, "test authority", authority_key, is_authority=False)
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "ca.crt", folder / "server.pem", folder / "server.key"
    pem = serialization.Encoding.PEM
    paths[0].write_bytes(authority.public_bytes(pem))
    paths[1].write_bytes(server.public_bytes(pem))
    paths[2].write_bytes(server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return paths


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until somebody listens."""
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(log.read_text())


@contextmanager
def running(log: Path, *words: object) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Flower in a session of its own, which is ended with all that it started."""
    tools = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "FLWR_HOME": str(log.parent / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(tools / str(words[0])), *map(str, words[1:])],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            end_session(process)


def end_session(process: subprocess.Popen[bytes]) -> None:
    """End a process and those it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=10)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def start_node(stack: ExitStack, folder: Path, name: str, source: Path, port: int, authority: Path) -> Any:
    """An owner's node."""
    config = f'name="{name}" source="{source}" folder="{folder / "owners" / name}"'
    return stack.enter_context(
        running(
            folder / f"{name}-{time.monotonic_ns()}.log",
            *("flower-supernode", "--superlink", f"127.0.0.1:{port}", "--root-certificates", authority),
            *("--port", free_port(), "--node-config", config),
        )
    )


@pytest.mark.timeout(900)  # each message starts a process that imports torch
def test_nodes_on_loopback_with_certificates_finish_though_one_is_killed_and_one_comes_back(
    owners: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, certificate, key = write_certificates(tmp_path / "tls")
    port, out, names = free_port(), tmp_path / "run", NAMES[:4]
    clients = tmp_path / "clients.yaml"
    clients.write_text(
        yaml.safe_dump(
            {
                "superlink": {"address": f"127.0.0.1:{port}", "root_certificates": str(authority)},
                "federated": {"rounds": 5, "timeout": 90, "evaluate_every": 9},
                "clients": [{"name": name} for name in names],
            }
        )
    )
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    with ExitStack() as stack:
        tls = ("--ssl-certfile", certificate, "--ssl-keyfile", key, "--ssl-ca-certfile", authority)
        log = tmp_path / "superlink.log"
        superlink = stack.enter_context(running(log, "flower-superlink", "--host", "127.0.0.1", "--port", port, *tls))
        wait_for_port(port, superlink, log)
        nodes = {name: start_node(stack, tmp_path, name, owners / f"{name}.jsonl", port, authority) for name in names}
        words = [sys.executable, "-m", "meristem", "federate", "gpt2-mini", clients, *SMALL, "--out", out, "--json"]
        with subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
            wait_for_rounds(out, 1, command, tmp_path)
            end_session(nodes["anna"])  # for good
            end_session(nodes["ben"])
            wait_for_rounds(out, 2, command, tmp_path)
            start_node(stack, tmp_path, "ben", owners / "ben.jsonl", port, authority)
            output, errors = command.communicate(timeout=700)
        assert command.returncode == 0, errors.decode()
    assert json.loads(output)["step"] == 10
    rounds = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    answered = [sorted(line["answered"]) for line in rounds if line["kind"] == "round"]
    assert len(answered) == 5
    assert answered[0] == sorted(names)
    assert {"cleo", "dora"} <= set(answered[-1])
    assert "anna" not in answered[-1]
    assert "ben" in answered[-1]
    logs = sorted((tmp_path / "owners").glob("*/sent/*.jsonl"))
    assert [path.stem for path in logs] == list(names)
    assert not (out / "federated" / "sent").exists()  # each owner has its own log


def wait_for_rounds(out: Path, count: int, command: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until so many rounds are done."""
    end, metrics = time.monotonic() + 400, out / "metrics.jsonl"
    while time.monotonic() < end and command.poll() is None:
        if metrics.is_file() and metrics.read_text().count('"kind": "round"') >= count:
            return
        time.sleep(0.2)
    logs = "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in sorted(folder.glob("*.log")))
    command.kill()
    said = b"".join(stream.read() for stream in (command.stdout, command.stderr) if stream is not None)
    raise AssertionError(f"{said.decode()}\n{logs}")
