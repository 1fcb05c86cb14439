"""Federated pretraining of a recipe over the clients in clients.yaml: start or resume a run, and finish it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from meristem.checkpoint import disk, weight_transfer
from meristem.checkpoint.load import load_checkpoint
from meristem.checkpoint.load_run import load_recipe, load_run
from meristem.checkpoint.run_folder import RunFolder, explain_write_errors, move_aside
from meristem.config.errors import MeristemError, RecipeError
from meristem.config.recipe import PretrainRecipe
from meristem.learning.learner import Learner
from meristem.tokenizers.tokenizer import Tokenizer
from meristem.training.data.training_data import clear_unstarted, create_run, refuse_foreign_folder
from meristem.training.init.initial_weights import load_start_weights
from meristem.training.resume_checks import refuse_changed_settings, refuse_changed_tokenizer
from meristem.training.run_logger import RunLogger
from meristem.training.run_result import RunContext, RunResult, finish_run, make_result
from meristem.trust.federated.aggregation import ServerOptimizer
from meristem.trust.federated.client_pool import ClientPool
from meristem.trust.federated.clients_file import Federation, read_federation, split_federated_overrides
from meristem.trust.federated.federated_data import FederatedData
from meristem.trust.federated.federated_recipe import resolve_federated_recipe
from meristem.trust.federated.local_training import build_trainable_learner, shared_tensors
from meristem.trust.federated.server import FederatedServer
from meristem.trust.federated.server_state import ServerState, restore_server, save_server, train_state
from meristem.trust.federated.tokenizer_agreement import agree_on_tokenizer
from meristem.trust.federated.update_privacy import check_budget, load_noise_key
from meristem.utils import untrusted_files

FOLDER = "federated"
"""Subfolder of a run: the federation, the clients' logs of what they sent (of simulated ones), noise keys."""
FEDERATION_FILE = "federation.json"
CHANGEABLE = frozenset({"timeout", "save_every", "max_failed_rounds", "engine"})
"""Settings of a federation that may change when a run is resumed."""
PoolFactory = Callable[["FederatedPlan"], ClientPool]


@dataclass(frozen=True, kw_only=True)
class FederatedPlan:
    """Everything that a federated run is determined by, before any client is asked."""

    recipe: PretrainRecipe
    federation: Federation
    tokenizer: Tokenizer
    tokenizer_description: str
    out: Path
    planned_epsilon: float | None = None

    @property
    def folder(self) -> Path:
        """The subfolder of the run with what is federated about it."""
        return self.out / FOLDER


@dataclass(frozen=True, kw_only=True)
class FederatedRequest:
    """A `meristem federate` command."""

    recipe: str
    clients: Path
    overrides: Sequence[str] = ()
    out: Path | None = None
    fresh: bool = False
    rounds: int | None = None
    strategy: str | None = None


def make_plan(request: FederatedRequest, console: Console) -> FederatedPlan:
    """Read the clients, resolve the recipe, and agree on a tokenizer; refuses what cannot work."""
    recipe_overrides, federated_overrides, sample = split_federated_overrides(request.overrides)
    options = {"rounds": request.rounds, "strategy": request.strategy}
    federated_overrides |= {name: value for name, value in options.items() if value is not None}
    federation = read_federation(request.clients, federated_overrides)
    recipe = resolve_federated_recipe(request.recipe, recipe_overrides, federation.settings)
    epsilon = check_budget(federation.settings)
    out = request.out or Path("runs") / f"{recipe.name}-federated"
    agreement = agree_on_tokenizer(recipe, sample, console)
    return FederatedPlan(
        recipe=agreement.recipe,
        federation=federation,
        tokenizer=agreement.tokenizer,
        tokenizer_description=agreement.description,
        out=out,
        planned_epsilon=epsilon,
    )


def train_federated(plan: FederatedPlan, make_pool: PoolFactory, console: Console, *, fresh: bool = False) -> RunResult:
    """Run all rounds that are left, and finish the run; an existing run is resumed from its last checkpoint."""
    data = FederatedData(
        federation=plan.federation, tokenizer=plan.tokenizer, tokenizer_description=plan.tokenizer_description
    )
    run = _open_or_create(plan, data, console, fresh=fresh)
    with explain_write_errors(run.path), run.hold_lock():
        checkpoint = load_checkpoint(run.checkpoints)
        step = checkpoint.snapshot.step if checkpoint is not None else 0
        run.truncate_metrics(step)  # rounds after the checkpoint are repeated
        optimizer = ServerOptimizer(settings=plan.federation.settings)
        with RunLogger(run.path, console, last_step=step, trackers=plan.recipe.train.trackers) as logger:
            learner = build_trainable_learner(plan.recipe, plan.tokenizer)
            if checkpoint is None:
                _load_start(plan, learner, logger)
                state = ServerState(
                    weights={name: t.clone().cpu() for name, t in shared_tensors(learner.model).items()}
                )
            else:
                refuse_changed_tokenizer(run.path, checkpoint)
                # what is not shared (frozen weights) is as it was at the start
                weight_transfer.load_exact(learner.model, checkpoint.snapshot.model)
                state = restore_server(checkpoint, learner.model, optimizer)
            return _run_and_finish(_Session(plan, run, data, learner, state, optimizer, logger), make_pool)


@dataclass(frozen=True)
class _Session:
    """The parts of a run in progress."""

    plan: FederatedPlan
    run: RunFolder
    data: FederatedData
    learner: Learner
    state: ServerState
    optimizer: ServerOptimizer
    logger: RunLogger


