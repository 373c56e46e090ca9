"""The application: routes, what surrounds them, and the document that describes them.

A route exists here when what it shows has a fold; every other path answers 404.
"""

from collections import Counter
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Response
from starlette.types import ASGIApp

from threadlog import limits
from threadlog.api.problems import PROBLEM_TYPE, ProblemBody
from threadlog.api.reports import (
    InfoBody,
    ModelsBody,
)
from threadlog.events.catalog import CATALOG_DIGEST
from threadlog.gateway import events, problems, reads, sign_in, streams, threads
from threadlog.gateway.auth import Caller, caller
from threadlog.gateway.document import document_of
from threadlog.gateway.edge import Edge
from threadlog.gateway.large import Held
from threadlog.gateway.live import Live
from threadlog.gateway.ports import LOCAL_KEY_ID, GatewayPorts
from threadlog.gateway.quota import Requests
from threadlog.gateway.strict import StrictRoute
from threadlog.version import VERSION

router = APIRouter(route_class=StrictRoute)
Anybody = Annotated[Caller, Depends(caller(None))]
_TOLD_LIMITS = (
    "BODY_BYTES_MAX",
    "MESSAGE_BYTES_MAX",
    "JSON_DEPTH_MAX",
    "JSON_MEMBERS_MAX",
    "READ_EVENTS_MAX",
    "PAGE_BYTES_MAX",
    "WAIT_S_MAX",
    "QUEUE_MAX",
    "STREAM_FRAMES_MAX",
    "STREAM_BYTES_MAX",
    "STREAM_HEARTBEAT_MS",
    "STREAM_LIFE_MS",
)
_PROBLEM: dict[str, Any] = {"model": ProblemBody, "content": {PROBLEM_TYPE: {}}}


@router.get("/healthz", include_in_schema=False)
async def healthz() -> dict[str, str]:
    """The process lives and its loop runs."""
    return {"status": "ok"}


@router.get("/v1/info")
async def info(asker: Anybody) -> InfoBody:
    """Who answers, what it can do, and for whom it takes the caller."""
    options, credential = asker.ports.options, asker.credential
    capabilities = ["messages", "cancel", "stream", "prompts", "blobs", "usage"]
    if options.is_local and credential.key_id == LOCAL_KEY_ID:
        capabilities.append("attached_workspaces")
    return InfoBody(
        version=options.version,
        event_schema=CATALOG_DIGEST,
        capabilities=tuple(capabilities),
        limits={name.lower(): getattr(limits, name) for name in _TOLD_LIMITS},
        scopes=tuple(sorted(credential.scopes)),
        tenant_id=credential.tenant,
        models=dict(options.fingerprints),
    )


@router.get("/v1/models")
async def models(asker: Anybody) -> ModelsBody:
    """The models that threads of the tenant may use."""
    options = asker.ports.options
    known = options.models
    if not known and options.default_model is not None:
        known = (options.default_model,)
    return ModelsBody(models=known, default=options.default_model, any=not options.models)


def create_app(ports: GatewayPorts) -> ASGIApp:
    """The application over these ports."""
    app = make_api()
    problems.install(app)
    app.state.ports = ports
    app.state.flying = set()
    app.state.streams = Counter()
    app.state.waits = Counter()
    app.state.held = Held()
    app.state.requests = Requests(ports.options.requests_per_minute, ports.clock)
    app.state.live = Live(
        ports.views,
        ports.notify,
        ports.freshness,
        ports.meter.frame_dropped,
        look_s=ports.options.look_s,
    )

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> Response:
        if ports.stopping.is_set():
            return Response("stopping\n", 503, media_type="text/plain")
        return Response("ok\n", media_type="text/plain")

    app.state.routes.append(app.routes[-1])
    return Edge(app, ports)


def make_api() -> FastAPI:
    """The routes without anything behind them: what the OpenAPI document is made from."""
    app = FastAPI(
        title="Threadlog",
        version=VERSION,
        summary="AI agents as event-sourced threads",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        responses={"default": _PROBLEM},
    )
    routers = (
        router,
        sign_in.router,
        threads.router,
        reads.router,
        events.router,
        streams.router,
    )
    for each in routers:
        app.include_router(each)
    app.state.routes = [route for each in routers for route in each.routes]
    return app


def openapi() -> dict[str, Any]:
    """The OpenAPI document of the routes."""
    return document_of(make_api())
