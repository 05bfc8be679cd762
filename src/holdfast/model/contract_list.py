"""A contract as a store lists it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class RegisteredContract:
    """A version of a contract that was used with a store; `hash` is that of its schema, as hex digits."""

    name: str
    version: int
    schema: Mapping[str, Any]
    hash: str
    registered_at: datetime

    @property
    def label(self) -> str:
        return f"{self.name}@{self.version}"
