"""`holdfast langgraph`: setting up `langgraph dev`, and giving its threads back after a hard kill."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.confirmation import confirmed, yes_option
from holdfast.cli.options import json_option, store_option
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.model.listing import Session

CONFIG = "langgraph.json"
EXIT_NOT_RESTORED = 1


class ConfigNotFoundError(HoldfastError):
    """There is no langgraph.json where one was looked for."""

    exit_code = 3


@click.group(short_help="Set up `langgraph dev`, and list the threads of LangGraph.")
def langgraph() -> None:
    """Set up `langgraph dev` so that it keeps its state here, and list the threads of LangGraph.

    Each command takes --json. docs/langgraph.md tells more.
    """


# -- init ----------------------------------------------------------------------------------------------------------------


@langgraph.command(short_help="Name holdfast as the checkpointer in langgraph.json.")
@click.argument("path", type=click.Path(path_type=Path), default=Path(CONFIG), metavar="[PATH]")
@click.option("--replace", is_flag=True, help="Take the place of another checkpointer that is named there.")
@yes_option
@json_option
def init(path: Path, replace: bool, yes: bool, as_json: bool) -> None:
    """Name holdfast as the checkpointer in langgraph.json, so that `langgraph dev` keeps its state through any restart.

    PATH is the file or its directory; without it, langgraph.json here. The difference is shown first. Everything else
    in the file stays as it is, and doing it again changes nothing.
    """
    from holdfast.cli.langgraph_json import KEY, with_checkpointer
    from holdfast.errors import ConflictError, UsageError

    file = path / CONFIG if path.is_dir() else path
    before = _read(file)
    try:
        after = with_checkpointer(before, replace=replace)
    except (ConflictError, UsageError) as error:
        raise type(error)(f"{file}: {error}") from None
    if after != before:
        _show_difference(file, before, after)
        if not confirmed(f"write {file}?", yes=yes):
            return
        _write(file, after)
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({"file": str(file), "changed": after != before, KEY: json.loads(after)[KEY]})
    else:
        click.echo(f"{file} " + ("names holdfast now" if after != before else "names holdfast already"))
    click.echo(
        "`langgraph dev` keeps its state in .holdfast/store.db beside where it is started, or in the store that\n"
        "HOLDFAST_URL names. The graph must be compiled without a checkpointer of its own.",
        err=True,
    )


def _read(file: Path) -> str:
    from holdfast.errors import UsageError

    try:
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise ConfigNotFoundError(
            f"there is no {file}: run this where langgraph.json is, or name it. `langgraph new` makes a project"
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} can't be read: {error}") from None


def _show_difference(file: Path, before: str, after: str) -> None:
    import difflib

    from holdfast.cli.printable import printable_lines

    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), str(file), str(file), lineterm="")
    click.echo(printable_lines("\n".join(lines)), err=True)


def _write(file: Path, text: str) -> None:
    """Whole or not at all; a link stays one, and so do the rights."""
    import os
    import shutil

    target = file.resolve()
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        beside.write_bytes(text.encode("utf-8"))
        shutil.copymode(target, beside)
        beside.replace(target)
    except OSError as error:
        from holdfast.errors import UsageError

        beside.unlink(missing_ok=True)
        raise UsageError(f"{file} can't be written: {error}. Nothing was changed") from None


# -- threads -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Thread:
    """What the store says of one of LangGraph's threads."""

    thread_id: str
    graph_id: str | None
    assistant_id: str | None
    saves: int
    namespaces: int
    step: str | None
    saved: datetime
    server: str | None = None  # "restored", "there" or "failed", where a server was asked
    problem: str | None = None


