"""Status routes: health checks, Prometheus metrics, and the list of served runs."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse

from meristem.serving.engine import ServingEngine
from meristem.serving.json_response import FiniteJSONResponse
from meristem.serving.middleware.headers import METRICS_PATH, SCOPE_METRICS
from meristem.serving.model_registry import ServedRun
from meristem.serving.prometheus_metrics import CONTENT_TYPE


def router(engine: ServingEngine) -> APIRouter:
    """The router of the status routes."""
    routes = APIRouter(tags=["about"])

    @routes.get("/health/live", summary="Liveness: whether the process responds")
    async def live() -> dict[str, str]:
        return {"status": "live"}

    @routes.get(
        "/health/ready",
        summary="Readiness: whether requests are accepted",
        responses={503: {"description": "Not ready."}},
    )
    async def ready() -> FiniteJSONResponse:
        status = {"status": "ready" if engine.is_ready else "not ready"}
        return FiniteJSONResponse(status, status_code=200 if engine.is_ready else 503)

    @routes.get(METRICS_PATH, summary="Metrics in Prometheus text format", response_class=PlainTextResponse)
    async def metrics(request: Request) -> PlainTextResponse:
        text = request.scope.get(SCOPE_METRICS, "") + engine.metrics.render()
        return PlainTextResponse(text, media_type=CONTENT_TYPE)

    @routes.get("/runs", summary="The served runs and the routes each supports")
    async def runs() -> dict[str, Any]:
        return {"runs": [describe_run(run) for run in engine.registry.runs.values()]}

    return routes


def describe_run(run: ServedRun) -> dict[str, Any]:
    """Name, model, tasks and routes of a run."""
    return {
        "name": run.name,
        "family": run.recipe.model.family,
        "step": run.loaded_run.step,
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "length": run.model.backbone.max_length,
        "tasks": list(run.tasks),
        "can": list(run.routes),
    }
