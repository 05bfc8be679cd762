"""Near misses: the command, session or tag that an unknown name probably means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient

SHOWN = 3
RANKED = 50  # similar names; those that begin with it come first
SCANNED = 200  # names that are read at each prefix, however many a store has
LONGEST = 255  # characters of a name for which others like it are looked for
SESSIONS = ("session", "sessions", "other", "into", "fork")
REFS = ("ref", "refs", "a", "b", "to", "checkpoint", "expect_head")


class CommandGroup(click.Group):
    """A group that names the commands that are like a mistyped one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        given = args[0]
        if not given.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, given) is None:
            like = find_close_names(given, self.list_commands(ctx))
            raise MistypedError(f"there is no command {given!r:.60}. `{ctx.command_path} --help` lists them", like, ctx)
        return super().resolve_command(ctx, args)


class MistypedError(click.UsageError):
    """A command that is not there, with those that are like it."""

    def __init__(self, message: str, like: list[str], ctx: click.Context) -> None:
        super().__init__(message, ctx)
        self.did_you_mean = like

    def format_message(self) -> str:
        return "\n".join(filter(None, (self.message, format_question(self.did_you_mean))))


def find_close_names(given: str, names: Iterable[str]) -> list[str]:
    """Return at most three names: those that begin with `given`, then the most similar, ignoring case."""
    import difflib

    by_folded = {name.casefold(): name for name in names if len(name) <= LONGEST}
    if len(given) > LONGEST:
        return []
    folded = given.casefold()
    like = difflib.get_close_matches(folded, by_folded, RANKED)
    like.sort(key=lambda name: not name.startswith(folded))
    return [by_folded[name] for name in like[:SHOWN]]


def format_question(names: Iterable[str]) -> str:
    """Return `Did you mean …?` with names that a shell takes as they stand; nothing for no names."""
    import shlex

    quoted = [shlex.quote(name) for name in names if name.isprintable()]
    return f"Did you mean {' or '.join(quoted)}?" if quoted else ""


def suggest_names(command: click.Context) -> list[str]:
    """Return names of the store that are like the arguments of a command that are not there.

    It reads a thousand names at most. A store that can't be read gives none: the first error is the
    one to print.
    """
    from holdfast.cli.store_location import open_store

    try:
        with open_store(command.params.get("store")) as client:
            return [name for given in _find_missing(client, command) for name in _close_in_store(client, given)][:SHOWN]
    except Exception:  # in any case, the original failure must be reported
        return []


def _find_missing(client: SyncClient, command: click.Context) -> Iterator[str]:
    """Yield the sessions and references among the command's arguments that lead nowhere."""
    from holdfast.errors import CheckpointNotFoundError
    from holdfast.model import ref_syntax

    for param, value in command.params.items():
        given = [value] if isinstance(value, str) else value
        is_tag = (command.info_name, param) == ("tag", "name")
        if not (is_tag or param in (*SESSIONS, *REFS)) or not isinstance(given, list | tuple):
            continue
        for item in filter(None, given):
            if (is_tag and client.tagged(item) is None) or (param in SESSIONS and client.session(item) is None):
                yield item
            elif param in REFS:
                place = ref_syntax.parse(item)
                base = place.base if place is not None and place.base else item
                try:
                    client.resolve(base)
                except CheckpointNotFoundError:
                    yield base


def _close_in_store(client: SyncClient, given: str) -> list[str]:
    """Sessions are read by ever shorter beginnings of the name: a typing error is more often near its end."""
    lengths = sorted({len(given) - 1, len(given) * 3 // 4, len(given) // 2, 1, 0} - {-1}, reverse=True)
    names = {name for length in lengths for name in client.session_ids(given[:length], limit=SCANNED)}
    return find_close_names(given, [*names, *_tags(client)])


def _tags(client: SyncClient) -> Iterator[str]:
    from holdfast.backends.bridge.step import run_inline
    from holdfast.operations import tag as tags

    yield from (tag.name for tag in run_inline(tags.tags(client._ctx, SCANNED)))
