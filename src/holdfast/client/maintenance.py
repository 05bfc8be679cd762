"""The part of the client for pins, tags, retention, garbage collection and checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.client.factory import ClientBase
from holdfast.operations import resolve_target, validate

if TYPE_CHECKING:
    from datetime import timedelta

    from holdfast.codec.redaction_rules import Redact
    from holdfast.model.pin import Pin, Tag
    from holdfast.model.reports import (
        CollectionReport,
        MigrationReport,
        RetentionReport,
        ScanReport,
        Stats,
        StoreUsage,
        VerifyReport,
    )
    from holdfast.model.retention import Retention
    from holdfast.model.run_status import RunState, RunStatus
    from holdfast.model.store_status import Overview


class ClientMaintenance(ClientBase):
    """The part of `Client` that maintains the store."""

    async def pin(self, checkpoint_id: str, note: str | None = None) -> Pin:
        """Pins a checkpoint: neither `expire`, a policy nor its TTL can end it until it is unpinned.

        Pinning it again changes the note.
        """
        from holdfast.operations import pin as pinning

        text = validate.optional_name("note", note)
        origin = self._origin()
        return await resolve_target.act_on(
            self._ctx, checkpoint_id, lambda id_: pinning.pin(self._ctx, id_, text, origin=origin)
        )

    async def unpin(self, checkpoint_id: str) -> bool:
        """Unpins a checkpoint; False if it was not pinned. One whose TTL is over expires with that."""
        from holdfast.operations import pin as pinning

        origin = self._origin()
        return await resolve_target.act_on(
            self._ctx, checkpoint_id, lambda id_: pinning.unpin(self._ctx, id_, origin=origin)
        )

    async def pins(self, session_id: str | None = None) -> list[Pin]:
        """Lists the pinned checkpoints, of all sessions or of one, the one pinned last first."""
        from holdfast.operations import pin as pinning

        return await pinning.pins(self._ctx, validate.optional_name("session_id", session_id))

    async def tag(self, name: str, checkpoint_id: str, *, force: bool = False) -> Tag:
        """Gives the checkpoint a name that is unique in the store. A tag protects like a pin.

        A name that is in use moves only with `force`.
        """
        from holdfast.operations import tag as tagging

        text, origin = validate.tag(name), self._origin()
        return await resolve_target.act_on(
            self._ctx,
            checkpoint_id,
            lambda id_: tagging.tag(self._ctx, text, id_, force=force, origin=origin),
        )

    async def untag(self, name: str) -> bool:
        """Removes the name, and nothing else; False if there is no such tag."""
        from holdfast.operations import tag as tagging

        return await tagging.untag(self._ctx, validate.name("name", name), origin=self._origin())

    async def tagged(self, name: str) -> Tag | None:
        """Returns the tag of that name, None if there is none."""
        from holdfast.operations import tag as tagging

        return await tagging.get_tag(self._ctx, validate.name("name", name))

    async def tags(self) -> list[Tag]:
        """Lists all tags, by name."""
        from holdfast.operations import tag as tagging

        return await tagging.tags(self._ctx)

    async def unexpire(self, checkpoint_id: str) -> bool:
        """Undoes `expire`, as long as `gc` has not run since; False if it had not expired.

        Sessions whose head it was stay at its ancestor: `rollback` moves them back.
        """
        from holdfast.operations import expire as unexpiring

        origin = self._origin()
        return await resolve_target.act_on(
            self._ctx, checkpoint_id, lambda id_: unexpiring.unexpire(self._ctx, id_, origin=origin)
        )

    async def retain(
        self,
        policy: Retention | None = None,
        *,
        keep_last: int | None = None,
        keep_every: int | None = None,
        older_than: timedelta | None = None,
        max_bytes: int | None = None,
        session_id: str | None = None,
        agent_id: str | None = None,
        dry_run: bool = True,
    ) -> RetentionReport:
        """Applies a retention policy: expires what it does not keep, then runs gc. A dry run by default.

        Pass `dry_run=False` to apply it. Heads of sessions, pinned and tagged checkpoints, open
        handoffs, and all that is younger than `older_than` always stay. `keep_last=N` keeps the
        newest N of each session, `keep_every=N` each Nth. With `max_bytes` only as much goes,
        oldest first, as needed for that. `session_id` and `agent_id` narrow what may go.
        """
        from holdfast.operations import retain as retaining

        return await retaining.retain(
            self._ctx,
            validate.policy(policy, keep_last, keep_every, older_than, max_bytes),
            session_id=validate.optional_name("session_id", session_id),
            agent_id=validate.optional_name("agent_id", agent_id),
            dry_run=dry_run,
            origin=self._origin(),
        )

    async def freed_by(self, checkpoint_ids: Sequence[str]) -> int:
        """Estimates the bytes that `gc` would free more if these checkpoints expired. Changes nothing."""
        from holdfast.operations import retain as retaining

        return await retaining.estimate_freed(
            self._ctx, [await resolve_target.id_of(self._ctx, ref) for ref in checkpoint_ids]
        )

    async def du(
        self, session_id: str | None = None, *, progress: Callable[[int, int], None] | None = None
    ) -> StoreUsage:
        """Reports the size of the store, by session and by kind. Reads every record.

        With `session_id` only that one is listed. `progress` is called with how many records are
        done, and how many there are.
        """
        from holdfast.operations import disk_usage

        name = validate.optional_name("session_id", session_id)
        return await disk_usage.du(self._ctx, name, progress=progress)

    async def gc(self, *, dry_run: bool = False) -> CollectionReport:
        """Expires checkpoints whose TTL is over, and removes what no live one needs.

        Safe while others write.
        """
        from holdfast.operations import gc as collecting

        return await collecting.collect(self._ctx, dry_run=dry_run)

    async def verify(self, session_id: str | None = None) -> VerifyReport:
        """Reads everything, of the store or of one session, and checks it."""
        from holdfast.operations import verify as inspecting

        return await inspecting.verify(self._ctx, validate.optional_name("session_id", session_id))

    async def check_migrations(
        self,
        session_id: str | None = None,
        agent_id: str | None = None,
        *,
        every: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> MigrationReport:
        """Reports which heads would not resume with the migrations and types registered here.

        Restores and migrates the heads of all sessions, or of one, or of an agent's; with `every`,
        all checkpoints. Changes nothing. `progress` is called with how many are done, and how many
        there are. If functions are named here with `runnable`, runs that workers are still to
        carry out are checked as well: whether function, version and arguments are known.
        """
        from holdfast.operations import check_migrations as migrating
        from holdfast.runs.runnable import DECLARED

        return await migrating.check(
            self._ctx,
            session_id=validate.optional_name("session_id", session_id),
            agent_id=validate.optional_name("agent_id", agent_id),
            every=every,
            progress=progress,
            find_limit=DECLARED.find_limit if DECLARED.names() else None,
        )

    async def scan(
        self,
        rules: Redact | None = None,
        session_id: str | None = None,
        *,
        every: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> ScanReport:
        """Reports the paths of stored values that redaction rules meet; never the values.

        Searches the heads of all sessions, or of one; with `every`, all checkpoints. Left out,
        `rules` are the client's own, tokens of well-known providers, and names that secrets often
        have. Changes nothing. `progress` is called with how many are done.
        """
        from holdfast.codec.redaction_rules import rules_of, suspicions
        from holdfast.codec.secret_types import Redaction
        from holdfast.operations import scan as scanning

        own = self._ctx.codec.redaction
        given = (*(own.rules if own is not None else ()), *suspicions()) if rules is None else rules_of(rules)
        name = validate.optional_name("session_id", session_id)
        return await scanning.scan(self._ctx, Redaction(given), session_id=name, every=every, progress=progress)

    async def runs(
        self, *, alive: bool = False, status: RunState | str | Sequence[RunState | str] | None = None
    ) -> list[RunStatus]:
        """Lists the runs with their status, and other sessions that are or were leased.

        `status` selects one status, or several: "running", "waiting", "in doubt", "interrupted",
        "failed", "completed", "cancelled", and "stopped" for sessions that were leased by no run.
        `alive` selects those with a live process.
        """
        from holdfast.operations import status as looking

        chosen = None if status is None else validate.run_states(status)
        return await looking.runs(self._ctx, alive=alive, status=chosen)

    async def run_status(self, session_id: str) -> RunStatus | None:
        """Returns the status of a session's run; None if the session was never one, nor leased."""
        from holdfast.operations import status as looking

        return await looking.run_status(self._ctx, validate.name("session_id", session_id))

    async def overview(self, *, sizes: bool = True) -> Overview:
        """Summarises the store: its kind, size, active runs and pending approvals.

        Faster than `stats` and `du`, which read every record; without `sizes` it takes no longer
        than a list of sessions.
        """
        from holdfast.operations import status as looking

        return await looking.overview(self._ctx, sizes=sizes)

    async def stats(self) -> Stats:
        """Reports how much is stored, and how much it would be without sharing."""
        from holdfast.operations import verify as inspecting

        return await inspecting.stats(self._ctx)
