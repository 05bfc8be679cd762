"""`holdfast show`: one checkpoint and its state."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from holdfast.cli.options import common_options
from holdfast.cli.output.conversation import KEYS, find_messages, find_recorded_messages, format_messages
from holdfast.cli.output.files import format_snapshot
from holdfast.cli.output.json import print_json
from holdfast.cli.output.langgraph import list_nodes
from holdfast.cli.output.run import print_run
from holdfast.cli.output.run_status import print_status
from holdfast.cli.output.state_search import find_value
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.color import is_colored
from holdfast.cli.terminal.pager import page_output
from holdfast.cli.terminal.sanitize import (
    escape,
    escape_lines,
    format_bytes,
    format_identifier,
    format_name,
    format_number,
    format_utc,
)
from holdfast.errors import CheckpointNotFoundError
from holdfast.json_form.checkpoint import checkpoint_fields
from holdfast.json_form.difference import snapshot_fields
from holdfast.json_form.run import read_traces, status_fields, trace_fields
from holdfast.json_form.state_search import cut_around, search
from holdfast.json_form.unregistered import UnregisteredObject
from holdfast.json_form.values import to_json
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.diff import NOT_FIELDS
from holdfast.model.run_policy import JOURNAL_KEY, SubagentTrace
from holdfast.model.run_status import RunStatus
from holdfast.model.safe_repr import safe_repr
from holdfast.model.snapshot import Snapshot

VALUE_LIMIT = 60
KEYS_SHOWN = 40
CHANNELS = "channels"
DEEPEST = 8  # columns that fields of objects in objects are set in
LARGE = 10**18


@click.command(short_help="Show a checkpoint and its state.")
@click.argument("ref")
@click.option("--state", is_flag=True, help="Print the execution_state as JSON.")
@click.option("--context", is_flag=True, help="Print the agent_context as JSON.")
@click.option("--path", metavar="A.B.-1", help="Print this part of the state (or --context) as JSON.")
@click.option("--search", "wanted", metavar="TEXT", help="Search state and context for a text; print paths and values.")
@click.option("--messages", is_flag=True, help="Print the conversation (with --path: the one there) as text.")
@click.option("--raw", is_flag=True, help="With --path: print strings without quotes, and bytes unencoded.")
@common_options
def show(
    ref: str,
    state: bool,
    context: bool,
    path: str | None,
    wanted: str | None,
    messages: bool,
    raw: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Show a checkpoint, verified.

    REF is an id, its last 8 or more digits, a tag, a session (its head), or a position: SESSION@-, SESSION@~3,
    SESSION@{step}. A path has keys and indexes: messages.-1.content is the content of the last message.

    Of a started run that has no checkpoint yet, shows the status.

    Values that JSON cannot express are printed as {"$type": "datetime", "value": "..."}.
    """
    _check(state=state, context=context, path=path, wanted=wanted, messages=messages, raw=raw)
    with open_store(store) as client:
        try:
            checkpoint = client.restore(client.resolve(ref))
        except CheckpointNotFoundError:
            run = client.run_status(ref)
            if run is None or run.head is not None:
                raise
            _print_run(run, as_json=as_json)
            return
        traces = read_traces(client, checkpoint)
        files = client.snapshot_of(checkpoint.checkpoint_id)
        nodes = list_nodes(client, checkpoint)
        run = client.run_status(checkpoint.session_id)
    if wanted is not None:
        with page_output():
            _print_found(checkpoint, wanted, as_json=as_json)
        return
    whole = checkpoint.agent_context if context else checkpoint.execution_state
    if messages:
        with page_output():
            _print_messages(checkpoint, whole, path, as_json=as_json)
    elif state or context or path is not None:
        _print_value(whole, path, raw=raw)
    elif as_json:
        print_json(
            {
                **checkpoint_fields(checkpoint),
                "files": None if files is None else snapshot_fields(files),
                "execution_state": to_json(checkpoint.execution_state),
                "agent_context": to_json(checkpoint.agent_context),
                "traces": None if traces is None else [trace_fields(trace) for trace in traces],
                "run": None if run is None else status_fields(run),
            }
        )
    else:
        with page_output():
            _print(checkpoint, files, traces, nodes)
            if run is not None:
                print_status(run)


def _print_run(run: RunStatus, *, as_json: bool) -> None:
    if as_json:
        print_json({"run": status_fields(run)})
        return
    click.echo(f"{'session':<12}{format_identifier(run.session_id)}, without a checkpoint")
    print_status(run)


