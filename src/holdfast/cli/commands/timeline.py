"""`holdfast timeline`: the checkpoints of a session, newest first."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.cli.options import common_options
from holdfast.cli.output.damaged import EXIT_CORRUPT, print_damaged
from holdfast.cli.output.graph import draw_tree
from holdfast.cli.output.json import print_json
from holdfast.cli.output.langgraph import list_nodes
from holdfast.cli.output.run_status import format_progress
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.pager import page_output
from holdfast.cli.terminal.sanitize import escape, format_identifier, format_name, format_number, format_utc
from holdfast.cli.terminal.table import GAP, print_table
from holdfast.errors import CheckpointNotFoundError, CorruptError
from holdfast.json_form.checkpoint import checkpoint_fields
from holdfast.json_form.tree import damaged_fields, tree_fields
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.ids import short
from holdfast.model.listing import DamagedCheckpoint, Session, Tree

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient

POLL_SECONDS = 0.25  # seconds
FROM_THE_TOP = "\x1b[H\x1b[2J"  # clears the terminal and moves the cursor to the top
ROOM_FOR_WORDS = 2  # lines


def follow(client: SyncClient, session_id: str, agent: str | None, limit: int | None, *, as_json: bool) -> None:
    """Print a line for each checkpoint of the session, oldest first, then for each new one."""
    cursor = client.cursor()  # read before the checkpoints: no save is missed
    timeline = client.timeline(agent_id=agent, session_id=session_id, limit=limit)[::-1]
    before: Checkpoint | None = None
    for entry in timeline:
        _print_entry(entry, before, as_json=as_json)
        before = entry
    known = {entry.checkpoint_id for entry in timeline}
    shown = "" if as_json else _print_progress(client, session_id, "")
    if not as_json:
        click.echo(f"watching {format_identifier(session_id)}; Ctrl-C ends it", err=True)
    for event in client.events(session_id=session_id, agent_id=agent, after=cursor, poll_seconds=POLL_SECONDS):
        if event.checkpoint.checkpoint_id not in known:
            _print_entry(event.checkpoint, before, as_json=as_json)
            before = event.checkpoint
            shown = shown if as_json else _print_progress(client, session_id, shown)


def _print_progress(client: SyncClient, session_id: str, shown: str) -> str:
    """Print how far the session's run is, if that has changed; return what was printed last."""
    run = client.run_status(session_id)
    progress = "" if run is None else format_progress(run.progress)
    if progress not in ("", shown):
        sys.stdout.write(f"      {progress}\n")
        sys.stdout.flush()
    return progress or shown


def _print_entry(entry: Checkpoint, before: Checkpoint | None, *, as_json: bool) -> None:
    if as_json:
        line = json.dumps(checkpoint_fields(entry), allow_nan=False)
    else:
        step = format_number(entry.step_index)
        cells = (
            f"{step:>4}",
            f"{format_name(entry.step_name):<20}",
            entry.short_id,
            f"{format_identifier(entry.agent_id):<12}",
            format_utc(entry.created_at),
            format_note(entry, before.checkpoint_id if before else None, head=""),
        )
        line = GAP.join(cells).rstrip()
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()  # a live reader must not wait for a full buffer


def follow_graph(client: SyncClient, chosen: Session, limit: int | None) -> None:
    """Draw the tree of the session, again after every save to it."""
    cursor = client.cursor()
    on_terminal = sys.stdout.isatty()

    def draw() -> None:
        most = limit
        if on_terminal:
            room = max(shutil.get_terminal_size().lines - ROOM_FOR_WORDS, 1)
            most = room if limit is None else min(limit, room)
        lines = draw_tree(client.tree(chosen.session_id), most)
        sys.stdout.write("".join((FROM_THE_TOP if on_terminal else "", *(f"{line}\n" for line in lines))))
        if not on_terminal:
            sys.stdout.write("\n")
        sys.stdout.flush()

    draw()
    click.echo(f"watching the tree of {format_identifier(chosen.session_id)}; Ctrl-C ends it", err=True)
    for event in client.events(after=cursor, poll_seconds=POLL_SECONDS):
        if event.checkpoint.tree_id == chosen.tree_id:
            draw()


