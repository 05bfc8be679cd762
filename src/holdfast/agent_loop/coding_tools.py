"""Tools of a coding agent: a shell, and files of one directory.

`read_file` is of the kind "read". `write_file` and `edit_file` are of the kind "workspace": an
interrupted call is made again, which changes nothing if it had been made. They are not
"idempotent": the ledger would answer an equal call after a rollback with the recorded result, while
the files were rolled back with the checkpoint. `bash` has no kind, since a command may do anything:
the same call is made at most once, and a new call is a new decision.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

from holdfast.agent_loop.directory_files import DirectoryFiles
from holdfast.agent_loop.directory_tool import DirectoryTool, ToolLimits
from holdfast.agent_loop.shell import run_command
from holdfast.agent_loop.tool import as_tool
from holdfast.errors import EffectNotDoneError

MANY = 32
"""Of a text that occurs so often no single place is meant."""


def _directory_tool(make: Callable[[str, ToolLimits], Callable[..., Any]], kind: str | None = None) -> DirectoryTool:
    made = as_tool(make(os.curdir, ToolLimits()))
    return DirectoryTool(
        name=made.name, description=made.description, parameters=made.parameters, fn=made.fn, kind=kind, make=make
    )


# -- the tools ---------------------------------------------------------------------------------------------------------


def _make_bash(directory: str, limits: ToolLimits) -> Callable[..., str]:
    def bash(command: str, timeout: float | None = None) -> str:
        """Run a command with bash in the project's directory; return its output and exit code.

        Each call is a new shell, without input. When it ends, its background processes are killed.
        `timeout` is in seconds.
        """
        seconds = limits.seconds if timeout is None or not timeout > 0 else min(timeout, limits.seconds)
        return run_command(command, directory, seconds, limits.characters)

    return bash


def _make_read_file(directory: str, limits: ToolLimits) -> Callable[..., str]:
    files = DirectoryFiles(directory, limits.file_bytes)

    def read_file(path: str, first_line: int = 1, lines: int | None = None) -> str:
        """Return the text of a file of the project.

        `first_line` and `lines` select a part of it; the first line is 1.
        """
        return _excerpt(_text(path, files.read(path), "replace"), first_line, lines, limits.characters)

    return read_file


def _make_write_file(directory: str, limits: ToolLimits) -> Callable[..., str]:
    files = DirectoryFiles(directory, limits.file_bytes)

    def write_file(path: str, text: str) -> str:
        """Write a file of the project: a new one, with the directories it is in, or all of one that is there."""
        data = _encode_text(text)
        files.write(path, data)
        return f"wrote {len(data)} bytes to {path}"

    return write_file


def _make_edit_file(directory: str, limits: ToolLimits) -> Callable[..., str]:
    files = DirectoryFiles(directory, limits.file_bytes)

    def edit_file(path: str, old: str, new: str) -> str:
        """Replace `old`, which must occur exactly once in a file of the project, by `new`.

        Give enough of the lines around it. An edit that was made already is not made again.
        """
        edited = edit_once(_text(path, files.read(path), "strict"), old, new)
        if edited is None:
            why = "has the new text already, and `old` nowhere else" if new else "does not have `old`"
            return f"nothing was changed: {path} {why}"
        files.write(path, _encode_text(edited))
        return f"edited {path}"

    return edit_file


def edit_once(text: str, old: str, new: str) -> str | None:
    """Return the text with `old` replaced by `new`; None if that is done already.

    Raise `EffectNotDoneError` if it can't be done. Applied to its own result it always returns
    None: an interrupted edit can be made again.
    """
    if not old or old == new:
        raise EffectNotDoneError("`old` is empty, or the same as `new`: nothing would change")
    if _is_replaced(text, old, new):
        return None
    places = _occurrences(text, old)
    if not places:
        raise EffectNotDoneError("`old` does not occur in the file: read the file, and copy the text exactly")
    if len(places) > 1:
        raise EffectNotDoneError("`old` occurs more than once in the file: give more of the lines around it")
    edited = text[: places[0]] + new + text[places[0] + len(old) :]
    if not _is_replaced(edited, old, new):
        raise EffectNotDoneError("`old` would occur again once it is replaced: give more of the lines around it")
    return edited


def _is_replaced(text: str, old: str, new: str) -> bool:
    """Return whether a text has `new`, and `old` at most as a part of it."""
    places = _occurrences(text, old)
    return new in text and len(places) < MANY and all(_is_part(text, place, old, new) for place in places)


def _occurrences(text: str, part: str) -> list[int]:
    """Return the positions of a part in a text, overlapping ones included.

    There are at most `MANY`, which bounds the time for any text.
    """
    found: list[int] = []
    at = text.find(part)
    while at >= 0 and len(found) < MANY:
        found.append(at)
        at = text.find(part, at + 1)
    return found


def _is_part(text: str, place: int, old: str, new: str) -> bool:
    """Return whether the text at a place is `old` as a part of `new`."""
    return any(text.startswith(new, place - within) for within in _occurrences(new, old) if within <= place)


def _excerpt(text: str, first: int, count: int | None, characters: int) -> str:
    if not text:
        return "[the file is empty]"
    every = list(io.StringIO(text, newline="\n"))
    first = max(1, first)
    if first > len(every):
        return f"[the file has {len(every)} lines]"
    end = len(every) if count is None else min(len(every), first - 1 + max(1, count))
    taken, size = 0, 0
    for line in every[first - 1 : end]:
        if size + len(line) > characters:
            break
        taken, size = taken + 1, size + len(line)
    if taken == 0:
        return every[first - 1][:characters] + f"\n[line {first} is cut off here: go on with first_line={first + 1}]"
    last = first - 1 + taken
    shown = "".join(every[first - 1 : last])
    if last == len(every):
        return shown
    return f"{shown}[lines {first} to {last} of {len(every)}: go on with first_line={last + 1}]"


def _text(path: str, data: bytes, errors: str) -> str:
    if b"\0" in data:
        raise EffectNotDoneError(f"{path!r:.200} is no text: it has zero bytes")
    try:
        return data.decode("utf-8", errors)
    except UnicodeDecodeError:
        raise EffectNotDoneError(f"{path!r:.200} is no UTF-8 text: change it with a command") from None


def _encode_text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EffectNotDoneError("the text has half of a surrogate pair in it, which no file can have") from None


bash = _directory_tool(_make_bash)
read_file = _directory_tool(_make_read_file, "read")
write_file = _directory_tool(_make_write_file, "workspace")
edit_file = _directory_tool(_make_edit_file, "workspace")
