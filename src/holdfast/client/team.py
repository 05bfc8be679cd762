"""The part of the client for teams: who works on what, and how their work is ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.client.factory import ClientBase
from holdfast.errors import UsageError
from holdfast.operations import validate

if TYPE_CHECKING:
    from holdfast.model.cancellation import CancelReport
    from holdfast.model.team import Team


class ClientTeam(ClientBase):
    """The part of `Client` that is about several agents."""

    async def cancel(
        self, session_id: str, *, by: str | None = None, reason: str = "", dry_run: bool = False
    ) -> CancelReport:
        """Cancels a session, and all work that it delegated, at any depth.

        Their workers' next commits raise `RunCancelledError`, whatever they do; a call that is
        under way is not stopped. The sessions can't be resumed; `fork` continues from a checkpoint
        of one. Open handoffs and delegations leave their inboxes, and open approvals are void.
        Answered delegations stay.

        The report names each session with its effects, doubts and undos. Repeating it is a no-op.
        With `dry_run` nothing is done. `by` is who decided so, else this process.
        """
        from holdfast.client.history import decided_by
        from holdfast.operations import cancel as cancelling

        decider = decided_by(by)
        if "\n" in decider:
            raise UsageError(f"by is {decider!r:.60}: it must be one line")
        return await cancelling.cancel(
            self._ctx,
            validate.name("session_id", session_id),
            by=decider,
            reason=validate.name("reason", reason),
            dry_run=dry_run,
        )

    async def team(self, session_id: str) -> Team:
        """Returns a session and the work that it delegated: who holds what, and who waits for whom.

        A wait is listed once it has lasted a second. `team.unserved` has the waits for work that
        no live worker has.
        """
        from holdfast.operations import team as teams

        return await teams.team(self._ctx, validate.name("session_id", session_id))
