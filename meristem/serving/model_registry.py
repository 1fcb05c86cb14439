"""The model registry: the loaded runs by name, and the routes each of them supports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from meristem.checkpoint.load_run import LoadedRun, apply_inference_options, load_run
from meristem.config.errors import MeristemError, did_you_mean
from meristem.evaluation.run_tasks import run_tasks
from meristem.evaluation.text_embeddings import reads_text
from meristem.generation.head_selection import LMKind, LMOperation, can_detect, lm_kind_for, lm_kinds, lm_kinds_for
from meristem.interfaces.task import Task
from meristem.learning.inference_options import InferencePrecision
from meristem.learning.quantization import Quantization
from meristem.serving.errors import RequestError


def load_run_to_serve(
    path: Path,
    *,
    allow_nonfinite: bool,
    step: int | None = None,
    precision: InferencePrecision = "float32",
    quantize: Quantization | None = None,
) -> LoadedRun:
    """Load a run; weights with NaN or infinity are refused unless `allow_nonfinite`.

    With precision `auto` it is float32: whether a batch has enough tokens for bfloat16 depends on other requests.
    """
    loaded_run = load_run(path, step=step)
    if not loaded_run.weights_finite and not allow_nonfinite:
        raise MeristemError(
            f"{path}: its weights are not finite (NaN or infinity), so its output would be meaningless; train it again "
            "with a lower train.learning_rate, or serve it anyway with --allow-nonfinite"
        )
    return apply_inference_options(loaded_run, "float32" if precision == "auto" else precision, quantize)


class ServedRun:
    """A loaded run with its tasks and routes."""

    def __init__(self, name: str, loaded_run: LoadedRun) -> None:
        self.name, self.loaded_run = name, loaded_run
        self.learner, self.tokenizer, self.recipe = loaded_run.learner, loaded_run.tokenizer, loaded_run.recipe
        self.model = loaded_run.learner.model
        self.tasks: dict[str, Task] = run_tasks(loaded_run)
        self.lm_kinds: tuple[LMKind, ...] = lm_kinds(self.model)

    def __str__(self) -> str:
        return self.name

    def lm_kind(self, operation: LMOperation) -> LMKind:
        """How its model performs an operation (causal, masked, from a source, …)."""
        return lm_kind_for(self.model, operation)

    @property
    def image_size(self) -> int:
        """Side in pixels of the images that the model reads."""
        return self.recipe.image_size

    def task(self, route: str) -> Task | None:
        """The task that answers a route; None if the run has none."""
        return next((task for task in self.tasks.values() if task.signature.route.name == route), None)

    @cached_property
    def routes(self) -> tuple[str, ...]:
        """The routes that the run supports."""
        routes = list(dict.fromkeys(task.signature.route.name for task in self.tasks.values()))
        capabilities = self.model.backbone.capabilities
        reads_texts = self.model.backbone.supports_text_tasks
        kinds = self.model.source_kinds
        captions = "image" in kinds or not kinds  # a run trained with rewards does not record its source kinds
        if "image" in capabilities and "source" in self.lm_kinds and captions and "caption" not in routes:
            routes.append("caption")
        if lm_kinds_for(self.model, "generate") and reads_texts:
            routes.append("generate")
        if "causal" in self.lm_kinds or "dialogue" in self.tasks:
            routes.append("chat")
        if lm_kinds_for(self.model, "fill"):
            routes.append("fill")
        if lm_kinds_for(self.model, "score") or "source" in self.lm_kinds:  # a target given its source
            routes.append("score")
        if can_detect(self.model):
            routes.append("detect")
        if reads_text(self.model):
            routes.append("embed")
        if self.model.backbone.has_attention:
            routes.append("attention")
        return tuple(routes)


class ModelRegistry:
    """The served runs by name."""

    def __init__(self, runs: Mapping[str, LoadedRun]) -> None:
        self.runs = {name: ServedRun(name, loaded_run) for name, loaded_run in runs.items()}

    @classmethod
    def open(
        cls,
        paths: Iterable[Path],
        *,
        allow_nonfinite: bool = False,
        precision: InferencePrecision = "auto",
        quantize: Quantization | None = None,
    ) -> ModelRegistry:
        """Load runs; each gets the name of its folder."""
        loaded_runs: dict[str, LoadedRun] = {}
        for path in paths:
            name = path.expanduser().resolve().name
            if name in loaded_runs:
                other = loaded_runs[name].run.path
                raise MeristemError(f"{path} and {other} are both named {name}: rename one of the folders")
            loaded_runs[name] = load_run_to_serve(
                path.expanduser(), allow_nonfinite=allow_nonfinite, precision=precision, quantize=quantize
            )
        return cls(loaded_runs)

    def get(self, name: str) -> ServedRun:
        """A run by name; 404 if there is none."""
        if name not in self.runs:
            raise RequestError(
                404, f"model {name!r} is not served here{did_you_mean(name, list(self.runs))}", param="model"
            )
        return self.runs[name]

    def select(self, route: str, name: str | None) -> ServedRun:
        """The run for a request: the named one, or the only one that supports the route."""
        capable_runs = [run for run in self.runs.values() if route in run.routes]
        if name is not None:
            run = self.get(name)
            if run not in capable_runs:
                others = f"; {', '.join(candidate.name for candidate in capable_runs)} can" if capable_runs else ""
                raise RequestError(
                    422, f"model {name!r} cannot {route}: it can {', '.join(run.routes)}{others}", param="model"
                )
            return run
        if not capable_runs:
            raise RequestError(422, f"no served run can {route}; GET /runs lists what each can do")
        if len(capable_runs) > 1 and len(self.runs) > 1:
            names = ", ".join(candidate.name for candidate in capable_runs)
            raise RequestError(422, f"several runs can {route}: set model to one of {names}", param="model")
        return capable_runs[0]