@langgraph.command(short_help="List the threads; --restore puts them back into a server's list.")
@click.option("--restore", "url", metavar="URL", help="Put the threads back into the list of the server at URL.")
@click.option("--graph", metavar="ID", help="With --restore: the graph of threads that were not made by a server.")
@click.option("--header", "headers", metavar="'NAME: VALUE'", multiple=True, help="A header for the server's HTTP.")
@store_option
@json_option
@click.pass_context
def threads(
    ctx: click.Context,
    url: str | None,
    graph: str | None,
    headers: tuple[str, ...],
    store: str | None,
    as_json: bool,
) -> None:
    """List LangGraph's threads, the one saved to last first.

    `langgraph dev` writes its own list of threads every ten seconds, so a hard kill may lose rows of it; their state
    is here. --restore http://127.0.0.1:2024 puts these rows back into the running server; rows that are there stay as
    they are. Exits with 1 if any could not be put back.
    """
    from holdfast.cli.store_location import open_store

    with open_store(store) as client:
        found = _threads(client.sessions())
    if url is not None:
        _restore(found, url, graph, _parsed_headers(headers))
    if as_json:
        from holdfast.cli.json_output import print_json

        print_json({"threads": [_fields(thread) for thread in found]})
    elif found:
        _print(found, asked=url is not None)
    else:
        click.echo("no threads of LangGraph here yet", err=True)
    if any(thread.server == "failed" for thread in found):
        ctx.exit(EXIT_NOT_RESTORED)


def _threads(sessions: Sequence[Session]) -> list[Thread]:
    """A session holds one namespace of a thread: those of subgraphs are counted with the thread's own."""
    threads: dict[str, Thread] = {}
    for session in sessions:
        about = session.head.metadata
        thread_id, ns = about.get("thread_id"), about.get("checkpoint_ns")
        if not session.session_id.startswith("lg/") or not isinstance(thread_id, str) or not isinstance(ns, str):
            continue
        given = about.get("metadata")
        metadata: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        thread = threads.get(thread_id)
        if thread is None:
            thread = Thread(thread_id, None, None, 0, 0, None, session.head.created_at)
            threads[thread_id] = thread
        thread.saves += session.saves
        thread.namespaces += 1
        thread.graph_id = thread.graph_id or _text(metadata.get("graph_id"))
        thread.assistant_id = thread.assistant_id or _text(metadata.get("assistant_id"))
        if ns == "":
            thread.step = session.head.step_name
    return list(threads.values())


def _text(value: Any) -> str | None:
    return str(value) if value else None


def _restore(found: Sequence[Thread], url: str, graph: str | None, headers: Mapping[str, str]) -> None:
    from holdfast.cli.langgraph_server import LangGraphServer, ServerError, UnreachableError

    server = LangGraphServer(url, headers)
    for thread in found:
        try:
            thread.server = server.restore(thread.thread_id, thread.graph_id or graph, thread.assistant_id)
        except UnreachableError:
            raise
        except ServerError as error:
            thread.server, thread.problem = "failed", str(error)


def _parsed_headers(given: Sequence[str]) -> dict[str, str]:
    headers = {}
    for header in given:
        name, colon, value = header.partition(":")
        if not colon or not name.strip() or any(char in header for char in "\r\n\0"):
            raise click.UsageError("a --header is a name, a colon and a value: 'x-api-key: ...'")
        headers[name.strip()] = value.strip()
    return headers


def _fields(thread: Thread) -> dict[str, Any]:
    from holdfast.cli.json_output import moment

    return {
        "thread_id": thread.thread_id,
        "graph_id": thread.graph_id,
        "assistant_id": thread.assistant_id,
        "saves": thread.saves,
        "namespaces": thread.namespaces,
        "step_name": thread.step,
        "saved_at": moment(thread.saved),
        "server": thread.server,
        "problem": thread.problem,
    }


def _print(found: Sequence[Thread], *, asked: bool) -> None:
    from holdfast.cli.printable import name, printable
    from holdfast.cli.tables import print_table

    header = ("thread", "graph", "saves", "step", "saved (UTC)", *(["server"] if asked else []))
    print_table(
        header,
        [
            (
                name(thread.thread_id),
                name(thread.graph_id),
                str(thread.saves),
                name(thread.step),
                f"{thread.saved:%Y-%m-%d %H:%M:%S}",
                *([thread.server or ""] if asked else []),
            )
            for thread in found
        ],
        right=("saves",),
        shrinks=("graph", "step"),
    )
    for thread in found:
        if thread.problem is not None:
            click.echo(f"{name(thread.thread_id)}: {printable(thread.problem, 400)}", err=True)
