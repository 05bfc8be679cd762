"""A model behind an HTTP endpoint, with the standard library's client.

It blocks: an `Agent` calls it in a thread, a `SyncAgent` directly. Requests that are safe to repeat
are retried: one that was refused for now (429, 5xx), could not be sent, or got no response at all.
"""

from __future__ import annotations

import http.client
import json
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit

from holdfast.agent_loop.reply import Reply
from holdfast.errors import ModelError, UsageError

RETRIED = (408, 409, 429, 500, 502, 503, 504, 529)
LONGEST_WAIT = 60.0
LARGEST_ERROR = 2000
MALFORMED = (UsageError, TypeError, KeyError, IndexError, AttributeError, ValueError, RecursionError)
"""What comes of reading an answer that has not the form it should have."""

Messages = Sequence[Mapping[str, Any]]


class ReplyBuilder(Protocol):
    """A reply that comes in pieces."""

    is_whole: bool

    def add(self, event: Mapping[str, Any]) -> Iterator[str]:
        """Take a piece of the stream, and yield what it says."""

    def reply(self) -> Reply: ...


class HttpEndpoint(ABC):
    """The common base of models behind HTTP: connections, retries, server-sent events, and errors."""

    _resource: ClassVar[str]
    """The last part of the path, after that of `base_url`."""
    _answer_kind: ClassVar[str]
    """What an answer should be, for messages."""

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        timeout: float,
        retries: int,
        headers: Mapping[str, str],
        sleep: Callable[[float], None] = time.sleep,
        options: Mapping[str, Any],
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"base_url is {base_url!r:.100}: it must be such as 'https://host/v1'")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._path = f"{parts.path.rstrip('/')}/{self._resource}"
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **headers}
        self._timeout, self._retries, self._sleep = timeout, retries, sleep
        self.model = model
        self._options = options

    @abstractmethod
    def _request(self, messages: Messages, tools: Messages, *, stream: bool) -> Mapping[str, Any]:
        """Return the body of a request."""

    @abstractmethod
    def _reply(self, answer: Mapping[str, Any]) -> Reply | None:
        """Return the reply in a whole response; None if it has none. May raise an error of `MALFORMED`."""

    @abstractmethod
    def _make_builder(self) -> ReplyBuilder:
        """Return what puts a stream together."""

    def __call__(self, messages: Messages, tools: Messages = ()) -> Reply:
        """Return the model's reply to the conversation."""
        with self._send_request(_encode_body(self._request(messages, tools, stream=False))) as response:
            try:
                body = response.read()
            except (OSError, http.client.HTTPException) as error:
                raise self._cut(error) from error
        return self._read_whole(body)

    def stream(self, messages: Messages, tools: Messages = ()) -> Iterator[str | Reply]:
        """Yield the pieces of the answer as they come, and the whole reply last."""
        gathered = self._make_builder()
        with self._send_request(_encode_body(self._request(messages, tools, stream=True))) as response:
            try:
                if response.peek(1).lstrip().startswith(b"{"):  # no events: it does not stream, or has failed
                    yield self._read_whole(response.read())
                    return
                for data in _server_sent(response):
                    yield from self._add_data(gathered, data)
            except (OSError, http.client.HTTPException) as error:
                raise self._cut(error) from error
        if not gathered.is_whole:
            raise ModelError(f"{self._where} ended its answer in the middle: what was received is not used", 200)
        try:
            reply = gathered.reply()
        except MALFORMED as error:
            raise self._make_nonsense_error("the whole of the stream") from error
        yield reply

    # -- requests ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _send_request(self, body: bytes) -> Iterator[http.client.HTTPResponse]:
        """Yield the response to a request once it is accepted."""
        attempt = 0
        while True:
            connection = self._connection()
            try:
                try:
                    connection.request("POST", self._path, body, self._headers)
                    response = connection.getresponse()
                except (OSError, http.client.HTTPException) as error:
                    if attempt >= self._retries:
                        raise self._cut(error) from error
                    wait = _backoff(attempt)
                else:
                    if response.status == http.client.OK:
                        yield response
                        return
                    answer = response.read(LARGEST_ERROR).decode("utf-8", "replace")
                    if response.status not in RETRIED or attempt >= self._retries:
                        raise self._make_refusal(response.status, answer, attempt)
                    wait = _choose_wait(response.headers.get("Retry-After"), attempt)
            finally:
                connection.close()
            attempt += 1
            self._sleep(wait)

    def _connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=self._timeout)

    def _read_whole(self, body: bytes) -> Reply:
        """Return the reply of a complete response."""
        response = self._parse(body)
        try:
            reply = self._reply(response)
        except MALFORMED as error:
            raise self._make_nonsense_error(body) from error
        if reply is None:
            raise self._make_nonsense_error(body)
        return reply

    def _add_data(self, gathered: ReplyBuilder, data: str) -> Iterator[str]:
        event = self._parse(data)
        try:
            pieces = list(gathered.add(event))
        except MALFORMED as error:
            raise self._make_nonsense_error(data) from error
        if not all(isinstance(piece, str) for piece in pieces):
            raise self._make_nonsense_error(data)
        yield from pieces

    def _parse(self, data: str | bytes) -> Mapping[str, Any]:
        """Return a response, or a piece of a stream; raise if it reports an error.

        Some servers report errors with status 200, and in the middle of a stream there is no other
        way.
        """
        try:
            response = json.loads(data)
        except (ValueError, RecursionError):
            response = None
        if not isinstance(response, dict):
            raise self._make_nonsense_error(data)
        if response.get("error"):
            raise ModelError(f"{self._where} failed: {json.dumps(response['error'])[:LARGEST_ERROR]}", 200)
        return response

    # -- words ---------------------------------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        port = "" if self._port is None else f":{self._port}"
        return f"the model at {self._host}{port}{self._path}"

    def _make_refusal(self, status: int, answer: str, attempt: int) -> ModelError:
        again = f" {attempt + 1} times" if attempt else ""
        hint = {401: ": is the api_key right?", 403: ": is the api_key right?", 404: ": are base_url and model right?"}
        return ModelError(f"{self._where} refused{again}, with status {status}{hint.get(status, '')} {answer}", status)

    def _make_nonsense_error(self, data: str | bytes) -> ModelError:
        return ModelError(f"{self._where} answered with what is no {self._answer_kind}: {data[:200]!r}", 200)

    def _cut(self, error: Exception) -> ModelError:
        cause = f"nothing was heard for {self._timeout:g} s" if isinstance(error, TimeoutError) else repr(error)
        return ModelError(f"{self._where} can't be reached, or broke off: {cause}", None)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.model!r:.60} at {self._host}>"


def _encode_body(body: Mapping[str, Any]) -> bytes:
    """Return the request as bytes, with a question mark for a lone surrogate, which endpoints refuse."""
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def _choose_wait(given: str | None, attempt: int) -> float:
    """Return the seconds until a retry: Retry-After in seconds or as a date, else one, two, four."""
    if given is None:
        return _backoff(attempt)
    try:
        seconds = float(given)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(given) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return _backoff(attempt)
    return min(max(seconds, 0.0), LONGEST_WAIT)


def _backoff(attempt: int) -> float:
    return min(float(2**attempt), LONGEST_WAIT) * random.uniform(0.5, 1.0)  # noqa: S311 - so that not all come at once


def _server_sent(response: http.client.HTTPResponse) -> Iterator[str]:
    """Yield the data of server-sent events, until the server says that it is done."""
    lines: list[str] = []
    for raw in response:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if line.startswith("data:"):
            lines.append(line[5:].removeprefix(" "))
        elif not line and lines:
            data, lines = "\n".join(lines), []
            if data == "[DONE]":
                return
            yield data
    last = "\n".join(lines)  # some servers leave out the blank line after it
    if _is_json(last):  # else it is half of one, or says that it is done
        yield last


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
