"""Stand-ins for the user's objects during a turn: what is called through them is recorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.adapters.haystack.journal import HaystackJournal


class HaystackProxy:
    """An object that looks like another one, also to `isinstance`; subclasses record its calls."""

    def __init__(self, own: Any, journal: HaystackJournal, name: str = "", *, is_raised: bool = False) -> None:
        self._own = own
        self._journal = journal
        self._called = name
        self._is_raised = is_raised

    @property  # type: ignore[misc]  # no one sets it
    def __class__(self) -> Any:
        return type(self._own)

    def __getattr__(self, name: str) -> Any:
        if name == "_own":  # of an instance that is being made by `copy`
            raise AttributeError(name)
        return getattr(self._own, name)

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class JournaledGenerator(HaystackProxy):
    """A chat generator."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return self._journal.wait_for(self.run_async(*args, **kwargs))

    async def run_async(self, *args: Any, **kwargs: Any) -> Any:
        return await self._journal.call_model(self._own, self._called, args, kwargs)


class JournaledComponent(HaystackProxy):
    """A component of a pipeline."""

    def run(self, **inputs: Any) -> Any:
        return self._journal.wait_for(self.run_async(**inputs))

    async def run_async(self, **inputs: Any) -> Any:
        return await self._journal.call_component(self._own, self._called, inputs)


class JournaledHook(HaystackProxy):
    """A hook of an agent."""

    def run(self, state: Any) -> None:
        self._journal.wait_for(self.run_async(state))

    async def run_async(self, state: Any) -> None:
        await self._journal.call_hook(self._own, self._called, state)


class JournaledTool(HaystackProxy):
    """A tool of an agent."""

    def invoke(self, **given: Any) -> Any:
        return self._journal.wait_for(self.invoke_async(**given))

    async def invoke_async(self, **given: Any) -> Any:
        return await self._journal.call_tool(self._own, given, is_raised=self._is_raised)


class JournaledToolset(HaystackProxy):
    """A toolset: the tools that it has at the moment.

    A tool that it offers, but does not list, finds other tools for the toolset. It is called in each
    life: the toolset must know what was found.
    """

    def __iter__(self) -> Iterator[Any]:
        listed = {id(tool) for tool in self._own.get_selectable_tools()}
        return (self._wrap(tool) if id(tool) in listed else tool for tool in self._own)

    def __len__(self) -> int:
        return len(self._own)

    def __contains__(self, item: Any) -> bool:
        return any(item in (tool, tool.name) for tool in self)

    def __getitem__(self, index: int) -> Any:
        return list(self)[index]

    def get_selectable_tools(self) -> list[Any]:
        return [self._wrap(tool) for tool in self._own.get_selectable_tools()]

    def spawn(self, selected_tool_names: set[str] | None = None) -> Any:
        spawned = self._own.spawn(selected_tool_names=selected_tool_names)
        return self if spawned is self._own else JournaledToolset(spawned, self._journal, is_raised=self._is_raised)

    def _wrap(self, tool: Any) -> JournaledTool:
        return JournaledTool(tool, self._journal, is_raised=self._is_raised)
