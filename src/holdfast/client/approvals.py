"""The part of the client for approvals: request, list, decide, wait, use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.client.factory import ClientBase
from holdfast.errors import UsageError
from holdfast.model import ids
from holdfast.operations import validate

if TYPE_CHECKING:
    from holdfast.model.approval import Approval, Call

KINDS = ("read", "idempotent", "reversible", "irreversible")
A_DAY = 24 * 3600.0


class ClientApprovals(ClientBase):
    """The part of `Client` that is about approvals."""

    async def request_approval(
        self,
        session_id: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        identity: Sequence[str] = (),
        kind: str = "irreversible",
        gate: str = "approve",
        approvers: str | None = None,
        summary: str | None = None,
        seconds: float = A_DAY,
        key: str | None = None,
    ) -> Approval:
        """Requests approval to call `tool` with exactly these arguments, once, in this session.

        It is valid for `seconds`. Requesting it again finds the same approval, pending or decided,
        even after a crash. `key` distinguishes occasions on which the same call may be made.
        `identity` names the arguments that identify the call, `approvers` who is asked, `summary`
        describes it for people, `gate` is "confirm", "propose" or "approve".
        """
        from holdfast.format.rows.approval import ApprovalRequest
        from holdfast.model.approval import Gate
        from holdfast.operations import approval as approvals

        terms = ApprovalRequest(
            session_id=validate.name("session_id", session_id),
            call=call_of(tool, arguments, identity, kind),
            gate=Gate(validate.one_of("gate", gate, ("confirm", "propose", "approve"))),
            approvers=validate.optional_name("approvers", approvers),
            summary=validate.optional_name("summary", summary),
            seconds=validate.seconds("seconds", seconds, least=0.001),
            request_key=b"" if key is None else validate.name("key", key).encode("utf-8", "surrogatepass"),
        )
        return (await approvals.request(self._ctx, terms)).approval

    async def approvals(self, session_id: str | None = None, *, pending: bool = True) -> list[Approval]:
        """Lists the approvals that wait for a decision, of all sessions or of one, the oldest first.

        With `pending=False` also those that were decided, were used, or have expired.
        """
        from holdfast.operations import approval as approvals

        name = validate.optional_name("session_id", session_id)
        return await approvals.list_approvals(self._ctx, name, pending=pending)

    async def approval(self, approval_id: str) -> Approval:
        """Returns one approval, as it stands."""
        from holdfast.operations import approval as approvals

        return (await approvals.find(self._ctx, _id(approval_id))).approval

    async def decide(
        self,
        approval_id: str,
        answer: str,
        *,
        by: str,
        note: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Approval:
        """Decides an approval: "approve", "reject" or "modify".

        With "modify", `arguments` are all the arguments that the call is to be made with instead.
        `by` is who decides. A decision is final; of several at once one wins, the others get a
        `ConflictError` that names the winner. Repeating one's own is a no-op.
        """
        from holdfast.model.approval import Answer
        from holdfast.operations import approval as approvals

        answer = validate.one_of("answer", answer, tuple(Answer))
        if (answer == Answer.MODIFY) != (arguments is not None):
            raise UsageError(
                "arguments are what a call is modified to: give them with the answer 'modify', and with no other. "
                "They are all the arguments, those that stay the same as well"
            )
        return await approvals.decide(
            self._ctx,
            _id(approval_id),
            Answer(answer),
            by=validate.name("by", by),
            note=validate.optional_name("note", note),
            arguments=None if arguments is None else _name_argument("arguments", arguments),
        )

    async def wait_for_approval(
        self, approval_id: str, *, seconds: float | None = None, poll_seconds: float = 1.0
    ) -> Approval:
        """Waits until an approval is decided, in any process, or has expired, and returns it.

        After `seconds` raises `ApprovalPendingError`; the approval stays pending, and can be
        waited for again later, by any process.
        """
        from holdfast.operations import approval as approvals

        held = await approvals.find(self._ctx, _id(approval_id))
        waited = await approvals.wait(
            self._ctx,
            held,
            seconds=None if seconds is None else validate.seconds("seconds", seconds, least=0),
            longest_poll=validate.seconds("poll_seconds", poll_seconds, least=0.001),
        )
        return waited.approval

    async def use_approval(
        self,
        approval_id: str,
        session_id: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        identity: Sequence[str] = (),
        by: str,
    ) -> Approval:
        """Uses an approval up. Call it right before the tool. Exactly one caller succeeds.

        Raises `ApprovalError` if it was not granted, was used, has expired, is void, or is for
        another call or session. (`run.effect` does this in the commit that records its intent.)
        `by` says what uses it, for people.
        """
        from holdfast.operations import approval as approvals

        return await approvals.use_alone(
            self._ctx,
            _id(approval_id),
            call_of(tool, arguments, identity, "irreversible"),
            session_id=validate.name("session_id", session_id),
            by=validate.name("by", by),
        )


def call_of(tool: Any, arguments: Any, identity: Any, kind: Any) -> Call:
    """Return a checked call. Without an identity, all arguments identify it."""
    from holdfast.model.approval import Call

    given = _name_argument("arguments", {} if arguments is None else arguments)
    names = (identity,) if isinstance(identity, str) else tuple(identity)
    unknown = [name for name in names if name not in given]
    if unknown:
        raise UsageError(f"identity names {unknown[0]!r:.60}, which is none of the arguments")
    return Call(
        tool=validate.name("tool", tool),
        arguments=given,
        identity={name: given[name] for name in names},
        kind=validate.one_of("kind", kind, KINDS),
    )


def _name_argument(parameter: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise UsageError(
            f"{parameter} is a {type(value).__name__}: it must map names to values, such as {{'amount': 500}}"
        )
    return dict(value)


def _id(approval_id: str) -> bytes:
    return ids.from_text(approval_id, "an approval's id", "`approvals` lists them")
