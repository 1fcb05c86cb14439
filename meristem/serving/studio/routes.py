"""The page's own routes: its files, and what it shows. Nothing here takes a path from a client."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from meristem import bounded
from meristem.checkpoint.run import Run
from meristem.errors import MeristemError
from meristem.serving.bodies import Asked, Model, Some
from meristem.serving.engine import Engine
from meristem.serving.errors import Refused
from meristem.serving.routes.about import described
from meristem.serving.routes.answers import ticket_of
from meristem.serving.studio.curves import Axis, Curves
from meristem.serving.studio.details import details, text_of
from meristem.serving.studio.differences import differences, finals, flops_a_token
from meristem.serving.studio.loading import Shelf
from meristem.serving.studio.recipe_file import recipe_of
from meristem.serving.studio.runs import MOST, PAGE, Listing
from meristem.serving.studio.samples import Samples

FILES = Path(__file__).with_name("page")
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}  # fmt: skip
POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'"
)
REPORT_HEADERS = {
    "content-security-policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox",
    "x-frame-options": "SAMEORIGIN",
}
REPORT_BYTES = 64 << 20
ROOT_TAG = '<html lang="en">'
"""How reports of ours begin."""
READ = 32
"""Runs whose curves are kept in memory."""
COMPARED = 16
"""Runs side by side."""
Name = Annotated[str, Query(min_length=1, max_length=1024)]
Names = Annotated[list[str], Query(alias="name", min_length=1, max_length=COMPARED)]


class Sampled(Asked):
    """A prompt for every checkpoint of a run."""

    model: Model
    """The run."""
    prompt: Some = Field(max_length=2000)
    """What is filled or gone on from."""


class Opened(Asked):
    """A run that somebody wants to try."""

    model: Model
    """The run."""


def studio(listing: Listing) -> Callable[[Engine], APIRouter]:
    """The maker of all routes of the page, for `create_app(more=…)`."""

    def router(engine: Engine) -> APIRouter:
        Thread(target=listing.summaries, daemon=True).start()  # recipes are parsed before the first person looks
        routes = APIRouter(include_in_schema=False)
        _files(routes)
        _seen(routes, listing, Read())
        _tried(routes, listing, engine)
        return routes

    return router


class Read:
    """The curves that are kept, those used last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, Curves] = OrderedDict()
        self._lock = Lock()

    def __call__(self, run: Run) -> Curves:
        """The curves of a run as they are now."""
        with self._lock:
            curves = self._kept.setdefault(run.path, Curves(run.metrics_path))
            self._kept.move_to_end(run.path)
            while len(self._kept) > READ:
                self._kept.popitem(last=False)
        curves.refresh()
        return curves


def _files(routes: APIRouter) -> None:
    """The files of the page, read once: whatever else is asked for is not there."""
    files = {path.name: (path.read_bytes(), TYPES[path.suffix]) for path in FILES.iterdir() if path.suffix in TYPES}

    def file(name: str) -> Response:
        if name not in files:
            raise Refused(404, "the page has no such file")
        data, kind = files[name]
        return Response(data, media_type=kind, headers={"content-security-policy": POLICY})

    routes.add_api_route("/", lambda: file("index.html"), methods=["GET"])
    routes.add_api_route("/page/{name}", file, methods=["GET"])


def _seen(routes: APIRouter, listing: Listing, read: Read) -> None:
    """What there is to see; each route reads files, and so has a thread of its own."""

    @routes.get("/studio/runs")
    def runs(seen: str = "") -> Response:
        folder = None if listing.folder is None else str(listing.folder)
        found = listing.summaries()
        told = {"folder": folder, "runs": found, "limit": MOST if len(found) >= MOST else None}
        body = encoded(told)
        mark = hashlib.blake2b(body, digest_size=12).hexdigest()
        # The time goes with it: "2 min ago" is true on a machine whose clock is wrong.
        if seen == mark:
            return plain({"seen": mark, "now": time.time()})
        return plain({**told, "seen": mark, "now": time.time()})

    @routes.get("/studio/run")
    def run(name: Name) -> Response:
        listing.run(name)
        return plain(details(listing.named(name)))

    @routes.get("/studio/curves")
    def curves(
        name: Name,
        axis: Axis = "step",
        points: Annotated[int, Query(ge=10, le=2000)] = 600,
        begin: float | None = None,
        end: float | None = None,
        seen: str = "",
        series: str | None = None,
    ) -> Response:
        one = listing.run(name)
        found = read(one)
        mark = f"{found.revision} {axis} {points} {begin} {end} {series}"
        if seen == mark:
            return plain({"seen": mark})
        between = None if begin is None or end is None else (begin, end)
        flops = flops_a_token(one) if axis == "flops" else None
        lines = found.series(axis, flops=flops, points=points, between=between, only=series)
        skipped = [event["step"] for event in found.events if event["kind"] == "skipped"]
        return plain({"seen": mark, "names": found.names, "series": lines, "skipped": skipped})

    @routes.get("/studio/compare")
    def compare(names: Names) -> Response:
        found = {name: listing.run(name) for name in dict.fromkeys(names)}
        recipes = {name: recipe_of(run) for name, run in found.items()}
        lines = {name: read(run) for name, run in found.items()}
        told = {"differences": differences(recipes), "numbers": finals(found, recipes, lines)}
        return plain({"names": list(found), **told})

    @routes.get("/studio/reports")
    def reports() -> Response:
        return plain({"reports": listing.reports()})

    @routes.get("/studio/report")
    def report(name: Name, theme: Literal["light", "dark"] | None = None) -> Response:
        path = listing.named(name).path / PAGE
        try:
            size = path.lstat().st_size
        except OSError:
            raise Refused(404, f"{name[:100]!r} has no report") from None
        if path.is_symlink() or size > REPORT_BYTES:
            raise Refused(422, f"{name[:100]!r}: its report is a link, or too large to be shown")
        text = text_of(path, REPORT_BYTES)
        if theme is not None:  # the page's choice, which its frame cannot know
            text = text.replace(ROOT_TAG, f'{ROOT_TAG[:-1]} data-theme="{theme}">', 1)
        return Response(text.encode(), media_type="text/html", headers=REPORT_HEADERS)


def _tried(routes: APIRouter, listing: Listing, engine: Engine) -> None:
    """Runs that are loaded when they are wanted; all other questions go to the routes of the server."""
    allowed = engine.settings.allow_nonfinite
    shelf, samples = Shelf(engine.hub, listing.run, allow_nonfinite=allowed), Samples(allow_nonfinite=allowed)

    @routes.post("/studio/open")
    async def open_(asked: Opened, request: Request) -> Response:
        try:
            run = await shelf.open(asked.model)
            return plain({**described(run), "ways": run.ways})
        except Refused:
            raise
        except MeristemError as error:
            raise Refused(422, str(error), param="model") from None

    @routes.post("/studio/samples")
    async def sampled(asked: Sampled, request: Request) -> Response:
        work = samples.work(asked.model, listing.run(asked.model))
        return plain({"samples": await engine.ask(work, asked.prompt, ticket_of(request))})


def plain(told: Any) -> Response:
    """JSON; a number that is none becomes null, and half a character a whole one."""
    return Response(encoded(told), media_type="application/json")


def encoded(told: Any) -> bytes:
    """The same as bytes."""
    return bounded.to_json(told).encode("utf-8", "replace")
