"""Message lists that were converted, checked by the rules of their providers, written down here once more."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from conversations import NAMED, convert
from hypothesis import given, settings
from test_conversions import TRANSCRIPTS, decide

from holdfast.model.tool_map import ToolMap

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
ID = re.compile(r"[A-Za-z0-9_-]{1,40}")


def check_call(id_: Any, name: Any, arguments: Any, used: set[str]) -> None:
    assert ID.fullmatch(id_) and id_ not in used
    assert NAME.fullmatch(name)
    used.add(id_)
    read = json.loads(arguments) if isinstance(arguments, str) else arguments
    assert isinstance(read, dict)
    json.dumps(read, allow_nan=False)


def check_openai_chat(messages: Sequence[dict[str, Any]]) -> None:
    used: set[str] = set()
    waiting: list[str] = []
    before = None
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            assert isinstance(message["content"], str)
        else:
            assert not waiting, "a result is missing"
            assert message["role"] in ("user", "assistant")
            assert message["role"] != "user" or before != "user"
            calls = message.get("tool_calls", [])
            assert message["content"] or calls
            blocks = message["content"] if isinstance(message["content"], list) else []
            assert {one["type"] for one in blocks} <= {"text", *(["image_url"] if message["role"] == "user" else [])}
            for call in calls:
                assert call["type"] == "function"
                check_call(call["id"], call["function"]["name"], call["function"]["arguments"], used)
            waiting = [call["id"] for call in calls]
        before = message["role"]
    assert not waiting
    assert not messages or messages[0]["role"] == "user"


def check_open_responses(items: Sequence[dict[str, Any]]) -> None:
    used: set[str] = set()
    waiting: list[str] = []
    is_answered = False
    before = None
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call":
            assert not is_answered or not waiting
            check_call(item["call_id"], item["name"], item["arguments"], used)
            waiting.append(item["call_id"])
            is_answered = False
        elif kind == "function_call_output":
            assert item["call_id"] == waiting.pop(0)
            is_answered = True
        else:
            assert kind == "message" and item["role"] in ("user", "assistant") and item["content"]
            assert not waiting, "a result is missing"
            assert item["role"] != "user" or before != "user"
            begins = {"input_text", "input_image", "input_file"} if item["role"] == "user" else {"output_text"}
            blocks = item["content"] if isinstance(item["content"], list) else []
            assert {one["type"] for one in blocks} <= begins
        before = item.get("role")
    assert not waiting
    assert not items or items[0].get("role") == "user"


def check_anthropic(messages: Sequence[dict[str, Any]]) -> None:
    used: set[str] = set()
    waiting: list[str] = []
    for number, message in enumerate(messages):
        assert message["role"] in ("user", "assistant")
        if number == 0 or messages[number - 1]["role"] == "user":
            assert message["role"] == ("user" if number == 0 else "assistant")
        blocks = message["content"]
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        assert blocks
        answered = [one["tool_use_id"] for one in blocks if one["type"] == "tool_result"]
        assert answered == waiting == [one.get("tool_use_id") for one in blocks[: len(waiting)]]
        waiting = [one["id"] for one in blocks if one["type"] == "tool_use"]
        assert not waiting or message["role"] == "assistant"
        for block in blocks:
            match block["type"]:
                case "text":
                    assert block["text"].strip()
                case "tool_use":
                    check_call(block["id"], block["name"], block["input"], used)
                case "tool_result":
                    assert message["role"] == "user"
                    assert all(one["type"] in ("text", "image", "document") for one in block["content"])
                case "image" | "document":
                    source = block["source"]
                    assert message["role"] == "user" and source["type"] in ("base64", "url", "text")
                    if source["type"] == "base64":
                        base64.b64decode(source["data"], validate=True)
                case other:
                    raise AssertionError(other)
    assert not waiting


CHECKS: dict[str, Callable[[Any], None]] = {
    "openai_chat": check_openai_chat,
    "open_responses": check_open_responses,
    "anthropic": check_anthropic,
}


@pytest.mark.parametrize("shape", CHECKS)
def test_a_list_with_everything_keeps_the_rules_of_its_provider(shape):
    CHECKS[shape](convert(NAMED, shape).converted.state["messages"])


@pytest.mark.parametrize("shape", CHECKS)
@settings(deadline=None)
@given(messages=TRANSCRIPTS)
def test_any_conversation_becomes_a_list_that_keeps_the_rules_of_its_provider(shape, messages):
    decided = decide(messages, "answer", ToolMap(), cut=False)
    CHECKS[shape](convert(decided, shape).converted.state["messages"])
