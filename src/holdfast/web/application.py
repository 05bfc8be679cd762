"""The ASGI application: the routes of the API, the page, and the guard around all of it."""

from __future__ import annotations

import getpass
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.web import events, openapi
from holdfast.web.access import Access
from holdfast.web.answer import RefusedRequest, answer, as_refusal, refuse
from holdfast.web.endpoint import BASE, Endpoint
from holdfast.web.guard import Guard
from holdfast.web.idempotency import KeptAnswers
from holdfast.web.pages import SCREENS, PageFiles
from holdfast.web.request import Ask, read_body, read_query, read_text
from holdfast.web.routes import actions, chart, checkpoints, differences, files, plans, sessions, storage, topics, work
from holdfast.web.site import LOCAL, Site, view_of

if TYPE_CHECKING:
    from holdfast.client.client import Client
    from holdfast.client.sync import SyncClient
    from holdfast.workspace.sync import SyncWorkspace

ROUTES: tuple[Endpoint, ...] = tuple(
    route
    for module in (work, topics, sessions, chart, checkpoints, files, differences, storage, actions, plans)
    for route in module.ROUTES
)
THREADS = 4  # requests that read the store at once; others wait
SLOW_THREADS = 1  # requests that read the whole store at once: the page is answered meanwhile
READ_ONLY = "the page was started read-only"
ON_A_SERVER = "the store is on a server that others use, so the page only reads"


class _Segment(Convertor[str]):
    """A segment of a path, with its escapes; it may be empty."""

    regex = "[^/]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class Application:
    """The application, with what a server needs to know of it."""

    def __init__(self, site: Site, access: Access) -> None:
        self.site, self.access = site, access
        self._files = PageFiles()
        self._kept = KeptAnswers()
        self._limiters: tuple[CapacityLimiter, CapacityLimiter] | None = None
        self._starting = threading.Lock()
        register_url_convertor("segment", _Segment())
        document = openapi.describe(ROUTES)
        routes: list[BaseRoute] = [self._route(route) for route in ROUTES]
        routes.append(Route(f"{BASE}/openapi.json", lambda _request: answer(document), methods=["GET"]))
        routes.append(Route(f"{BASE}/events", self._stream, methods=["GET"]))
        routes.append(Route("/static/{name:path}", lambda request: self._files.send(request.path_params["name"])))
        routes.append(Route("/", lambda _request: self._files.send_index()))
        for screen in SCREENS:
            routes.append(Route(f"/{screen}", lambda _request: self._files.send_index()))
            routes.append(Route(f"/{screen}/{{rest:path}}", lambda _request: self._files.send_index()))
        starlette = Starlette(
            routes=routes,
            exception_handlers={
                404: self._answer_not_found,
                405: _answer_not_allowed,
                RefusedRequest: _answer_refusal,
                Exception: _answer_refusal,
            },
        )
        starlette.router.redirect_slashes = False
        self._guarded: ASGIApp = Guard(starlette, access)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._guarded(scope, receive, send)

    def _route(self, endpoint: Endpoint) -> Route:
        path = BASE + endpoint.path.replace("}", ":segment}")

        async def run(request: Request) -> Response:
            try:
                body = await request.body() if endpoint.body is not None else b""
                key = request.headers.get("idempotency-key")
                return await anyio.to_thread.run_sync(
                    self._run,
                    endpoint,
                    request.path_params,
                    request.scope["query_string"],
                    body,
                    key,
                    limiter=self._threads(is_slow=endpoint.is_slow),
                )
            except Exception as error:
                return refuse(as_refusal(error))

        return Route(path, run, methods=[endpoint.method])

    def _threads(self, *, is_slow: bool) -> CapacityLimiter:
        """Return the limiter of worker threads; it belongs to the event loop that asks first."""
        if self._limiters is None:
            self._limiters = CapacityLimiter(THREADS), CapacityLimiter(SLOW_THREADS)
        return self._limiters[is_slow]

    def _run(self, endpoint: Endpoint, path: dict[str, str], query: bytes, raw: bytes, key: str | None) -> Response:
        ask = Ask(
            {name: read_text(value, name) for name, value in path.items()},
            read_query(query, endpoint.query),
            {} if endpoint.body is None else read_body(raw, endpoint.body),
        )
        if endpoint.body is None or not endpoint.changes or ask.body.get("dry_run"):
            return _answer(endpoint.run(self.site, ask))
        self.site.require_writable()
        return self._kept.answer(
            key, (endpoint.path, tuple(ask.path.items()), raw), lambda: self._change(endpoint, ask)
        )

    def _change(self, endpoint: Endpoint, ask: Ask) -> Any:
        try:
            return endpoint.run(self.site, ask)
        finally:
            self.site.forget()

    async def _answer_not_found(self, request: Request, _error: Exception) -> Response:
        """Answer a program as the API does, and a person with the page, which says that the address is wrong."""
        if "text/html" in request.headers.get("accept", "") and "/api/" not in request.scope["path"]:
            page = self._files.send_index()
            page.status_code = 404
            return page
        hint = "/api/v1/openapi.json lists those that are there"
        return refuse(RefusedRequest(404, "not_found", "there is no such address", hint))

    async def _stream(self, request: Request) -> Response:
        try:
            return await events.stream(self.site, request)
        except Exception as error:
            return refuse(as_refusal(error))


def _answer(found: Any) -> Response:
    return found if isinstance(found, Response) else answer(found)


async def _answer_not_allowed(_request: Request, _error: Exception) -> Response:
    return refuse(RefusedRequest(405, "method_not_allowed", "this address takes another method"))


async def _answer_refusal(_request: Request, error: Exception) -> Response:
    return refuse(as_refusal(error))


def app(
    client: Client | SyncClient,
    *,
    writable: bool | None = None,
    token: str | None = None,
    names: Sequence[str] = (),
    by: str | None = None,
    workspace: str | os.PathLike[str] | SyncWorkspace | None = None,
    access: Access | None = None,
    store: str | None = None,
    found_by: str | None = None,
    source: str = "store",
    read_only_because: str | None = None,
) -> Application:
    """Return the page and the API of a store as an ASGI application.

    `client` stays the caller's, who closes it. `writable` allows changes; left out, it is true
    unless the store is on a server. `token` is the bearer token of scripts. `names` are further
    values of the Host header, for a server behind a proxy. `by` is recorded as who decides.
    `workspace` is the directory that restores of files act on.
    """
    capabilities = client._ctx.backend.capabilities
    if writable is None:
        writable = capabilities.name in LOCAL
    if not writable and read_only_because is None:
        read_only_because = READ_ONLY if capabilities.name in LOCAL else ON_A_SERVER
    view = view_of(client)
    site = Site(
        client=view,
        store=capabilities.location if store is None else store,
        by=_user() if by is None else by,
        read_only_because=None if writable else read_only_because,
        found_by=found_by,
        source=source,
        workspace=_workspace_of(view, workspace),
    )
    return Application(site, access or Access(token=token, names=names))


def _workspace_of(view: SyncClient, given: str | os.PathLike[str] | SyncWorkspace | None) -> SyncWorkspace | None:
    """Return the workspace of the view's client; one of another client is opened again."""
    if given is None or isinstance(given, str | os.PathLike):
        return None if given is None else view.workspace(given)
    return given if given._opened.ctx is view._ctx else view.workspace(given.path)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container without a user of that number
        return "web"
