"""Claims in the hand of the claimant: a handoff's checkpoint, and the lease of its session."""

from __future__ import annotations

import contextlib
import uuid
from types import TracebackType
from typing import Generic, NamedTuple, Self, TypeVar

from holdfast.errors import HoldfastError
from holdfast.leases import Lease, SyncLease, checked
from holdfast.model import ids
from holdfast.model.checkpoint import Checkpoint
from holdfast.operations import arguments
from holdfast.operations import claim as claiming
from holdfast.operations import lease as leasing
from holdfast.operations import restore as restoring
from holdfast.operations.services import Services

L = TypeVar("L", Lease, SyncLease)


class Request(NamedTuple):
    """A claim that is asked for, checked."""

    handoff_id: bytes
    agent_id: str
    seconds: float
    wait: float
    holder: str
    claim_id: bytes


def request(
    handoff_id: str, agent_id: str, seconds: float, wait: float, holder: str | None, claim_id: str | None
) -> Request:
    given = arguments.optional_id(claim_id)
    return Request(
        ids.from_text(handoff_id),
        arguments.name("agent_id", agent_id),
        *checked(seconds, wait, holder),
        uuid.uuid4().bytes if given is None else given,
    )


class _Claimed(Generic[L]):
    def __init__(self, request: Request, checkpoint: Checkpoint, lease: L, moved_from: str | None) -> None:
        self.checkpoint: Checkpoint = checkpoint
        """The handoff, with its state."""
        self.lease: L = lease
        """The right to write to the session: give it to `save`, `handoff` and `rollback`."""
        self.moved_from = moved_from
        """Where the session stood, if somebody had saved to it since the handoff was made; else None."""
        self.claim_id = ids.to_text(request.claim_id)

    @property
    def handoff_id(self) -> str:
        return self.checkpoint.checkpoint_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.checkpoint!r} under {self.lease!r}>"


class Claim(_Claimed[Lease]):
    """A handoff that is this claimant's alone. `async with` renews its lease in the background and releases it at the
    end; if nothing was saved under it, the handoff is open again then."""

    async def release(self) -> bool:
        """Gives it back; False if the claim was over already."""
        return await self.lease.release()

    async def __aenter__(self) -> Self:
        await self.lease.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.lease.__aexit__(kind, error, trace)


class SyncClaim(_Claimed[SyncLease]):
    """`Claim` without `await`."""

    def release(self) -> bool:
        return self.lease.release()

    def __enter__(self) -> Self:
        self.lease.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lease.__exit__(kind, error, trace)


async def claim(services: Services, asked: Request) -> Claim:
    return Claim(asked, *await _claim(services, Lease, asked))


async def sync_claim(services: Services, asked: Request) -> SyncClaim:
    return SyncClaim(asked, *await _claim(services, SyncLease, asked))


async def _claim(services: Services, kind: type[L], asked: Request) -> tuple[Checkpoint, L, str | None]:
    taken = await claiming.claim(
        services,
        asked.handoff_id,
        asked.agent_id,
        claim_id=asked.claim_id,
        holder=asked.holder,
        seconds=asked.seconds,
        wait=asked.wait,
    )
    handoff = taken.handoff
    lease = kind(services, handoff.session, asked.holder, asked.seconds, taken.token, taken.expires_at_us)
    lease.claimed = handoff.id
    try:
        checkpoint = await restoring.loaded(services, handoff)
    except BaseException:
        with contextlib.suppress(HoldfastError):
            await leasing.release(services, lease)  # who can't read it must not keep it from others
        raise
    return checkpoint, lease, ids.to_text(taken.moved_from) if taken.moved_from else None
