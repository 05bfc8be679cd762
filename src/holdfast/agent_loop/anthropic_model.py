"""A model behind Anthropic's Messages API.

The conversation of an agent is kept in the shape of OpenAI's chat completions, whichever model it
speaks with. `requested` translates it for a request, and `reply_of_content` the answer back.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.agent_loop.http_endpoint import HttpEndpoint, Messages, ReplyBuilder
from holdfast.agent_loop.reply import ANTHROPIC_CONTENT, Reply, reply_of
from holdfast.errors import ModelError, UsageError
from holdfast.model.transcript import parse_object

API_VERSION = "2023-06-01"
INVALID_JSON = "INVALID_JSON"
"""The field that arguments are sent back in, if the model wrote them as what is no JSON object."""
LONGEST_IDENTIFIER = 128
_NOT_IDENTIFYING = re.compile(r"[^a-zA-Z0-9_-]")
CUT_OFF, REFUSED = "max_tokens", "refusal"


class AnthropicModel(HttpEndpoint):
    """A model behind Anthropic's Messages API, for `agent(model=...)`.

    `AnthropicModel("claude-sonnet-4-5", api_key=...)`.

    `max_tokens` limits the length of an answer. `timeout`, `retries`, `headers` and further
    keywords (`thinking={...}`) are as those of `OpenAICompatible`. The model's thinking is stored
    as the reply's reasoning, and sent back with its message.
    """

    _resource = "messages"
    _answer_kind = "message of Anthropic's API"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str = "https://api.anthropic.com/v1",
        max_tokens: int = 8192,
        timeout: float = 120.0,
        retries: int = 4,
        headers: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        **options: Any,
    ) -> None:
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
            raise UsageError(f"max_tokens is {max_tokens!r:.60}: it must be a whole number from 1 on")
        own = {} if api_key is None else {"x-api-key": api_key}
        super().__init__(
            base_url,
            model,
            timeout=timeout,
            retries=retries,
            headers={"anthropic-version": API_VERSION, **(headers or {}), **own},
            sleep=sleep,
            options={"max_tokens": max_tokens, **options},
        )

    def _request(self, messages: Messages, tools: Messages, *, stream: bool) -> Mapping[str, Any]:
        system, turns = split_messages(messages)
        body: dict[str, Any] = {"model": self.model, "messages": turns, **self._options}
        if system:
            body["system"] = system
        if tools:
            body["tools"] = [_tool(tool) for tool in tools]
        if stream:
            body["stream"] = True
        return body

    def _reply(self, answer: Mapping[str, Any]) -> Reply | None:
        content = answer.get("content")
        if answer.get("type") != "message" or not isinstance(content, list):
            return None
        return self._make_reply(content, answer.get("usage") or {}, answer.get("stop_reason"))

    def _make_builder(self) -> ReplyBuilder:
        return _GatheredBlocks(self._make_reply)

    def _make_reply(self, content: Sequence[Mapping[str, Any]], usage: Mapping[str, Any], stop: str | None) -> Reply:
        if stop == REFUSED:
            raise ModelError(
                f"{self._where} declined to answer (stop_reason {REFUSED!r}): what was received is not "
                "used. Go on from an earlier state, or with another prompt",
                200,
            )
        return reply_of_content(content, usage, is_cut_off=stop == CUT_OFF)


# -- answers -----------------------------------------------------------------------------------------------------------


def reply_of_content(content: Sequence[Mapping[str, Any]], usage: Mapping[str, Any], *, is_cut_off: bool) -> Reply:
    """Return the reply in the blocks of an answer; raise an error of `MALFORMED` if they are none.

    A call at the end of a truncated answer may lack the end of its arguments, also where these are
    an object: the call is given unreadable arguments, so that it is not carried out.
    """
    text, thought, calls = [], [], []
    for at, block in enumerate(content):
        match block["type"]:
            case "text":
                text.append(_checked_text(block["text"]))
            case "thinking":
                thought.append(_checked_text(block["thinking"]))
            case "tool_use":
                arguments = _arguments(_input(block["input"]))
                if is_cut_off and at == len(content) - 1:
                    arguments = arguments.removesuffix("}")
                function = {"name": _checked_text(block["name"]), "arguments": arguments}
                calls.append({"id": _checked_text(block["id"]), "type": "function", "function": function})
    message: dict[str, Any] = {"role": "assistant", "content": "".join(text) or None}
    if calls:
        message["tool_calls"] = calls
    if any(block["type"] not in ("text", "tool_use") for block in content):
        # Thinking is signed: it must come back as it was, between the same neighbours.
        message[ANTHROPIC_CONTENT] = [
            {**block, "input": _input(block["input"])} if "input" in block else dict(block) for block in content
        ]
    return reply_of(Reply(message=message, usage=dict(usage), reasoning="".join(thought) or None))


def _arguments(given: Mapping[str, Any]) -> str:
    """Return the arguments of a call as JSON; arguments that are no JSON, unchanged."""
    if given.keys() == {INVALID_JSON}:
        return str(given[INVALID_JSON])
    return json.dumps(given, ensure_ascii=False)


def _checked_text(given: Any) -> str:
    if not isinstance(given, str):
        raise TypeError(f"a {type(given).__name__} is no text")
    return given


class _GatheredBlocks:
    """A reply that comes in pieces, block by block."""

    def __init__(self, made: Callable[[Sequence[Mapping[str, Any]], Mapping[str, Any], str | None], Reply]) -> None:
        self._make_reply = made
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, list[str]] = {}
        self._usage: dict[str, Any] = {}
        self._stop: str | None = None
        self.is_whole = False

    def add(self, event: Mapping[str, Any]) -> Iterator[str]:
        match event["type"]:
            case "message_start":
                self._count(event["message"].get("usage"))
            case "content_block_start":
                block = dict(event["content_block"])
                self._blocks[event["index"]] = block
                if block["type"] == "text" and block["text"]:
                    yield block["text"]
            case "content_block_delta":
                yield from self._grow(event["index"], event["delta"])
            case "message_delta":
                self._stop = event["delta"].get("stop_reason") or self._stop
                self._count(event.get("usage"))
                self.is_whole = self._stop is not None

    def _grow(self, index: int, delta: Mapping[str, Any]) -> Iterator[str]:
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta":
                block["text"] += delta["text"]
                yield delta["text"]
            case "input_json_delta":
                self._inputs.setdefault(index, []).append(delta["partial_json"])
            case "thinking_delta":
                block["thinking"] += delta["thinking"]
            case "signature_delta":
                block["signature"] = block.get("signature", "") + delta["signature"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        """Record the usage in a stream, which is the sum so far."""
        self._usage |= {name: value for name, value in (usage or {}).items() if value is not None}

    def reply(self) -> Reply:
        for index, pieces in self._inputs.items():
            self._blocks[index]["input"] = _input("".join(pieces))
        return self._make_reply([self._blocks[index] for index in sorted(self._blocks)], self._usage, self._stop)


# -- requests ----------------------------------------------------------------------------------------------------------


def split_messages(messages: Messages) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return what the system says, and the conversation in Anthropic's shape.

    Messages of one role that follow each other are one there, results of tools first. Empty ones,
    which the API refuses, are left out.
    """
    system: list[dict[str, Any]] = []
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.get("role") in ("system", "developer"):
            system += _blocks(message.get("content"))
            continue
        role, blocks = _turn(message)
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    return system, turns


