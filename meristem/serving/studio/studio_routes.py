"""Routes of the studio page: its static files and JSON data. No route takes a path from a client."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from meristem.checkpoint.run_folder import RunFolder
from meristem.config.errors import MeristemError
from meristem.serving.engine import ServingEngine
from meristem.serving.errors import RequestError
from meristem.serving.json_response import FiniteJSONResponse
from meristem.serving.model_registry import load_run_to_serve
from meristem.serving.request_models import ModelName, ModelRequest, NonEmptyText
from meristem.serving.routes.responses import request_context
from meristem.serving.routes.status import describe_run
from meristem.serving.studio.checkpoint_samples import CheckpointSamples
from meristem.serving.studio.model_cache import ModelCache
from meristem.serving.studio.recipe_file import read_run_recipe
from meristem.serving.studio.run_comparison import final_metrics, flops_per_token, setting_differences
from meristem.serving.studio.run_curves import Axis, RunCurves
from meristem.serving.studio.run_details import read_text_file, run_details
from meristem.serving.studio.run_list import MAX_RUNS, REPORT_PAGE, RunListing
from meristem.serving.task_requests import run_forms
from meristem.utils.untrusted_files import to_json_bytes

PAGE_DIR = Path(__file__).with_name("page")
CONTENT_TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}  # fmt: skip
PAGE_CSP = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'"
)
REPORT_HEADERS = {
    "content-security-policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox",
    "x-frame-options": "SAMEORIGIN",
}
MAX_REPORT_BYTES = 64 << 20
ROOT_TAG = '<html lang="en">'
"""The root tag of meristem's reports."""
MAX_CACHED_CURVES = 32
"""Runs whose curves are cached."""
MAX_COMPARED = 16
"""Maximum number of runs in a comparison."""
RunName = Annotated[str, Query(min_length=1, max_length=1024)]
RunNames = Annotated[list[str], Query(alias="name", min_length=1, max_length=MAX_COMPARED)]


class CheckpointSamplesRequest(ModelRequest):
    """A prompt for every checkpoint of a run."""

    model: ModelName
    """The run."""
    prompt: NonEmptyText = Field(max_length=2000)
    """The prompt to continue, or a text with masks."""


class OpenRunRequest(ModelRequest):
    """A run to load for the playground."""

    model: ModelName
    """The run."""


def studio_router(listing: RunListing) -> Callable[[ServingEngine], APIRouter]:
    """The router factory of the studio, for `create_app(extra_routers=…)`."""

    def router(engine: ServingEngine) -> APIRouter:
        Thread(target=listing.summaries, daemon=True).start()  # fills the recipe cache before the first request
        routes = APIRouter(include_in_schema=False)
        _add_page_routes(routes)
        _add_view_routes(routes, listing, CurvesCache())
        _add_model_routes(routes, listing, engine)
        return routes

    return router


class CurvesCache:
    """An LRU cache of training curves."""

    def __init__(self) -> None:
        self._curves: OrderedDict[Path, RunCurves] = OrderedDict()
        self._lock = Lock()

    def __call__(self, run: RunFolder) -> RunCurves:
        """The up-to-date curves of a run."""
        with self._lock:
            curves = self._curves.setdefault(run.path, RunCurves(run.metrics_path))
            self._curves.move_to_end(run.path)
            while len(self._curves) > MAX_CACHED_CURVES:
                self._curves.popitem(last=False)
        curves.refresh()
        return curves


def _add_page_routes(routes: APIRouter) -> None:
    """The static files of the page, read once at startup."""
    files = {
        path.name: (path.read_bytes(), CONTENT_TYPES[path.suffix])
        for path in PAGE_DIR.iterdir()
        if path.suffix in CONTENT_TYPES
    }

    def file(name: str) -> Response:
        if name not in files:
            raise RequestError(404, "the page has no such file")
        data, content_type = files[name]
        return Response(data, media_type=content_type, headers={"content-security-policy": PAGE_CSP})

    routes.add_api_route("/", lambda: file("index.html"), methods=["GET"])
    routes.add_api_route("/page/{name}", file, methods=["GET"])


