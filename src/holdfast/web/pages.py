"""The page's files: served from the package by an allow-list. No path from a request is opened."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.responses import Response

from holdfast.web.answer import RefusedRequest

TYPES = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
    "json": "application/json",
    "woff2": "font/woff2",
}
SCREENS = (
    "s", "c", "diff", "compare", "sessions", "runs", "approvals", "inbox", "effects", "topics", "team", "storage",
    "log", "keys",
)  # fmt: skip
INDEX = "index.html"


class PageFiles:
    """The files of the page by name, listed once. Their contents are read at each request."""

    def __init__(self) -> None:
        self._found = dict(_list(files("holdfast.web") / "static", ""))

    def names(self) -> list[str]:
        return sorted(self._found)

    def send(self, name: str) -> Response:
        found = self._found.get(name)
        if found is None:
            raise RefusedRequest(404, "not_found", "there is no such file", "Open / for the page")
        return Response(found.read_bytes(), media_type=TYPES[name.rpartition(".")[2]])

    def send_index(self) -> Response:
        if INDEX not in self._found:
            raise RefusedRequest(404, "not_found", "this installation has no page", "Use the API under /api/v1")
        return self.send(INDEX)


def _list(directory: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    if not directory.is_dir():
        return
    for entry in directory.iterdir():
        if entry.is_dir():
            yield from _list(entry, f"{prefix}{entry.name}/")
        elif entry.name.rpartition(".")[2] in TYPES:
            yield f"{prefix}{entry.name}", entry