DEFAULT_COUNT = 20


@click.command(short_help="List the checkpoints of a session, newest first.")
@click.argument("session", required=False)
@click.option("--agent", metavar="A", help="List only checkpoints that this agent saved or was handed.")
@click.option(
    "-n",
    "--limit",
    "count",
    metavar="N",
    type=click.IntRange(min=0),
    help="List the newest N; 0 for all.  [default: 20, graph: all]",
)
@click.option("--graph", is_flag=True, help="Draw the whole tree with forks; heads are marked.")
@click.option("--watch", is_flag=True, help="List oldest first, and follow new ones until Ctrl-C.")
@common_options
@click.pass_context
def timeline(
    ctx: click.Context,
    session: str | None,
    agent: str | None,
    count: int | None,
    graph: bool,
    watch: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """List the checkpoints of SESSION, newest first; without SESSION, of the one saved to last.

    A row marked "after ID" follows another checkpoint than the one below it: the session was rolled back, or
    continued from an older checkpoint. With --watch and --json, each line is a JSON object. Damaged checkpoints are
    marked; exits with 5.
    """
    if graph and agent:
        raise click.UsageError("--graph draws the whole tree: leave out --agent")
    if graph and watch and as_json:
        raise click.UsageError("a drawing that continues is for people: leave out --json, or --graph")
    if count is None:
        count = 0 if graph else DEFAULT_COUNT
    limit = count or None
    with open_store(store) as client:
        try:
            chosen = _choose(client, session, agent)
        except CorruptError:
            if session is None or watch:
                raise
            chosen = None  # its head is damaged
        if watch:
            assert chosen is not None

            if graph:
                follow_graph(client, chosen, limit)
            else:
                follow(client, chosen.session_id, agent, limit, as_json=as_json)
            return
        session_id = chosen.session_id if chosen is not None else str(session)
        if graph:
            tree, damaged = _tree(client, session_id)
        else:
            listed = _list_checkpoints(client, session_id, chosen, agent, limit)
            damaged = listed.damaged
            nodes = {} if as_json else _nodes(client, listed)
    if as_json:
        print_json(tree_fields(session_id, tree, damaged, limit) if graph else _fields(listed))
    else:
        with page_output():
            if graph:
                sys.stdout.writelines(f"{line}\n" for line in draw_tree(tree, limit))
            else:
                _print(listed, nodes)
        if not graph and len(listed.entries) == limit and listed.saves > limit:
            click.echo(f"the newest {limit} of {listed.saves} saves; `-n 0` shows all", err=True)
    if damaged:
        print_damaged(damaged)
        ctx.exit(EXIT_CORRUPT)


def _choose(client: SyncClient, session_id: str | None, agent: str | None) -> Session:
    found: list[Session]
    if session_id is not None:
        named = client.session(session_id)
        found = [named] if named is not None else []
        complaint = f"there is no session {escape(session_id, 200)!r} here, or all of it has expired"
    else:
        found = client.sessions(agent_id=agent, limit=1)
        complaint = f"there is no session of agent {escape(agent, 60)!r} here" if agent else "there is no session here"
    if not found:
        raise CheckpointNotFoundError(
            f"{complaint}. `holdfast sessions` lists what is there, `holdfast verify` checks it"
        )
    return found[0]


class _Listing(NamedTuple):
    session_id: str
    tree_id: str
    head: str | None
    saves: int
    entries: list[Checkpoint]
    damaged: list[DamagedCheckpoint]


def _list_checkpoints(
    client: SyncClient, session_id: str, chosen: Session | None, agent: str | None, limit: int | None
) -> _Listing:
    error: CorruptError | None = None
    if chosen is not None:
        try:
            timeline = client.timeline(agent_id=agent, session_id=session_id, limit=limit)
            return _Listing(session_id, chosen.tree_id, chosen.head.checkpoint_id, chosen.saves, timeline, [])
        except CorruptError as damage:
            error = damage
    tree, damaged = _read_intact(client, session_id)
    if error is not None and not damaged:
        raise error
    mine = [checkpoint for checkpoint in damaged if checkpoint.session_id == session_id]
    entries = sorted(
        (
            entry
            for entry in tree.entries
            if entry.session_id == session_id and agent in (None, entry.agent_id, entry.handoff_target)
        ),
        key=lambda entry: entry.sequence,
        reverse=True,
    )
    saves = max([*(entry.sequence for entry in entries), *(checkpoint.sequence for checkpoint in mine)], default=0)
    return _Listing(session_id, tree.tree_id, tree.heads.get(session_id), saves, entries[:limit], mine)


def _tree(client: SyncClient, session_id: str) -> tuple[Tree, list[DamagedCheckpoint]]:
    try:
        return client.tree(session_id), []
    except CorruptError:
        return _read_intact(client, session_id)


def _read_intact(client: SyncClient, session_id: str) -> tuple[Tree, list[DamagedCheckpoint]]:
    """Return the readable part of a tree, and the damaged checkpoints.

    The library returns no list with holes: a program would continue from that.
    """
    from holdfast.backends.bridge.step import run_inline
    from holdfast.operations import timeline as listing

    damaged: list[DamagedCheckpoint] = []
    return run_inline(listing.tree(client._ctx, session_id, damaged)), damaged


def _fields(listed: _Listing) -> dict[str, Any]:
    return {
        "session_id": listed.session_id,
        "tree_id": listed.tree_id,
        "head": listed.head,
        "checkpoints": [checkpoint_fields(entry) for entry in listed.entries],
        "damaged": [damaged_fields(checkpoint) for checkpoint in listed.damaged],
    }


def _nodes(client: SyncClient, listed: _Listing) -> dict[str, str]:
    """Return LangGraph's nodes that ran in the step before each checkpoint."""
    if not any(entry.framework == "langgraph" for entry in listed.entries):
        return {}
    return {entry.checkpoint_id: list_nodes(client, entry) for entry in listed.entries}


def _print(listed: _Listing, nodes: dict[str, str]) -> None:
    click.echo(f"session {format_identifier(listed.session_id)}", err=True)
    rows: list[tuple[str, ...]] = []
    shown: list[Checkpoint | DamagedCheckpoint] = [*listed.entries, *listed.damaged]
    if not shown:
        click.echo("it has no checkpoint of that agent", err=True)
        return
    shown.sort(key=lambda item: item.sequence, reverse=True)
    for checkpoint, below in zip(shown, [*shown[1:], None], strict=True):
        id_below = below.checkpoint_id if below is not None else None
        if not isinstance(checkpoint, DamagedCheckpoint):
            cells: tuple[str, ...] = (
                format_number(checkpoint.step_index),
                format_name(checkpoint.step_name),
                checkpoint.short_id,
                format_identifier(checkpoint.agent_id),
                format_utc(checkpoint.created_at),
                format_note(checkpoint, id_below, listed.head),
            )
        else:
            state = "damaged" if checkpoint.checkpoint_id else "missing"
            marks = [f"{state}, number {checkpoint.sequence}"] if checkpoint.sequence else []
            if checkpoint.checkpoint_id and checkpoint.checkpoint_id == listed.head:
                marks.append("head")
            cells = ("", "", short(checkpoint.checkpoint_id or ""), "", "", ", ".join(marks))
        if nodes:
            cells = (*cells[:2], nodes.get(checkpoint.checkpoint_id or "", ""), *cells[2:])
        rows.append(cells)
    columns = ("step", "name", *(("nodes",) if nodes else ()), "checkpoint", "agent", "created (UTC)", "")
    print_table(columns, rows, right=("step",), shrinks=("name", "nodes"), whole=("agent", ""))


def format_note(entry: Checkpoint, id_below: str | None, head: str | None) -> str:
    notes = []
    if entry.checkpoint_id == head:
        notes.append("head")
    if entry.handoff_target:
        notes.append(f"for {format_identifier(entry.handoff_target)}")
    if entry.expires_at:
        notes.append(f"until {format_utc(entry.expires_at)}")
    if id_below is not None and entry.parent_id is not None and entry.parent_id != id_below:
        notes.append(f"after {short(entry.parent_id)}")
    return ", ".join(notes)
