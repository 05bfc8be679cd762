"""`holdfast show`: one checkpoint, and what its state holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.runs import SubagentTrace
    from holdfast.model.workspace import Snapshot

VALUE_LIMIT = 60
KEYS_SHOWN = 40


@click.command(short_help="Show one checkpoint, and what its state holds.")
@click.argument("ref")
@click.option("--state", is_flag=True, help="Print the whole execution_state, as JSON.")
@click.option("--context", is_flag=True, help="Print the whole agent_context, as JSON.")
@click.option("--path", metavar="A.B.-1", help="Print what is there in the state (or the --context), as JSON.")
@click.option(
    "--search", "wanted", metavar="TEXT", help="Print where the text stands in state and context, and what around it."
)
@click.option(
    "--messages", is_flag=True, help="Print the conversation (or, with --path, the one that is there) to be read."
)
@click.option("--raw", is_flag=True, help="With --path: print a string as it is, without quotes; bytes as they are.")
@store_option
@json_option
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

    REF is its id, the last 8 or more digits of the id, a tag, a session, which stands for the checkpoint it stands at, or
    a place: SESSION@-, SESSION@~3, SESSION@{step}. A path names keys and positions: messages.-1.content is the content of
    the last message.

    Values that JSON has no word for are printed as {"$type": "datetime", "value": "..."}.
    """
    _check(state=state, context=context, path=path, wanted=wanted, messages=messages, raw=raw)
    from holdfast.cli.pager import paged
    from holdfast.cli.refs import restore_ref
    from holdfast.cli.run_output import trace_fields, traces_of
    from holdfast.cli.store_location import open_store

    with open_store(store) as client:
        checkpoint = restore_ref(client, ref)
        traces = traces_of(client, checkpoint)
        files = client.snapshot_of(checkpoint.checkpoint_id)
    if wanted is not None:
        with paged():
            _print_found(checkpoint, wanted, as_json=as_json)
        return
    whole = checkpoint.agent_context if context else checkpoint.execution_state
    if messages:
        with paged():
            _print_messages(whole, path, as_json=as_json)
    elif state or context or path is not None:
        _print_value(whole, path, raw=raw)
    elif as_json:
        from holdfast.cli.json_output import checkpoint_fields, print_json, shown
        from holdfast.cli.workspaces import snapshot_fields

        print_json(
            {
                **checkpoint_fields(checkpoint),
                "files": None if files is None else snapshot_fields(files),
                "execution_state": shown(checkpoint.execution_state),
                "agent_context": shown(checkpoint.agent_context),
                "traces": None if traces is None else [trace_fields(one) for one in traces],
            }
        )
    else:
        with paged():
            _print(checkpoint, files, traces)


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
    import sys

    from holdfast.cli.json_output import print_json, shown
    from holdfast.cli.paths import value_at
    from holdfast.cli.printable import printable_lines

    value = whole if path is None else value_at(whole, path)
    if raw and isinstance(value, str):
        if sys.stdout.isatty():  # a terminal is given no commands that somebody saved
            click.echo(printable_lines(value))
        else:
            click.echo(value.encode("utf-8", "surrogatepass"))
    elif raw and isinstance(value, bytes | bytearray):
        sys.stdout.buffer.write(value)
    else:
        print_json(shown(value))


def _print_found(checkpoint: Checkpoint, wanted: str, *, as_json: bool) -> None:
    from holdfast.cli.printable import printable
    from holdfast.cli.searching import around, search
    from holdfast.errors import CheckpointNotFoundError

    parts = {"execution_state": checkpoint.execution_state, "agent_context": checkpoint.agent_context}
    found = [(part, one) for part, whole in parts.items() for one in search(whole, wanted)]
    if not found:
        raise CheckpointNotFoundError(
            f"{printable(wanted, 60)!r} is neither in the state nor in the context of {checkpoint.checkpoint_id}"
        )
    if as_json:
        from holdfast.cli.json_output import print_json, shown

        fields = [
            {"part": part, "path": one.path, "is_key": one.is_key, "value": shown(one.value)} for part, one in found
        ]
        print_json({"checkpoint_id": checkpoint.checkpoint_id, "found": fields})
        return
    for part, one in found:
        where = f"{'' if part == 'execution_state' else '--context '}{printable(one.path) or '.'}"
        said = "(the key)" if one.is_key else printable(around(one.text, wanted))
        click.echo(f"{where}: {said}")


def _print_messages(whole: Any, path: str | None, *, as_json: bool) -> None:
    from holdfast.cli.colors import is_colored
    from holdfast.cli.conversation import KEYS, lines, messages_of
    from holdfast.cli.json_output import print_json, shown
    from holdfast.cli.paths import value_at
    from holdfast.errors import CheckpointNotFoundError

    found = messages_of(whole if path is None else value_at(whole, path))
    if found is None:
        raise CheckpointNotFoundError(
            f"there is no conversation here: none of {', '.join(KEYS)} is a list of messages. `--path` says where it is"
        )
    if as_json:
        print_json(shown(list(found)))
        return
    colored = is_colored()
    for role, line in lines(found):
        click.echo(click.style(line, bold=True) if role and colored else line)


