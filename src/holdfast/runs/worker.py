"""A worker: takes due runs under their leases, and carries them out in this process.

Coroutine functions run as tasks of the worker's event loop, plain ones in threads. Nothing but the
session's lease keeps two workers from one run, so workers need not know of each other.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from holdfast.backends.bridge.step import run_inline
from holdfast.coordination import contract_use
from holdfast.coordination.lease import Lease, SyncLease
from holdfast.errors import HoldfastError, LeaseLostError, RunCancelledError, RunTimeoutError, StoreError
from holdfast.format.rows import head as heads
from holdfast.format.rows import run as run_rows
from holdfast.format.rows.run import DueRow
from holdfast.model.lease import LeaseTerms
from holdfast.operations import due as index
from holdfast.operations import lookup
from holdfast.operations import take as taking
from holdfast.operations.context import StoreContext
from holdfast.operations.take import TakenRun
from holdfast.runs import answer, api, current, outcome, run_end, suspend
from holdfast.runs.engine import RunEngine, RunOptions
from holdfast.runs.runnable import Runnable, Runnables, run_options
from holdfast.runs.suspend import RunSuspension, WorkedLife

_log = logging.getLogger("holdfast.work")
POLL_SECONDS = 1.0
SHORTEST_GAP, LONGEST_GAP = 0.02, 0.25  # between two looks at the index: longer while hints come and nothing is due
PAGES = 8  # of the index, in one look, beyond those that are for other workers
AGAIN_LATER_US = 30_000_000  # a run that could not be taken
LAST_SECONDS = 5.0
OUTAGE_SECONDS = 120.0  # of a store that fails: a failover, a restart. Then the worker ends


@dataclass(slots=True, kw_only=True)
class WorkerOptions:
    """The checked arguments of `client.work`."""

    runnables: Runnables
    concurrency: int
    drain: bool
    lease_seconds: float
    holder: str
    poll_seconds: float = POLL_SECONDS
    notify: Callable[[str, str, str], None] | None = None  # function, session, what happened
    notify_progress: Callable[[str, float, float | None, str | None], None] | None = None  # session, done, total, note


@dataclass(slots=True, eq=False)
class _Life:
    """A run that this worker carries out now."""

    taken: TakenRun
    runnable: Runnable[Any]
    worked: WorkedLife
    core: RunEngine | None = None
    opened: threading.Event = field(default_factory=threading.Event)
    """Set once a plain function's run is opened, or could not be."""
    is_cancelled: bool = False


