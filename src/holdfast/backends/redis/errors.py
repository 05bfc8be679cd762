"""Refusals of a server, as errors that say what happened, why, and what to do."""

from __future__ import annotations

import re

from redis.exceptions import RedisError

from holdfast.errors import CorruptError, StoreError

NOTHING = "Nothing was changed"
HALFWAY = "HALFWAY "  # prefix of guard.lua's message when a change failed midway
_OURS = "HOLDFAST "
_SCRIPT = re.compile(r",? ?(script: (\S+,? )?)?on @user_script:\d+\.?$")
_NO_RIGHT = re.compile(r"no permissions to (?:run|execute) the '([^']+)' command|no permissions to access")

# By the word that a server's error begins with, or by a part of its text.
_ADVICE = (
    ("WRONGPASS", "the user name or the password is wrong"),
    ("NOAUTH", "the server wants a password: write redis://USER:PASSWORD@host"),
    ("invalid password", "the password is wrong"),
    ("without any password configured", "the server has no password for this user: leave it out of the URL"),
    (
        "max number of clients",
        ("the server has no connection left: "
        "lower `max_connections`, or raise the server's `maxclients`"),
    ),
    (
        "DB index is out of range",
        ("the server has no database of that number: "
        "see its `databases`, and the end of the URL"),
    ),
    ("READONLY", "this server is a replica, which only reads: name its master in the URL"),
    ("read only replica", "this server is a replica, which only reads: name its master in the URL"),
    ("MASTERDOWN", "this server is a replica that has lost its master: name the master in the URL"),
    (
        "OOM",
        ("the server's memory is full (maxmemory): give it more, or run `holdfast gc`. "
        "What was saved before is kept"),
    ),
    ("MISCONF", "the server can't write to its disk, and takes no changes until it can: see its log"),
    ("NOREPLICAS", "too few replicas follow the server (min-replicas-to-write): try again when they do"),
    ("LOADING", "the server is reading its data after a start: try again in a moment"),
    ("CLUSTERDOWN", "the cluster has no master for some slots: mend it, or wait for a replica to take over"),
    (
        "WRONGTYPE",
        ("another program has written a key under this prefix: "
        "`holdfast verify` names it. Use a `prefix` of your own"),
    ),
    (
        "not an integer",
        ("another program has written a counter of this prefix: "
        "`holdfast verify` names it. Use a `prefix` of your own"),
    ),
    ("BUSY", "another program's script keeps the server busy: wait, or end it (SCRIPT KILL)"),
)  # fmt: skip


def describe(error: BaseException) -> str:
    """Describe what a server refused, and the remedy, without the end of the sentence."""
    text = _SCRIPT.sub("", str(error)).strip().rstrip(".")
    word = getattr(error, "status_code", None) or text.partition(" ")[0]
    if text.startswith(_OURS):
        return _describe_ours(text.removeprefix(_OURS))
    lacking = _NO_RIGHT.search(text)
    if lacking or word == "NOPERM":
        right = lacking.group(1) if lacking and lacking.group(1) else ""
        return f"{text}: {_describe_missing(right)}"
    for mark, advice in _ADVICE:
        if word == mark or mark in text:
            return f"{text}: {advice}"
    return text


def make_unreached_error(error: BaseException, where: str) -> StoreError:
    found = describe(error)
    advice = (
        ""
        if found != str(error).strip().rstrip(".")
        else ". Is the server running, and has it connections left (`maxclients`)?"
    )
    return StoreError(f"the store {where} can't be reached: {found}{advice}")


def make_read_error(error: BaseException, where: str) -> StoreError | CorruptError:
    text = str(error)
    if text.startswith(f"{_OURS}DAMAGED"):
        return CorruptError(f"the store {where} is damaged: {describe(error)}. Run `verify`")
    return StoreError(f"the store {where} can't be read: {describe(error)}")


def make_write_error(error: RedisError, where: str, *, before: bool = False) -> StoreError:
    """Return why a commit was refused, and which part of it may be there.

    With `before`, rows of the store were written before it, in another shard.
    """
    text = _SCRIPT.sub("", str(error))
    if text.startswith(HALFWAY):
        return StoreError(
            f"{where} failed in the middle of the commit ({text.removeprefix(HALFWAY)}): a part of it may be there. "
            "Run `holdfast verify`, which names what is incomplete, before anything else is saved to this session"
        )
    left = "No checkpoint was saved; a row that names its session may be there, which the next save uses"
    return StoreError(f"{where} refused the commit: {describe(error)}. {left if before else NOTHING}")


def _describe_ours(reply: str) -> str:
    code, _, detail = reply.partition(" ")
    match code:
        case "RIGHT":
            command, _, key = detail.partition(" ")
            return f"this user has no permission for `{command}` on {key}: {_describe_missing(command)}"
        case "KIND":
            return f"the key {detail}. Another program has written it: use a `prefix` of your own, and delete that key"
        case "GONE":
            return (
                "the store that was opened is not there any more: its keys were deleted (FLUSHDB), evicted, or lost by "
                "a "
                "restart of a server with `appendonly no`. Restore a backup of the server; or open a new client, which "
                "begins an empty store"
            )
        case "LOST":
            return (
                f"some keys of the store ({detail}:…) are missing: they were evicted or deleted. Set maxmemory-policy "
                "to noeviction, and restore a backup of the server; `holdfast verify` counts what is missing"
            )
        case _:
            return f"{detail} can't be read: the store is damaged. Run `holdfast verify`"


def _describe_missing(command: str) -> str:
    grant = f": ACL SETUSER NAME +{command.replace(' ', '|')}" if command else ""
    return f"docs/redis.md lists the rights that a user needs{grant}"
