"""`holdfast langgraph`: set up `langgraph dev`, and restore its threads after a hard kill."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.atomic_file import replace_file
from holdfast.cli.langgraph.config_file import KEY, with_checkpointer
from holdfast.cli.langgraph.server import LangGraphServer, ServerError, UnreachableError
from holdfast.cli.options import common_options, confirm, json_option, yes_option
from holdfast.cli.output.diff import print_text_change
from holdfast.cli.output.json import print_json
from holdfast.cli.output.listing import Column, print_listing
from holdfast.cli.project_file import refuse_odd_file
from holdfast.cli.store_location import open_store
from holdfast.cli.suggestions import CommandGroup
from holdfast.cli.terminal.sanitize import escape, format_identifier, format_name, format_utc
from holdfast.errors import ConflictError, HoldfastError, UsageError
from holdfast.json_form.values import format_time

if TYPE_CHECKING:
    from holdfast.adapters.langgraph.thread_list import LangGraphThread

CONFIG = "langgraph.json"
EXIT_NOT_RESTORED = 1


class ConfigNotFoundError(HoldfastError):
    """There is no langgraph.json where one was looked for."""

    exit_code = 3


@click.group(cls=CommandGroup, short_help="Set up `langgraph dev`, and list LangGraph's threads.")
def langgraph() -> None:
    """Set up `langgraph dev` to keep its state here, and list LangGraph's threads.

    Each command takes --json. docs/langgraph.md is the guide.
    """


# -- init
# ----------------------------------------------------------------------------------------------------------------


@langgraph.command(short_help="Name holdfast as the checkpointer in langgraph.json.")
@click.argument("path", type=click.Path(path_type=Path), default=Path(CONFIG), metavar="[PATH]")
@click.option("--replace", is_flag=True, help="Replace another checkpointer.")
@yes_option
@json_option
def init(path: Path, replace: bool, yes: bool, as_json: bool) -> None:
    """Name holdfast as the checkpointer in langgraph.json.

    After that, `langgraph dev` keeps its state across restarts. PATH is the file or its directory;
    by default, langgraph.json here. Shows the change first. The rest of the file does not change,
    and a second call does nothing.
    """
    file = path / CONFIG if path.is_dir() else path
    folder = Path(os.path.realpath(file.parent))
    refuse_odd_file(file, Path.cwd() if folder.is_relative_to(os.path.realpath(".")) else folder)
    before = _read(file)
    try:
        after = with_checkpointer(before, replace=replace)
    except (ConflictError, UsageError) as error:
        raise type(error)(f"{file}: {error}") from None
    if after != before:
        print_text_change(file, before, after)
        if not confirm(f"write {file}?", yes=yes):
            return
        _write(file, after)
    if as_json:
        print_json({"file": str(file), "changed": after != before, KEY: json.loads(after)[KEY]})
    else:
        click.echo(f"{file} " + ("names holdfast now" if after != before else "names holdfast already"))
    click.echo(
        "`langgraph dev` keeps its state in .holdfast/store.db beside where it is started, or in the store that\n"
        "HOLDFAST_URL names. The graph must be compiled without a checkpointer of its own.",
        err=True,
    )


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise ConfigNotFoundError(
            f"there is no {file}: run this where langgraph.json is, or name it. `langgraph new` makes a project"
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} can't be read: {error}") from None


def _write(file: Path, text: str) -> None:
    try:
        replace_file(file, text)
    except OSError as error:
        raise UsageError(f"{file} can't be written: {error}. Nothing was changed") from None


# -- threads
# -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ThreadRow:
    """One of LangGraph's threads, and its status on a server."""

    thread: LangGraphThread
    server: str | None = None  # "restored", "there" or "failed", where a server was asked
    problem: str | None = None


@langgraph.command(short_help="List threads; --restore adds them to a server's list.")
@click.option("--restore", "url", metavar="URL", help="Add the threads to the list of the server at URL.")
@click.option("--graph", metavar="ID", help="With --restore: graph of threads that no server made.")
@click.option("--header", "headers", metavar="'NAME: VALUE'", multiple=True, help="HTTP header for the server.")
@common_options
@click.pass_context
def threads(
    ctx: click.Context, url: str | None, graph: str | None, headers: tuple[str, ...], store: str | None, as_json: bool
) -> None:
    """List LangGraph's threads, most recently saved first.

    `langgraph dev` writes its list of threads every ten seconds, so a hard kill may lose rows; their state is here.
    --restore http://127.0.0.1:2024 adds them to the running server; existing rows do not change. Exits with 1 if
    any failed.
    """
    from holdfast.adapters.langgraph.thread_list import threads_of

    with open_store(store) as client:
        found = [ThreadRow(thread) for thread in threads_of(client.sessions())]
    if url is not None:
        _restore(found, url, graph, _parsed_headers(headers))
    columns = THREAD_COLUMNS if url is not None else THREAD_COLUMNS[:-1]
    nothing = "no threads of LangGraph here yet"
    print_listing("threads", found, _fields, columns, nothing=nothing, as_json=as_json)
    for listed in found:
        if listed.problem is not None and not as_json:
            click.echo(f"{format_identifier(listed.thread.thread_id)}: {escape(listed.problem, 400)}", err=True)
    if any(listed.server == "failed" for listed in found):
        ctx.exit(EXIT_NOT_RESTORED)


def _restore(found: Sequence[ThreadRow], url: str, graph: str | None, headers: Mapping[str, str]) -> None:
    server = LangGraphServer(url, headers)
    for listed in found:
        thread = listed.thread
        try:
            listed.server = server.restore(thread.thread_id, thread.graph_id or graph, thread.assistant_id)
        except UnreachableError:
            raise
        except ServerError as error:
            listed.server, listed.problem = "failed", str(error)


def _parsed_headers(given: Sequence[str]) -> dict[str, str]:
    headers = {}
    for header in given:
        name, colon, value = header.partition(":")
        if not colon or not name.strip() or any(char in header for char in "\r\n\0"):
            raise click.UsageError("a --header is a name, a colon and a value: 'x-api-key: ...'")
        headers[name.strip()] = value.strip()
    return headers


def _fields(listed: ThreadRow) -> dict[str, Any]:
    thread = listed.thread
    return {
        "thread_id": thread.thread_id,
        "graph_id": thread.graph_id,
        "assistant_id": thread.assistant_id,
        "saves": thread.saves,
        "namespaces": thread.namespaces,
        "step_name": thread.step,
        "saved_at": format_time(thread.saved),
        "server": listed.server,
        "problem": listed.problem,
    }


THREAD_COLUMNS: tuple[Column[ThreadRow], ...] = (
    Column("thread", lambda row: format_identifier(row.thread.thread_id), "whole"),
    Column("graph", lambda row: format_identifier(row.thread.graph_id), "whole"),
    Column("saves", lambda row: str(row.thread.saves), "right"),
    Column("step", lambda row: format_name(row.thread.step), "shrinks"),
    Column("saved (UTC)", lambda row: format_utc(row.thread.saved)),
    Column("server", lambda row: row.server or ""),
)
