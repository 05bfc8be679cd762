"""The versions of the user's own states: the version of a save, and the migration at a restore."""

from __future__ import annotations

from typing import Any

from holdfast.errors import NewerStateError, UsageError
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.state_migration import FIRST_VERSION, MigrationStep
from holdfast.operations.context import StoreContext
from holdfast.operations.validate import SaveRequest


def choose_version(ctx: StoreContext, request: SaveRequest) -> int:
    """Return the version of the state to save: as given, else the newest of this program's migrations."""
    if request.state_version is not None:
        return request.state_version
    return ctx.migrations.newest(request.agent_id) or FIRST_VERSION


def check_parent(ctx: StoreContext, request: SaveRequest, version: int, parent: StoredRecord | None) -> None:
    """Refuse an unmarked state after a newer one of the same agent, and appends across versions.

    A program that saves an unmarked state does not know the newer version, so its state could be
    taken for that version. A list with an append across versions would be of two versions.
    """
    if parent is None or not (request.append or "sv" in parent.header):
        return  # nothing is lower than the first version
    was, is_own = parent.state_version, parent.header["agent"] == request.agent_id
    if is_own and was > version and request.state_version is None:
        raise NewerStateError(
            f"session {request.session_id!r:.60} stands at {ids.to_text(parent.id)}, whose state version is {was}, and "
            f"this save does not say its own: the program knows only version {version} of agent "
            f"{request.agent_id!r:.60}. "
            f"Nothing was saved. Run the newer program, or say which it is: state_version={was} or "
            f"state_version={version}"
        )
    if not request.append:
        return
    expected = version if is_own else ctx.migrations.newest(parent.header["agent"]) or was
    if was != expected:
        raise UsageError(
            f"append: the parent {ids.to_text(parent.id)} has state version {was}, and what would follow its lists is "
            f"of version {expected}. Save the whole state once (`latest` gives it, migrated), then append to that"
        )


def steps_of(ctx: StoreContext, stored: StoredRecord) -> tuple[MigrationStep, ...]:
    """Return the migrations of that record's state to the newest version; raise if there is no path."""
    agent, version = stored.header["agent"], stored.state_version
    return ctx.migrations.steps(agent, version, f"checkpoint {ids.to_text(stored.id)}")


def migrate(steps: tuple[MigrationStep, ...], state: tuple[Any, Any]) -> tuple[Any, Any]:
    for step in steps:
        state = step.apply(*state)
    return state
