"""The part of the client for references, forks, replays, diffs, comparisons and bisection."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from holdfast.client.factory import ClientBase
from holdfast.errors import UsageError
from holdfast.model import ids
from holdfast.operations import resolve_target, validate

if TYPE_CHECKING:
    from holdfast.model.bisect import Bisection
    from holdfast.model.comparison import Comparison
    from holdfast.model.diff import Diff
    from holdfast.model.path_edit import Edits
    from holdfast.model.replay import ReplayReport
    from holdfast.model.reports import ForkReport
    from holdfast.model.snapshot import Snapshot

Directory = str | os.PathLike[str]


class ClientHistory(ClientBase):
    """The part of `Client` that reads history and branches off from it."""

    async def resolve(self, ref: str) -> str:
        """Returns the id of the checkpoint that a reference means.

        A reference is an id, the last eight or more digits of one, a tag, a session, or a place:
        `SESSION@-`, `SESSION@~3`, `SESSION@{12}` (a step), `SESSION@{plan}` (its name),
        `SESSION@{2026-11-16}` (a date).
        """
        from holdfast.operations import resolve as refs

        return ids.to_text(await refs.resolve(self._ctx, validate.name("ref", ref)))

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
        """Runs the session's program again from one of its checkpoints, on a fork.

        The session itself stays as it is. `program` is what was run under `client.run`, a function
        that takes the run; or a LangGraph graph. Left out, it is the one that was registered for
        the agent (`@holdfast.program("buyer")`). `from_` is the checkpoint to start from: what it
        has recorded is the past. Without it everything is replayed, from the first checkpoint's
        state on.

        `mode` decides about steps: "recorded" returns what was recorded and calls nothing, "live"
        calls them, "mixed" returns what was recorded as long as the arguments are the same, and
        calls from the first difference on. `steps={"plan": "live"}` decides for single ones by
        name. Effects that are not served follow the ledger: what was done is not done again unless
        `on_repeat`, or the effect's own, says so. `set` and `workspace` are as in `fork`, `name`
        is the fork's (without it, `order-42-replay-1`). What the program raises ends the replay,
        and is in the report.
        """
        from holdfast.client import replay as replays

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
        include_git: bool = False,
        include_set_id: bool = False,
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
        include_git: bool = False,
        include_set_id: bool = False,
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
        include_git: bool = False,
        include_set_id: bool = False,
        new_id: str | None = None,
        strict: bool = False,
        acknowledge: Sequence[str] = (),
        by: str | None = None,
    ) -> ForkReport | list[ForkReport]:
        """Starts a new session from the checkpoint that `ref` means. Takes the same time at any size.

        `resolve` says how `ref` may name it. Nothing is copied. `set={"messages.-1.content": "…"}`
        edits the state in the same commit: the first checkpoint of the fork has these values at
        these paths (`holdfast.model.path_edit` documents them). A list of such edits makes as many
        forks, all of them or none, and returns a list of reports; `session_id` and `workspace`
        then are lists, too, or the stem of names that end in `-1`, `-2`, …

        `workspace` is a new directory for the files of the checkpoint; `include_git` and
        `include_set_id` are as in `Workspace.fork`. `new_id` is the id of the fork's first
        checkpoint, and makes a retry safe. The report names the effects that were carried out
        elsewhere in the tree; `strict` and `acknowledge` are as in `rollback`. Without
        `session_id` the session is named after its source, `order-42-fork-1`.
        """
        return await self._fork(
            ref, session_id, set=set, workspace=workspace, include_git=include_git, include_set_id=include_set_id,
            new_id=new_id, strict=strict, acknowledge=acknowledge, by=by,
        )  # fmt: skip

    async def _fork(
        self,
        ref: str,
        session_id: str | Sequence[str] | None,
        *,
        set: Edits | Sequence[Edits] | None,  # noqa: A002 - as above
        workspace: Directory | Sequence[Directory] | None,
        name_like: str | None = None,
        include_git: bool = False,
        include_set_id: bool = False,
        new_id: str | None = None,
        strict: bool = False,
        acknowledge: Sequence[str] = (),
        by: str | None = None,
    ) -> ForkReport | list[ForkReport]:
        """Fork as `fork` does; an unnamed session gets a number after `name_like`."""
        from holdfast.operations import fork as forking

        is_many = set is not None and not isinstance(set, Mapping)
        edits = _edits(set)
        names = _spread_over_forks("session_id", session_id, len(edits), is_many=is_many)
        if new_id is not None and is_many:
            raise UsageError("new_id is the id of one fork's first checkpoint: make several forks without it")
        ways = [
            forking.ForkRequest(
                session_id=validate.optional_name("session_id", name),
                name_like=name_like,
                new_id=validate.optional_id(new_id),
                edits=edit,
            )
            for name, edit in zip(names, edits, strict=True)
        ]
        source = await resolve_target.id_of(self._ctx, ref)
        places = _spread_over_forks("workspace", workspace, len(edits), is_many=is_many)

        async def make(ways: Sequence[forking.ForkRequest]) -> list[ForkReport]:
            return await forking.forks(
                self._ctx,
                source,
                ways,
                strict=strict,
                acknowledge=validate.ids_of("acknowledge", acknowledge),
                by=decided_by(by),
                origin=self._origin(by),
            )

        if workspace is None:
            reports = await make(ways)
        else:
            import dataclasses

            from holdfast.workspace import fork as directories
            from holdfast.workspace.restore.admission import SnapshotAdmission

            admission = SnapshotAdmission(include_git, include_set_id)
            made, reports = await directories.fork_directories(self._ctx, source, places, ways, make, admission)
            reports = [
                dataclasses.replace(report, directory=place, left=made_directory.left)
                for report, (place, made_directory) in zip(reports, made, strict=True)
            ]
        return reports if is_many else reports[0]

    async def diff(self, a: str, b: str) -> Diff:
        """Compares two checkpoints: the edits that lead from `a` to `b`.

        `a` and `b` are ids, or references as `resolve` takes them. The diff has edits of state,
        context, metadata and tasks, for programs (`apply`, `json_patch`) and for people (`text`);
        steps and effects that only one of them has; files, where both have a snapshot. Only what
        differs is read.
        """
        from holdfast.operations import diff as differing

        return await differing.diff(
            self._ctx, await resolve_target.id_of(self._ctx, a), await resolve_target.id_of(self._ctx, b)
        )

    async def snapshot_of(self, ref: str) -> Snapshot | None:
        """Returns the snapshot of files that a checkpoint was saved with; None if it has none.

        It says how many files there are, what was left out and why; `not_taken` if one was
        requested and a limit prevented it.
        """
        from holdfast.operations import snapshot_read

        return await snapshot_read.load_snapshot(self._ctx, await resolve_target.id_of(self._ctx, ref))

    async def read_file(self, ref: str, path: str | bytes) -> bytes:
        """Returns the bytes of a file, by its path in the workspace, as of a checkpoint.

        If the checkpoint has no snapshot, the nearest one before it that has one counts.
        """
        from holdfast.operations import snapshot_read

        id_ = await resolve_target.id_of(self._ctx, ref)
        return await snapshot_read.read_file(self._ctx, id_, os.fsencode(path), ref)

    async def compare(self, session_a: str, session_b: str) -> Comparison:
        """Compares two sessions since their common ancestor: steps, cost, usage and state.

        Cost and usage are known as far as metadata records them. States are those of the heads.
        """
        from holdfast.operations import compare as comparing

        a, b = validate.name("session_id", session_a), validate.name("session_id", session_b)
        return await comparing.compare(self._ctx, a, b)

    async def bisect(
        self, session_id: str, predicate: Callable[..., bool | Awaitable[bool]], *, files: bool = False
    ) -> Bisection:
        """Finds the first checkpoint on the way to the session's head that `predicate` rejects.

        `predicate(checkpoint)` is given the checkpoint with its state. O(log n) of them are
        restored. With `files`, `predicate(checkpoint, directory)` is also given its files, in a
        temporary directory; None if neither it nor any before it has a snapshot.
        """
        from holdfast.operations import bisect as bisecting

        make_directory: bisecting.MakeDirectory | None = None
        if files:
            from holdfast.workspace import fork as directories

            make_directory = directories.temporary_checkout
        return await bisecting.bisect(self._ctx, validate.name("session_id", session_id), predicate, make_directory)


def decided_by(given: str | None) -> str:
    """Return the name of the decider: the given one, or this process."""
    from holdfast.coordination import process

    return process.default_holder() if given is None else validate.name("by", given)


def _edits(given: Any) -> list[Edits]:
    """Return the edits of each requested fork: one, unless a list was given."""
    ways = [given or {}] if given is None or isinstance(given, Mapping) else given
    if (
        isinstance(ways, str | bytes)
        or not isinstance(ways, Sequence)
        or not all(isinstance(way, Mapping) for way in ways)
    ):
        raise UsageError(
            f"set is a {type(given).__name__}: it must map paths to values, such as set={{'plan.0': 'search'}}; a list "
            "of such edits makes as many forks"
        )
    if not ways:
        raise UsageError("set is an empty list: it would make no fork. Leave it out to fork without an edit")
    return list(ways)


def _spread_over_forks(parameter: str, given: Any, count: int, *, is_many: bool) -> list[Any]:
    """Return each fork's value; a single name becomes numbered names if there are several forks."""
    if given is None:
        return [None] * count
    if isinstance(given, str | os.PathLike):
        if not is_many:
            return [given]
        name = os.fspath(given)
        return [f"{name}-{number}" for number in range(1, count + 1)]
    listed = list(given) if is_many and isinstance(given, Sequence) else None
    if listed is None or len(listed) != count:
        raise UsageError(
            f"{parameter} is {given!r:.80}: it must be one, or a list with one for each of the {count} forks"
        )
    return listed
