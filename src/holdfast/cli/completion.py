"""Shell completion of sessions, checkpoints and agents, from the store that the command would use.

It runs at each press of a key, so it reads little, and it prints nothing whatever happens. Names
are data: one that a shell would not take literally is left out, for it would be put on the command
line as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient

SHOWN = 100
FEW_SESSIONS = 200  # up to so many are read to find the newest checkpoints
_LITERAL = re.compile(r"[\w@%+=:,./][\w@%+=:,./-]*")
_DIGITS = re.compile(r"[0-9a-fA-F]*")


class _Name(click.types.StringParamType):
    """Text like any other, that the store may complete."""

    def names(self, client: SyncClient, incomplete: str) -> Iterator[str]:
        raise NotImplementedError  # each kind of name has its own

    def shell_complete(self, ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        import logging

        logging.disable()  # unreadable data is not reported here
        try:
            from holdfast.cli.store_location import open_store

            with open_store(ctx.params.get("store") or ctx.find_root().params.get("store")) as client:
                found = {
                    name: None
                    for name in self.names(client, incomplete)
                    if name.startswith(incomplete) and _LITERAL.fullmatch(name)
                }
                return [CompletionItem(name) for name in list(found)[:SHOWN]]
        except Exception:  # no store, a damaged one, another user's: then there is nothing to complete
            return []
        finally:
            logging.disable(logging.NOTSET)


class SessionName(_Name):
    def names(self, client: SyncClient, incomplete: str) -> Iterator[str]:
        yield from client.session_ids(incomplete, limit=SHOWN)


class AgentName(_Name):
    def names(self, client: SyncClient, incomplete: str) -> Iterator[str]:  # noqa: ARG002 - as in the class above
        if _has_few_sessions(client):
            yield from sorted({session.agent_id for session in client.sessions()})


class CheckpointRef(_Name):
    """A session, a tag, or the short id of one of the checkpoints that were saved last."""

    def names(self, client: SyncClient, incomplete: str) -> Iterator[str]:
        yield from client.session_ids(incomplete, limit=SHOWN)
        yield from (tag.name for tag in client.tags())
        if _DIGITS.fullmatch(incomplete) and _has_few_sessions(client):
            for session in client.sessions(limit=5):
                for entry in client.timeline(session_id=session.session_id, limit=20):
                    yield entry.short_id


class FilePath(click.types.StringParamType):
    def shell_complete(self, _ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


def _has_few_sessions(client: SyncClient) -> bool:
    return len(client.session_ids(limit=FEW_SESSIONS + 1)) <= FEW_SESSIONS


_COMPLETED: dict[str, type[click.types.StringParamType]] = {
    "session": SessionName,
    "sessions": SessionName,
    "other": SessionName,
    "agent": AgentName,
    "ref": CheckpointRef,
    "refs": CheckpointRef,
    "a": CheckpointRef,
    "b": CheckpointRef,
    "expect_head": CheckpointRef,
    "checkpoint": CheckpointRef,
    "file": FilePath,
    "store": FilePath,
}


def complete_by_name(command: click.Command) -> None:
    """Let the shell complete the command's arguments and options that have their usual names."""
    for param in command.params:
        if param.type is click.STRING and param.name in _COMPLETED:
            param.type = _COMPLETED[param.name]()
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            complete_by_name(inner)