def _check(*, state: bool, context: bool, path: str | None, wanted: str | None, messages: bool, raw: bool) -> None:
    if state and context:
        raise click.UsageError("--state and --context are two different things: choose one")
    if raw and (path is None or messages):
        raise click.UsageError("--raw prints one value as it is: say which, with --path")
    if wanted is not None and (state or context or path is not None or messages):
        raise click.UsageError("--search looks through state and context: leave the other options out")
    if not (wanted is None or wanted):
        raise click.UsageError("--search needs a text to look for")


def _print_value(whole: Any, path: str | None, *, raw: bool) -> None:
    value = whole if path is None else find_value(whole, path)
    if raw and isinstance(value, str):
        if sys.stdout.isatty():  # a terminal gets no escape sequences from saved data
            click.echo(escape_lines(value))
        else:
            click.echo(value.encode("utf-8", "surrogatepass"))
    elif raw and isinstance(value, bytes | bytearray):
        sys.stdout.buffer.write(value)
    else:
        print_json(to_json(value))


def _print_found(checkpoint: Checkpoint, wanted: str, *, as_json: bool) -> None:
    parts = {"execution_state": checkpoint.execution_state, "agent_context": checkpoint.agent_context}
    found = [(part, search_match) for part, whole in parts.items() for search_match in search(whole, wanted)]
    if not found:
        raise CheckpointNotFoundError(
            f"{escape(wanted, 60)!r} is neither in the state nor in the context of {checkpoint.checkpoint_id}"
        )
    if as_json:
        fields = [
            {
                "part": part,
                "path": search_match.path,
                "is_key": search_match.is_key,
                "value": to_json(search_match.value),
            }
            for part, search_match in found
        ]
        print_json({"checkpoint_id": checkpoint.checkpoint_id, "found": fields})
        return
    for part, search_match in found:
        where = f"{'' if part == 'execution_state' else '--context '}{escape(search_match.path) or '.'}"
        excerpt = "(the key)" if search_match.is_key else escape(cut_around(search_match.text, wanted))
        click.echo(f"{where}: {excerpt}")


def _print_messages(checkpoint: Checkpoint, whole: Any, path: str | None, *, as_json: bool) -> None:
    found = find_recorded_messages(checkpoint) if path is None and whole is checkpoint.execution_state else None
    if found is None:
        found = find_messages(whole if path is None else find_value(whole, path))
    if found is None:
        raise CheckpointNotFoundError(
            f"there is no conversation here: none of {', '.join(KEYS)} is a list of messages. `--path` says where it is"
        )
    if as_json:
        print_json(to_json(list(found)))
        return
    colored = is_colored()
    for role, line in format_messages(found):
        click.echo(click.style(line, bold=True) if role and colored else line)


def _print(checkpoint: Checkpoint, files: Snapshot | None, traces: Sequence[SubagentTrace] | None, nodes: str) -> None:
    context = checkpoint.agent_context
    if traces is not None:
        context = {key: value for key, value in context.items() if key != JOURNAL_KEY}
    step = format_number(checkpoint.step_index)
    facts = {
        "checkpoint": checkpoint.checkpoint_id,
        "session": escape(checkpoint.session_id, VALUE_LIMIT),
        "agent": escape(checkpoint.agent_id, VALUE_LIMIT),
        "step": f"{step} {escape(checkpoint.step_name or '', VALUE_LIMIT)}".strip(),
        "nodes": nodes,
        "parent": checkpoint.parent_id or "none: the first of its tree",
        "created": f"{format_utc(checkpoint.created_at)} UTC",
        "expires": f"{format_utc(checkpoint.expires_at)} UTC" if checkpoint.expires_at else "",
        "handed to": escape(checkpoint.handoff_target or "", VALUE_LIMIT),
        "framework": str(checkpoint.framework),
        "app version": escape(checkpoint.app_version or "", VALUE_LIMIT),
        "version": "" if checkpoint.state_version in (None, 1) else f"{checkpoint.state_version} (of the state)",
        "files": escape(checkpoint.workspace or "", VALUE_LIMIT) if files is None else format_snapshot(files),
        "checksum": f"{checkpoint.checksum} (verified)",
    }
    for title, text in facts.items():
        if text:
            click.echo(f"{title:<12}{text}")
    (state_title, state), metadata = _state_and_metadata(checkpoint)
    for title, value in ((state_title, state), ("context", context), ("metadata", metadata)):
        if value or title == state_title:
            click.echo(f"{title:<12}{_summary(value)}")
            _print_keys(value, with_last=title == CHANNELS)
    if traces is not None:
        print_run(checkpoint.agent_context, traces, VALUE_LIMIT)
    _print_tasks(checkpoint.tasks)


