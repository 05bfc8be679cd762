"""Leases as their holder holds them: renewed while a `with` block runs, released at its end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from holdfast.backends.bridge.step import run_inline
from holdfast.errors import HoldfastError, LeaseLostError
from holdfast.model.lease import LeaseTerms
from holdfast.operations import lease as leasing
from holdfast.operations import validate
from holdfast.operations.context import StoreContext

if TYPE_CHECKING:
    import asyncio

RENEWALS = 3  # so many within a lease's time: one or two may fail


L = TypeVar("L", bound="_LeaseBase")


async def acquire(
    ctx: StoreContext, kind: type[L], session_id: str, seconds: float, wait: float, holder: str | None
) -> L:
    seconds, wait, name = check_terms(seconds, wait, holder)
    token, until = await leasing.acquire(ctx, session_id, holder=name, seconds=seconds, wait=wait)
    return kind(ctx, session_id, name, seconds, token, until)


def check_terms(seconds: float, wait: float, holder: str | None) -> tuple[float, float, str]:
    from holdfast.coordination import process

    seconds = validate.seconds("seconds", seconds, least=0.05)
    wait = validate.seconds("wait", wait, least=0)
    return seconds, wait, process.default_holder() if holder is None else validate.name("holder", holder)


class _LeaseBase(LeaseTerms):
    def __init__(self, ctx: StoreContext, session_id: str, holder: str, seconds: float, token: int, until: int) -> None:
        super().__init__(session_id, holder, seconds, token, until)
        self._ctx = ctx

    async def _renew(self) -> None:
        self.expires_at_us = await leasing.renew(self._ctx, self)

    async def _renew_once(self) -> bool:
        """Renew; return False once it is lost. If the store is unreachable, the next renewal may be in time."""
        try:
            await self._renew()
        except LeaseLostError:
            return False
        except HoldfastError:
            return self._ctx.now_us() < self.expires_at_us
        return True

    async def _release(self) -> bool:
        return await leasing.release(self._ctx, self)


class Lease(_LeaseBase):
    """The right to write to a session.

    `async with` renews it in the background and releases it at the end.
    """

    _renewing: asyncio.Task[None] | None = None

    async def renew(self) -> None:
        """Renew the lease for its `seconds` from now on. Raise `LeaseLostError` if it is over."""
        await self._renew()

    async def release(self) -> bool:
        """Ends it; False if it was over already."""
        self._stop_renewing()
        return await self._release()

    async def __aenter__(self) -> Self:
        import asyncio

        if self._renewing is None:
            self._renewing = asyncio.create_task(self._keep_renewing())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except HoldfastError:
            if error is None:
                raise

    async def _keep_renewing(self) -> None:
        import asyncio

        while True:
            await asyncio.sleep(self.seconds / RENEWALS)
            if not await self._renew_once():
                return

    def _stop_renewing(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None


class _Renewable(Protocol):
    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


A = TypeVar("A", bound=_Renewable)
S = TypeVar("S")


class Acquisition(Generic[A, S]):
    """The result of `client.lease(...)` and `client.claim(...)`: for `await`, or for `async with`.

    `await` gives a lease to renew and release by hand. `async with` gives one that is renewed in
    the background.
    """

    def __init__(
        self, acquire: Callable[[], Coroutine[Any, Any, A]], acquire_sync: Callable[[], Coroutine[Any, Any, S]]
    ) -> None:
        self._acquire = acquire
        self._acquired: A | None = None
        self.acquire_sync = acquire_sync
        """Acquires the kind that `SyncClient` returns."""

    def __await__(self) -> Generator[Any, None, A]:
        return self._acquire().__await__()

    async def __aenter__(self) -> A:
        self._acquired = await self._acquire()
        return await self._acquired.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._acquired is not None
        await self._acquired.__aexit__(kind, error, trace)


class SyncLease(_LeaseBase):
    """`Lease` without `await`; `with` renews it from a thread of its own."""

    _stop: threading.Event | None = None

    def renew(self) -> None:
        run_inline(self._renew())

    def release(self) -> bool:
        self._stop_renewing()
        return run_inline(self._release())

    def __enter__(self) -> Self:
        if self._stop is None:
            self._stop = threading.Event()
            name = f"holdfast lease {self.session_id:.30}"
            threading.Thread(target=self._keep_renewing, args=(self._stop,), name=name, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except HoldfastError:
            if error is None:
                raise

    def _keep_renewing(self, stop: threading.Event) -> None:
        while not stop.wait(self.seconds / RENEWALS):
            if not run_inline(self._renew_once()):
                return

    def _stop_renewing(self) -> None:
        if self._stop is not None:
            self._stop.set()
            self._stop = None
