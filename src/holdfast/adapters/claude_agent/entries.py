"""Entries of the CLI's transcript, read as far as their shape is known. Imports nothing of the SDK.

An entry is one line of the CLI's JSONL file. Its `message` is one of the Messages API; the rest is
the CLI's own affair. An entry of another shape has no calls, no results and no answer.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

Entries = Sequence[Any]
SYNTHETIC = "<synthetic>"
"""The model of answers that the CLI has written itself."""


def read_blocks(entry: Any) -> list[Mapping[str, Any]]:
    """Return the content blocks of an entry's message."""
    message = entry.get("message") if isinstance(entry, Mapping) else None
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []


def is_message(entry: Any) -> bool:
    return isinstance(entry, Mapping) and entry.get("type") in ("user", "assistant") and bool(read_blocks(entry))


def find_calls(entries: Entries) -> Iterator[Mapping[str, Any]]:
    """Yield the blocks of the model's tool calls."""
    for entry in entries:
        yield from (block for block in read_blocks(entry) if block.get("type") == "tool_use")


def read_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    given = call.get("input")
    return dict(given) if isinstance(given, Mapping) else {}


def find_results(entries: Entries) -> dict[str, Mapping[str, Any]]:
    """Return the blocks of results, by the id of their call."""
    blocks = (block for entry in entries for block in read_blocks(entry))
    return {str(block.get("tool_use_id")): block for block in blocks if block.get("type") == "tool_result"}


def find_open_calls(entries: Entries) -> list[Mapping[str, Any]]:
    """Return the calls without a result."""
    answered = find_results(entries)
    return [call for call in find_calls(entries) if str(call.get("id")) not in answered]


def find_deferred(entries: Entries) -> tuple[int, Mapping[str, Any]] | None:
    """Return the open call that a hook has deferred, and the position where the CLI has noted that.

    The CLI makes the call when it resumes.
    """
    open_calls = {str(call.get("id")): call for call in find_open_calls(entries)}
    for number in reversed(range(len(entries))):
        attached = entries[number].get("attachment") if isinstance(entries[number], Mapping) else None
        if isinstance(attached, Mapping) and attached.get("type") == "hook_deferred_tool":
            call = open_calls.get(str(attached.get("toolUseID")))
            return None if call is None else (number, call)
    return None


def count_parallel_calls(entries: Entries, call_id: str | None) -> int:
    """Return how many calls the entry of a call has; 0 if no entry has it."""
    for entry in reversed(entries):
        ids = [call.get("id") for call in find_calls([entry])]
        if call_id in ids:
            return len(ids)
    return 0


def find_prompt(entries: Entries, id_: str) -> int | None:
    """Return the position of a prompt that was given to the CLI with an id."""
    for number, entry in enumerate(entries):
        if isinstance(entry, Mapping) and entry.get("uuid") == id_:
            return number
    return None


def find_answer(entries: Entries) -> Mapping[str, Any] | None:
    """Return the message that ends a turn, if the entries end with one."""
    last = next((entry for entry in reversed(entries) if is_message(entry)), None)
    message = last["message"] if last is not None and last.get("type") == "assistant" else {}
    is_final = message.get("stop_reason") in ("end_turn", "stop_sequence") and message.get("model") != SYNTHETIC
    return message if is_final and not find_open_calls(entries) else None


def find_session_id(entries: Entries) -> str | None:
    """Return the CLI's own id of the session, which is a UUID."""
    for entry in entries:
        id_ = entry.get("sessionId") if isinstance(entry, Mapping) else None
        with suppress(ValueError):
            if isinstance(id_, str):
                return str(uuid.UUID(id_))
    return None


def name_step(entries: Entries) -> str:
    """Return a name for the checkpoint of new entries: the tool that is called, or who speaks."""
    calls = [str(call.get("name")) for call in find_calls(entries)]
    if calls:
        return ", ".join(calls)
    speakers = [str(entry["type"]) for entry in entries if is_message(entry)]
    return speakers[-1] if speakers else "transcript"