@dataclass(slots=True, eq=False)
class Worker:
    """The worker of one process.

    `sync_ctx` is the same store for threads, `client_ctx` that of the client itself.
    """

    ctx: StoreContext
    sync_ctx: StoreContext
    client_ctx: StoreContext
    options: WorkerOptions
    carried_out: int = 0
    _lives: dict[asyncio.Task[None], _Life] = field(default_factory=dict)
    _is_stopping: bool = False
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _looked_at: set[bytes] = field(default_factory=set)  # hints; a worker that drains ends once there is no other one
    _after: bytes | None = None  # in the index: everything up to there was for other workers
    _again: bytes | None = None  # what is before `_after` was looked at again up to there,
    _again_at: float = 0.0  # and a further part is from then on
    _suspects: dict[bytes, int] = field(default_factory=dict)  # sessions at work, with their sequence numbers before
    _reached_at: float | None = None  # when the store has answered last

    def stop(self) -> None:
        """Take no more runs, and hand back those at work after their present step."""
        self._is_stopping = True
        for life in self._lives.values():
            life.worked.is_stopping = True
        self._wake.set()

    async def work(self) -> int:
        """Carry out runs until `stop`, or with `drain` until none is due; return how many lives ended.

        A cancellation is a `stop`, and is raised once the runs have been handed back. After a stop
        it does not wait for their steps.
        """
        taking = asyncio.create_task(self._take_and_wait())
        is_cancelled = False
        while not taking.done():
            try:
                await asyncio.wait([taking])
            except asyncio.CancelledError:
                is_cancelled = True
                if self._is_stopping:
                    taking.cancel()
                self.stop()
        if is_cancelled and (taking.cancelled() or taking.exception() is None):
            raise asyncio.CancelledError
        return taking.result()

    async def _take_and_wait(self) -> int:
        gap = SHORTEST_GAP
        try:
            while not self._is_stopping:
                seen = self.ctx.backend.committed
                known = len(self._looked_at)
                taken = await self._take_unless_failing()
                is_drained = not taken and not self._lives and len(self._looked_at) == known
                if is_drained and self.options.drain:
                    break
                await self._pause(seen, SHORTEST_GAP if taken else gap)
                is_hinted = self.ctx.backend.committed != seen
                gap = min(gap * 2, LONGEST_GAP) if is_hinted and not taken else SHORTEST_GAP
        finally:
            self.stop()
            await self._await_lives()
        return self.carried_out

    async def _await_lives(self) -> None:
        """Wait until the runs at work have been handed back; if this is cancelled, cancel them."""
        while self._lives:
            try:
                await asyncio.wait(self._lives)
            except asyncio.CancelledError:
                for task in self._lives:
                    task.cancel()
                await asyncio.wait(self._lives, timeout=LAST_SECONDS)
                raise

    async def _pause(self, seen: int, gap: float) -> None:
        """Wait for a free place, or for a hint that something was committed, or for the next poll."""
        self._wake.clear()
        if self._is_stopping:
            return
        is_full = len(self._lives) >= self.options.concurrency
        waiting: list[asyncio.Task[Any]] = [asyncio.create_task(self._wake.wait())]
        if not is_full:
            waiting.append(asyncio.create_task(self._wait_for_hint(seen, gap)))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _wait_for_hint(self, seen: int, gap: float) -> None:
        await asyncio.sleep(gap)  # hints of others' commits must not make a worker read all the time
        left = self.options.poll_seconds - gap
        if left > 0:
            await self.ctx.backend.wait_for_commit(seen, left)

    # -- taking ------------------------------------------------------------------------------------------------------

    async def _take_unless_failing(self) -> int:
        """Take due runs; a store that fails now is asked again later, if it has answered before."""
        try:
            taken = await self._take_some()
        except StoreError as error:
            is_open = await self.client_ctx.backend.wait_for_commit(-1, 0)
            gives_up_at = 0.0 if self._reached_at is None else self._reached_at + OUTAGE_SECONDS
            if self.options.drain or not is_open or time.monotonic() >= gives_up_at:
                raise
            _log.warning("store failed", extra={"holdfast_error": str(error)})
            return 0
        self._reached_at = time.monotonic()
        return taken

    async def _take_some(self) -> int:
        """Take due runs up to the limit, all free places at once; return how many."""
        found = {(due.session, due.tree): due for due in reversed(await self._find())}  # one hint of each run
        left, count = list(found.values()), 0
        while left and not self._is_stopping and (free := self.options.concurrency - len(self._lives)) > 0:
            now = [left.pop() for _ in range(min(free, len(left)))]
            if self.options.drain:
                self._looked_at.update(due.key.key for due in now)
            taken = await asyncio.gather(*map(self._take, now), return_exceptions=True)
            count += sum(item is True for item in taken)
            for error in taken:
                if isinstance(error, BaseException):
                    raise error
        return count

    async def _find(self) -> Sequence[DueRow]:
        """Return hints of due runs that this worker knows, the earliest first, roughly."""
        free = self.options.concurrency - len(self._lives)
        if free <= 0:
            return ()
        found: list[DueRow] = []
        if (clock := time.monotonic()) >= self._again_at:
            self._again_at = clock + self.options.poll_seconds
            found += await self._find_again(free, PAGES)
        found += await self._find_ahead(free - len(found))
        if self.options.drain and not found:  # it leaves nothing behind
            self._again = None
            found = await self._find_again(free)
        first = found[: 4 * free]
        random.shuffle(first)  # workers that look at the same time begin with different runs
        return [*first, *found[4 * free :]]  # the first ones may all turn out to wait still

    async def _find_ahead(self, wanted: int) -> list[DueRow]:
        """Return hints after those that were for other workers, however many there are."""
        found: list[DueRow] = []
        after, pages = self._after, 0
        while len(found) < wanted and pages < PAGES and not self._is_stopping:
            page, last = await index.page(self.ctx, after)
            found += self._select_due(page)
            if last is None or len(page) < index.PAGE or page[-1].at_us > self.ctx.now_us():
                break
            if after == self._after and not any(map(self._is_known, page)):
                self._after = last
            else:
                pages += 1
            after = last
        return found

    async def _find_again(self, wanted: int, pages: int | None = None) -> list[DueRow]:
        """Return hints from among those that were for other workers, a part each time.

        One for this worker may have come with an earlier time than theirs.
        """
        found: list[DueRow] = []
        while self._after is not None and pages != 0 and len(found) < wanted and not self._is_stopping:
            page, last = await index.page(self.ctx, self._again)
            found += self._select_due(page)
            is_first, self._again = self._again is None, last
            if last is None or last >= self._after:
                self._again = None
                if is_first:  # few are left: they are looked at with the others
                    self._after = None
                break
            pages = None if pages is None else pages - 1
        return found

    def _select_due(self, page: Sequence[DueRow]) -> list[DueRow]:
        now = self.ctx.now_us()
        known = filter(self._is_known, page)
        return [due_row for due_row in known if due_row.at_us <= now or self.ctx.has_ended(due_row.process)]

    def _is_known(self, due: DueRow) -> bool:
        return self.options.runnables.find(due.function, due.version) is not None

    async def _take(self, due: DueRow) -> bool:
        known, taken = self.options.runnables, None
        try:
            taken = await taking.take(
                self.ctx, due, known.find_limit, holder=self.options.holder, seconds=self.options.lease_seconds,
                admit=self._admit,
            )  # fmt: skip
        except StoreError:
            raise
        except HoldfastError as error:  # one damaged session must not stop the others
            session_id = heads.session_name(due.session)
            _log.warning("run not taken", extra={"holdfast_session": session_id, "holdfast_error": str(error)})
            await index.move(self.ctx, due, self.ctx.now_us() + AGAIN_LATER_US)
        finally:
            if taken is None and all(life.taken.hint.session != due.session for life in self._lives.values()):
                self._suspects.pop(due.session, None)
        if taken is None:
            return False
        runnable = known.find(taken.run.function or "", taken.run.version)
        assert runnable is not None
        life = _Life(taken, runnable, WorkedLife(runnable, known))
        life.worked.is_stopping = self._is_stopping
        if self.options.notify_progress is not None:
            life.worked.notify = functools.partial(_notify, self.options.notify_progress, taken.session_id)
        task = asyncio.create_task(self._carry_out(life), name=f"holdfast run {taken.session_id:.40}")
        self._lives[task] = life
        task.add_done_callback(self._note_end)
        return True

    def _admit(self, session: bytes, sequence: int) -> bool:
        """Return whether to carry out a run that may kill this process.

        One at a time is, until it saves something. So it can't take others with it again and again,
        until they have failed, too.
        """
        for other, before in self._suspects.items():
            tip = lookup.cached_tip(self.ctx, other)
            if other != session and (tip is None or tip.head.sequence <= before):
                return False
        self._suspects[session] = sequence
        return True

    def _note_end(self, task: asyncio.Task[None]) -> None:
        life = self._lives.pop(task, None)
        if life is not None:
            self._suspects.pop(life.taken.hint.session, None)
        self.carried_out += 1
        self._wake.set()

    # -- carrying out ------------------------------------------------------------------------------------------------

    async def _carry_out(self, life: _Life) -> None:
        """Carry out one life of a run. Its end is in the store: nothing of it is raised here."""
        self._report_event(life, "taken")
        left = _seconds_left(self.ctx, life)
        try:
            if life.runnable.is_async:
                await self._await(life, left)
            elif not await _run_in_thread(lambda: self._call(life), left):
                await _run_in_thread(lambda: self._expire(life), None)
        except (HoldfastError, RunSuspension) as error:  # the store is gone, or the lease: another worker continues
            _log.warning(
                "run given up", extra={"holdfast_session": life.taken.session_id, "holdfast_error": str(error)}
            )
            self._report_event(life, "lost" if isinstance(error, LeaseLostError) else "given up")
        except Exception:  # a defect: the lease is released or runs out, and another life begins
            _log.exception("run given up", extra={"holdfast_session": life.taken.session_id})
            self._report_event(life, "given up")

    async def _await(self, life: _Life, left: float | None) -> None:
        taken, seconds = life.taken, self.options.lease_seconds
        lease = Lease(self.ctx, taken.session_id, self.options.holder, seconds, taken.token, taken.expires_at_us)
        async with lease:
            error: BaseException | None = None
            core: RunEngine | None = None
            limit: asyncio.Timeout | None = None
            try:
                life.worked.main = suspend.get_current()
                run = await api.open_run(self.ctx, _options(life), seconds, 0, None, _maker(life), lease)
                core = run._core
                run_end.begin(core)
                args, kwargs = await _arguments(self.ctx, life)
                current.enter(run)
                async with asyncio.timeout(left) as limit:
                    result = await life.runnable.function(run, *args, **kwargs)
                run_end.set_result(core, await answer.prepare(core, result))
            except TimeoutError as raised:
                error = _timeout(life) if limit is not None and limit.expired() else raised
            except BaseException as raised:
                error = raised
            await self._end(life, lease, core, error)
        self._report_end(life)

    def _call(self, life: _Life) -> None:
        taken, holder, seconds = life.taken, self.options.holder, self.options.lease_seconds
        lease = SyncLease(self.sync_ctx, taken.session_id, holder, seconds, taken.token, taken.expires_at_us)
        with lease:
            error: BaseException | None = None
            core: RunEngine | None = None
            try:
                life.worked.main = suspend.get_current()
                opening = api.open_sync_run(self.sync_ctx, _options(life), seconds, 0, None, _maker(life), lease)
                run = run_inline(opening)
                core = life.core = run._core
                run_end.begin(core)
                life.opened.set()
                args, kwargs = run_inline(_arguments(self.sync_ctx, life))
                current.enter(run)
                result = life.runnable.function(run, *args, **kwargs)
                run_end.set_result(core, run_inline(answer.prepare(core, result)))
            except BaseException as raised:
                error = raised
            life.opened.set()
            run_inline(self._end(life, lease, core, error))
        self._report_end(life)

    async def _end(self, life: _Life, lease: LeaseTerms, core: RunEngine | None, error: BaseException | None) -> None:
        """Leave to the lease what its release writes: that the run has ended, or when it is due again."""
        life.is_cancelled = any(isinstance(item, RunCancelledError) for item in outcome.error_chain(error))
        if core is None:  # it could not be opened
            assert error is not None
            ctx = self.ctx if isinstance(lease, Lease) else self.sync_ctx
            core = _maker(life)(ctx, _options(life), lease, api._call_plainly)
            core.tree = life.taken.tree
            lease.at_release = await run_end.end_rows(core, error)
            return
        life.core = core
        await run_end.close(core, error)

    def _expire(self, life: _Life) -> None:
        """End the run of a plain function whose time is over. Its thread can't be stopped, but its lease ends.

        What the thread still does is discarded: its commits are refused. A run that is not opened yet
        is opened first, so that its end can be saved.
        """
        life.opened.wait()
        core = life.core
        if core is not None and isinstance(core.lease, SyncLease):
            life.worked.suspension = RunSuspension()
            try:
                run_inline(run_end.close(core, _timeout(life)))
            finally:
                core.lease.release()
            self._report_end(life)

    # -- words -------------------------------------------------------------------------------------------------------

    def _report_end(self, life: _Life) -> None:
        row = life.core.ended if life.core is not None else None
        without_row = "cancelled" if life.is_cancelled else "lost"
        self._report_event(life, without_row if row is None else _WORDS.get(row.state, row.state))

    def _report_event(self, life: _Life, event: str) -> None:
        taken = life.taken
        fields = {"holdfast_session": taken.session_id, "holdfast_function": taken.run.function, "holdfast_what": event}
        _log.info("run %s", event, extra=fields)
        if self.options.notify is not None:
            _notify(self.options.notify, taken.run.function or "", taken.session_id, event)


