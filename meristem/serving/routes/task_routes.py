"""Task routes: one for each route that a task's signature names (classify, tag, answer, …)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Request, Response

from meristem.config.errors import MeristemError
from meristem.evaluation.abstention import check_abstention, withhold_uncertain
from meristem.interfaces.task import Task
from meristem.serving.engine import ServingEngine
from meristem.serving.errors import RequestError
from meristem.serving.request_work import caption_work, task_work
from meristem.serving.routes.responses import ERROR_RESPONSES, model_response, request_context
from meristem.serving.task_requests import AbstainingTaskRequest, TaskRequest, TaskRoute, task_routes


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
        abstain_below = body.abstain_below if isinstance(body, AbstainingTaskRequest) else None
        if abstain_below is not None:
            _check_can_abstain(task, abstain_below)
        inputs = route.inputs(body)
        input_list = inputs if isinstance(inputs, list) else [inputs]
        outputs = await engine.submit_each(work, [(parts, body.top) for parts in input_list], request_context(request))
        if task is not None and abstain_below is not None:
            outputs = [withhold_uncertain(task.parts.output.kind, output, abstain_below) for output in outputs]
        return await model_response(run, outputs, inputs)

    predict.__annotations__ = {"body": route.request_model, "request": Request, "return": Response}
    return predict


def _check_can_abstain(task: Task | None, min_probability: float) -> None:
    """Raise if this run's answers have no probability of their own, such as those with several labels."""
    if task is None:
        raise RequestError(422, "abstain_below: this run gives no single answer with a probability")
    try:
        check_abstention(task, min_probability)
    except MeristemError as error:
        raise RequestError(422, str(error), param="abstain_below") from None
