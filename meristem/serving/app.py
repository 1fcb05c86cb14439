"""The FastAPI application: routes, exception handlers and, where it is the whole server, the middleware."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

import meristem
from meristem.config.errors import MeristemError
from meristem.serving.engine import ServingEngine
from meristem.serving.errors import RequestError, error_object, to_request_error
from meristem.serving.json_response import FiniteJSONResponse
from meristem.serving.middleware.admission import ClientDisconnected
from meristem.serving.middleware.auth import load_keys
from meristem.serving.middleware.stack import server_middleware
from meristem.serving.model_registry import ModelRegistry
from meristem.serving.openai import openai_routes
from meristem.serving.prometheus_metrics import RequestMetrics
from meristem.serving.routes import generate, language_model, status, task_routes
from meristem.serving.settings import ServingSettings

RouterFactories = Sequence[Callable[[ServingEngine], APIRouter]]
ROUTER_FACTORIES: RouterFactories = (
    status.router,
    generate.router,
    language_model.router,
    task_routes.router,
    openai_routes.router,
)
CLIENT_LEFT = 499


def create_app(
    registry: ModelRegistry, settings: ServingSettings | None = None, *, extra_routers: RouterFactories = ()
) -> FastAPI:
    """The whole server in one process: the routes behind the middleware."""
    settings = settings or ServingSettings.model_validate({})
    app = create_routes(registry, settings, extra_routers=extra_routers)
    metrics = RequestMetrics(route_paths(app))
    middleware = server_middleware(settings, load_keys(settings), app.state.engine.admission, metrics)
    app.user_middleware[:] = middleware
    return app


def create_routes(
    registry: ModelRegistry, settings: ServingSettings, *, extra_routers: RouterFactories = ()
) -> FastAPI:
    """The routes and error handlers; `extra_routers` are factories of further routers, called with the engine."""
    engine = ServingEngine(registry, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        try:
            yield
        finally:
            engine.stop()

    app = FastAPI(
        title="Meristem",
        version=meristem.__version__,
        summary="Finished runs over HTTP.",
        docs_url=None,  # the docs page would load scripts from a CDN
        redoc_url=None,
        default_response_class=FiniteJSONResponse,
        lifespan=lifespan,
    )
    app.state.engine = engine
    for make_router in (*ROUTER_FACTORIES, *extra_routers):
        app.include_router(make_router(engine))
    for error_class in (MeristemError, RequestValidationError, HTTPException, ClientDisconnected, Exception):
        app.add_exception_handler(error_class, _handle_error)
    return app


def route_paths(app: FastAPI) -> frozenset[str]:
    """The paths of the documented routes, which have metrics of their own."""
    return frozenset(app.openapi()["paths"])


async def _handle_error(request: Request, error: Exception) -> Response:
    """Any error as a JSON response; on /v1 a 422 becomes a 400, as OpenAI clients expect."""
    if isinstance(error, ClientDisconnected):
        return Response(status_code=CLIENT_LEFT)
    if isinstance(error, HTTPException):
        error = RequestError(error.status_code, _http_error_message(request, error))
    elif isinstance(error, RequestValidationError):
        error = _validation_error(error)
    request_error = to_request_error(error, request.url.path)
    status = 400 if request_error.status == 422 and request.url.path.startswith("/v1/") else request_error.status
    return FiniteJSONResponse(
        error_object(status, str(request_error), param=request_error.param), status, request_error.headers
    )


def _http_error_message(request: Request, error: HTTPException) -> str:
    if error.status_code == 404:
        return "there is no such route; GET /openapi.json lists the routes"
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        return f"{request.method} is not supported by this route: use {allowed}"
    return str(error.detail)


def _validation_error(error: RequestValidationError) -> RequestError:
    """The first validation error of a body, with the path of its field.

    A field with a union type has one error per member: an error other than a type mismatch is the informative one.
    """
    errors = error.errors()
    first = next((item for item in errors if not str(item["type"]).endswith("_type")), errors[0])
    location = ".".join(str(part) for part in first["loc"] if isinstance(part, int) or _is_field_name(part))
    message = str(first["msg"]).removeprefix("Value error, ")
    return RequestError(422, f"{location}: {message}" if location else message, param=location or None)


def _is_field_name(part: str) -> bool:
    """Whether it is a field of the body, and not pydantic's name of a type."""
    return part.isidentifier() and part not in ("body", "str")
