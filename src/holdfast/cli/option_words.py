"""Library messages in the words of the command line: options and commands for parameters and methods.

The library speaks to a program: `session_id`, `force=True`. The table below, and the options of a
command, say what a person types instead. Text in quotation marks is the user's own, and stays.
"""

from __future__ import annotations

import inspect
import re
import traceback

import click

from holdfast.cli.trust_needs import WORKSPACE_RULES

# The names that commands give to a parameter; one that is not listed has its own name.
PARAMETERS = {
    "session_id": ("session", "name", "sessions"),
    "fork_session_id": ("session",),
    "session_a": ("session",),
    "session_b": ("other",),
    "agent_id": ("agent",),
    "target_agent_id": ("agent",),
    "checkpoint_id": ("ref",),
    "checkpoint_ids": ("refs",),
    "handoff_id": ("ref",),
    "to": ("ref",),
    "op": ("operation",),
    "limit": ("count",),
    "pending": ("everything",),
    "keep": ("keep_user",),
    "set": ("assignments",),
    "steps": ("live",),
    "step_name": ("message",),
    "execution_state": ("file",),
    "workspace": ("directory",),
}
# Where a command means another of its own options by it.
OF_COMMAND = {"adopt": {"session_id": ("into",)}, "replay": {"session_id": ("name",)}}
# Advice that a program can follow, and what a person does instead.
ADVICE = {
    r"`sessions\(\)`": "`holdfast sessions`",
    r"`sessions` lists": "`holdfast sessions` lists",
    r"`save\(\.\.\., workspace=\.\.\.\)`": "`holdfast snap`",
    r"`approvals\(pending=False\)`, or (`holdfast approvals --all`),": r"\1",
    r"repeat it with `checkpoint_id=error\.checkpoint_id`, or open the store with a longer "
    r"`timeout`": "repeat it later",
    r"Raise `max_connections` or `timeout`": "Repeat it later",
    r"restore\(\.\.\., migrate=False\) gives": "`holdfast show` prints",
    r"`force=True` moves it \((`holdfast tag --force`)\)": r"\1 moves it",
    r"`move_tag=True` moves it \((`holdfast save --move-tag`)\)": r"\1 moves it",
    r"steps=\{('[^']*'): 'live'\}": r"--live \1",
    r"\b\w+=\S+ \((--[\w-]+)\)": r"\1",  # the library names the option, too
}
_QUOTED = r"(?<!\w)'[^']*'(?!\w)|(?<!\w)\"[^\"]*\"(?!\w)"
_ITEMS = re.compile(r"(?<=[\[ ])'([^']*)'(?=[,\]])")  # of a list
_VALUE = r"(?:'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\.\.\.|-?[\w.]+)"


def rephrase_error(error: Exception, command: click.Context | None) -> str:
    """Return the message of an error in the words of the user who can act on it.

    Errors of the command line itself are in the user's words already. An error that passed through
    a program that `resume` or `replay` called is about that program, which gives parameters.
    """
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    program = str(command.params.get("program") or "").partition(":")[0] if command is not None else ""
    if (modules and modules[-1].startswith("holdfast.cli.")) or (program and program in modules):
        return str(error)
    return rephrase_message(str(error), command)


def rephrase_message(message: str, command: click.Context | None) -> str:
    """Return the message with the command's options instead of Python's parameters."""
    for advice, instead in ADVICE.items():
        message = re.sub(advice, instead, message)
    names = sorted(_parameter_names(), key=len, reverse=True)
    any_name = "|".join(names)
    snake = "|".join(name for name in names if "_" in name)
    pattern = re.compile(
        rf"(?P<quoted>{_QUOTED})|(?<![\w./@?&-])(?:(?P<given>{any_name})=(?P<value>{_VALUE})?|`(?P<marked>{any_name})`"
        rf"|(?P<bare>{snake})(?![\w./=-]*[\w/=-]))"
    )

    def replaced(found: re.Match[str]) -> str:
        if found["quoted"] is not None:
            return found[0]
        name = found["given"] or found["marked"] or found["bare"]
        option = _option(name, command)
        if option is None and name in WORKSPACE_RULES:  # a setting of holdfast.toml
            return found[0]
        if found["marked"]:
            return f"`{option or _noun(name)}`" if option or "_" in name else found[0]
        if option is not None and (items := _ITEMS.findall(found["value"] or "")):
            return " ".join(f"{option} {item}" for item in items)  # the option is repeated for each
        value = (found["value"] or "").strip("'\"")
        shown = "" if value in ("", "True", "None") else f" {value}"
        return f"{option or _noun(name)}{shown}"

    return pattern.sub(replaced, message)


def _option(name: str, command: click.Context | None) -> str | None:
    """Return the command's name of a parameter: `--session`, or SESSION for an argument, or None."""
    if command is None:
        return None
    theirs = OF_COMMAND.get(command.info_name or "", {}).get(name) or (*PARAMETERS.get(name, ()), name)
    by_name = {param.name: param for param in command.command.params}
    for item in theirs:
        param = by_name.get(item)
        if isinstance(param, click.Option):
            return max(param.opts, key=lambda opt: opt.startswith("--"))
        if param is not None:
            return param.human_readable_name
    return None


def _noun(name: str) -> str:
    return name.removesuffix("_id").strip("_").replace("_", " ")


def _parameter_names() -> set[str]:
    """Return every parameter of the client's methods."""
    from holdfast.client.sync import SyncClient

    methods = [method for name, method in inspect.getmembers(SyncClient, callable) if not name.startswith("_")]
    named = {name for method in methods for name in inspect.signature(method).parameters}
    return {name for name in named if len(name) > 1} - {"self"}
