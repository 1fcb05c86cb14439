"""What is served, how it goes, and whether it lives."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from meristem.serving.engine import Engine
from meristem.serving.hub import Served
from meristem.serving.metrics import CONTENT_TYPE
from meristem.serving.numbers import FiniteJSONResponse


def router(engine: Engine) -> APIRouter:
    """Nothing here asks a model."""
    routes = APIRouter(tags=["about"])

    @routes.get("/health/live", summary="Whether the process answers at all")
    async def live() -> dict[str, str]:
        return {"status": "live"}

    @routes.get("/health/ready", summary="Whether requests are answered", responses={503: {"description": "Not now."}})
    async def ready() -> FiniteJSONResponse:
        told = {"status": "ready" if engine.ready else "not ready"}
        return FiniteJSONResponse(told, status_code=200 if engine.ready else 503)

    @routes.get("/metrics", summary="Counts in Prometheus' text format", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(engine.metrics.text(), media_type=CONTENT_TYPE)

    @routes.get("/runs", summary="What each run is and can do")
    async def runs() -> dict[str, Any]:
        return {"runs": [described(run) for run in engine.hub.runs.values()]}

    return routes


def described(run: Served) -> dict[str, Any]:
    """A run in a few words."""
    return {
        "name": run.name,
        "family": run.recipe.model.family,
        "step": run.revived.step,
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "length": run.model.backbone.length,
        "tasks": list(run.tasks),
        "can": list(run.can),
    }
