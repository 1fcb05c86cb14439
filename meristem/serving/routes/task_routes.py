"""Task routes: one for each route that a task's signature names (classify, tag, answer, …)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Request, Response

from meristem.serving.engine import ServingEngine
from meristem.serving.request_work import caption_work, task_work
from meristem.serving.routes.responses import ERROR_RESPONSES, model_response, request_context
from meristem.serving.task_requests import TaskRequest, TaskRoute, task_routes


def router(engine: ServingEngine) -> APIRouter:
    """The router of the task routes."""
    routes = APIRouter(tags=["tasks"], responses=ERROR_RESPONSES)
    for name, route in task_routes().items():
        endpoint = _endpoint(engine, route)
        routes.add_api_route(f"/{name}", endpoint, methods=["POST"], name=name, summary=route.route.summary)
    return routes


def _endpoint(engine: ServingEngine, route: TaskRoute) -> Callable[..., Awaitable[Response]]:
    """Predicts for the fields of one sample, or of a list of texts."""
    name = route.route.name

    async def predict(body: TaskRequest, request: Request) -> Response:
        run = engine.registry.select(name, body.model)
        task = run.task(name)
        work = caption_work(run) if task is None else task_work(run, name, task)
        inputs = route.inputs(body)
        input_list = inputs if isinstance(inputs, list) else [inputs]
        outputs = await engine.submit_each(work, [(parts, body.top) for parts in input_list], request_context(request))
        return await model_response(run, outputs, inputs)

    predict.__annotations__ = {"body": route.request_model, "request": Request, "return": Response}
    return predict
