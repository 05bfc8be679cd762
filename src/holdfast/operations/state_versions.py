"""The versions of the user's own states: which one a save has, and how a restore brings an older one up to date."""

from __future__ import annotations

from typing import Any

from holdfast.errors import NewerStateError, UsageError
from holdfast.model import ids
from holdfast.model.migrations import FIRST_VERSION, Step
from holdfast.objects.record import Stored
from holdfast.operations.arguments import SaveRequest
from holdfast.operations.services import Services


def of_save(services: Services, request: SaveRequest) -> int:
    """The version of the state that is saved: as given, else the newest that this program's migrations know."""
    if request.state_version is not None:
        return request.state_version
    return services.migrations.newest(request.agent_id) or FIRST_VERSION


def check_parent(services: Services, request: SaveRequest, version: int, parent: Stored | None) -> None:
    """Refuses to put an unmarked state after a newer one of the same agent: whoever saves it does not know of the newer
    version, so its state would be taken for something that it may not be. And refuses to append to a list of another
    version: the list would be of two."""
    if parent is None or not (request.append or "sv" in parent.header):
        return  # nothing is lower than the first version
    was, is_own = parent.state_version, parent.header["agent"] == request.agent_id
    if is_own and was > version and request.state_version is None:
        raise NewerStateError(
            f"session {request.session_id!r:.60} stands at {ids.to_text(parent.id)}, whose state version is {was}, and "
            f"this save does not say its own: the program knows only version {version} of agent {request.agent_id!r:.60}. "
            f"Nothing was saved. Run the newer program, or say which it is: state_version={was} or state_version={version}"
        )
    if not request.append:
        return
    expected = version if is_own else services.migrations.newest(parent.header["agent"]) or was
    if was != expected:
        raise UsageError(
            f"append: the parent {ids.to_text(parent.id)} has state version {was}, and what would follow its lists is of "
            f"version {expected}. Save the whole state once (`latest` gives it, migrated), then append to that"
        )


def steps_of(services: Services, stored: Stored) -> tuple[Step, ...]:
    """What brings the state of that record to the newest version; raises if nothing can."""
    agent, version = stored.header["agent"], stored.state_version
    return services.migrations.steps(agent, version, f"checkpoint {ids.to_text(stored.id)}")


def migrated(steps: tuple[Step, ...], state: tuple[Any, Any]) -> tuple[Any, Any]:
    for step in steps:
        state = step.apply(*state)
    return state
