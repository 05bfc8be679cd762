"""The check of the arguments of `client.run`."""

from __future__ import annotations

from typing import Any, cast

from holdfast.errors import UsageError
from holdfast.format.state import run_journal
from holdfast.model.approval import DEFAULT_SECONDS, Policy
from holdfast.model.framework import Framework
from holdfast.model.run_policy import Autosave
from holdfast.operations import validate
from holdfast.runs import engine


def options(
    session_id: Any,
    agent_id: Any,
    framework: Any,
    state: Any,
    context: Any,
    save: engine.Save | None,
    app_version: Any,
    state_version: Any,
    autosave: Any,
    on_save_error: Any,
    policy: Any,
    approval_wait: Any,
    approval_seconds: Any,
) -> engine.RunOptions:
    if context is not None and (not isinstance(context, dict) or run_journal.KEY in context):
        raise UsageError(f"context must be a dict without the key {run_journal.KEY!r}, which is the run's own")
    return engine.RunOptions(
        session_id=validate.name("session_id", session_id),
        agent_id=validate.name("agent_id", agent_id),
        framework=Framework.of(framework),
        save=save,
        state=state,
        context=context,
        app_version=validate.optional_name("app_version", app_version),
        state_version=validate.state_version(state_version),
        autosave=_autosave(autosave),
        on_save_error=validate.one_of("on_save_error", on_save_error, ("raise", "warn")),
        policy=_policy(policy),
        approval_wait=None if approval_wait is None else validate.seconds("approval_wait", approval_wait, least=0),
        approval_seconds=DEFAULT_SECONDS
        if approval_seconds is None
        else validate.seconds("approval_seconds", approval_seconds, least=0.001),
    )


def _policy(given: Any) -> Policy | None:
    """Check the policy before the run: an invalid one would stop an effect in the middle of it."""
    is_policy = not isinstance(given, type) and callable(getattr(given, "gate", None)) and hasattr(given, "approvers")
    if given is not None and not is_policy:
        raise UsageError(
            f"policy is {given!r:.60}: it must be an object with `gate(call)` and `approvers`, such as StakesPolicy()"
        )
    return cast("Policy | None", given)


def _autosave(given: Any) -> Autosave:
    """Return a policy, given as one, a number of steps, "step" for each of them, or None for never."""
    if isinstance(given, Autosave):
        return given
    if given is None:
        return Autosave(steps=None)
    if given == "step":
        return Autosave()
    if isinstance(given, int) and not isinstance(given, bool):
        return Autosave(steps=given)
    raise UsageError(f"autosave is {given!r:.60}: it must be 'step', a number of steps, an Autosave, or None")