def _print(checkpoint: Checkpoint, files: Snapshot | None, traces: Sequence[SubagentTrace] | None) -> None:
    from holdfast.cli.printable import printable
    from holdfast.cli.run_output import print_run
    from holdfast.cli.workspaces import snapshot_text
    from holdfast.model.runs import JOURNAL_KEY

    context = checkpoint.agent_context
    if traces is not None:
        context = {key: value for key, value in context.items() if key != JOURNAL_KEY}
    step = "" if checkpoint.step_index is None else str(checkpoint.step_index)
    facts = {
        "checkpoint": checkpoint.checkpoint_id,
        "session": printable(checkpoint.session_id, VALUE_LIMIT),
        "agent": printable(checkpoint.agent_id, VALUE_LIMIT),
        "step": f"{step} {printable(checkpoint.step_name or '', VALUE_LIMIT)}".strip(),
        "parent": checkpoint.parent_id or "none: the first of its tree",
        "created": f"{checkpoint.created_at:%Y-%m-%d %H:%M:%S} UTC",
        "expires": f"{checkpoint.expires_at:%Y-%m-%d %H:%M:%S} UTC" if checkpoint.expires_at else "",
        "handed to": printable(checkpoint.handoff_target or "", VALUE_LIMIT),
        "framework": str(checkpoint.framework),
        "app version": printable(checkpoint.app_version or "", VALUE_LIMIT),
        "version": "" if checkpoint.state_version in (None, 1) else f"{checkpoint.state_version} (of the state)",
        "files": printable(checkpoint.workspace or "", VALUE_LIMIT) if files is None else snapshot_text(files),
        "checksum": f"{checkpoint.checksum} (verified)",
    }
    for title, text in facts.items():
        if text:
            click.echo(f"{title:<12}{text}")
    for title, value in (
        ("state", checkpoint.execution_state),
        ("context", context),
        ("metadata", dict(checkpoint.metadata)),
    ):
        if value or title == "state":
            click.echo(f"{title:<12}{_summary(value)}")
            _print_keys(value)
    if traces is not None:
        print_run(checkpoint.agent_context, traces, VALUE_LIMIT)
    _print_tasks(checkpoint.tasks)


def _print_tasks(tasks: Any) -> None:
    """Progress, where a run made them; else what they are."""
    if not tasks:
        return
    click.echo(f"{'tasks':<12}{_summary(tasks)}")
    if not isinstance(tasks, dict) or not all(isinstance(one, dict) and "total" in one for one in tasks.values()):
        _print_keys(tasks)
        return
    from holdfast.cli.printable import name, printable

    for of, counted in tasks.items():
        parts = [f"{counted.get('completed', 0)} of {counted['total']} completed"]
        parts += [
            f"{counted[one]} {one}" for one in ("in_progress", "failed", "skipped", "pending") if counted.get(one)
        ]
        current = f" (at {printable(', '.join(map(str, counted.get('current', ()))), VALUE_LIMIT)})"
        click.echo(f"  {name(of):<20} {', '.join(parts)}{current if counted.get('current') else ''}")


def _print_keys(value: Any) -> None:
    from holdfast.cli.printable import name

    if not isinstance(value, dict):
        return
    for number, (key, item) in enumerate(value.items()):
        if number == KEYS_SHOWN:
            click.echo(f"  … and {len(value) - KEYS_SHOWN} more")
            break
        said = name(key) if isinstance(key, str) else _summary(key)
        click.echo(f"  {said:<20} {_summary(item)}")


def _summary(value: Any) -> str:
    """A value in one line, without ever building the text of a large one."""
    from holdfast.cli.printable import byte_count, printable
    from holdfast.cli.unregistered import Unregistered

    if isinstance(value, list | tuple | set | frozenset | dict):
        return f"{type(value).__name__} of {len(value)}"
    if isinstance(value, Unregistered):
        return f"object {printable(value.name, VALUE_LIMIT)}"
    if isinstance(value, str | bytes | bytearray) and len(value) > VALUE_LIMIT:
        kind, size = type(value).__name__, len(value)
        measure = f"{size} characters" if isinstance(value, str) else byte_count(size)
        return f"{kind} of {measure}: {printable(repr(value[:VALUE_LIMIT]), VALUE_LIMIT)}"
    if isinstance(value, int) and value.bit_length() > 1000:
        return f"int of {value.bit_length()} bits"
    return printable(repr(value), VALUE_LIMIT)
