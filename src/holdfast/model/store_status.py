"""The status of a store at a glance."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.run_status import RunStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The properties of a store, its size, and the runs in it. `saves` counts all saves ever made."""

    backend: str
    location: str
    durability: str
    sessions: int
    saves: int
    stored_bytes: int | None  # None if it was not requested
    approvals: int  # pending ones
    alive: tuple[RunStatus, ...]
