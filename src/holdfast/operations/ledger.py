"""The ledger of a tree: reading it, writing an intent under a lease, and what people say about effects in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.backends.port import Commit, CommitConflict, RowWrite
from holdfast.errors import CheckpointNotFoundError, ConflictError
from holdfast.model import ids
from holdfast.model.effects import IN_DOUBT, Effect, EffectState
from holdfast.model.lease import LeaseTerms
from holdfast.objects import ledger, rows
from holdfast.objects.ledger import Entry
from holdfast.operations import lease as leasing
from holdfast.operations import reading
from holdfast.operations.memory import Line
from holdfast.operations.services import Services

MAX_ATTEMPTS = 200
PAGE = 500


async def of_tree(services: Services, tree: bytes | None) -> list[Entry]:
    """All entries of a tree, or of the store; in the order of their ids."""
    found: list[Entry] = []
    after: bytes | None = None
    while page := await services.backend.scan(ledger.LEDGER, tree=tree, after=after, limit=PAGE):
        found += [ledger.unpack(key, row) for key, row in page]
        after = page[-1][0].key
    return found


async def find(services: Services, id_: bytes, tree: bytes) -> Entry | None:
    key = ledger.key(id_, tree)
    [row] = await services.backend.rows([key])
    return ledger.unpack(key, row) if row is not None else None


async def line_under(services: Services, lease: LeaseTerms) -> Line:
    """Where the lease's session stands; `LeaseLostError` if the lease is over."""
    session = rows.session_key(lease.session_id)
    line = reading.remembered_line(services, session)
    if line is None or not leasing.allows(services, line.head, lease):
        line = await reading.confirmed_line(services, session)
        leasing.refuse(services, lease.session_id, line.head, lease)
    return line


async def put(
    services: Services, lease: LeaseTerms, entry: Entry, following: Entry | None, *, also: Sequence[RowWrite] = ()
) -> Entry | None:
    """Writes the entry, durably, if its row is as it was and the lease holds at that very moment; None if the row, or
    one of `also`, was changed by somebody else. `also` is written with it or not at all."""
    write = entry.write(following)
    session = rows.session_key(lease.session_id)
    for _ in range(MAX_ATTEMPTS):
        line = await line_under(services, lease)
        commit = Commit(
            tree=entry.tree,
            rows=[write, *also],
            require_rows=[(rows.head_key(session, entry.tree), line.version)],
        )
        try:
            await services.backend.commit(commit)
        except CommitConflict as conflict:
            now = await find(services, entry.id, entry.tree)
            if now is not None and now.value == write.value:
                return now
            if conflict.detail in [other.key for other in also]:
                return None
            if (now.version if now else 0) != (following.version if following else 0):
                return None
            services.memory.drop(session)  # the head moved: a save of our own, a renewal, or the lease is lost
        else:
            return entry.stored(following)
    raise leasing.overtaken(lease.session_id)


# -- for people ------------------------------------------------------------------------------------------------------


async def effects(services: Services, *, session_id: str | None = None, in_doubt: bool = False) -> list[Effect]:
    """The effects of a session's tree, or of the store, the latest first."""
    tree: bytes | None = None
    if session_id is not None:
        tree = await reading.find_tree(services, rows.session_key(session_id))
        if tree is None:
            raise CheckpointNotFoundError(
                f"there is no session {session_id!r:.60}. `sessions` lists those that are there"
            )
    found = [entry for entry in await of_tree(services, tree) if not in_doubt or entry.state in IN_DOUBT]
    found.sort(key=lambda entry: entry.history[-1][1], reverse=True)
    return [entry.effect(services.codec) for entry in found]


async def by_id(services: Services, id_: bytes) -> Entry:
    page = await services.backend.scan(ledger.LEDGER, prefix=id_, limit=1)
    if not page:
        raise CheckpointNotFoundError(f"there is no effect {ids.to_text(id_)} here: `holdfast effects` lists them")
    return ledger.unpack(*page[0])


async def resolve(services: Services, id_: bytes, *, outcome: str, result: Any, by: str, note: str | None) -> Effect:
    """What a person found out about an effect in doubt: it was carried out, with that result, or it was not."""
    for _ in range(MAX_ATTEMPTS):
        entry = await by_id(services, id_)
        if outcome != "acknowledge" and entry.state not in IN_DOUBT:
            raise ConflictError(
                f"effect {ids.to_text(id_)} ({entry.tool!r:.60}) is not in doubt: it is {entry.state}. Nothing was changed"
            )
        if outcome != "acknowledge":
            await _refuse_in_flight(services, entry)
        decided = _resolved(services, entry, outcome, result, by, note)
        try:
            await services.backend.commit(Commit(tree=entry.tree, rows=[decided.write(entry)]))
        except CommitConflict:
            continue
        return decided.effect(services.codec)
    raise ConflictError(f"effect {ids.to_text(id_)} is being changed by too many at once: try again")


def _resolved(services: Services, entry: Entry, outcome: str, result: Any, by: str, note: str | None) -> Entry:
    at = services.now_us()
    if outcome == "acknowledge":
        return entry.now("acknowledged", at, by, note, acknowledged=True)
    was_undoing = entry.state is EffectState.COMPENSATING
    if outcome == "done":
        if was_undoing:
            return entry.now("resolved: undone", at, by, note, state=EffectState.COMPENSATED)
        encoded = services.codec.encode(result, "result")
        return entry.now("resolved: done", at, by, note, state=EffectState.DONE, result=encoded, checkpoint=None)
    state = EffectState.DONE if was_undoing else EffectState.FAILED
    return entry.now("resolved: not done", at, by, note, state=state)


async def is_in_flight(services: Services, entry: Entry) -> bool:
    """Whether whoever started it may still be at it: the lease under which it was started is in force."""
    found = await reading.find_head(services, rows.session_key(entry.session), entry.tree)
    if found is None:
        return False
    held = found[0].lease
    return found[0].fence == entry.token and held is not None and leasing.is_alive(services, held)


async def _refuse_in_flight(services: Services, entry: Entry) -> None:
    if entry.state is not EffectState.UNKNOWN and await is_in_flight(services, entry):
        raise ConflictError(
            f"effect {ids.to_text(entry.id)} ({entry.tool!r:.60}) is being carried out right now, by the run of session "
            f"{entry.session!r:.60}: wait until that run has ended"
        )


async def forget(services: Services) -> None:
    """Removes what the ledger says of trees that were collected: nobody can call these effects again. What is in doubt
    stays until somebody has said what happened. Part of `gc`."""
    alive: set[bytes] = set()
    for entry in await of_tree(services, None):
        # The head is looked for after the entry was seen: who writes one has a head before.
        if entry.tree not in alive and await services.backend.scan(rows.HEAD, tree=entry.tree, limit=1):
            alive.add(entry.tree)
        if entry.tree not in alive and entry.state not in IN_DOUBT:
            try:
                await services.backend.commit(Commit(tree=entry.tree, rows=[RowWrite(entry.key, None, entry.version)]))
            except CommitConflict:
                continue
