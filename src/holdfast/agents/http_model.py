"""A model behind an OpenAI-compatible HTTP endpoint, with the standard library's client.

It blocks: an `Agent` calls it in a thread, a `SyncAgent` on the spot. What can be repeated without harm is repeated: a
request that was refused for now (429, 5xx), that could not be sent, or of which nothing was received.
"""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from holdfast.agents.replies import Reply, reply_of
from holdfast.errors import ModelError, UsageError

RETRIED = (408, 409, 429, 500, 502, 503, 504, 529)
LONGEST_WAIT = 60.0
LARGEST_ERROR = 2000


class OpenAICompatible:
    """`OpenAICompatible("http://localhost:8000/v1", "some-model", api_key=...)`: to be given to `agent(model=...)`.

    `timeout` is how many seconds nothing may be heard for; `retries` how often a request is repeated, after what the server
    says in Retry-After or, if it says nothing, after a second, two, four. Further keywords (`temperature=0`) are part of
    every request.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        timeout: float = 120.0,
        retries: int = 4,
        headers: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        **options: Any,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"base_url is {base_url!r:.100}: it must be such as 'https://host/v1'")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._path = parts.path.rstrip("/") + "/chat/completions"
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **(headers or {})}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._timeout, self._retries, self._sleep = timeout, retries, sleep
        self.model = model
        self._options = options

    def __call__(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> Reply:
        """The model's reply to the conversation."""
        with self._answered(self._request(messages, tools, stream=False)) as response:
            try:
                body = response.read()
            except (OSError, http.client.HTTPException) as error:
                raise self._cut(error) from error
        return self._whole(body)

    def stream(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> Iterator[str | Reply]:
        """The pieces of what it says, as they come, and last the whole reply."""
        gathered = _Gathered()
        with self._answered(self._request(messages, tools, stream=True)) as response:
            try:
                if response.peek(1).lstrip().startswith(b"{"):  # no events: it does not stream, or has failed
                    yield self._whole(response.read())
                    return
                for data in _server_sent(response):
                    yield from gathered.add(self._told(data))
            except (OSError, http.client.HTTPException) as error:
                raise self._cut(error) from error
        if not gathered.is_whole:
            raise ModelError(f"{self._where} ended its answer in the middle: what was received is not used", 200)
        yield gathered.reply()

    # -- requests ------------------------------------------------------------------------------------------------------

    def _request(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], *, stream: bool
    ) -> bytes:
        body: dict[str, Any] = {"model": self.model, "messages": list(messages), **self._options}
        if tools:
            body["tools"] = list(tools)
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return json.dumps(body).encode()

    @contextmanager
    def _answered(self, body: bytes) -> Iterator[http.client.HTTPResponse]:
        """The response to a request that was accepted, once it is."""
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
                    told = response.read(LARGEST_ERROR).decode("utf-8", "replace")
                    if response.status not in RETRIED or attempt >= self._retries:
                        raise self._refused(response.status, told, attempt)
                    wait = _asked_to_wait(response.headers.get("Retry-After"), attempt)
            finally:
                connection.close()
            attempt += 1
            self._sleep(wait)

    def _connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=self._timeout)

    def _whole(self, body: bytes) -> Reply:
        """The reply that a response says all of. Without choices it is none: a message of its own would be an empty one."""
        told = self._told(body)
        try:
            if "choices" in told:
                return reply_of(told)
        except (UsageError, TypeError, KeyError, AttributeError) as error:
            raise self._nonsense(body) from error
        raise self._nonsense(body)

    def _told(self, data: str | bytes) -> Mapping[str, Any]:
        """A response, or a piece of a stream, unless it tells of an error: some servers do so with status 200, and in the
        middle of a stream there is no other way."""
        try:
            told = json.loads(data)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise self._nonsense(data)
        if told.get("error"):
            raise ModelError(f"{self._where} failed: {json.dumps(told['error'])[:LARGEST_ERROR]}", 200)
        return told

    # -- words ---------------------------------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        port = "" if self._port is None else f":{self._port}"
        return f"the model at {self._host}{port}{self._path}"

    def _refused(self, status: int, told: str, attempt: int) -> ModelError:
        again = f" {attempt + 1} times" if attempt else ""
        hint = {401: ": is the api_key right?", 403: ": is the api_key right?", 404: ": are base_url and model right?"}
        return ModelError(f"{self._where} refused{again}, with status {status}{hint.get(status, '')} {told}", status)

    def _nonsense(self, data: str | bytes) -> ModelError:
        return ModelError(f"{self._where} answered with what is no chat completion: {data[:200]!r}", 200)

    def _cut(self, error: Exception) -> ModelError:
        told = f"nothing was heard for {self._timeout:g} s" if isinstance(error, TimeoutError) else repr(error)
        return ModelError(f"{self._where} can't be reached, or broke off: {told}", None)

    def __repr__(self) -> str:
        return f"<OpenAICompatible {self.model!r:.60} at {self._host}>"


def _asked_to_wait(given: str | None, attempt: int) -> float:
    """What Retry-After says, in seconds or as a date; else a second, two, four."""
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
    """The data of server-sent events, until the server says that it is done."""
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
    except ValueError:
        return False
    return True


class _Gathered:
    """A reply that comes in pieces."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._usage: Mapping[str, Any] = {}
        self.is_whole = False

    def add(self, chunk: Mapping[str, Any]) -> Iterator[str]:
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            self.is_whole = self.is_whole or choice.get("finish_reason") is not None
            if delta.get("reasoning_content"):
                self._reasoning.append(delta["reasoning_content"])
            for piece in delta.get("tool_calls") or ():
                self._add_call(piece)
            if delta.get("content"):
                self._content.append(delta["content"])
                yield delta["content"]

    def _add_call(self, piece: Mapping[str, Any]) -> None:
        call = self._calls.setdefault(
            piece.get("index", len(self._calls)),
            {"id": None, "type": "function", "function": {"name": "", "arguments": ""}},
        )
        call["id"] = piece.get("id") or call["id"]
        function = piece.get("function") or {}
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""

    def reply(self) -> Reply:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._content) or None}
        if self._calls:
            message["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        reasoning = "".join(self._reasoning) or None
        return reply_of(Reply(message=message, usage=self._usage, reasoning=reasoning))
