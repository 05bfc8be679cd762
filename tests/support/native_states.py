"""States with a rich conversation, by hand, in the form that each framework stores."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

SYSTEM, ASKED = "Be brief.", "Grüße, 世界 🙂 e\u0301 \u202e"
THOUGHT, SIGNATURE = "hm, two calls", "c2ln+/=="
FOUND, FAILED, DONE = "bob is here", "no such archive", "Bob is here."
LONG_NAME = "search_" + "the_archive_of_everything_" * 3  # 85 characters
IMAGE = b"\x89PNG picture"
ENCODED = base64.b64encode(IMAGE).decode()
ARGUMENTS = {"who": "bob", "π": [1, 2.5, None, True]}
WRITTEN = json.dumps(ARGUMENTS)


def langchain() -> dict[str, Any]:
    thought = {"type": "reasoning", "summary": [{"text": THOUGHT}], "encrypted_content": SIGNATURE}
    calls = [{"id": "c1", "name": "lookup", "args": ARGUMENTS}, {"id": "c2", "name": LONG_NAME, "args": {}}]
    picture = {"type": "image", "base64": ENCODED, "mime_type": "image/png"}
    messages = [
        {"type": "system", "content": SYSTEM},
        {"type": "human", "content": [{"type": "text", "text": ASKED}, picture]},
        {"type": "ai", "content": [thought], "tool_calls": calls},
        {"type": "tool", "tool_call_id": "c1", "content": FOUND},
        {"type": "tool", "tool_call_id": "c2", "content": FAILED, "status": "error"},
        {"type": "ai", "content": DONE},
    ]
    return {"channel_values": {"messages": messages}, "v": 4}


def chat_call(id_: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def openai_chat() -> dict[str, Any]:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{ENCODED}"}}
    calls = [chat_call("c1", "lookup", WRITTEN), chat_call("c2", LONG_NAME, "{}")]
    thought = {"reasoning": THOUGHT, "reasoning_details": [{"type": "reasoning.encrypted", "data": SIGNATURE}]}
    return {
        "messages": [
            {"role": "developer", "content": SYSTEM},
            {"role": "user", "content": [{"type": "text", "text": ASKED}, picture]},
            {"role": "assistant", "content": None, "tool_calls": calls, **thought},
            {"role": "tool", "tool_call_id": "c1", "content": FOUND},
            {"role": "tool", "tool_call_id": "c2", "content": FAILED},
            {"role": "assistant", "content": DONE},
        ]
    }


def crewai() -> dict[str, Any]:
    state = openai_chat()
    del state["messages"][2]["reasoning"], state["messages"][2]["reasoning_details"]
    return {"messages": [{**one, "agent": "clerk"} for one in state["messages"]], "turn": None}


def items() -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": SYSTEM},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": ASKED},
                {"type": "input_image", "image_url": f"data:image/png;base64,{ENCODED}"},
            ],
        },
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": THOUGHT}],
            "encrypted_content": SIGNATURE,
        },
        {"type": "function_call", "call_id": "c1", "name": "lookup", "arguments": WRITTEN, "id": "fc_1"},
        {"type": "function_call", "call_id": "c2", "name": LONG_NAME, "arguments": "{}", "id": "fc_2"},
        {"type": "function_call_output", "call_id": "c1", "output": FOUND},
        {"type": "function_call_output", "call_id": "c2", "output": FAILED},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": DONE}]},
    ]


def open_responses() -> dict[str, Any]:
    return {"messages": items()}


def openai_agents() -> dict[str, Any]:
    return {"messages": items(), "agent": None, "turn": None}


def anthropic_blocks() -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    asked = [
        {"type": "text", "text": ASKED},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ENCODED}},
    ]
    called = [
        {"type": "thinking", "thinking": THOUGHT, "signature": SIGNATURE},
        {"type": "tool_use", "id": "c1", "name": "lookup", "input": ARGUMENTS},
        {"type": "tool_use", "id": "c2", "name": LONG_NAME, "input": {}},
    ]
    told = [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": FOUND}]},
        {"type": "tool_result", "tool_use_id": "c2", "content": FAILED, "is_error": True},
    ]
    return asked, called, told


def anthropic() -> dict[str, Any]:
    asked, called, told = anthropic_blocks()
    roles = ("user", "assistant", "user")
    messages = [{"role": role, "content": one} for role, one in zip(roles, (asked, called, told), strict=True)]
    return {"messages": [{"role": "system", "content": SYSTEM}, *messages, {"role": "assistant", "content": DONE}]}


def claude_agent() -> dict[str, Any]:
    asked, called, told = anthropic_blocks()
    said = [{"type": "text", "text": DONE}]
    return {
        "messages": [
            {"type": kind, "uuid": str(number), "message": {"role": kind, "id": f"m{number}", "content": content}}
            for number, (kind, content) in enumerate(
                (("user", asked), ("assistant", called), ("user", told), ("assistant", said))
            )
        ],
        "turn": None,
    }


def pydantic_ai() -> dict[str, Any]:
    def returned(id_: str, name: str, content: str, **more: Any) -> dict[str, Any]:
        return {"part_kind": "tool-return", "tool_name": name, "tool_call_id": id_, "content": content, **more}

    thought = {"part_kind": "thinking", "content": THOUGHT, "signature": SIGNATURE, "provider_name": "anthropic"}
    calls = [
        {"part_kind": "tool-call", "tool_name": "lookup", "args": ARGUMENTS, "tool_call_id": "c1"},
        {"part_kind": "tool-call", "tool_name": LONG_NAME, "args": "{}", "tool_call_id": "c2"},
    ]
    picture = {"kind": "binary", "data": IMAGE, "media_type": "image/png"}
    asked = {"part_kind": "user-prompt", "content": [ASKED, picture]}
    results = [returned("c1", "lookup", FOUND), returned("c2", LONG_NAME, FAILED, outcome="failed")]
    return {
        "messages": [
            {"kind": "request", "parts": [asked], "instructions": SYSTEM},
            {"kind": "response", "parts": [thought, *calls]},
            {"kind": "request", "parts": results, "instructions": SYSTEM},
            {"kind": "response", "parts": [{"part_kind": "text", "content": DONE}]},
        ],
        "turn": None,
    }


def google_adk() -> dict[str, Any]:
    def event(author: str, role: str, *parts: dict[str, Any]) -> dict[str, Any]:
        return {"author": author, "content": {"role": role, "parts": list(parts)}}

    def response(id_: str, name: str, answer: dict[str, str]) -> dict[str, Any]:
        return {"function_response": {"id": id_, "name": name, "response": answer}}

    lookup = {"function_call": {"id": "c1", "name": "lookup", "args": ARGUMENTS}, "thought_signature": b"sig"}
    search = {"function_call": {"id": "c2", "name": LONG_NAME, "args": {}}}
    results = (response("c1", "lookup", {"result": FOUND}), response("c2", LONG_NAME, {"error": FAILED}))
    picture = {"inline_data": {"mime_type": "image/png", "data": IMAGE}}
    return {
        "messages": [
            event("user", "user", {"text": ASKED}, picture),
            event("clerk", "model", {"text": THOUGHT, "thought": True}, lookup, search),
            event("clerk", "user", *results),
            event("clerk", "model", {"text": DONE}),
        ],
        "turn": None,
    }


def agent_framework() -> dict[str, Any]:
    def message(role: str, *contents: dict[str, Any]) -> dict[str, Any]:
        return {"type": "message", "role": role, "contents": list(contents)}

    thought = {"type": "text_reasoning", "text": THOUGHT, "protected_data": SIGNATURE}
    lookup = {"type": "function_call", "call_id": "c1", "name": "lookup", "arguments": WRITTEN}
    search = {"type": "function_call", "call_id": "c2", "name": LONG_NAME, "arguments": "{}"}
    found = {"type": "function_result", "call_id": "c1", "result": FOUND}
    failed = {"type": "function_result", "call_id": "c2", "result": FAILED, "exception": "ValueError"}
    picture = {"type": "data", "uri": f"data:image/png;base64,{ENCODED}", "media_type": "image/png"}
    messages = [
        message("system", {"type": "text", "text": SYSTEM}),
        message("user", {"type": "text", "text": ASKED}, picture),
        message("assistant", thought, lookup, search),
        message("tool", found, failed),
        message("assistant", {"type": "text", "text": DONE}),
    ]
    return {"session": {"type": "session", "state": {"in_memory": {"messages": messages}}}, "turn": None}


def strands() -> dict[str, Any]:
    def result(id_: str, status: str, text: str) -> dict[str, Any]:
        return {"toolResult": {"toolUseId": id_, "status": status, "content": [{"text": text}]}}

    thought = {"reasoningContent": {"reasoningText": {"text": THOUGHT, "signature": SIGNATURE}}}
    calls = [
        {"toolUse": {"toolUseId": "c1", "name": "lookup", "input": ARGUMENTS}},
        {"toolUse": {"toolUseId": "c2", "name": LONG_NAME, "input": {}}},
    ]
    picture = {"image": {"format": "png", "source": {"bytes": IMAGE}}}
    return {
        "messages": [
            {"role": "user", "content": [{"text": ASKED}, picture]},
            {"role": "assistant", "content": [thought, *calls]},
            {"role": "user", "content": [result("c1", "success", FOUND), result("c2", "error", FAILED)]},
            {"role": "assistant", "content": [{"text": DONE}]},
        ],
        "agents": {"": {}},
        "turn": None,
    }


def haystack() -> dict[str, Any]:
    def message(role: str, *content: dict[str, Any]) -> dict[str, Any]:
        return {"role": role, "meta": {}, "name": None, "content": list(content)}

    lookup = {"tool_name": "lookup", "arguments": ARGUMENTS, "id": "c1"}
    search = {"tool_name": LONG_NAME, "arguments": {}, "id": "c2"}
    thought = {"reasoning_text": THOUGHT, "extra": {"signature": SIGNATURE}}
    return {
        "messages": [
            message("system", {"text": SYSTEM}),
            message("user", {"text": ASKED}, {"image": {"base64_image": ENCODED, "mime_type": "image/png"}}),
            message("assistant", {"reasoning": thought}, {"tool_call": lookup}, {"tool_call": search}),
            message("tool", {"tool_call_result": {"result": FOUND, "origin": lookup, "error": False}}),
            message("tool", {"tool_call_result": {"result": FAILED, "origin": search, "error": True}}),
            message("assistant", {"text": DONE}),
        ],
        "turn": None,
    }


def autogen() -> dict[str, Any]:
    calls = [{"id": "c1", "name": "lookup", "arguments": WRITTEN}, {"id": "c2", "name": LONG_NAME, "arguments": "{}"}]
    results = [
        {"call_id": "c1", "name": "lookup", "content": FOUND, "is_error": False},
        {"call_id": "c2", "name": LONG_NAME, "content": FAILED, "is_error": True},
    ]
    return {
        "messages": [
            {"type": "SystemMessage", "content": SYSTEM},
            {"type": "MultiModalMessage", "source": "user", "content": [ASKED, {"data": ENCODED}]},
            {"type": "ThoughtEvent", "source": "clerk", "content": THOUGHT},
            {"type": "ToolCallRequestEvent", "source": "clerk", "content": calls},
            {"type": "ToolCallExecutionEvent", "source": "clerk", "content": results},
            {"type": "TextMessage", "source": "clerk", "content": DONE},
        ],
        "turn": None,
    }


def ag2() -> dict[str, Any]:
    def text_input(text: str) -> dict[str, Any]:
        return {"$type": "TextInput", "content": text}

    calls = [{"id": "c1", "name": "lookup", "arguments": WRITTEN}, {"id": "c2", "name": LONG_NAME, "arguments": "{}"}]
    results = [
        {"$type": "ToolResultEvent", "parent_id": "c1", "name": "lookup", "result": {"parts": [text_input(FOUND)]}},
        {
            "$type": "ToolErrorEvent",
            "parent_id": "c2",
            "name": LONG_NAME,
            "result": {"parts": [text_input(FAILED)]},
            "error": {"class": "ValueError", "message": FAILED},
        },
    ]
    picture = {"$type": "BinaryInput", "data": IMAGE, "media_type": "image/png", "kind": "image"}
    return {
        "messages": [
            {"$type": "ModelRequest", "parts": [text_input(ASKED), picture]},
            {"$type": "ModelReasoningEvent", "content": THOUGHT, "signature": SIGNATURE},
            {"$type": "ModelResponse", "tool_calls": {"$type": "ToolCallsEvent", "calls": calls}},
            {"$type": "ToolResultsEvent", "results": results},
            {"$type": "ModelResponse", "message": {"$type": "ModelMessage", "content": DONE}},
        ],
        "turn": None,
    }


def smolagents() -> dict[str, Any]:
    calls = [{"id": "c1", "name": "lookup", "arguments": ARGUMENTS}, {"id": "c2", "name": LONG_NAME, "arguments": {}}]
    return {
        "messages": [
            {"step": "task", "task": ASKED, "images": [IMAGE]},
            {"step": "action", "number": 1, "calls": calls, "observations": [FOUND, FAILED]},
            {"step": "action", "number": 2, "output": DONE},
        ],
        "first": 0,
        "turn": None,
    }


def llama_index() -> dict[str, Any]:
    def said(role: str, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"role": role, "blocks": list(blocks), "additional_kwargs": more}

    def text_block(text: str) -> dict[str, Any]:
        return {"block_type": "text", "text": text}

    def call(id_: str, name: str, arguments: Any) -> dict[str, Any]:
        return {"block_type": "tool_call", "tool_call_id": id_, "tool_name": name, "tool_kwargs": arguments}

    more = {"signature": SIGNATURE}
    thought = {"block_type": "thinking", "content": THOUGHT, "additional_information": more}
    picture = {"block_type": "image", "image": ENCODED, "image_mimetype": "image/png"}
    return {
        "messages": [
            said("system", text_block(SYSTEM)),
            said("user", text_block(ASKED), picture),
            said("assistant", thought, call("c1", "lookup", ARGUMENTS), call("c2", LONG_NAME, {})),
            said("tool", text_block(FOUND), tool_call_id="c1"),
            said("tool", text_block(FAILED), tool_call_id="c2", is_error=True),
            said("assistant", text_block(DONE)),
        ],
        "turn": None,
    }


# By name: the framework that saves the state, the state, and the facets that its form has no place for.
NATIVE: dict[str, tuple[str, Callable[[], dict[str, Any]], frozenset[str]]] = {
    "langchain": ("langgraph", langchain, frozenset()),
    "openai_chat": ("custom", openai_chat, frozenset(("error_flags",))),
    "open_responses": ("custom", open_responses, frozenset(("error_flags",))),
    "anthropic": ("custom", anthropic, frozenset()),
    "crewai": ("crewai", crewai, frozenset(("error_flags", "reasoning", "reasoning_signatures"))),
    "autogen": ("autogen", autogen, frozenset(("reasoning_signatures",))),
    "openai_agents": ("openai_agents", openai_agents, frozenset(("error_flags",))),
    "pydantic_ai": ("pydantic_ai", pydantic_ai, frozenset()),
    "google_adk": ("google_adk", google_adk, frozenset(("instructions",))),
    "agent_framework": ("agent_framework", agent_framework, frozenset()),
    "strands": ("strands", strands, frozenset(("instructions",))),
    "haystack": ("haystack", haystack, frozenset()),
    "ag2": ("ag2", ag2, frozenset(("instructions",))),
    "smolagents": (
        "smolagents",
        smolagents,
        frozenset(("instructions", "error_flags", "reasoning", "reasoning_signatures")),
    ),
    "claude_agent": ("claude_agent", claude_agent, frozenset(("instructions",))),
    "llama_index": ("llama_index", llama_index, frozenset()),
}
