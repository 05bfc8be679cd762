"""Claims of handoffs, as their claimant holds them."""

from __future__ import annotations

import contextlib
import uuid
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar

from holdfast.backends.bridge.step import run_inline
from holdfast.coordination import contract_use
from holdfast.coordination.contract import Contract
from holdfast.coordination.contract_use import Delivery
from holdfast.coordination.lease import Lease, SyncLease, check_terms
from holdfast.errors import HoldfastError, UsageError
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.checkpoint import Checkpoint
from holdfast.operations import claim as claiming
from holdfast.operations import delegation, lookup, resolve_target, validate
from holdfast.operations import lease as leasing
from holdfast.operations import restore as restoring
from holdfast.operations.context import StoreContext
from holdfast.operations.delegation import DelegationAnswer

L = TypeVar("L", Lease, SyncLease)
LONGEST_MESSAGE = 10_000


class ClaimRequest(NamedTuple):
    """A requested claim, with checked arguments."""

    handoff: str  # any reference to it
    agent_id: str
    seconds: float
    wait: float
    holder: str
    claim_id: bytes
    contract: Contract[Any] | None = None
    returns: Contract[Any] | None = None


def request(
    handoff_id: str,
    agent_id: str,
    seconds: float,
    wait: float,
    holder: str | None,
    claim_id: str | None,
    contract: Contract[Any] | None = None,
    returns: Contract[Any] | None = None,
) -> ClaimRequest:
    given = validate.optional_id(claim_id)
    return ClaimRequest(
        handoff_id,
        validate.name("agent_id", agent_id),
        *check_terms(seconds, wait, holder),
        uuid.uuid4().bytes if given is None else given,
        contract,
        returns,
    )


class _ClaimBase(Generic[L]):
    def __init__(
        self,
        request: ClaimRequest,
        checkpoint: Checkpoint,
        lease: L,
        moved_from: str | None,
        delivery: Delivery | None,
        offered: StoredRecord,
        ctx: StoreContext,
    ) -> None:
        self._request = request
        self._delivery = delivery
        self._offered = offered
        self._ctx = ctx
        self._answer_id = ctx.new_id(ids.tree_tag(offered.tree))
        self.checkpoint: Checkpoint = checkpoint
        """The handoff, with its state."""
        self.lease: L = lease
        """The right to write to the session: give it to `save`, `handoff` and `rollback`."""
        self.moved_from = moved_from
        """The session's head, if it moved since the handoff was made; else None."""
        self.claim_id = ids.to_text(request.claim_id)

    @property
    def handoff_id(self) -> str:
        return self.checkpoint.checkpoint_id

    @property
    def session_id(self) -> str:
        return self.checkpoint.session_id

    @property
    def value(self) -> Any:
        """What was handed over, as the class of the contract that the claim was made with."""
        return self._delivered.value

    @property
    def extra(self) -> dict[str, Any]:
        """The fields that the sender's version has and the reader's does not know."""
        return self._delivered.extra

    @property
    def _delivered(self) -> Delivery:
        if self._delivery is None:
            raise UsageError("the claim was made without a contract: its state is in claim.checkpoint")
        return self._delivery

    async def _complete(self, result: Any) -> str:
        origin = self._origin()
        plain, label = await contract_use.encode_answer(self._ctx, result, origin[2], self._request.returns)
        return await self._answer(DelegationAnswer(delegation.DONE, plain, label))

    async def _fail(self, error: BaseException | str) -> str:
        self._origin()
        kind, message = ("", error) if isinstance(error, str) else (type(error).__name__, str(error))
        shown = self._ctx.codec.redact_text(message, "exception")
        return await self._answer(DelegationAnswer(delegation.FAILED, error=(kind, shown[:LONGEST_MESSAGE])))

    async def _answer(self, made: DelegationAnswer) -> str:
        agent = self._request.agent_id
        stored = await delegation.answer(self._ctx, self._offered, self.lease, agent, made, self._answer_id)
        return ids.to_text(stored.id)

    def _origin(self) -> list[Any]:
        origin: list[Any] | None = self._offered.header.get("origin")
        if origin is None:
            raise UsageError(
                f"handoff {self.handoff_id} was handed over, not delegated: no session waits for its result. Save, or "
                "hand it on"
            )
        return origin

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.checkpoint!r} under {self.lease!r}>"


class Claim(_ClaimBase[Lease]):
    """A handoff that belongs to this claimant alone.

    `async with` renews its lease in the background and releases it at the end; if nothing was
    saved under it, the handoff is open again then.
    """

    async def complete(self, result: Any = None) -> str:
        """End delegated work with its result, and return the id of the answer, its last checkpoint.

        The result is validated against the contract that was agreed on. It is durable then, and
        the session that delegated the work gets it. The same again is a no-op.
        """
        return await self._complete(result)

    async def fail(self, error: BaseException | str) -> str:
        """End delegated work with a failure, and return the id of the answer.

        Without it a worker that gives up leaves the work open for the next one.
        """
        return await self._fail(error)

    async def release(self) -> bool:
        """Release the claim; return False if it was over already."""
        return await self.lease.release()

    async def __aenter__(self) -> Self:
        await self.lease.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.lease.__aexit__(kind, error, trace)


class SyncClaim(_ClaimBase[SyncLease]):
    """`Claim` without `await`."""

    def complete(self, result: Any = None) -> str:
        return run_inline(self._complete(result))

    def fail(self, error: BaseException | str) -> str:
        return run_inline(self._fail(error))

    def release(self) -> bool:
        return self.lease.release()

    def __enter__(self) -> Self:
        self.lease.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lease.__exit__(kind, error, trace)


async def claim(ctx: StoreContext, asked: ClaimRequest) -> Claim:
    return Claim(asked, *await _claim(ctx, Lease, asked))


async def sync_claim(ctx: StoreContext, asked: ClaimRequest) -> SyncClaim:
    return SyncClaim(asked, *await _claim(ctx, SyncLease, asked))


async def _claim(
    ctx: StoreContext, kind: type[L], asked: ClaimRequest
) -> tuple[Checkpoint, L, str | None, Delivery | None, StoredRecord, StoreContext]:
    delivery: Delivery | None = None

    async def take(id_: bytes) -> claiming.GrantedClaim:
        nonlocal delivery
        if asked.contract is not None:  # before the claim: what can't be read stays open for others
            delivery = await contract_use.read_handoff(ctx, await lookup.load_live_record(ctx, id_), asked.contract)
        return await claiming.claim(
            ctx,
            id_,
            asked.agent_id,
            claim_id=asked.claim_id,
            holder=asked.holder,
            seconds=asked.seconds,
            wait=asked.wait,
        )

    taken = await resolve_target.act_on(ctx, asked.handoff, take)
    handoff = taken.handoff
    lease = kind(ctx, handoff.session, asked.holder, asked.seconds, taken.token, taken.expires_at_us)
    lease.claimed = handoff.id
    try:
        checkpoint = await restoring.load_checkpoint(ctx, handoff, migrate=asked.contract is None)
    except BaseException:
        with contextlib.suppress(HoldfastError):
            await leasing.release(ctx, lease)  # a claimant that can't read it must not keep it from others
        raise
    moved_from = ids.to_text(taken.moved_from) if taken.moved_from else None
    return checkpoint, lease, moved_from, delivery, handoff, ctx
