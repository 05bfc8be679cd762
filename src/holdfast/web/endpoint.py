"""A route as data: the server, the OpenAPI document and its test read the same table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.responses import Response

from holdfast.web.request import Ask, BodyField, Parameter

if TYPE_CHECKING:
    from holdfast.web.site import Site

BASE = "/api/v1"


class Endpoint(NamedTuple):
    """A route: `run` gets the site and the checked request, and returns JSON or an answer.

    `path` has its texts in braces. `body` is None for a GET. `changes` says that a read-only server
    refuses it; `is_slow` that it reads the whole store, and waits for others that do.
    """

    path: str
    run: Callable[[Site, Ask], Any | Response]
    about: str
    query: Sequence[Parameter] = ()
    body: Sequence[BodyField] | None = None
    changes: bool = False
    is_slow: bool = False

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"


LIMIT = Parameter("limit", "number", "At most so many.", default=100, least=1)
OFFSET = Parameter("offset", "number", "Number of the first one.", default=0, most=10**9)
AFTER = Parameter("after", "text", "The `next` of the page before.")
SESSION = Parameter("session", "text", "Only this session.")
DRY_RUN = BodyField("dry_run", "flag", "Change nothing; answer what would happen.")


def page(key: str, rows: Sequence[Any], limit: int, after: str | None, **more: Any) -> dict[str, Any]:
    """Return a page of a list: `after` is the number of the first row, as the page before gave it."""
    from holdfast.web.answer import RefusedRequest

    if after is not None and not (after.isascii() and after.isdigit() and len(after) < 10):
        raise RefusedRequest(400, "bad_request", f"after is {after!r:.60}: give the `next` of the page before")
    first = int(after or 0)
    shown = rows[first : first + limit]
    following = str(first + limit) if first + limit < len(rows) else None
    return {key: shown, "total": len(rows), "next": following, **more}
