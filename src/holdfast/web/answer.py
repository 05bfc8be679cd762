"""Answers: JSON, and errors as `{error, message, next}` with their status."""

from __future__ import annotations

import json
import logging
from typing import Any

from starlette.responses import Response

from holdfast import errors
from holdfast.json_form.error import error_details, error_kind

_log = logging.getLogger("holdfast.web")

STATUS: tuple[tuple[type[Exception], int], ...] = (
    (errors.ApprovalPendingError, 423),
    (errors.CheckpointNotFoundError, 404),
    (errors.CheckpointExpiredError, 410),
    (errors.UsageError, 400),
    (errors.CorruptError, 422),
    (errors.NewerVersionError, 422),
    (errors.UnknownTypeError, 422),
    (errors.MigrationError, 422),
    (errors.ConflictError, 409),
    (errors.ApprovalError, 409),
    (errors.StoreError, 503),
)
"""The status of each kind of error; the first that fits counts."""

NEXT = {
    400: "Correct the request and send it again",
    404: "Look at the list again: it may have changed",
    409: "Load the page again, look at what changed, and decide again",
    410: "Choose another checkpoint of the session",
    422: "Run `holdfast verify`; other checkpoints can still be opened",
    423: "Decide the approval first",
    503: "Try again in a moment",
}


class RefusedRequest(Exception):  # noqa: N818 - an answer, raised where it is found
    """An error of the server's own: status, kind, message and what to do next."""

    def __init__(self, status: int, kind: str, message: str, following: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.status = status
        self.fields = {"error": kind, "message": message, "next": following, "did_you_mean": [], **details}


def encode(value: Any) -> bytes:
    """Encode JSON in ASCII: a lone surrogate in a name has no UTF-8."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def answer(value: Any, status: int = 200) -> Response:
    return Response(encode(value), status_code=status, media_type="application/json")


def refuse(refusal: RefusedRequest) -> Response:
    return answer(refusal.fields, refusal.status)


def as_refusal(error: BaseException) -> RefusedRequest:
    """Return the refusal of an error. One that is not ours is a defect: it is logged with its traceback."""
    if isinstance(error, RefusedRequest):
        return error
    if isinstance(error, errors.HoldfastError):
        status = next((status for kind, status in STATUS if isinstance(error, kind)), 409)
        return RefusedRequest(status, error_kind(error), str(error), NEXT.get(status), **error_details(error))
    _log.error("a request failed", exc_info=error)
    return RefusedRequest(
        500, "internal", "the server failed to answer; its log says why", "Report it with the log's traceback"
    )
