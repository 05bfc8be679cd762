"""Checking what `client.run` was given."""

from __future__ import annotations

from typing import Any, cast

from holdfast.errors import UsageError
from holdfast.model.approval import DEFAULT_SECONDS, Policy
from holdfast.model.framework import Framework
from holdfast.objects import journal
from holdfast.operations import arguments
from holdfast.runs import core


def options(
    session_id: Any,
    agent_id: Any,
    framework: Any,
    state: Any,
    context: Any,
    save: core.Save | None,
    app_version: Any,
    state_version: Any,
    autosave: Any,
    on_save_error: Any,
    policy: Any,
    approval_wait: Any,
    approval_seconds: Any,
) -> core.Options:
    if context is not None and (not isinstance(context, dict) or journal.KEY in context):
        raise UsageError(f"context must be a dict without the key {journal.KEY!r}, which is the run's own")
    return core.Options(
        session_id=arguments.name("session_id", session_id),
        agent_id=arguments.name("agent_id", agent_id),
        framework=Framework.of(framework),
        save=save,
        state=state,
        context=context,
        app_version=arguments.optional_name("app_version", app_version),
        state_version=arguments.state_version(state_version),
        autosave=core.autosave(autosave),
        on_save_error=arguments.one_of("on_save_error", on_save_error, ("raise", "warn")),
        policy=_policy(policy),
        approval_wait=None if approval_wait is None else arguments.seconds("approval_wait", approval_wait, least=0),
        approval_seconds=DEFAULT_SECONDS
        if approval_seconds is None
        else arguments.seconds("approval_seconds", approval_seconds, least=0.001),
    )


def _policy(given: Any) -> Policy | None:
    """Before anything is done: what can't be asked later would stop an effect in the middle of the run."""
    is_one = not isinstance(given, type) and callable(getattr(given, "gate", None)) and hasattr(given, "approvers")
    if given is not None and not is_one:
        raise UsageError(
            f"policy is {given!r:.60}: it must be an object with `gate(call)` and `approvers`, such as StakesPolicy()"
        )
    return cast("Policy | None", given)