def _state_and_metadata(checkpoint: Checkpoint) -> tuple[tuple[str, Any], dict[str, Any]]:
    """Return the state, with its title, and the metadata.

    For LangGraph's checkpoints, it is the values of channels: `--state` prints all of it.
    """
    from holdfast.adapters.langgraph import view

    is_langgraph = view.is_langgraph(checkpoint)
    channels = view.channels(checkpoint.execution_state) if is_langgraph else None
    if channels is None:
        return ("state", checkpoint.execution_state), dict(checkpoint.metadata)
    place = {key: checkpoint.metadata[key] for key in ("thread_id", "checkpoint_ns") if checkpoint.metadata.get(key)}
    return (CHANNELS, channels), {**place, **view.metadata_of(checkpoint)}


def _print_tasks(tasks: Any) -> None:
    """Progress, where a run made them; else what they are."""
    if not tasks:
        return
    click.echo(f"{'tasks':<12}{_summary(tasks)}")
    if not isinstance(tasks, dict) or not all(isinstance(task, dict) and "total" in task for task in tasks.values()):
        _print_keys(tasks)
        return
    for of, counted in tasks.items():
        parts = [f"{counted.get('completed', 0)} of {counted['total']} completed"]
        parts += [
            f"{counted[item]} {item}" for item in ("in_progress", "failed", "skipped", "pending") if counted.get(item)
        ]
        current = f" (at {escape(', '.join(map(str, counted.get('current', ()))), VALUE_LIMIT)})"
        click.echo(f"  {format_name(of):<20} {', '.join(parts)}{current if counted.get('current') else ''}")


def _outline(parts: Any) -> str:
    """Return the fields of an object that are short; "" if it has none."""
    if type(parts) is not dict:
        return ""
    fields = []
    for field, value in parts.items():
        if (
            field != NOT_FIELDS
            and isinstance(value, str | int | float | None)
            and not (isinstance(value, int) and abs(value) > LARGE)
        ):
            short = value[:VALUE_LIMIT] if isinstance(value, str) else value
            fields.append(f"{field}={short!r}")
        if sum(map(len, fields)) > VALUE_LIMIT:
            break
    return f": {escape(', '.join(fields), VALUE_LIMIT)}" if fields else ""


def _print_keys(value: Any, indent: str = "  ", *, with_last: bool = False) -> None:
    """Print the parts of a dict or object, and the fields of objects in it, a line each.

    With `with_last`, print the last element of each list, too.
    """
    if isinstance(value, UnregisteredObject):
        value = value.parts
    if not isinstance(value, dict):
        return
    value = {key: item for key, item in value.items() if key != NOT_FIELDS}
    for shown_keys, (key, item) in enumerate(value.items()):
        if shown_keys == KEYS_SHOWN:
            click.echo(f"{indent}… and {len(value) - KEYS_SHOWN} more")
            break
        label = format_name(key) if isinstance(key, str) else _summary(key)
        last = f", the last: {_summary(item[-1])}" if with_last and isinstance(item, list) and item else ""
        click.echo(f"{indent}{label:<20} {_summary(item)}{last}")
        if isinstance(item, UnregisteredObject) and len(indent) < DEEPEST:
            _print_keys(item, indent + "  ")


def _summary(value: Any) -> str:
    """Return a value in one line, without ever building the text of a large one."""
    if isinstance(value, list | tuple | set | frozenset | dict):
        return f"{type(value).__name__} of {len(value)}"
    if isinstance(value, UnregisteredObject):
        if not isinstance(value.parts, dict | list | tuple):  # an Enum's member, or what a class was encoded as
            return f"{escape(value.name, VALUE_LIMIT)}({_summary(value.parts)})"
        return f"object {escape(value.name, VALUE_LIMIT)}{_outline(value.parts)}"
    if isinstance(value, str | bytes | bytearray) and len(value) > VALUE_LIMIT:
        kind, size = type(value).__name__, len(value)
        measure = f"{size} characters" if isinstance(value, str) else format_bytes(size)
        return f"{kind} of {measure}: {escape(repr(value[:VALUE_LIMIT]), VALUE_LIMIT)}"
    if isinstance(value, int) and value.bit_length() > 1000:
        return f"int of {value.bit_length()} bits"
    return escape(safe_repr(value), VALUE_LIMIT)
