"""What a client does to keep its store in order: pins and tags, retention, collection, checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.model import ids
from holdfast.opening import Opening
from holdfast.operations import arguments

if TYPE_CHECKING:
    from datetime import timedelta

    from holdfast.model.holds import Pin, Tag
    from holdfast.model.overview import Overview, RunStatus
    from holdfast.model.reports import (
        CollectionReport,
        MigrationReport,
        RetentionReport,
        Stats,
        StoreUsage,
        VerifyReport,
    )
    from holdfast.model.retention import Retention


class Keeping(Opening):
    """The part of `Client` that keeps the store in order."""

    async def pin(self, checkpoint_id: str, note: str | None = None) -> Pin:
        """Keeps the checkpoint until it is unpinned: it can't be expired, no policy chooses it, and its TTL does not end
        it. Pinning it again changes the note."""
        from holdfast.operations import pins as pinning

        text = arguments.optional_name("note", note)
        return await pinning.pin(self._services, ids.from_text(checkpoint_id), text, origin=self._origin())

    async def unpin(self, checkpoint_id: str) -> bool:
        """Lets a pinned checkpoint go on like any other; False if it was not pinned. One whose TTL is over has expired
        with that."""
        from holdfast.operations import pins as pinning

        return await pinning.unpin(self._services, ids.from_text(checkpoint_id), origin=self._origin())

    async def pins(self, session_id: str | None = None) -> list[Pin]:
        """The pinned checkpoints, of all sessions or of one, the one pinned last first."""
        from holdfast.operations import pins as pinning

        return await pinning.pins(self._services, arguments.optional_name("session_id", session_id))

    async def tag(self, name: str, checkpoint_id: str, *, force: bool = False) -> Tag:
        """Gives the checkpoint a name, of which there is one in the store. What has a name is kept like what is pinned.
        A name that stands elsewhere moves only with `force`."""
        from holdfast.operations import tags as tagging

        text, id_ = arguments.tag(name), ids.from_text(checkpoint_id)
        return await tagging.tag(self._services, text, id_, force=force, origin=self._origin())

    async def untag(self, name: str) -> bool:
        """Removes the name, and nothing else; False if there is no such tag."""
        from holdfast.operations import tags as tagging

        return await tagging.untag(self._services, arguments.name("name", name), origin=self._origin())

    async def tagged(self, name: str) -> Tag | None:
        """The tag of that name, None if there is none."""
        from holdfast.operations import tags as tagging

        return await tagging.tagged(self._services, arguments.name("name", name))

    async def tags(self) -> list[Tag]:
        """All tags, by name."""
        from holdfast.operations import tags as tagging

        return await tagging.tags(self._services)

    async def unexpire(self, checkpoint_id: str) -> bool:
        """Undoes `expire`, as long as `gc` has not run since; False if it had not expired. Sessions that stood at it stand
        at its ancestor now: `rollback` moves them back."""
        from holdfast.operations import unexpire as unexpiring

        return await unexpiring.unexpire(self._services, ids.from_text(checkpoint_id), origin=self._origin())

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
        """Lets go what a policy does not keep: expires it, and collects. A dry run unless `dry_run=False`.

        What sessions stand at, what is pinned or tagged, handoffs that wait, and all that is younger than `older_than`
        always stay.
        `keep_last=N` keeps the newest N of each session, `keep_every=N` each Nth. With `max_bytes` only as much goes,
        oldest first, as needed for that. `session_id` and `agent_id` narrow what may go.
        """
        from holdfast.operations import retain as retaining

        return await retaining.retain(
            self._services,
            arguments.policy(policy, keep_last, keep_every, older_than, max_bytes),
            session_id=arguments.optional_name("session_id", session_id),
            agent_id=arguments.optional_name("agent_id", agent_id),
            dry_run=dry_run,
            origin=self._origin(),
        )

    async def freed_by(self, checkpoint_ids: Sequence[str]) -> int:
        """About how many bytes `gc` frees more once these checkpoints have expired: what only they need. Nothing is changed."""
        from holdfast.operations import retain as retaining

        return await retaining.freed_by(self._services, [ids.from_text(id_) for id_ in checkpoint_ids])

    async def du(
        self, session_id: str | None = None, *, progress: Callable[[int, int], None] | None = None
    ) -> StoreUsage:
        """What the store takes, by session and by kind; with `session_id` that one alone is listed. Reads every record:
        `progress` is called with how many are done, and how many there are."""
        from holdfast.operations import usage

        name = arguments.optional_name("session_id", session_id)
        return await usage.du(self._services, name, progress=progress)

    async def gc(self, *, dry_run: bool = False) -> CollectionReport:
        """Ends what has outlived its TTL, and removes what no live checkpoint needs. Safe beside other writers."""
        from holdfast.operations import collect as collecting

        return await collecting.collect(self._services, dry_run=dry_run)

    async def verify(self, session_id: str | None = None) -> VerifyReport:
        """Reads everything, of the store or of one session, and checks it."""
        from holdfast.operations import inspect as inspecting

        return await inspecting.verify(self._services, arguments.optional_name("session_id", session_id))

    async def check_migrations(
        self,
        session_id: str | None = None,
        agent_id: str | None = None,
        *,
        every: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> MigrationReport:
        """Restores and migrates the heads of all sessions, or of one, or of an agent's, and says which would not resume
        with the migrations and types that are registered here; with `every`, all checkpoints. Changes nothing.
        `progress` is called with how many are done, and how many there are."""
        from holdfast.operations import migrate as migrating

        return await migrating.check(
            self._services,
            session_id=arguments.optional_name("session_id", session_id),
            agent_id=arguments.optional_name("agent_id", agent_id),
            every=every,
            progress=progress,
        )

    async def runs(self, *, alive: bool = False) -> list[RunStatus]:
        """The sessions that runs, or others with a lease, are or were at work on: those that are alive first, then those
        that wait for an approval, then those that have stopped; only the first with `alive`."""
        from holdfast.operations import overview as looking

        return await looking.runs(self._services, alive=alive)

    async def overview(self, *, sizes: bool = True) -> Overview:
        """What the store is, how much it takes, who is at work in it, and how many approvals wait. Quicker than `stats` and
        `du`, which read every record; without `sizes` it takes no longer than a list of sessions."""
        from holdfast.operations import overview as looking

        return await looking.overview(self._services, sizes=sizes)

    async def stats(self) -> Stats:
        """How much is stored, and how much it would be without sharing."""
        from holdfast.operations import inspect as inspecting

        return await inspecting.stats(self._services)
