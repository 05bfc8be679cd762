"""What a client does to go other ways from a checkpoint, and to look at lines of execution: references, forks, differences,
comparisons, bisection."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from holdfast.errors import CheckpointNotFoundError, UsageError
from holdfast.model import ids
from holdfast.opening import Opening
from holdfast.operations import arguments

if TYPE_CHECKING:
    from holdfast.model.bisection import Bisection
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.comparison import Comparison
    from holdfast.model.diff import Diff
    from holdfast.model.editing import Edits
    from holdfast.model.replay import ReplayReport
    from holdfast.model.reports import ForkReport
    from holdfast.model.workspace import Snapshot

Directory = str | os.PathLike[str]
SESSION_VERSION = 4  # of the UUIDs that sessions without a name are called by


class Travelling(Opening):
    """The part of `Client` that looks back and sideways."""

    _is_plain = False  # whether what callers give is called on the spot, without an event loop

    async def resolve(self, ref: str) -> str:
        """The id of the checkpoint that a reference means: an id, the last eight or more digits of one, a tag, a session,
        or a place: `SESSION@-`, `SESSION@~3`, `SESSION@{12}` (a step), `SESSION@{plan}` (its name),
        `SESSION@{2026-11-16}` (a date)."""
        from holdfast.operations import refs

        return ids.to_text(await refs.resolve(self._services, arguments.name("ref", ref)))

    async def replay(
        self,
        session_id: str,
        program: Any = None,
        *,
        from_: str | None = None,
        mode: str = "recorded",
        steps: Mapping[str, str] | None = None,
        set: Edits | None = None,  # noqa: A002 - as in `fork`
        workspace: Directory | None = None,
        name: str | None = None,
        on_repeat: str | None = None,
        policy: Any = None,
    ) -> ReplayReport:
        """Runs the session's program once more from a checkpoint of it, on a fork: the session itself stays as it is.

        `program` is what was run under `client.run`, as a function that is given the run; or a LangGraph graph; left out, the
        one that was registered for the agent (`@holdfast.program("buyer")`). `from_` is the checkpoint to go on from: what it has recorded is the past.
        Without it everything is replayed, from the first checkpoint's state on. `mode` says what becomes of the steps:
        "recorded" serves what was recorded and calls nothing, "live" calls them, "mixed" serves as long as they
        are asked the same as then, and calls from the first difference on. `steps={"plan": "live"}` decides for single ones
        by name. Effects that are not served follow the ledger: what was done is not done again unless `on_repeat`, or
        the effect's own, says so. `set` and `workspace` are as in `fork`, `name` is the fork's. What the program raises
        ends the replay, and is in the report.
        """
        from holdfast import replays

        request = replays.request(
            session_id, program, from_=from_, mode=mode, steps=steps, edits=set, workspace=workspace, name=name,
            on_repeat=on_repeat, policy=policy,
        )  # fmt: skip
        return await replays.replay(self, request, plainly=self._is_plain)

    @overload
    async def fork(
        self,
        ref: str,
        session_id: str | None = None,
        *,
        set: Edits | None = None,
        workspace: Directory | None = None,
        new_id: str | None = None,
        strict: bool = False,
        acknowledge: Sequence[str] = (),
        by: str | None = None,
    ) -> ForkReport: ...

    @overload
    async def fork(
        self,
        ref: str,
        session_id: str | Sequence[str] | None = None,
        *,
        set: Sequence[Edits],
        workspace: Directory | Sequence[Directory] | None = None,
        new_id: str | None = None,
        strict: bool = False,
        acknowledge: Sequence[str] = (),
        by: str | None = None,
    ) -> list[ForkReport]: ...

    async def fork(
        self,
        ref: str,
        session_id: str | Sequence[str] | None = None,
        *,
        set: Edits | Sequence[Edits] | None = None,  # noqa: A002 - as above
        workspace: Directory | Sequence[Directory] | None = None,
        new_id: str | None = None,
        strict: bool = False,
        acknowledge: Sequence[str] = (),
        by: str | None = None,
    ) -> ForkReport | list[ForkReport]:
        """A new session that goes on from the checkpoint that `ref` means (`resolve` says how it may be named). Nothing is
        copied: it takes the same time at any size.

        `set={"messages.-1.content": "…"}` makes an edit in the same act: the first checkpoint of the fork has these values
        at these paths (`holdfast.model.editing` says which there are). A list of such edits makes as many forks, all of them
        or none, and gives a list of reports; `session_id` and `workspace` then are lists, too, or what `-1`, `-2`, … is
        added to. `workspace` is a directory to be made, with the files of the checkpoint. `new_id` is the id of the
        fork's first checkpoint, and makes a repetition safe. The report names the effects that were carried out
        elsewhere in the tree; `strict` and `acknowledge` are as in `rollback`."""
        from holdfast.operations import fork as forking

        is_many = set is not None and not isinstance(set, Mapping)
        edits = _edits(set)
        names = _of_each("session_id", session_id, len(edits), is_many=is_many)
        if new_id is not None and is_many:
            raise UsageError("new_id is the id of one fork's first checkpoint: make several forks without it")
        ways = [
            forking.Way(
                session_id=arguments.optional_name("session_id", name),
                new_id=arguments.optional_id(new_id),
                edits=edit,
            )
            for name, edit in zip(names, edits, strict=True)
        ]
        source = await self._id_of(ref)
        places = _of_each("workspace", workspace, len(edits), is_many=is_many)

        async def make(ways: Sequence[forking.Way]) -> list[ForkReport]:
            return await forking.forks(
                self._services,
                source,
                ways,
                strict=strict,
                acknowledge=arguments.ids_of("acknowledge", acknowledge),
                by=decided_by(by),
                origin=self._origin(by),
            )

        if workspace is None:
            reports = await make(ways)
        else:
            import dataclasses

            from holdfast.workspace import forking as directories

            made, reports = await directories.beside(self._services, source, places, ways, make)
            reports = [
                dataclasses.replace(report, directory=place) for report, place in zip(reports, made, strict=True)
            ]
        return reports if is_many else reports[0]

    async def diff(self, a: str, b: str) -> Diff:
        """What leads from checkpoint `a` to checkpoint `b` (ids, or references as `resolve` takes them): edits of state,
        context, metadata and tasks, for programs (`apply`, `json_patch`) and for people (`text`); steps and effects that
        only one of them has; files, where both have a snapshot. Only what differs is read."""
        from holdfast.operations import diff as differing

        return await differing.diff(self._services, await self._id_of(a), await self._id_of(b))

    async def snapshot_of(self, ref: str) -> Snapshot | None:
        """The snapshot of files that a checkpoint was saved with: how many there are, what was left out and why; `not_taken` if
        one was asked for and a limit stood against it. None if it was saved without one."""
        from dataclasses import replace

        from holdfast.operations import reading, snapshots

        stored = await reading.live_record(self._services, await self._id_of(ref))
        reference = snapshots.reference_of(stored)
        if reference is None:
            return None
        snapshot = await snapshots.load(self._services, reference)
        return replace(snapshot, home=snapshots.home_of(stored))

    async def read_file(self, ref: str, path: str | bytes) -> bytes:
        """The bytes of a file, by its path in the workspace, as the checkpoint or the nearest one before it with a snapshot
        has it."""
        from holdfast.operations import reading, snapshots

        snapshot = await snapshots.nearest(
            self._services, await reading.live_record(self._services, await self._id_of(ref))
        )
        entry = None if snapshot is None else await snapshots.find(self._services, snapshot, os.fsencode(path))
        if entry is None or entry.kind != "file":
            where = "that snapshot" if snapshot is not None else f"{ref!r:.60}, which has no snapshot of files"
            raise CheckpointNotFoundError(f"there is no file {os.fsdecode(path)!r:.120} in {where}")
        return b"".join([piece async for piece in snapshots.content(self._services, entry)])

    async def compare(self, session_a: str, session_b: str) -> Comparison:
        """Two sessions side by side: where they parted, their steps, cost and usage since (as far as metadata records
        them), and what differs between the checkpoints they stand at."""
        from holdfast.model import comparison
        from holdfast.operations import diff as differing

        names = [arguments.name("session_id", session) for session in (session_a, session_b)]
        lines = [await self._line(name) for name in names]
        ancestor = comparison.parted_at(*lines)
        heads = [ids.from_text(line[0].checkpoint_id) for line in lines]
        sides = []
        for name, line, head in zip(names, lines, heads, strict=True):
            parted = ids.from_text(ancestor.checkpoint_id) if ancestor is not None else None
            since = await differing.diff(self._services, parted, head) if parted is not None else None
            sides.append(comparison.side(name, line, ancestor, since))
        return comparison.Comparison(
            ancestor=ancestor, a=sides[0], b=sides[1], diff=await differing.diff(self._services, heads[0], heads[1])
        )

    async def bisect(
        self, session_id: str, predicate: Callable[..., bool | Awaitable[bool]], *, files: bool = False
    ) -> Bisection:
        """The first checkpoint, on the way to what the session stands at, of which `predicate(checkpoint)`, which is given
        its state, says False: the step where it went bad. Looks at O(log n) of them. With `files`,
        `predicate(checkpoint, directory)` is given its files, too, in a directory that is gone afterwards; None if
        it has no snapshot, and none before it has one."""
        from holdfast.model.bisection import Search
        from holdfast.operations import restore as restoring

        name = arguments.name("session_id", session_id)
        search = Search((await self._line(name))[::-1])
        while (candidate := search.next()) is not None:
            id_ = ids.from_text(candidate.checkpoint_id)
            checkpoint = await restoring.restore(self._services, id_)
            if files:
                from holdfast.workspace import forking as directories

                async with directories.for_a_while(self._services, id_) as directory:
                    is_good = await _answer(predicate(checkpoint, directory))
            else:
                is_good = await _answer(predicate(checkpoint))
            search.tell(is_good=is_good)
        return search.found(name)

    async def _id_of(self, ref: str) -> bytes:
        """The id of the checkpoint that is meant. Whoever gives an id of ours is not made to wait for a search."""
        import uuid

        try:
            given = uuid.UUID(ref)
        except (ValueError, AttributeError, TypeError):
            given = None
        if given is not None and given.version != SESSION_VERSION:
            return given.bytes
        return ids.from_text(await self.resolve(ref))

    async def _line(self, session_id: str) -> list[Checkpoint]:
        """What the session stands at, and its ancestors, newest first, without their states."""
        from holdfast.operations import refs
        from holdfast.operations import timeline as listing

        session = await listing.session(self._services, session_id)
        if session is None:
            raise CheckpointNotFoundError(
                f"there is no session {session_id!r:.60} here. `sessions()` lists those that are there"
            )
        return await refs.line_of(self._services, ids.from_text(session.head.checkpoint_id))


async def _answer(given: bool | Awaitable[bool]) -> bool:
    import inspect

    return bool(await given if inspect.isawaitable(given) else given)


def decided_by(given: str | None) -> str:
    """Who decided something: a name, or this process."""
    from holdfast import processes

    return processes.default_holder() if given is None else arguments.name("by", given)


def _edits(given: Any) -> list[Edits]:
    """The edits of each way that was asked for: one, unless a list was given."""
    ways = [given or {}] if given is None or isinstance(given, Mapping) else given
    if (
        isinstance(ways, str | bytes)
        or not isinstance(ways, Sequence)
        or not all(isinstance(way, Mapping) for way in ways)
    ):
        raise UsageError(
            f"set is a {type(given).__name__}: it must map paths to values, such as set={{'plan.0': 'search'}}; a list of "
            "such edits makes as many forks"
        )
    if not ways:
        raise UsageError("set is an empty list: it would make no fork. Leave it out to fork without an edit")
    return list(ways)


def _of_each(what: str, given: Any, count: int, *, is_many: bool) -> list[Any]:
    """What each of the forks gets: of one name, with numbers behind it, if there are several."""
    if given is None:
        return [None] * count
    if isinstance(given, str | os.PathLike):
        if not is_many:
            return [given]
        name = os.fspath(given)
        return [f"{name}-{number}" for number in range(1, count + 1)]
    listed = list(given) if is_many and isinstance(given, Sequence) else None
    if listed is None or len(listed) != count:
        raise UsageError(f"{what} is {given!r:.80}: it must be one, or a list with one for each of the {count} forks")
    return listed