def _notify(notify: Callable[..., None], *arguments: Any) -> None:
    """Call a function of the program's own; what it raises must not end a run."""
    try:
        notify(*arguments)
    except Exception:
        _log.exception("notify raised")


_WORDS = {run_rows.READY: "due again", run_rows.PARKED: "waiting", run_rows.DOUBTFUL: "in doubt"}


def _options(life: _Life) -> RunOptions:
    return run_options(life.taken.session_id, life.runnable.options, life.taken.call.agent)


def _maker(life: _Life) -> Callable[..., RunEngine]:
    """Return what makes the engine of a worker's run."""

    def make(ctx: StoreContext, given: RunOptions, lease: LeaseTerms, call: Any) -> RunEngine:
        core = RunEngine(ctx, given, lease, call)
        core.life, core.taken = life.worked, life.taken
        return core

    return make


async def _arguments(ctx: StoreContext, life: _Life) -> tuple[Sequence[Any], dict[str, Any]]:
    args, kwargs, label = ctx.codec.decode(life.taken.call.arguments, path="arguments")
    contract = life.runnable.contract
    if contract is not None and label is not None:
        return [await contract_use.read_answer(ctx, args[0], label, contract)], kwargs
    return args, kwargs


def _seconds_left(ctx: StoreContext, life: _Life) -> float | None:
    timeout = life.runnable.timeout
    return None if timeout is None else max(timeout - (ctx.now_us() - life.taken.run.started_us) / 1e6, 0.0)


def _timeout(life: _Life) -> RunTimeoutError:
    return RunTimeoutError(
        f"the run of {life.runnable.name!r:.60} has taken longer than {life.runnable.timeout:g} seconds since its start"
    )


async def _run_in_thread(work: Callable[[], None], seconds: float | None) -> bool:
    """Await a function in a daemon thread, which keeps no process alive; False if it takes longer."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def call() -> None:
        error: BaseException | None = None
        try:
            work()
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop has ended, and nothing waits
            loop.call_soon_threadsafe(settle, error)

    threading.Thread(target=call, name="holdfast run", daemon=True).start()
    await asyncio.wait([done], timeout=seconds)
    if not done.done():
        done.cancel()
        return False
    done.result()
    return True