def _run_and_finish(session: _Session, make_pool: PoolFactory) -> RunResult:
    plan, run, state, logger = session.plan, session.run, session.state, session.logger
    settings, recipe = plan.federation.settings, plan.recipe
    record = run.finish_record
    if state.round_number >= settings.rounds and record is not None:
        logger.log(f"{run.path} has done its {settings.rounds} rounds: nothing to do")
        return make_result(_context(session), dict(record.get("validation") or {}), {})
    _log_federation(session)
    run.clear_finished()
    privacy = settings.privacy
    server = FederatedServer(
        recipe=recipe,
        tokenizer=plan.tokenizer,
        settings=settings,
        pool=make_pool(plan),
        state=state,
        optimizer=session.optimizer,
        logger=logger,
        save=lambda: save_server(run, recipe, settings, session.learner.model, state, session.optimizer),
        noise_key=load_noise_key(plan.folder / "server.key") if privacy is not None else None,
    )
    server.run()
    session.data.final_metrics = server.evaluate()
    save_server(run, recipe, settings, session.learner.model, state, session.optimizer)
    return finish_run(_context(session), session.data.final_metrics)


def _context(session: _Session) -> RunContext:
    """The run as `finish_run` knows it."""
    parameters = sum(parameter.numel() for parameter in session.learner.model.parameters())
    settings = session.plan.federation.settings
    return RunContext(
        recipe=session.plan.recipe,
        run=session.run,
        training_data=session.data,
        learner=session.learner,
        state=train_state(session.state, session.plan.recipe, settings, parameters),
        logger=session.logger,
    )


def _load_start(plan: FederatedPlan, learner: Learner, logger: RunLogger) -> None:
    """Load the weights of `from`."""
    start = plan.recipe.start
    if start.path is not None and start.load != "nothing":
        start_run = load_run(Path(start.path))
        summary = load_start_weights(learner.model, plan.tokenizer, start_run, parts=start.load, recipe=plan.recipe)
        logger.log(summary)


def _log_federation(session: _Session) -> None:
    """How the run starts or resumes, and what its numbers mean."""
    plan, settings, state = session.plan, session.plan.federation.settings, session.state
    opening = f"Resuming after round {state.round_number} of" if state.round_number else "Training"
    parameters = sum(parameter.numel() for parameter in session.learner.model.parameters())
    log = session.logger.log
    log(
        f"{opening} {plan.recipe.name}: {plan.recipe.model.family}, {parameters / 1e6:.1f} M parameters, on the text "
        f"of {len(plan.federation.clients)} clients; {settings.rounds} rounds of {settings.local_steps} steps "
        f"({settings.strategy}) in {plan.out}"
    )
    log(plan.tokenizer_description)
    if settings.secure_aggregation:
        log("secure aggregation: the server sees only the sum of the updates (honest-but-curious server)")
    if plan.planned_epsilon is not None and settings.privacy is not None:
        log(
            f"privacy: all {settings.rounds} rounds spend ε = {plan.planned_epsilon:.3g} at δ = "
            f"{settings.privacy.delta:g} for everything that one owner contributes, against those who see only the "
            "global weights"
        )


# ------------------------------------------------------------ the run folder


def _open_or_create(plan: FederatedPlan, data: FederatedData, console: Console, *, fresh: bool) -> RunFolder:
    out = plan.out
    if fresh and out.exists():
        console.print(f"The old run is kept as {move_aside(out)}", highlight=False, markup=False, soft_wrap=True)
    if RunFolder(out).exists() and not _is_federated(out):
        raise MeristemError(f"{out} is a run that was not federated: choose another folder with --out")
    if RunFolder(out).exists() and not clear_unstarted(RunFolder(out)):
        run = RunFolder.open(out)
        _refuse_changes(run, plan)
        return run
    refuse_foreign_folder(out)
    run = create_run(out, plan.recipe, data)
    plan.folder.mkdir(exist_ok=True)
    disk.atomic_write(plan.folder / FEDERATION_FILE, [untrusted_files.to_json(_saved(plan), indent=1).encode()])
    return run


def _is_federated(out: Path) -> bool:
    return (out / FOLDER / FEDERATION_FILE).is_file()


def _saved(plan: FederatedPlan) -> dict[str, object]:
    """What a resumed run must agree with; the clients' sources are their own business."""
    return {
        "clients": plan.federation.names,
        "settings": plan.federation.settings.model_dump(mode="json"),
        "tokenizer": plan.tokenizer_description,
    }


def _refuse_changes(run: RunFolder, plan: FederatedPlan) -> None:
    """Raise if the run was started with other settings or clients."""
    saved = untrusted_files.read_json_object(run.path / FOLDER / FEDERATION_FILE)
    advice = "use --out for another run, or --fresh to start over (the old run is kept)"
    refuse_changed_settings(load_recipe(run), plan.recipe, run.path)
    current = _saved(plan)
    if saved.get("clients") != current["clients"]:
        raise RecipeError(f"{run.path} was started with other clients ({saved.get('clients')}): {advice}")
    before, now = saved.get("settings"), plan.federation.settings.model_dump(mode="json")
    before = before if isinstance(before, dict) else {}
    for name, value in now.items():
        if name not in CHANGEABLE and before.get(name) != value:
            raise RecipeError(f"federated.{name}: {before.get(name)} in {run.path}, {value} now: {advice}")
