"""Edits of langgraph.json: one member is put in, and every other character stays as it is."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from holdfast.errors import ConflictError, UsageError

KEY = "checkpointer"
OURS = "holdfast.langgraph.dev_checkpointer"
_BLANK = " \t\r\n"
_DECODER = json.JSONDecoder()


class Member(NamedTuple):
    """A name and its value: where they stand in the text."""

    name: str
    start: int
    value_start: int
    end: int


def with_checkpointer(text: str, *, replace: bool = False) -> str:
    """Return the text of a langgraph.json with our checkpointer; unchanged if it is there already."""
    config = _config(text)
    present = config.get(KEY)
    if present is None or present == {}:
        value = json.dumps({"path": OURS})
        if KEY not in config:
            return _insert_member(text, _first(text), KEY, value)
        return _replace_member(text, _member(text, _first(text), KEY), value)
    where = _member(text, _first(text), KEY)
    if not isinstance(present, dict):
        raise UsageError(
            f'"{KEY}" is {json.dumps(present):.60}, and not an object: the LangGraph server would not start'
        )
    if present.get("backend", "custom") != "custom":
        raise ConflictError(
            f'"{KEY}" asks for the backend {json.dumps(present["backend"]):.60}, beside which no other '
            "can be used. Remove "
            '"backend", then run this again'
        )
    if present.get("path") == OURS:
        return text
    if "path" not in present:
        return _insert_member(text, where.value_start, "path", json.dumps(OURS))
    if present["path"] is not None and not replace:
        raise ConflictError(
            f'"{KEY}" has the path {json.dumps(present["path"]):.100} already: nothing was changed. --replace puts '
            "holdfast in its place"
        )
    return _replace_member(text, _member(text, where.value_start, "path"), json.dumps(OURS))


def _config(text: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"it is no JSON: {error}") from None
    if not isinstance(config, dict) or not config.get("graphs"):
        raise UsageError('it is no configuration of LangGraph: an object with "graphs" is expected')
    return config


def _first(text: str, at: int = 0) -> int:
    """Return the position of the next character that is not blank."""
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def _members(text: str, start: int) -> list[Member]:
    """Return the members of the object that begins at `start`. The text is known to be JSON."""
    members: list[Member] = []
    at = _first(text, start + 1)
    while text[at] != "}":
        name, name_end = _DECODER.raw_decode(text, at)
        value_start = _first(text, _first(text, name_end) + 1)
        _, end = _DECODER.raw_decode(text, value_start)
        members.append(Member(name, at, value_start, end))
        at = _first(text, end)
        if text[at] == ",":
            at = _first(text, at + 1)
    return members


def _member(text: str, start: int, name: str) -> Member:
    return [member for member in _members(text, start) if member.name == name][-1]  # of twins, the last one counts


def _insert_member(text: str, start: int, name: str, value: str) -> str:
    """Return the text with one more member at the end of a non-empty object, formatted as its last one."""
    last = _members(text, start)[-1]
    blank_start = last.start
    while text[blank_start - 1] in _BLANK:
        blank_start -= 1
    blank = text[blank_start : last.start] or " "
    return f"{text[: last.end]},{blank}{json.dumps(name)}: {value}{text[last.end :]}"


def _replace_member(text: str, member: Member, value: str) -> str:
    return text[: member.value_start] + value + text[member.end :]