def _turn(message: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    content = message.get("content")
    if message.get("role") == "tool":
        id_ = _identifier(message.get("tool_call_id"))
        return "user", [{"type": "tool_result", "tool_use_id": id_, "content": _blocks(content)}]
    if message.get("role") != "assistant":
        return "user", _blocks(content)
    if kept := message.get(ANTHROPIC_CONTENT):
        return "assistant", list(kept)
    return "assistant", [*_blocks(content), *map(_use, message.get("tool_calls") or ())]


def _use(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    arguments = _input(function.get("arguments", "{}"))
    return {
        "type": "tool_use",
        "id": _identifier(call.get("id")),
        "name": _identifier(function.get("name")),
        "input": arguments,
    }


def _identifier(given: Any) -> str:
    """Return an id, or the name of a tool, in the API's form: another model may have chosen any."""
    return _NOT_IDENTIFYING.sub("_", str(given))[:LONGEST_IDENTIFIER] or "_"


def _blocks(content: Any) -> list[dict[str, Any]]:
    """Content as blocks, without empty text."""
    if content is None:
        return []
    given = [{"type": "text", "text": content}] if isinstance(content, str) else [_block(item) for item in content]
    return [item for item in given if item.get("type") != "text" or item.get("text", "").strip()]


def _block(given: Any) -> dict[str, Any]:
    """Return a block of the content of either API. Images of OpenAI's are translated."""
    if isinstance(given, str):
        return {"type": "text", "text": given}
    if given.get("type") != "image_url":
        return dict(given)
    address = given["image_url"]
    url = address if isinstance(address, str) else address["url"]
    kind, comma, data = url.partition(";base64,")
    if comma and kind.startswith("data:"):
        source = {"type": "base64", "media_type": kind.removeprefix("data:"), "data": data}
    else:
        source = {"type": "url", "url": url}
    return {"type": "image", "source": source}


def _input(arguments: Any) -> Mapping[str, Any]:
    """Return the arguments of a call as an object, which the API requires, whatever the model wrote."""
    given = parse_object(arguments)
    if given is not None:
        return given
    return {INVALID_JSON: arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)}


def _tool(given: Mapping[str, Any]) -> Mapping[str, Any]:
    function = given.get("function")
    if function is None:  # in Anthropic's shape already
        return given
    described = {"description": function["description"]} if function.get("description") else {}
    return {"name": function["name"], **described, "input_schema": function["parameters"]}