def _add_view_routes(routes: APIRouter, listing: RunListing, curves_cache: CurvesCache) -> None:
    """Routes for runs, curves, comparisons and reports; synchronous, so that reading files does not block the loop."""

    @routes.get("/studio/runs")
    def runs(seen: str = "") -> Response:
        folder = None if listing.folder is None else str(listing.folder)
        summaries = listing.summaries()
        payload = {"folder": folder, "runs": summaries, "limit": MAX_RUNS if len(summaries) >= MAX_RUNS else None}
        revision = hashlib.blake2b(to_json_bytes(payload), digest_size=12).hexdigest()
        # The time goes with it: "2 min ago" is true on a machine whose clock is wrong.
        return FiniteJSONResponse({**({} if seen == revision else payload), "seen": revision, "now": time.time()})

    @routes.get("/studio/run")
    def run(name: RunName) -> Response:
        listing.open_run(name)
        return FiniteJSONResponse(run_details(listing.get(name)))

    @routes.get("/studio/curves")
    def curves(
        name: RunName,
        axis: Axis = "step",
        points: Annotated[int, Query(ge=10, le=2000)] = 600,
        begin: float | None = None,
        end: float | None = None,
        seen: str = "",
        series: str | None = None,
    ) -> Response:
        selected_run = listing.open_run(name)
        run_curves = curves_cache(selected_run)
        revision = f"{run_curves.revision} {axis} {points} {begin} {end} {series}"
        if seen == revision:
            return FiniteJSONResponse({"seen": revision})
        x_range = None if begin is None or end is None else (begin, end)
        flops = flops_per_token(selected_run) if axis == "flops" else None
        lines = run_curves.series(axis, flops_per_token=flops, points=points, x_range=x_range, only_name=series)
        skipped = [event["step"] for event in run_curves.events if event["kind"] == "skipped"]
        return FiniteJSONResponse({"seen": revision, "names": run_curves.names, "series": lines, "skipped": skipped})

    @routes.get("/studio/compare")
    def compare(names: RunNames) -> Response:
        runs = {name: listing.open_run(name) for name in dict.fromkeys(names)}
        recipes = {name: read_run_recipe(run) for name, run in runs.items()}
        lines = {name: curves_cache(run) for name, run in runs.items()}
        payload = {"differences": setting_differences(recipes), "numbers": final_metrics(runs, recipes, lines)}
        return FiniteJSONResponse({"names": list(runs), **payload})

    @routes.get("/studio/reports")
    def reports() -> Response:
        return FiniteJSONResponse({"reports": listing.reports()})

    @routes.get("/studio/report")
    def report(
        name: RunName, theme: Literal["light", "dark"] | None = None, language: Literal["en", "zh"] | None = None
    ) -> Response:
        path = listing.get(name).path / REPORT_PAGE
        try:
            size = path.lstat().st_size
        except OSError:
            raise RequestError(404, f"{name[:100]!r} has no report") from None
        if path.is_symlink() or size > MAX_REPORT_BYTES:
            raise RequestError(422, f"{name[:100]!r}: its report is a link or too large")
        text = read_text_file(path, MAX_REPORT_BYTES)
        # what was chosen on the page, which the report's frame cannot know
        chosen = {"theme": theme, "language": language}
        attributes = "".join(f' data-{key}="{value}"' for key, value in chosen.items() if value is not None)
        text = text.replace(ROOT_TAG, f"{ROOT_TAG[:-1]}{attributes}>", 1)
        return Response(text.encode(), media_type="text/html", headers=REPORT_HEADERS)


def _add_model_routes(routes: APIRouter, listing: RunListing, engine: ServingEngine) -> None:
    """Routes that load runs on demand and sample checkpoints; the page uses the server's routes for the rest."""
    s = engine.settings
    load = partial(load_run_to_serve, allow_nonfinite=s.allow_nonfinite, precision=s.precision, quantize=s.quantize)
    model_cache = ModelCache(engine.registry, listing.open_run, load=load)
    samples = CheckpointSamples(allow_nonfinite=s.allow_nonfinite)

    @routes.post("/studio/open")
    async def open_(body: OpenRunRequest, request: Request) -> Response:
        try:
            run = await model_cache.open(body.model)
            return FiniteJSONResponse({**describe_run(run), "ways": run.lm_kinds, "forms": run_forms(run)})
        except RequestError:
            raise
        except MeristemError as error:
            raise RequestError(422, str(error), param="model") from None

    @routes.post("/studio/samples")
    async def sampled(body: CheckpointSamplesRequest, request: Request) -> Response:
        work = samples.work(body.model, listing.open_run(body.model))
        return FiniteJSONResponse({"samples": await engine.submit(work, body.prompt, request_context(request))})
