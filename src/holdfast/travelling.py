"""What a client does to look at a line of execution and at others: references, differences, comparisons, bisection."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from holdfast.errors import CheckpointNotFoundError
from holdfast.model import ids
from holdfast.opening import Opening
from holdfast.operations import arguments

if TYPE_CHECKING:
    from holdfast.model.bisection import Bisection
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.comparison import Comparison
    from holdfast.model.diff import Diff


class Travelling(Opening):
    """The part of `Client` that looks back and sideways."""

    async def resolve(self, ref: str) -> str:
        """The id of the checkpoint that a reference means: an id, the last eight or more digits of one, a tag, a session,
        or a place: `SESSION@-`, `SESSION@~3`, `SESSION@{12}` (a step), `SESSION@{plan}` (its name),
        `SESSION@{2026-11-16}` (a date)."""
        from holdfast.operations import refs

        return ids.to_text(await refs.resolve(self._services, arguments.name("ref", ref)))

    async def diff(self, a: str, b: str) -> Diff:
        """What leads from checkpoint `a` to checkpoint `b`: edits of state, context, metadata and tasks, for programs
        (`apply`, `json_patch`) and for people (`text`). Only what differs is read."""
        from holdfast.operations import diff as differing

        return await differing.diff(self._services, ids.from_text(a), ids.from_text(b))

    async def compare(self, session_a: str, session_b: str) -> Comparison:
        """Two sessions side by side: where they parted, their steps, cost and usage since (as far as metadata records
        them), and what differs between the checkpoints they stand at."""
        from holdfast.model import comparison
        from holdfast.operations import diff as differing

        lines = [await self._line(arguments.name("session_id", session)) for session in (session_a, session_b)]
        ancestor = comparison.parted_at(*lines)
        heads = [ids.from_text(line[0].checkpoint_id) for line in lines]
        return comparison.Comparison(
            ancestor=ancestor,
            a=comparison.side(session_a, lines[0], ancestor),
            b=comparison.side(session_b, lines[1], ancestor),
            diff=await differing.diff(self._services, heads[0], heads[1]),
        )

    async def bisect(self, session_id: str, predicate: Callable[[Checkpoint], bool | Awaitable[bool]]) -> Bisection:
        """The first checkpoint, on the way to what the session stands at, of which `predicate(checkpoint)`, which is given
        its state, says False: the step where it went bad. Looks at O(log n) of them."""
        from holdfast.model.bisection import Search
        from holdfast.operations import restore as restoring

        name = arguments.name("session_id", session_id)
        search = Search((await self._line(name))[::-1])
        while (candidate := search.next()) is not None:
            answer = predicate(await restoring.restore(self._services, ids.from_text(candidate.checkpoint_id)))
            search.tell(is_good=bool(await answer if inspect.isawaitable(answer) else answer))
        return search.found(name)

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
