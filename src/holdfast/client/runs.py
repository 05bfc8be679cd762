"""The part of the client for runs, their effects and their sub-agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.client.factory import ClientBase
from holdfast.model import ids
from holdfast.model.framework import Framework
from holdfast.model.lease import DEFAULT_SECONDS, LeaseTerms
from holdfast.operations import resolve_target, validate

if TYPE_CHECKING:
    from holdfast.coordination.lease import Acquisition
    from holdfast.model.approval import Policy
    from holdfast.model.effect import EffectRecord
    from holdfast.model.run_policy import SubagentTrace
    from holdfast.runs.api import Run, SyncRun
    from holdfast.runs.engine import RunOptions


class ClientRuns(ClientBase):
    """The part of `Client` that runs programs."""

    def run(
        self,
        session_id: str,
        agent_id: str = "agent",
        framework: Framework | str = Framework.CUSTOM,
        *,
        state: Any = None,
        context: dict[str, Any] | None = None,
        workspace: Any = None,
        app_version: str | None = None,
        state_version: int | None = None,
        autosave: Any = "step",
        on_save_error: str = "raise",
        policy: Policy | None = None,
        approval_wait: float | None = 0.0,
        approval_seconds: float | None = None,
        seconds: float = DEFAULT_SECONDS,
        wait: float = DEFAULT_SECONDS,
        holder: str | None = None,
        lease: LeaseTerms | None = None,
    ) -> Acquisition[Run, SyncRun]:
        """Opens a run: a program that resumes where it stopped. docs/runs.md says what runs promise.

        `async with client.run("order-42", agent_id="buyer") as run:`, then `await run.step(...)`,
        `run.effect(...)`, `run.tasks(...)`.

        Holds the session's lease, which is renewed in the background: if another has it, waits for
        at most `wait` seconds, then raises `LeaseHeldError`; a holder that died on this machine is
        replaced at once. Resumes if the session exists; `state` and `context` are for the first
        time. With `workspace` each checkpoint has a snapshot of these files. A `lease` that the
        caller has, such as `claim.lease`, is used instead of a new one, and is not released.

        Saves after each step: `autosave` is "step", a number of steps, an `Autosave`, or None. A
        save that fails raises; with `on_save_error="warn"` it is logged, and the run continues.
        `policy` decides which effects wait for approval, for at most `approval_wait` seconds
        (None: no limit); then `ApprovalPendingError` ends the run, and the next one resumes there.
        An approval is valid for `approval_seconds` from when it was requested (None: a day).
        """
        from holdfast.runs import options as runopening

        save = None if workspace is None else self._open_workspace(workspace).save
        options = runopening.options(
            session_id, agent_id, framework, state, context, save, app_version, state_version, autosave,
            on_save_error, policy, approval_wait, approval_seconds,
        )  # fmt: skip
        validate.session_under(lease, options.session_id)
        return self._acquire_run(options, seconds, wait, holder, lease)

    def _acquire_run(
        self,
        options: RunOptions,
        seconds: float = DEFAULT_SECONDS,
        wait: float = DEFAULT_SECONDS,
        holder: str | None = None,
        lease: LeaseTerms | None = None,
    ) -> Acquisition[Run, SyncRun]:
        from holdfast.coordination import lease as leases
        from holdfast.runs import api

        return leases.Acquisition(
            lambda: api.open_run(self._ctx, options, seconds, wait, holder, lease=lease),
            lambda: api.open_sync_run(self._ctx, options, seconds, wait, holder, lease=lease),
        )

    async def effects(self, session_id: str | None = None, *, in_doubt: bool = False) -> list[EffectRecord]:
        """Lists the effects in the ledger of the session's tree, or of all, the latest first.

        With `in_doubt` only those with an unknown outcome.
        """
        from holdfast.operations import ledger

        name = validate.optional_name("session_id", session_id)
        return await ledger.effects(self._ctx, session_id=name, in_doubt=in_doubt)

    async def traces(self, ref: str) -> tuple[SubagentTrace, ...]:
        """Returns the traces of a run's sub-agents as of a checkpoint.

        `ref` names the checkpoint as for `fork`: by its id, a tag, or a session, which stands for
        its head. Within the run, `run.traces` has them.
        """
        from holdfast.runs import subagent

        return await subagent.stored_traces(self._ctx, await resolve_target.id_of(self._ctx, ref))

    async def resolve_effect(
        self, effect_id: str, outcome: str, *, result: Any = None, by: str, note: str | None = None
    ) -> EffectRecord:
        """Records the outcome of an effect whose outcome is unknown.

        "done", with its `result`, or "not_done": then it may be carried out. "acknowledge" says of
        one that is done that it may stay so, and blocks no other any more. `by` is who says so.
        """
        from holdfast.operations import ledger

        return await ledger.resolve(
            self._ctx,
            ids.from_text(effect_id, "an effect's id", "`effects` lists them"),
            outcome=validate.one_of("outcome", outcome, ("done", "not_done", "acknowledge")),
            result=result,
            by=validate.name("by", by),
            note=validate.optional_name("note", note),
        )
