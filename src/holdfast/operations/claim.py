"""claim: exactly one claimant gets a handoff, and with it the lease of its session.

One commit notes the claim in the handoff's row and takes the lease in the head's row. Both are
compared with their previous values, so of concurrent claims one wins, and the others find the row
changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from holdfast import telemetry
from holdfast.backends.port import RowWrite
from holdfast.errors import ConflictError, LeaseHeldError, StoreError, UsageError
from holdfast.format.rows import head as rows
from holdfast.format.rows import inbox as entries
from holdfast.format.rows.inbox import FollowUp, LastClaim
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.operations import inbox, lookup
from holdfast.operations import lease as leasing
from holdfast.operations.context import StoreContext
from holdfast.operations.session_cache import SessionTip


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedClaim:
    """A granted claim: the handoff, the lease's token and end, and the previous head."""

    handoff: StoredRecord
    token: int
    expires_at_us: int
    moved_from: bytes | None


@telemetry.trace_operation(telemetry.CLAIM)
async def claim(
    ctx: StoreContext,
    id_: bytes,
    agent_id: str,
    *,
    claim_id: bytes,
    holder: str,
    seconds: float,
    wait: float = 0.0,
) -> GrantedClaim:
    """Claim a handoff for its addressee; `ConflictError` if it is claimed or has been continued.

    Afterwards the session's head is the handoff. If the session was saved to since the handoff was
    made, the head moves back, and those checkpoints stay as a branch. The same `claim_id` again,
    while that claim lives, renews it and returns it: so a claim with an unclear outcome can be
    repeated. A delegation's head stays where it is: the next worker continues after the last one.
    """
    handoff = await lookup.load_live_record(ctx, id_)
    target = handoff.header.get("to")
    if target is None:
        raise UsageError(
            f"checkpoint {ids.to_text(id_)} is not addressed to an agent: only a handoff can be claimed. `inbox` lists "
            "those of an agent, `lease` gives the right to go on with any session"
        )
    if target != agent_id:
        raise UsageError(f"handoff {ids.to_text(id_)} is addressed to {target!r:.60}, not to {agent_id!r:.60}")
    session = rows.session_key(handoff.session)
    deadline = ctx.now_us() + round(wait * 1e6)
    for _ in range(leasing.MAX_ATTEMPTS):
        tip, entry, version = await _wait_until_free(ctx, session, handoff, claim_id, deadline)
        is_delegation = "origin" in handoff.header
        stays = tip.head.checkpoint if is_delegation else id_
        moved_from = tip.head.checkpoint if tip.head.checkpoint != stays else None
        if entry is not None and _is_in_force(ctx, tip.head, entry):  # it is this very claim: renewed
            token, moved_from = entry.token, moved_from or entry.moved_from
            head = tip.head._replace(lease=leasing.make_lease(ctx, holder, seconds))
        else:
            head = leasing.grant(ctx, handoff.session, tip.head, holder=holder, seconds=seconds)
            token = head.fence
        assert head.lease is not None
        waiting = entries.key(handoff, entries.WAITING)
        noted = LastClaim(claim_id, token, ctx.now_us(), head.lease.holder, moved_from)
        write = RowWrite(waiting, entries.pack(waiting, noted), version)
        try:
            is_done = await leasing.move_head(ctx, session, tip, head._replace(checkpoint=stays), extra_rows=[write])
        except StoreError as error:
            error.claim_id = ids.to_text(claim_id)
            raise
        if is_done:
            expires_at_us = head.lease.expires_at_us
            return GrantedClaim(handoff=handoff, token=token, expires_at_us=expires_at_us, moved_from=moved_from)
        handoff = await lookup.load_live_record(ctx, id_)
    raise leasing.make_overtaken_error(handoff.session)


async def _wait_until_free(
    ctx: StoreContext, session: bytes, handoff: StoredRecord, claim_id: bytes, deadline: int
) -> tuple[SessionTip, LastClaim | None, int]:
    """Return the session's tip, the last claim and its row's version, once the handoff is free.

    Raises an error that names the claimant if the handoff is not free before the deadline.
    """
    while True:
        tip = await lookup.revalidated_tip(ctx, session)
        leasing.refuse_cancelled(handoff.session, tip.head)
        # Read after the head: if another claims it in between, the head's row has changed.
        entry, version = await inbox.entry_of(ctx, handoff)
        if isinstance(entry, FollowUp):
            raise _make_ended_error(handoff, entry)
        is_claimed = entry is not None and _is_in_force(ctx, tip.head, entry)
        if leasing.allows(ctx, tip.head, None) or (is_claimed and entry is not None and entry.claim_id == claim_id):
            return tip, entry, version
        if not await leasing.wait_to_retry(ctx, deadline):
            if is_claimed and entry is not None:
                raise _make_claimed_error(handoff, entry, tip.head)
            leasing.refuse(ctx, handoff.session, tip.head, None)


def _is_in_force(ctx: StoreContext, head: rows.Head, entry: LastClaim) -> bool:
    return head.fence == entry.token and head.lease is not None and leasing.is_alive(ctx, head.lease)


def _make_claimed_error(handoff: StoredRecord, entry: LastClaim, head: rows.Head) -> LeaseHeldError:
    assert head.lease is not None
    holder = rows.session_name(entry.holder)
    until = datetime.fromtimestamp(head.lease.expires_at_us / 1e6, UTC)
    message = (
        f"handoff {ids.to_text(handoff.id)} was claimed by {holder!r:.60} on {_moment(entry.at_us)}, who holds it "
        f"until {until:%Y-%m-%d %H:%M:%S} UTC or longer: take another one, or `wait` for it to be given back"
    )
    return LeaseHeldError(message, holder, until)


def _make_ended_error(handoff: StoredRecord, entry: FollowUp) -> ConflictError:
    if not entry.next:
        return ConflictError(
            f"handoff {ids.to_text(handoff.id)} was cancelled by {rows.session_name(entry.by)!r:.60} on "
            f"{_moment(entry.at_us)}: take another one"
        )
    this, next_ = ids.to_text(handoff.id), ids.to_text(entry.next)
    if "origin" in handoff.header:
        return ConflictError(
            f"delegation {this} was answered by {rows.session_name(entry.by)!r:.60} on {_moment(entry.at_us)}, with "
            f"{next_}: take another one"
        )
    if entry.passed_on:
        return ConflictError(
            f"handoff {this} was handed on, on {_moment(entry.at_us)}, as {next_}: that one can be claimed by the "
            "agent it is addressed to"
        )
    return ConflictError(
        f"handoff {this} was taken up by {rows.session_name(entry.by)!r:.60}, who went on with {next_} on "
        f"{_moment(entry.at_us)}. To go on with the session after that one has stopped, take its `lease`; to have the "
        "work done again, `handoff` it again"
    )


def _moment(us: int) -> str:
    return f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
