"""The application: routes inside, and round them the gate, the limits, the door and the shell."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

import meristem
from meristem.errors import MeristemError
from meristem.serving import openai
from meristem.serving.admission import Gate, Gone
from meristem.serving.batching import told
from meristem.serving.engine import Engine
from meristem.serving.errors import Refused, error_object
from meristem.serving.hub import Hub
from meristem.serving.keys import Door, keys_for
from meristem.serving.limits import Limits
from meristem.serving.numbers import FiniteJSONResponse
from meristem.serving.routes import about, tasks, words, writing
from meristem.serving.settings import ServingSettings
from meristem.serving.shell import Shell
from meristem.serving.turnstile import Turnstile

Rooms = Sequence[Callable[[Engine], APIRouter]]
ROUTES: Rooms = (about.router, writing.router, words.router, tasks.router, openai.router)
CLIENT_LEFT = 499


def create_app(hub: Hub, settings: ServingSettings | None = None, *, more: Rooms = ()) -> FastAPI:
    """Everything that is served; `more` are makers of further routes, which get the engine like our own."""
    settings = settings or ServingSettings.model_validate({})
    engine = Engine(hub, settings)

    @asynccontextmanager
    async def working(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        try:
            yield
        finally:
            engine.stop()

    app = FastAPI(
        title="Meristem",
        version=meristem.__version__,
        summary="Finished runs over HTTP.",
        docs_url=None,  # their page would be fetched from elsewhere
        redoc_url=None,
        default_response_class=FiniteJSONResponse,
        lifespan=working,
    )
    app.state.engine = engine
    for room in (*ROUTES, *more):
        app.include_router(room(engine))
    for kind in (MeristemError, RequestValidationError, HTTPException, Gone):
        app.add_exception_handler(kind, _wrong)
    app.add_middleware(cast(Any, Gate), admission=engine.admission)
    app.add_middleware(cast(Any, Limits), settings=settings, early=engine.admission.check)
    keys = keys_for(settings)
    engine.metrics.routes = frozenset(app.openapi()["paths"])
    app.state.turnstile = Turnstile(engine.admission, keys, engine.metrics)
    app.add_middleware(cast(Any, Door), keys=keys)
    app.add_middleware(cast(Any, Shell), metrics=engine.metrics)
    return app


async def _wrong(request: Request, error: Exception) -> Response:
    """Errors as sentences; on /v1 what cannot be is 400, as OpenAI's clients expect."""
    if isinstance(error, Gone):
        return Response(status_code=CLIENT_LEFT)
    if isinstance(error, HTTPException):
        error = Refused(error.status_code, _missing(request, error))
    elif isinstance(error, RequestValidationError):
        error = _invalid(error)
    wrong = told(error, request.url.path)
    status = 400 if wrong.status == 422 and request.url.path.startswith("/v1/") else wrong.status
    return FiniteJSONResponse(error_object(status, str(wrong), param=wrong.param), status, wrong.headers)


def _missing(request: Request, error: HTTPException) -> str:
    if error.status_code == 404:
        return "there is nothing at this address; GET /openapi.json tells what there is"
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        return f"{request.method} is not answered at this address: use {allowed}"
    return str(error.detail)


def _invalid(error: RequestValidationError) -> Refused:
    """The first thing that is wrong with a body, where it stands.

    A part that may be of several kinds has an error for each of them: the kind that it is of says more than the others.
    """
    errors = error.errors()
    first = next((one for one in errors if not str(one["type"]).endswith("_type")), errors[0])
    place = ".".join(str(part) for part in first["loc"] if isinstance(part, int) or _named(part))
    message = str(first["msg"]).removeprefix("Value error, ")
    return Refused(422, f"{place}: {message}" if place else message, param=place or None)


def _named(part: str) -> bool:
    """Whether it is a part of a body, and not what pydantic calls a kind."""
    return part.isidentifier() and part not in ("body", "str")
