"""`holdfast show`: one checkpoint, and what its state holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint

VALUE_LIMIT = 60
KEYS_SHOWN = 40


@click.command(short_help="Show one checkpoint, and what its state holds.")
@click.argument("ref")
@click.option("--state", is_flag=True, help="Print the whole execution_state, as JSON.")
@click.option("--context", is_flag=True, help="Print the whole agent_context, as JSON.")
@click.option("--path", metavar="A.B.-1", help="Print what is there in the state (or the --context), as JSON.")
@store_option
@json_option
def show(ref: str, state: bool, context: bool, path: str | None, store: str | None, as_json: bool) -> None:
    """Show a checkpoint, verified.

    REF is its id, the last 8 or more digits of the id, a tag, or a session, which stands for the checkpoint it stands at.
    A path names keys and positions: messages.-1.content is the content of the last message.

    Values that JSON has no word for are printed as {"$type": "datetime", "value": "..."}.
    """
    if state and context:
        raise click.UsageError("--state and --context are two different things: choose one")
    from holdfast.cli.refs import restore_ref
    from holdfast.cli.store_location import open_store

    with open_store(store) as client:
        checkpoint = restore_ref(client, ref)
    if state or context or path is not None:
        from holdfast.cli.json_output import print_json, shown
        from holdfast.cli.paths import value_at

        whole = checkpoint.agent_context if context else checkpoint.execution_state
        print_json(shown(whole if path is None else value_at(whole, path)))
    elif as_json:
        from holdfast.cli.json_output import checkpoint_fields, print_json, shown

        print_json(
            {
                **checkpoint_fields(checkpoint),
                "execution_state": shown(checkpoint.execution_state),
                "agent_context": shown(checkpoint.agent_context),
            }
        )
    else:
        _print(checkpoint)


def _print(checkpoint: Checkpoint) -> None:
    from holdfast.cli.printable import printable

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
        "checksum": f"{checkpoint.checksum} (verified)",
    }
    for title, text in facts.items():
        if text:
            click.echo(f"{title:<12}{text}")
    for title, value in (
        ("state", checkpoint.execution_state),
        ("context", checkpoint.agent_context),
        ("metadata", dict(checkpoint.metadata)),
    ):
        if value or title == "state":
            click.echo(f"{title:<12}{_summary(value)}")
            _print_keys(value)
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
