"""Answers to changes, kept by their Idempotency-Key: a repeat is answered and not carried out."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from holdfast.web.answer import RefusedRequest, answer, as_refusal

MOST = 1000
MOST_BYTES = 16 * 1024 * 1024
LONGEST = 200
REPLAYED = "idempotent-replay"


class _Kept:
    def __init__(self, digest: bytes) -> None:
        self.digest = digest
        self.lock = threading.Lock()
        self.answer: tuple[int, bytes] | None = None


class KeptAnswers:
    """The newest answers, at most a thousand and 16 MB. They last as long as the server runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def answer(self, key: str | None, request: tuple[Any, ...], change: Callable[[], Any]) -> Response:
        """Carry out a change once for each key. One that failed in the store may be repeated."""
        if key is None:
            return answer(change())
        if not 0 < len(key) <= LONGEST:
            raise RefusedRequest(400, "bad_request", f"Idempotency-Key must have 1 to {LONGEST} characters")
        kept = self._find(key, hashlib.sha256(repr(request).encode("utf-8", "surrogatepass")).digest())
        with kept.lock:
            if kept.answer is not None:
                status, body = kept.answer
                return Response(body, status, media_type="application/json", headers={REPLAYED: "true"})
            try:
                made = answer(change())
            except Exception as error:
                refusal = as_refusal(error)
                if refusal.status >= 500:
                    self._drop(key)
                    raise
                made = answer(refusal.fields, refusal.status)
            kept.answer = (made.status_code, bytes(made.body))
        self._trim()
        return made

    def _trim(self) -> None:
        with self._lock:
            sizes = {key: len(kept.answer[1]) for key, kept in self._kept.items() if kept.answer is not None}
            too_much = sum(sizes.values()) - MOST_BYTES
            for key, size in sizes.items():  # the oldest first
                if too_much <= 0:
                    break
                del self._kept[key]
                too_much -= size

    def _find(self, key: str, digest: bytes) -> _Kept:
        with self._lock:
            kept = self._kept.setdefault(key, _Kept(digest))
            if kept.digest != digest:
                raise RefusedRequest(
                    409, "idempotency_key_reused", "this Idempotency-Key was used for another request", "Take a new key"
                )
            while len(self._kept) > MOST:
                self._kept.popitem(last=False)
            return kept

    def _drop(self, key: str) -> None:
        with self._lock:
            self._kept.pop(key, None)
