"""The two interfaces of a run: `Run`, awaited, and `SyncRun`, for programs without an event loop."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from types import GeneratorType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from holdfast.backends.bridge.step import run_inline
from holdfast.coordination.contract import Contract
from holdfast.coordination.delegation import Delegation
from holdfast.coordination.lease import Lease, SyncLease
from holdfast.coordination.lease import acquire as acquire_lease
from holdfast.errors import HoldfastError, UsageError
from holdfast.format.state import run_journal
from holdfast.model.lease import LeaseTerms
from holdfast.model.run_policy import Retry
from holdfast.operations.context import StoreContext
from holdfast.runs import call_binding, delegate, join, run_end
from holdfast.runs import sleep as sleeping
from holdfast.runs import step as stepping
from holdfast.runs.engine import RunEngine, RunOptions
from holdfast.runs.run_end import RunResult
from holdfast.runs.scope import RunScope, former_names
from holdfast.runs.subagent import Subagent
from holdfast.runs.tasks import Depends, SyncTasks, TaskList, Tasks

if TYPE_CHECKING:
    from holdfast.model.message import TopicMessage
    from holdfast.runs.receive import AsyncMessageLoop, MessageLoop, SyncMessageLoop


class PendingCall(Coroutine[Any, Any, Any]):
    """A coroutine that returns its occurrence if it is closed before it has run.

    A call takes its place when it is made: parallel calls are distinguished by the order in which
    they were made. A caller with a time limit may cancel it before its first turn, when no code of
    its own runs.
    """

    __slots__ = ("_coroutine", "_give_back")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], give_back: Callable[[], None]) -> None:
        self._coroutine = coroutine
        self._give_back: Callable[[], None] | None = give_back

    def __await__(self) -> Generator[Any, Any, Any]:
        self._give_back = None
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        self._give_back = None
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        self._end()
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._end()
        self._coroutine.close()

    def __del__(self) -> None:
        self._end()

    def _end(self) -> None:
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()


F = TypeVar("F", bound=Callable[..., Any])
L = TypeVar("L", Lease, SyncLease)
Result = TypeVar("Result")  # of a call: its value, or a coroutine
AnyTasks = TypeVar("AnyTasks", bound=TaskList)
AnySubRun = TypeVar("AnySubRun", bound=Subagent)
Messages = TypeVar("Messages", bound="MessageLoop")
_RESULTS = frozenset((type(None), bool, int, float, str, bytes, list, dict, tuple, set))  # most results


async def _call_awaited(fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Await a coroutine function; run any other one in a thread, so that the lease is still renewed."""
    if call_binding.is_coroutine(fn):
        return await fn(*args, **kwargs)
    import asyncio

    result = await asyncio.to_thread(fn, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result


async def _call_plainly(fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    result = fn(*args, **kwargs)
    kind = type(result)
    # Awaitables are these two; asking for them by their abstract class takes longer than the rest
    # of this, and asking a class for what it has not takes long, too.
    if kind not in _RESULTS and (hasattr(kind, "__await__") or kind is GeneratorType) and inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise call_binding.is_async(fn)
    return result


class Scope(RunScope, Generic[Result, AnyTasks, AnySubRun, Messages]):
    """The steps, effects, tasks and sub-agents of a run, or of one of its sub-agents, awaited or not."""

    _list: type[AnyTasks]

    def _start(self, work: Coroutine[Any, Any, Any], give_back: Callable[[], None]) -> Result:
        raise NotImplementedError  # Run and SyncRun each have their own

    def _as_function(self, begin: Callable[[Sequence[Any], dict[str, Any]], Coroutine[Any, Any, Any]]) -> Any:
        raise NotImplementedError  # Run and SyncRun each have their own

    def _new_subagent(self) -> AnySubRun:
        raise NotImplementedError  # Run and SyncRun each have their own

    def step(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        key: Any = None,
        retry: Retry | int | None = None,
        raises: Sequence[type[Exception]] = (),
        was: Sequence[str] | str | None = None,
        **kwargs: Any,
    ) -> Result:
        """Calls `fn` once: the result is recorded, and returned again when the run is resumed.

        A step is known by its name and the number of earlier calls with that name; `key` identifies
        it instead. An awaited run awaits a coroutine function and runs a plain one in a thread. An exception is
        recorded and raised; `retry` tries again, and keeps counting after a crash. If the run
        continued after a failure, a resume raises it again: with its own class, if it is one of
        Python's own exceptions or of the classes in `raises`. `was` is the name that the step had
        in an earlier version of the program. (These four are the step's own: to give `fn`
        parameters of these names, wrap it.)
        """
        call = self._step_call(name, fn, args, kwargs, key, retry, raises, was)
        return self._start(stepping.step(self._core, call), lambda: self._core.sites.give_back(call.place))

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
        not_done: Sequence[type[Exception]] = (),
        raises: Sequence[type[Exception]] = (),
        was: Sequence[str] | str | None = None,
        **kwargs: Any,
    ) -> Result:
        """Does something to the outside world, at most once.

        Its intent is recorded before `fn` is called, and its result together with the next
        checkpoint. `kind` is "read", "idempotent", "reversible" or "irreversible". `key` identifies
        the effect: with the same key it is the same effect, after a crash, after a rollback and in
        a fork. A parameter of `fn` named `idempotency_key` gets a key for the other side that is
        the same then, too. Without a key the arguments identify it: those of `identity`, or all but
        the `volatile` ones.

        If a crash left its outcome unknown, `probe` is called with its arguments, and returns
        `Done(result)` or `NOT_DONE`. Without a probe an idempotent one is repeated, and any other
        raises `EffectUnknownError` until a person has resolved it. One that was done on another
        branch, or before a rollback, is replayed or, if irreversible, raises `EffectBlockedError`;
        `on_repeat` chooses "replay", "block", "again" or "compensate", which calls `undo` with the
        result first. An irreversible call that may repeat one that this line of execution does not
        know is blocked, too.

        An exception leaves its outcome unknown, unless it is an `EffectNotDoneError` or one of
        `not_done`. `approve` names the people who must approve it first. `was` has the effect's
        names in earlier versions of the program.
        """
        call = self._checked_effect_call(
            name, fn, args, kwargs, kind=kind, identity=identity, volatile=volatile, key=key, approve=approve,
            probe=probe, undo=undo, on_repeat=on_repeat, not_done=not_done, raises=raises, was=was,
        )  # fmt: skip
        return self._start(self._effect(call), lambda: self._give_back(call))

    def tool(self, fn: F | None = None, *, name: str | None = None, kind: str = "irreversible", **options: Any) -> Any:
        """Decorate a function: each call of it is an `effect` of this run, with these options.

        The checkpoints have a hash of its signature.
        """

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            chosen = {"kind": kind, "identity": None, "volatile": (), **options}
            tool = self._declare_tool(function, name, chosen)
            called = self._as_function(
                lambda args, kwargs: self._effect(self._tool_call(tool, function, args, kwargs, chosen))
            )
            return functools.update_wrapper(called, function)

        return declare if fn is None else declare(fn)

    def tasks(
        self,
        name: str,
        items: Iterable[Any],
        *,
        key: Callable[[Any], Any] | None = None,
        depends: Depends = None,
        retry_failed: bool = False,
        was: Sequence[str] | str | None = None,
    ) -> AnyTasks:
        """Return a list of tasks to loop over, each done once.

        `for task in run.tasks("files", paths):` (`async for` in an awaited run) continues at the
        first incomplete one.

        A task is known by its id: the item itself, its `id`, or the result of `key`. It is
        completed when the loop continues; `task.fail(why)` and `task.skip(why)` say otherwise.
        `depends` maps ids to those that must be completed before; dependents of a failed task are
        skipped. With `retry_failed` failed ones are tried again. `was` has the list's names in
        earlier versions of the program: a list renamed without it does its tasks again.
        """
        return self._list(
            self._core, self._path, name, items, key=key, depends=depends, retry_failed=retry_failed,
            was=former_names(was),
        )  # fmt: skip

    def delegate(
        self,
        agent: str,
        items: Iterable[Any],
        *,
        contract: Contract[Any] | None = None,
        returns: Contract[Any] | None = None,
        key: Any = None,
    ) -> Result:
        """Delegates each item to an agent, and returns the delegations, for `join`.

        Each item gets a session of its own, and an offer in the agent's inbox, which exactly one
        worker claims. If the agent is the name of a function of this process, workers carry the
        item out as a run of it. The items are validated against `contract` first: if one is wrong, nothing is
        written. Results are validated against `returns`. A resume finds the same sessions again;
        `key` identifies the call, instead of its number.
        """
        path = self._core.path(self._path)
        call = delegate.build_call(self._core, path, agent, items, contract, returns, None if key is None else str(key))
        return self._start(delegate.delegate(self._core, call), lambda: self._core.sites.give_back(call.step.place))

    def join(
        self,
        asked: Iterable[Delegation],
        *,
        need: int | None = None,
        timeout: float | None = None,
        on_failure: str = "collect",
        key: Any = None,
    ) -> Result:
        """Waits for delegations, and returns a `JoinResult`.

        It ends when `need` results are there (all, if left out), when none is left to wait for, or
        after `timeout` seconds. It records the answers that it used: a resume gives the same, and
        lists those that came too late. With `on_failure="cancel"` the rest is cancelled once
        failures make `need` unreachable.
        """
        path = self._core.path(self._path)
        call = join.build_call(self._core, path, asked, need, timeout, on_failure, None if key is None else str(key))
        return self._start(join.join(self._core, call), lambda: self._core.sites.give_back(call.step.place))

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> Result:
        """Reports how far the run is, for `client.runs` and `holdfast runs`.

        At most one report a second is written, and the last one at the end. It is no part of a
        checkpoint.
        """
        core = self._core
        return self._start(core.progress.report(core, done, total, note), lambda: None)

    def sleep(
        self, seconds: float | timedelta | None = None, *, until: datetime | None = None, key: Any = None
    ) -> Result:
        """Waits for so many seconds, or until a moment. A resume waits for the rest of the time.

        Under a worker the run has no process meanwhile, unless a step or an effect of it is at
        work. A sleep is known by its number among the sleeps, as a step is; `key` identifies it.
        """
        core, known_by = self._core, None if key is None else str(key)
        call, wake_us = sleeping.build_call(core, core.path(self._path), seconds, until, known_by)
        return self._start(sleeping.sleep(core, call, wake_us), lambda: core.sites.give_back(call.place))

    def publish(
        self,
        topic: str,
        value: Any,
        *,
        contract: Contract[Any] | None = None,
        key: str | None = None,
        ttl: float = 7 * 86400.0,
        max_ttl: float = 30 * 86400.0,
        max_waiting: int = 10_000,
        wait: float = 0.0,
    ) -> Result:
        """Publishes a message in the run's next commit, or not at all, and returns its id.

        It is an effect of the run: a resume, a fork or a replay that publishes the same again gets
        the recorded id, and sends nothing. Other content at the same place is blocked as a possible
        duplicate. In a turn of `receive` it is published by the commit that consumes that message.
        `client.publish` explains the options.
        """
        from holdfast.model.message import Message
        from holdfast.runs import effect, publish

        message = Message(
            topic, value, contract=contract, key=key, ttl=ttl, max_ttl=max_ttl, max_waiting=max_waiting, wait=wait
        )
        call = publish.PublishCall(self._core, self._core.path(self._path), message)
        return self._start(publish.publish(self._core, call), lambda: effect.give_back(self._core, call.effect))

    def receive(
        self,
        topic: str,
        group: str,
        *,
        contract: Contract[Any] | None = None,
        from_: str = "start",
        batch: int = 1,
        timeout: float | None = None,
    ) -> Messages:
        """Consumes a topic as a member of a group: `for message in run.receive("drafts", "reviewers"):`.

        Each message takes effect once in the group. It is consumed when the loop continues, or when
        the run ends without an error: then one commit has the run's state, what the turn published,
        and the decision. Until then, saves have the state of before the turn. If the turn raises,
        the message is delivered again after a pause, and is dead after five failed attempts;
        `message.release()`, `fail(reason)` and `reject(reason)` decide otherwise.

        A new group begins with the first retained message, with `from_="now"` after the last one,
        or after a cursor. The loop ends after `timeout` seconds without a message. `batch` messages
        are claimed at once. Messages of one `key` are delivered in order, one at a time.
        """
        path = self._core.path(self._path)
        return self._open_messages(path, topic, group, contract, from_, batch, timeout)

    def _open_messages(self, path: str, *options: Any) -> Messages:
        raise NotImplementedError  # Run and SyncRun each have their own

    def wait_for(
        self,
        topic: str,
        *,
        where: Callable[[TopicMessage], Any] | None = None,
        contract: Contract[Any] | None = None,
        after: str | None = None,
        timeout: float | None = None,
        key: Any = None,
    ) -> Result:
        """Waits for a message of a topic that `where` accepts, and returns it; None after `timeout` seconds.

        It consumes nothing. It begins with the messages from now on, or after a cursor. It is a
        step: a resume gives the same message, or waits for the rest of the time.
        """
        from holdfast.runs import wait_for

        path = self._core.path(self._path)
        name = None if key is None else str(key)
        call = wait_for.build_call(self._core, path, topic, where, contract, after, timeout, name)
        return self._start(wait_for.wait_for(self._core, call), lambda: self._core.sites.give_back(call.step.place))

    def subagent(
        self,
        subagent_type: str,
        *,
        prompt: Any = None,
        subagent_id: str | None = None,
        parent_tool_call_id: str | None = None,
    ) -> AnySubRun:
        """Return a sub-agent, whose steps and effects have a path of their own.

        `with run.subagent("researcher", prompt=...) as agent:` (`async with` in an awaited run). Its
        trace (`agent.result = ...`, `agent.add_usage(...)`, its calls and its failure) is stored in
        the run's checkpoints: `run.traces`. `subagent_id` identifies it; without it, it is known by
        the number of earlier ones of its type.
        """
        agent = self._new_subagent()
        agent._begin(subagent_type, subagent_id, prompt, parent_tool_call_id, self._path)
        return agent


class AsyncScope(Scope[Coroutine[Any, Any, Any], Tasks, "SubRun", "AsyncMessageLoop"]):
    """Where an awaited run, or a sub-agent of it, asks for steps and effects."""

    _list = Tasks

    def _start(self, work: Coroutine[Any, Any, Any], give_back: Callable[[], None]) -> Coroutine[Any, Any, Any]:
        return PendingCall(work, give_back)

    def _as_function(self, begin: Callable[[Sequence[Any], dict[str, Any]], Coroutine[Any, Any, Any]]) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await begin(args, kwargs)

        return call

    def _open_messages(self, path: str, *options: Any) -> AsyncMessageLoop:
        from holdfast.runs import receive

        return receive.open_loop(self._core, path, receive.AsyncMessageLoop, *options)

    def _new_subagent(self) -> SubRun:
        return SubRun(self._core)


class SubRun(AsyncScope, Subagent):
    """A sub-agent of an awaited run."""

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(error)


class Run(AsyncScope, RunResult):
    """A session that continues where it stopped.

    `async with client.run("order-42", agent_id="buyer") as run:`.
    """

    lease: Lease
    has_own_lease = True  # else its lease is the caller's, who renews and releases it

    async def save(self, name: str | None = None) -> str | None:
        """Save state, tasks and ledger position as one checkpoint, and return its id.

        It is None if that failed and the run continues all the same: `on_save_error="warn"`.
        """
        return await self._core.save(name)

    async def __aenter__(self) -> Self:
        if self.has_own_lease:
            await self.lease.__aenter__()
        run_end.begin(self._core)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await run_end.close(self._core, error)
        finally:
            if self.has_own_lease:
                await self.lease.__aexit__(kind, error, trace)


class SyncScope(Scope[Any, SyncTasks, "SyncSubRun", "SyncMessageLoop"]):
    """`AsyncScope` without `await`: functions are called directly."""

    _awaits = False
    _list = SyncTasks

    def _start(self, work: Coroutine[Any, Any, Any], _give_back: Callable[[], None]) -> Any:
        return run_inline(work)

    def _as_function(self, begin: Callable[[Sequence[Any], dict[str, Any]], Coroutine[Any, Any, Any]]) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return run_inline(begin(args, kwargs))

        return call

    def _open_messages(self, path: str, *options: Any) -> SyncMessageLoop:
        from holdfast.runs import receive

        return receive.open_loop(self._core, path, receive.SyncMessageLoop, *options)

    def _new_subagent(self) -> SyncSubRun:
        return SyncSubRun(self._core)


class SyncSubRun(SyncScope, Subagent):
    """A sub-agent of a run without `await`."""

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run_inline(self._end(error))


class SyncRun(SyncScope, RunResult):
    """`Run` without `await`; `with` renews its lease from a thread of its own."""

    lease: SyncLease
    has_own_lease = True

    def save(self, name: str | None = None) -> str | None:
        return run_inline(self._core.save(name))

    def __enter__(self) -> Self:
        if self.has_own_lease:
            self.lease.__enter__()
        run_end.begin(self._core)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            run_inline(run_end.close(self._core, error))
        finally:
            if self.has_own_lease:
                self.lease.__exit__(kind, error, trace)


async def open_run(
    ctx: StoreContext,
    options: RunOptions,
    seconds: float,
    wait: float,
    holder: str | None,
    make: Callable[..., RunEngine] = RunEngine,
    lease: LeaseTerms | None = None,
) -> Run:
    """Return a run under a lease of its own, at the head of its session."""
    own = await acquire_lease(ctx, Lease, options.session_id, seconds, wait, holder) if lease is None else None
    held = own or check_lease(Lease, lease)
    run = Run(make(ctx, options, held, _call_awaited), root(options))
    run.lease, run.has_own_lease = held, own is not None
    await _open(run._core, own)
    return run


async def open_sync_run(
    ctx: StoreContext,
    options: RunOptions,
    seconds: float,
    wait: float,
    holder: str | None,
    make: Callable[..., RunEngine] = RunEngine,
    lease: LeaseTerms | None = None,
) -> SyncRun:
    own = await acquire_lease(ctx, SyncLease, options.session_id, seconds, wait, holder) if lease is None else None
    held = own or check_lease(SyncLease, lease)
    run = SyncRun(make(ctx, options, held, _call_plainly), root(options))
    run.lease, run.has_own_lease = held, own is not None
    await _open(run._core, own)
    return run


async def _open(core: RunEngine, own: Lease | SyncLease | None) -> None:
    """Open a run; if that fails, release its own lease, so that others get the session."""
    try:
        await core.open()
    except BaseException:
        if own is not None:
            with suppress(HoldfastError):
                await own._release()
        raise


def check_lease(kind: type[L], lease: LeaseTerms | None) -> L:
    """Return a lease that the caller has, if it is one of the same client's kind."""
    if not isinstance(lease, kind):
        raise UsageError(f"lease is a {type(lease).__name__}: give the one that `claim` or `lease` of this client gave")
    return lease


def root(options: RunOptions) -> str:
    """Return the first part of a run's paths: its agent.

    After a handoff another program continues the session, and its steps may have the same names.
    """
    return f"{run_journal.part(options.agent_id)}/"
