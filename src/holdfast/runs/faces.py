"""The two ways to have a run: `Run`, awaited, and `SyncRun`, for programs without an event loop."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import GeneratorType, TracebackType
from typing import Any, Self, TypeVar

from holdfast.backends.stepping import run_inline
from holdfast.errors import HoldfastError
from holdfast.leases import Lease, SyncLease
from holdfast.leases import acquire as acquire_lease
from holdfast.model.runs import Retry
from holdfast.objects import journal
from holdfast.operations.services import Services
from holdfast.runs import calling, stepping
from holdfast.runs.asked import Asked
from holdfast.runs.core import Core, Options
from holdfast.runs.scope import Scope
from holdfast.runs.subagents import Subagent
from holdfast.runs.tasking import Depends, SyncTasks, Tasks

F = TypeVar("F", bound=Callable[..., Any])
_RESULTS = frozenset((type(None), bool, int, float, str, bytes, list, dict, tuple, set))  # what most functions return


async def _call_awaited(fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A coroutine function is awaited. Anything else runs in a thread: meanwhile the lease goes on being renewed."""
    if calling.is_coroutine(fn):
        return await fn(*args, **kwargs)
    import asyncio

    result = await asyncio.to_thread(fn, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result


async def _call_plainly(fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    result = fn(*args, **kwargs)
    kind = type(result)
    # Awaitables are these two; asking for them by their abstract class takes longer than the rest of this, and asking a
    # class for what it has not takes long, too.
    if kind not in _RESULTS and (hasattr(kind, "__await__") or kind is GeneratorType) and inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise calling.is_async(fn)
    return result


class AsyncScope(Scope):
    """Where an awaited run, or a sub-agent of it, asks for steps and effects."""

    def step(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        key: Any = None,
        retry: Retry | int | None = None,
        raises: Sequence[type[Exception]] = (),
        was: str | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Calls `fn` once: the result is recorded, and given again when the run is resumed.

        A step is known by its name and by how often that name came up before; `key` says instead which one it is. A
        coroutine function is awaited, a plain one runs in a thread. An exception is recorded and raised; `retry` tries
        again, and counts on after a crash. When the run went on after a failure, a resume raises it again: as what it
        was, if it is one of Python's own exceptions or of the classes in `raises`. `was` is the name that the step had in
        an earlier version of the program. (These four are the step's own: to give `fn` parameters of these names, wrap it.)
        """
        call = self._step_call(name, fn, args, kwargs, key, retry, raises, was)
        return Asked(stepping.step(self._core, call), lambda: self._core.places.give_back(call.place))

    def effect(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        kind: str = "irreversible",
        identity: Sequence[str] | str | None = None,
        volatile: Sequence[str] | str = (),
        key: Any = None,
        approve: Any = None,
        probe: Callable[..., Any] | None = None,
        undo: Callable[..., Any] | None = None,
        on_repeat: str | None = None,
        on_suspect: str = "block",
        not_done: Sequence[type[Exception]] = (),
        raises: Sequence[type[Exception]] = (),
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Does something to the outside world, at most once.

        It is written down as started before `fn` is called, and its result together with the next checkpoint. `kind` is
        "read", "idempotent", "reversible" or "irreversible". `identity` names the arguments that make out which effect it
        is (`volatile` those that don't); with the same ones it is the same effect, after a crash, after a rollback and in
        a fork. A parameter of `fn` named `idempotency_key` is given a key that is the same then, too.

        If a crash left it in doubt, `probe` is called with the same arguments: it returns the result, or None if the
        effect was not carried out. Without it an idempotent one is repeated, and any other raises `EffectUnknownError`
        until a person has said what happened. One that was done on another branch, or before a rollback, is replayed or,
        if irreversible, raises `EffectBlockedError`; `on_repeat` chooses "replay", "block", "again" or "compensate",
        which calls `undo` with the result first. An irreversible call that an earlier one of the same tool, which this
        branch does not know of, might be, is blocked, too, unless `on_suspect="go"`.

        An exception leaves it in doubt, unless it is an `EffectNotDoneError` or one of `not_done`. `approve` names who has
        to agree first.
        """
        call = self._effect_call(
            name, fn, args, kwargs, kind=kind, identity=identity, volatile=volatile, key=key, approve=approve, probe=probe,
            undo=undo, on_repeat=on_repeat, on_suspect=on_suspect, not_done=not_done, raises=raises,
        )  # fmt: skip
        return Asked(self._effect(call), lambda: self._give_back(call))

    def tool(self, fn: F | None = None, *, name: str | None = None, kind: str = "irreversible", **options: Any) -> Any:
        """Decorates a function: each call of it is an `effect` of this run, with these options. What it takes is part of
        the checkpoints, as a hash."""

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            chosen = {"kind": kind, "identity": None, "volatile": (), **options}
            tool = self._declared(function, name, chosen)

            @functools.wraps(function)
            async def call(*args: Any, **kwargs: Any) -> Any:
                return await self._effect(self._tool_call(tool, function, args, kwargs, chosen))

            return call

        return declare if fn is None else declare(fn)

    def tasks(
        self,
        name: str,
        items: Iterable[Any],
        *,
        key: Callable[[Any], Any] | None = None,
        depends: Depends = None,
        retry_failed: bool = False,
    ) -> Tasks:
        """Things to do, each once: `async for task in run.tasks("files", paths):` goes on at the first incomplete one.

        A task is known by its id: the item itself, its `id`, or what `key` gives. It is completed when the loop goes on;
        `task.fail(why)` and `task.skip(why)` say otherwise. `depends` maps ids to those that have to be completed before;
        what depends on one that failed is skipped. With `retry_failed` failed ones are tried again.
        """
        return Tasks(self._core, self._path, name, items, key=key, depends=depends, retry_failed=retry_failed)

    def subagent(
        self,
        subagent_type: str,
        *,
        prompt: Any = None,
        subagent_id: str | None = None,
        parent_tool_call_id: str | None = None,
    ) -> SubRun:
        """A sub-agent: `async with run.subagent("researcher", prompt=...) as agent:`, whose steps and effects are known under
        a path of their own. What becomes of it (`agent.result = ...`, `agent.add_usage(...)`, what it called, how it
        failed) is kept in the run's checkpoints: `run.traces`. `subagent_id` says which one it is; without it, it is
        known by how often its type came up before.
        """
        agent = SubRun(self._core)
        agent._begin(subagent_type, subagent_id, prompt, parent_tool_call_id, self._path)
        return agent


class SubRun(AsyncScope, Subagent):
    """A sub-agent of an awaited run."""

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(error)


class Run(AsyncScope):
    """A session that goes on where it stopped: `async with client.run("order-42", agent_id="buyer") as run:`."""

    lease: Lease

    async def save(self, name: str | None = None) -> str | None:
        """Saves state, tasks and ledger position as one checkpoint, and returns its id. (None if that failed, and the run
        goes on all the same: `on_save_error="warn"`.)"""
        return await self._core.save(name)

    async def __aenter__(self) -> Self:
        await self.lease.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._core.close(error)
        finally:
            await self.lease.__aexit__(kind, error, trace)


class SyncScope(Scope):
    """`AsyncScope` without `await`: what is given is called on the spot."""

    _awaits = False

    def step(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        key: Any = None,
        retry: Retry | int | None = None,
        raises: Sequence[type[Exception]] = (),
        was: str | None = None,
        **kwargs: Any,
    ) -> Any:
        call = self._step_call(name, fn, args, kwargs, key, retry, raises, was)
        return run_inline(stepping.step(self._core, call))

    def effect(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        kind: str = "irreversible",
        identity: Sequence[str] | str | None = None,
        volatile: Sequence[str] | str = (),
        key: Any = None,
        approve: Any = None,
        probe: Callable[..., Any] | None = None,
        undo: Callable[..., Any] | None = None,
        on_repeat: str | None = None,
        on_suspect: str = "block",
        not_done: Sequence[type[Exception]] = (),
        raises: Sequence[type[Exception]] = (),
        **kwargs: Any,
    ) -> Any:
        call = self._effect_call(
            name, fn, args, kwargs, kind=kind, identity=identity, volatile=volatile, key=key, approve=approve, probe=probe,
            undo=undo, on_repeat=on_repeat, on_suspect=on_suspect, not_done=not_done, raises=raises,
        )  # fmt: skip
        return run_inline(self._effect(call))

    def tool(self, fn: F | None = None, *, name: str | None = None, kind: str = "irreversible", **options: Any) -> Any:
        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            chosen = {"kind": kind, "identity": None, "volatile": (), **options}
            tool = self._declared(function, name, chosen)

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                return run_inline(self._effect(self._tool_call(tool, function, args, kwargs, chosen)))

            return call

        return declare if fn is None else declare(fn)

    def tasks(
        self,
        name: str,
        items: Iterable[Any],
        *,
        key: Callable[[Any], Any] | None = None,
        depends: Depends = None,
        retry_failed: bool = False,
    ) -> SyncTasks:
        return SyncTasks(self._core, self._path, name, items, key=key, depends=depends, retry_failed=retry_failed)

    def subagent(
        self,
        subagent_type: str,
        *,
        prompt: Any = None,
        subagent_id: str | None = None,
        parent_tool_call_id: str | None = None,
    ) -> SyncSubRun:
        agent = SyncSubRun(self._core)
        agent._begin(subagent_type, subagent_id, prompt, parent_tool_call_id, self._path)
        return agent


class SyncSubRun(SyncScope, Subagent):
    """A sub-agent of a run without `await`."""

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run_inline(self._end(error))


class SyncRun(SyncScope):
    """`Run` without `await`; `with` renews its lease from a thread of its own."""

    lease: SyncLease

    def save(self, name: str | None = None) -> str | None:
        return run_inline(self._core.save(name))

    def __enter__(self) -> Self:
        self.lease.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            run_inline(self._core.close(error))
        finally:
            self.lease.__exit__(kind, error, trace)


async def opened(
    services: Services,
    options: Options,
    seconds: float,
    wait: float,
    holder: str | None,
    make: Callable[..., Core] = Core,
) -> Run:
    """A run under a lease of its own, standing where its session does."""
    lease = await acquire_lease(services, Lease, options.session_id, seconds, wait, holder)
    run = Run(core := make(services, options, lease, _call_awaited), root(options))
    run.lease = lease
    try:
        await core.open()
    except BaseException:
        await _give_back(lease._release())
        raise
    return run


async def sync_opened(
    services: Services,
    options: Options,
    seconds: float,
    wait: float,
    holder: str | None,
    make: Callable[..., Core] = Core,
) -> SyncRun:
    lease = await acquire_lease(services, SyncLease, options.session_id, seconds, wait, holder)
    run = SyncRun(core := make(services, options, lease, _call_plainly), root(options))
    run.lease = lease
    try:
        await core.open()
    except BaseException:
        await _give_back(lease._release())
        raise
    return run


def root(options: Options) -> str:
    """Where the path of a run begins: with its agent. When a session is handed on, another program goes on with it, and its
    steps may have the same names."""
    return f"{journal.part(options.agent_id)}/"


async def _give_back(releasing: Coroutine[Any, Any, bool]) -> None:
    """Who can't go on must not keep the session from others."""
    try:
        await releasing
    except HoldfastError:
        return
