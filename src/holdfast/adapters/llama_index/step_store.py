"""The state store of one step: what it reads and writes is noted, and done once.

A step that was cut off runs again from its beginning. Other steps that ran beside it may have been
saved with the state that it had already changed. So each operation of a step under way is saved with
the state that it met: the next run of the step meets the same states, and changes nothing twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel
from workflows.context.serializers import BaseSerializer
from workflows.context.state_store import InMemoryStateStore, StateCheckpoint, apply_state_patch


class StoreOperation(NamedTuple):
    """An operation on the state: its name, the path it is about, and the state before it."""

    name: str
    path: str
    before: StateCheckpoint


@dataclass(slots=True)
class OperationLog:
    """The operations of one run of a step, those of an earlier life first."""

    operations: list[StoreOperation] = field(default_factory=list)
    position: int = 0  # of the next operation; up to the end of the list they are repeated without effect

    def find_next(self, name: str, path: str) -> StoreOperation | None:
        if self.position == len(self.operations):
            return None
        found = self.operations[self.position]
        if (found.name, found.path) == (name, path):
            return found
        del self.operations[self.position :]  # the step does something else now
        return None

    def note(self, name: str, path: str, before: StateCheckpoint) -> None:
        if self.position == len(self.operations):
            self.operations.append(StoreOperation(name, path, before))
        self.position += 1

    def dump(self, now: StateCheckpoint) -> list[dict[str, Any]]:
        """Return the operations as plain data: each state before one as a patch of the state that is saved."""
        return [
            {"name": operation.name, "path": operation.path, "patch": operation.before.diff(now)}
            for operation in self.operations
        ]

    @classmethod
    def load(
        cls, dumped: Iterable[Mapping[str, Any]], state: Mapping[str, Any], serializer: BaseSerializer
    ) -> OperationLog:
        """`state` is that of the serialized context which the operations were saved with."""

        def before(patch: list[dict[str, Any]]) -> StateCheckpoint:
            return InMemoryStateStore.from_dict(apply_state_patch(dict(state), patch), serializer).checkpoint()

        return cls([StoreOperation(item["name"], item["path"], before(item["patch"])) for item in dumped])


class StepStateStore:
    """`ctx.store` of a step: the framework's, whose operations are noted in the step's log."""

    def __init__(self, store: InMemoryStateStore[Any], log: OperationLog) -> None:
        self._store = store
        self._log = log
        self.state_type = store.state_type

    async def get(self, path: str, default: Any = ...) -> Any:
        return await self._perform("get", path, lambda store: store.get(path, default))

    async def set(self, path: str, value: Any) -> None:
        await self._perform("set", path, lambda store: store.set(path, value))

    async def get_state(self) -> Any:
        return await self._perform("get_state", "", lambda store: store.get_state())

    async def set_state(self, state: BaseModel) -> None:
        await self._perform("set_state", "", lambda store: store.set_state(state))

    async def clear(self) -> None:
        await self._perform("clear", "", lambda store: store.clear())

    @asynccontextmanager
    async def edit_state(self) -> AsyncIterator[Any]:
        known = self._log.find_next("edit_state", "")
        store = self._store if known is None else InMemoryStateStore(known.before.state)
        async with store.edit_state() as state:
            before = store.checkpoint()  # under the store's lock
            yield state
        self._log.note("edit_state", "", before)

    def to_dict(self, serializer: BaseSerializer) -> dict[str, Any]:
        dumped: dict[str, Any] = self._store.to_dict(serializer)
        return dumped

    async def _perform(
        self, name: str, path: str, call: Callable[[InMemoryStateStore[Any]], Coroutine[Any, Any, Any]]
    ) -> Any:
        known = self._log.find_next(name, path)
        before = self._store.checkpoint() if known is None else known.before
        result = await call(self._store if known is None else InMemoryStateStore(before.state))
        self._log.note(name, path, before)
        return result
