"""lease: one writer of a session at a time. Whoever lost it is refused by the commit itself.

A lease is part of the head's row. Each save compares the row with what it was built upon, so no save that was made under
one lease can be committed once another was given, however long its process was paused in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from holdfast.backends.port import ABSENT, Commit, CommitConflict, RowKey, RowWrite
from holdfast.errors import ConflictError, LeaseHeldError, LeaseLostError
from holdfast.model.lease import LeaseTerms
from holdfast.objects import record, rows
from holdfast.operations import reading
from holdfast.operations.memory import Line
from holdfast.operations.services import Services

LOOK_AGAIN_SECONDS = 0.25
MAX_ATTEMPTS = 200


# -- what saves ask --------------------------------------------------------------------------------------------------


def allows(services: Services, head: rows.Head, lease: LeaseTerms | None) -> bool:
    """Whether a session that stands so may be written to: with that lease, or, for None, by anybody."""
    held = head.lease
    if lease is None:
        return held is None or not is_alive(services, held)
    return held is not None and head.fence == lease.token and services.now_us() < held.expires_at_us


def refuse(services: Services, session_id: str, head: rows.Head, lease: LeaseTerms | None) -> None:
    """Raises what is to be said if `allows` does not."""
    if allows(services, head, lease):
        return
    held = head.lease
    if lease is None:
        assert held is not None
        raise _held(
            session_id, held, "only its holder may write to it. Wait until it is released or runs out, or `fork`"
        )
    if held is not None and head.fence == lease.token:
        raise LeaseLostError(
            f"the lease of session {session_id!r:.60} ran out at {_moment(held)} without having been renewed: others may "
            "have seen the session as free. Take a new lease, look at `latest`, and go on from there"
        )
    now = f"it is held by {_name(held)!r:.60} now" if held is not None else "it was released or taken over"
    raise LeaseLostError(
        f"the lease of session {session_id!r:.60} that {lease.holder!r:.60} had is over: {now}. Nothing was written. "
        "Stop, or take a new lease and look at `latest` before going on"
    )


# -- taking, renewing, releasing -------------------------------------------------------------------------------------


async def acquire(
    services: Services, session_id: str, *, holder: str, seconds: float, wait: float = 0.0
) -> tuple[int, int]:
    """The token of a new lease and when it runs out. If another holds it, waits for at most `wait` seconds."""
    session = rows.session_key(session_id)
    deadline: int | None = None
    for _ in range(MAX_ATTEMPTS):
        line = await reading.confirmed_line(services, session)
        if deadline is None:  # only now: before it was asked for anything, a store's own clock is not known
            deadline = services.now_us() + round(wait * 1e6)
        while not allows(services, line.head, None) and await look_again(services, deadline):
            line = await reading.confirmed_line(services, session)
        head = granted(services, session_id, line.head, holder=holder, seconds=seconds)
        if await moved(services, session, line, head):
            assert head.lease is not None
            return head.fence, head.lease.expires_at_us
    raise overtaken(session_id)


async def look_again(services: Services, deadline_us: int) -> bool:
    """Lets a moment pass; False, at once, after the deadline."""
    left = (deadline_us - services.now_us()) / 1e6
    if left <= 0:
        return False
    await services.backend.sleep(min(LOOK_AGAIN_SECONDS, left))
    return True


def granted(services: Services, session_id: str, head: rows.Head, *, holder: str, seconds: float) -> rows.Head:
    """The head with a new lease, or `LeaseHeldError`."""
    if not allows(services, head, None):
        assert head.lease is not None
        raise _held(session_id, head.lease, "wait until it is released or runs out")
    # Tokens rise within a session, and are not met again when a collected session's name is used anew.
    token = max(head.fence + 1, services.now_us())
    return head._replace(fence=token, lease=for_seconds(services, holder, seconds))


def for_seconds(services: Services, holder: str, seconds: float) -> rows.Lease:
    """A lease of this process for so many seconds from now on."""
    expires_at_us = services.now_us() + round(seconds * 1e6)
    return rows.Lease(expires_at_us, rows.session_key(holder), services.this_process())


async def renew(services: Services, lease: LeaseTerms) -> int:
    """Makes the lease last for its seconds from now on; returns until when. `LeaseLostError` if it is over."""
    session = rows.session_key(lease.session_id)
    for _ in range(MAX_ATTEMPTS):
        line = await _line_under(services, session, lease)
        assert line.head.lease is not None
        expires_at_us = services.now_us() + round(lease.seconds * 1e6)
        head = line.head._replace(lease=line.head.lease._replace(expires_at_us=expires_at_us))
        if await moved(services, session, line, head):
            return expires_at_us
    raise overtaken(lease.session_id)


async def release(services: Services, lease: LeaseTerms) -> bool:
    """Ends the lease; False if it was over already."""
    session = rows.session_key(lease.session_id)
    for _ in range(MAX_ATTEMPTS):
        try:
            line = await _line_under(services, session, lease)
        except LeaseLostError:
            return False
        if await moved(services, session, line, line.head._replace(lease=None)):
            return True
    raise overtaken(lease.session_id)


async def _line_under(services: Services, session: bytes, lease: LeaseTerms) -> Line:
    """Where the session stands, if the lease holds there. What is remembered is not believed if it says otherwise."""
    line = reading.remembered_line(services, session)
    if line is None or not allows(services, line.head, lease):
        line = await reading.confirmed_line(services, session)
        refuse(services, lease.session_id, line.head, lease)
    return line


async def moved(
    services: Services, session: bytes, line: Line, head: rows.Head, *, also: Sequence[RowWrite] = ()
) -> bool:
    """Puts `head` in the place of the line's, together with further rows of its tree; False if somebody was first.

    If only the lease differs, what this process remembers of the line goes on being true. If the head moves to another
    checkpoint, which must be live, it is forgotten.
    """
    tree = line.tree or services.new_id(None)  # a session without checkpoints gets its tree now
    key = rows.head_key(session, tree)
    value = head.pack(key)
    commit = Commit(tree=tree, rows=[RowWrite(key, value, line.version, line.head_value), *also])
    if line.tree is None:
        session_row = RowKey(rows.SESSION, session)
        commit.rows = [*commit.rows, RowWrite(session_row, rows.protect(session_row, tree), ABSENT)]
    next_line = replace(line, tree=tree, version=line.version + 1, head=head, head_value=value)
    if head.checkpoint == line.head.checkpoint:
        services.memory.put(session, next_line)
    else:
        assert head.checkpoint is not None
        commit.require = [(head.checkpoint, record.LIVE)]
        services.memory.drop(session)
    try:
        await services.backend.commit(commit)
    except CommitConflict:
        services.memory.drop_failed(session, next_line)
        return False
    except BaseException:
        services.memory.drop_failed(session, next_line)
        raise
    return True


# -- words -----------------------------------------------------------------------------------------------------------


def is_alive(services: Services, held: rows.Lease) -> bool:
    """Whether a lease counts: it has not run out, and its holder is not known to have died."""
    return services.now_us() < held.expires_at_us and not services.has_ended(held.process)


def _held(session_id: str, held: rows.Lease, remedy: str) -> LeaseHeldError:
    holder = _name(held)
    message = f"session {session_id!r:.60} is leased to {holder!r:.60} until {_moment(held)}: {remedy}"
    return LeaseHeldError(message, holder, datetime.fromtimestamp(held.expires_at_us / 1e6, UTC))


def overtaken(session_id: str) -> ConflictError:
    return ConflictError(f"session {session_id!r:.60} is being written by too many at once: try again")


def _name(held: rows.Lease) -> str:
    return rows.session_name(held.holder)


def _moment(held: rows.Lease) -> str:
    return f"{datetime.fromtimestamp(held.expires_at_us / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
