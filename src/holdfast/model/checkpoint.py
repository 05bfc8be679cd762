"""The checkpoint: an immutable record of one agent at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.errors import StateNotLoadedError
from holdfast.model import ids
from holdfast.model.framework import Framework
from holdfast.model.record_version import SCHEMA_VERSION

STATE_FIELDS = ("execution_state", "agent_context")


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Checkpoint:
    """One agent at one moment. Never updated, only followed by a child.

    The fields that only a store can know (`checksum`, `sequence`, `tree_id`) are empty until it was
    saved. `state_version` is the version of the state here, `stored_state_version` that of the
    stored one, which a restore may have migrated; `schema_version` is that of holdfast's own
    envelope. Entries of a timeline carry everything but the state: reading `execution_state` or
    `agent_context` there raises `StateNotLoadedError`, which names `restore`.
    """

    checkpoint_id: str
    agent_id: str
    session_id: str
    parent_id: str | None = None
    framework: Framework = Framework.CUSTOM
    schema_version: str = SCHEMA_VERSION
    step_index: int | None = None
    step_name: str | None = None
    execution_state: Any = field(default_factory=dict)
    agent_context: Any = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    checksum: str = ""
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    ttl_seconds: float | None = None
    handoff_target: str | None = None
    handoff_schema: str | None = None
    tree_id: str = ""
    sequence: int = 0
    workspace: str | None = None
    tasks: Any = None
    app_version: str | None = None
    state_version: int | None = None
    stored_state_version: int | None = None

    @classmethod
    def assemble(cls, fields: dict[str, Any]) -> Checkpoint:
        """Return a checkpoint from valid fields; without the two fields of the state, a timeline entry.

        Skips the generated `__init__`, which costs more than reading the record did.
        """
        checkpoint = object.__new__(cls)
        checkpoint.__dict__.update(fields)
        return checkpoint

    def __getattr__(self, name: str) -> Any:
        if name in STATE_FIELDS:
            raise StateNotLoadedError(
                f"{name} of {self.checkpoint_id} was not loaded: timelines carry no state. "
                f"Use `restore({self.checkpoint_id!r})`"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if isinstance(other, Checkpoint) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.checkpoint_id)

    @property
    def has_state(self) -> bool:
        return "execution_state" in self.__dict__

    @property
    def short_id(self) -> str:
        """The last eight digits of the id, accepted wherever the command line takes an id."""
        return ids.short(self.checkpoint_id)

    @property
    def expires_at(self) -> datetime | None:
        return None if self.ttl_seconds is None else self.created_at + timedelta(seconds=self.ttl_seconds)

    def is_expired(self, now: datetime | None = None) -> bool:
        """Return whether its time to live is over; one without a TTL never expires by itself."""
        expires_at = self.expires_at
        return expires_at is not None and (now or datetime.now(UTC)) >= expires_at

    def as_dict(self) -> dict[str, Any]:
        """Return all fields by name, without the state if it was not loaded."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __repr__(self) -> str:
        name = f" {self.step_name!r:.60}" if self.step_name else ""
        handoff = f" → {self.handoff_target!r:.60}" if self.handoff_target else ""
        return (
            f"<Checkpoint {self.short_id} {self.agent_id!r:.60} {self.session_id!r:.60} step "
            f"{self.step_index}{name}{handoff} "
            f"{self.created_at:%Y-%m-%d %H:%M:%S}>"
        )

    def _repr_html_(self) -> str:
        from holdfast.model import html_repr

        return html_repr.checkpoint(self)
