"""What every request passes before a route: headers and errors, authentication, limits, admission."""

from __future__ import annotations

from starlette.middleware import Middleware

from meristem.serving.middleware.admission import AdmissionController, AdmissionMiddleware
from meristem.serving.middleware.auth import APIKeys, AuthMiddleware
from meristem.serving.middleware.headers import ResponseHeadersMiddleware
from meristem.serving.middleware.limits import RequestLimitsMiddleware
from meristem.serving.prometheus_metrics import RequestMetrics
from meristem.serving.settings import ServingSettings


def server_middleware(
    settings: ServingSettings, keys: APIKeys | None, admission: AdmissionController, metrics: RequestMetrics
) -> list[Middleware]:
    """The middleware, outermost first, which is also the order of checks."""
    metrics.add_gauge("meristem_inside", "Admitted requests, running or waiting.", lambda: admission.num_active)
    return [
        Middleware(ResponseHeadersMiddleware, metrics=metrics),
        Middleware(AuthMiddleware, keys=keys),
        Middleware(RequestLimitsMiddleware, settings=settings, early=admission.check),
        Middleware(AdmissionMiddleware, admission=admission),
    ]
