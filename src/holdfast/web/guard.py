"""The guard before every route: Host, method, proof of identity, Origin, type and size of a body.

It wraps the whole application, so that no route can be left out. It adds the security headers to
every answer, and writes the access log, without query strings.
"""

from __future__ import annotations

import html
import logging
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.web.access import Access
from holdfast.web.answer import RefusedRequest, refuse

LARGEST_BODY = 4 * 1024 * 1024
SAFE = ("GET", "HEAD")
METHODS = (*SAFE, "POST")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
SIGNED_OUT = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>holdfast: signed out</title>
<h1>Signed out</h1>
<p>This browser has no valid cookie for this server.</p>
<p>If you came here from another site, <a href="">open this page again</a>.
Otherwise open the link that <code>holdfast ui</code> printed; it works once. Run <code>holdfast ui</code> again for a
new one.</p>
"""
OPENING = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={0}"><title>holdfast</title>
<p><a href="{0}">Open the page</a></p>
"""
_log = logging.getLogger("holdfast.web")


class Guard:
    """An ASGI middleware. A request reaches the application only if every check holds."""

    def __init__(self, application: ASGIApp, access: Access) -> None:
        self._application = application
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close"})  # before it is accepted: the server has no WebSockets
            return
        scope = {**scope, "path": _raw_path(scope)}
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            refused = self._check(scope)
            if refused is None:
                await self._application(scope, _limit_body(receive), answer)
            else:
                await refused(scope, receive, answer)
        except RefusedRequest as refusal:  # of the body, while a route read it
            await refuse(refusal)(scope, receive, answer)
        finally:
            _log.info("%s %s %d", scope["method"], scope["path"], status)

    def _check(self, scope: Scope) -> Response | None:
        """Return the answer to a request that must not reach a route; None if it may."""
        headers = Headers(scope=scope)
        port = _port(scope)
        hosts = headers.getlist("host")
        host = hosts[0] if len(hosts) == 1 else None
        if not self._access.is_name(host, port):
            return refuse(
                RefusedRequest(
                    421, "misdirected", "this server is not known by that name", "Open it by the address it printed"
                )
            )
        if "transfer-encoding" in headers and "content-length" in headers:  # a proxy may believe the other one
            return refuse(RefusedRequest(400, "bad_request", "the request says the size of its body in two ways"))
        if scope["method"] not in METHODS:
            return refuse(RefusedRequest(405, "method_not_allowed", "the server takes GET, HEAD and POST"))
        link = _link(scope) if scope["method"] == "GET" else None  # a HEAD request must not use it up
        if link is not None:
            return self._exchange(scope, headers, link, port)
        known = self._access.is_known(headers, port)
        if known is None:
            return _answer_signed_out(scope)
        if scope["method"] in SAFE:
            # A page on another port of this host gets no answer to read, but it may not make work either.
            is_ours = headers.get("sec-fetch-site", "none") in ("none", "same-origin")
            return None if is_ours or "/api/" not in scope["path"] else _answer_other_site()
        return self._check_change(headers, host, known)

    def _check_change(self, headers: Headers, host: str | None, known: str) -> Response | None:
        origins = headers.getlist("origin")
        # A script with the bearer token sends no Origin; a browser always does.
        is_ours = len(origins) == 1 and self._access.is_origin(origins[0], host)
        if not is_ours and (origins or known != "bearer"):
            return refuse(RefusedRequest(403, "forbidden", "another origin than this server's page sent the request"))
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return _answer_other_site()
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return refuse(
                RefusedRequest(
                    415, "unsupported_media_type", "the body must be JSON", "Send Content-Type: application/json"
                )
            )
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or int(length[:20]) > LARGEST_BODY:
            return refuse(_make_too_large())
        return None

    def _exchange(self, scope: Scope, headers: Headers, token: str, port: int) -> Response:
        """Exchange the token of a link for the cookie, and lead to the same address without it."""
        is_valid = self._access.use_link(token)
        if not is_valid and self._access.is_known(headers, port) is None:
            return _answer_signed_out(scope)
        rest = [pair for pair in _query(scope) if pair[0] != "token"]
        # One slash: an address that begins with two would lead to another host. Browsers take "\\" for one.
        path = "/" + scope["path"].lstrip("/\\")
        address = path + (f"?{urlencode(rest)}" if rest else "")
        answer: Response = RedirectResponse(address, status_code=303)
        if not is_valid:  # a link that was opened again, in the browser that is signed in
            return answer
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            # After a redirect, a browser that comes from another site would not send the cookie.
            answer = HTMLResponse(OPENING.format(html.escape(address)))
        answer.set_cookie(
            self._access.cookie_name(port),
            self._access.cookie_value(port),
            httponly=True,
            samesite="strict",
            secure=self._access.is_remote(headers.get("host")),
            path="/",
        )
        return answer


def _answer_other_site() -> Response:
    return refuse(RefusedRequest(403, "forbidden", "the browser says that another site sent the request"))


def _answer_signed_out(scope: Scope) -> Response:
    if "/api/" in scope["path"]:
        return refuse(
            RefusedRequest(
                401,
                "unauthorized",
                "the request has neither a valid cookie nor a valid bearer token",
                "Open the link that `holdfast ui` printed; each works once. Run `holdfast ui` again for a new one",
            )
        )
    return HTMLResponse(SIGNED_OUT, status_code=401)


def _limit_body(receive: Receive) -> Receive:
    """Return `receive` with a limit on the size of the body, whatever its headers said."""
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > LARGEST_BODY:
            raise _make_too_large()
        return message

    return limited


def _make_too_large() -> RefusedRequest:
    return RefusedRequest(413, "too_large", f"the body has more than {LARGEST_BODY // 1024 // 1024} MB")


def _raw_path(scope: Scope) -> str:
    """Return the path with its escapes: a name may have a slash in it."""
    raw: bytes | None = scope.get("raw_path")
    path = quote(scope["path"], safe="/%") if raw is None else raw.partition(b"?")[0].decode("latin-1")
    return path or "/"


def _port(scope: Scope) -> int:
    server: Any = scope.get("server")
    return int(server[1]) if server and server[1] else 0


def _query(scope: Scope) -> list[tuple[str, str]]:
    try:
        found = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=64)
    except ValueError:
        return []
    return [(name, value) for name, values in found.items() for value in values]


def _link(scope: Scope) -> str | None:
    if b"token=" not in scope["query_string"] or "/api/" in scope["path"]:
        return None
    return next((value for name, value in _query(scope) if name == "token"), None)
