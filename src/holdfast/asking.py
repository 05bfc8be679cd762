"""What a client does about approvals: ask, look, decide, wait, use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.backends.stepping import run_inline
from holdfast.errors import UsageError
from holdfast.model import ids
from holdfast.opening import Opening
from holdfast.operations import arguments as checking

if TYPE_CHECKING:
    from holdfast.model.approval import Approval, Call

KINDS = ("read", "idempotent", "reversible", "irreversible")
A_DAY = 24 * 3600.0


class Asking(Opening):
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
        """Asks for leave to call `tool` with exactly these arguments, once, in this session, within `seconds`.

        Asking again finds the same approval, waiting or decided, whatever happened to the process meanwhile. `key` tells
        occasions apart on which the same call may be made. `identity` names the arguments that make out what is done,
        `approvers` who is asked, `summary` says it in words, `gate` how: "confirm", "propose" or "approve".
        """
        from holdfast.model.approval import Gate
        from holdfast.objects.approvals import Asked
        from holdfast.operations import approvals

        asked = Asked(
            session_id=checking.name("session_id", session_id),
            call=call_of(tool, arguments, identity, kind),
            gate=Gate(checking.one_of("gate", gate, ("confirm", "propose", "approve"))),
            approvers=checking.optional_name("approvers", approvers),
            summary=checking.optional_name("summary", summary),
            seconds=checking.seconds("seconds", seconds, least=0.001),
            request_key=b"" if key is None else checking.name("key", key).encode("utf-8", "surrogatepass"),
        )
        return (await approvals.request(self._services, asked)).approval

    async def approvals(self, session_id: str | None = None, *, pending: bool = True) -> list[Approval]:
        """The approvals that wait for a decision, of all sessions or of one, the oldest first; with `pending=False` also
        those that were decided, were used, or have expired."""
        from holdfast.operations import approvals

        name = checking.optional_name("session_id", session_id)
        return await approvals.listed(self._services, name, pending=pending)

    async def approval(self, approval_id: str) -> Approval:
        """One approval, as it stands."""
        from holdfast.operations import approvals

        return (await approvals.find(self._services, _id(approval_id))).approval

    async def decide(
        self,
        approval_id: str,
        answer: str,
        *,
        by: str,
        note: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Approval:
        """Answers "approve", "reject" or "modify": then `arguments` are all the arguments that the call is to be made
        with instead. `by` is who decides. A decision is final; of many that decide at once one does, the others get a
        `ConflictError` that says who did. Repeating one's own is a no-op."""
        from holdfast.model.approval import Answer
        from holdfast.operations import approvals

        answer = checking.one_of("answer", answer, tuple(Answer))
        if (answer == Answer.MODIFY) != (arguments is not None):
            raise UsageError(
                "arguments are what a call is modified to: give them with the answer 'modify', and with no other. They are "
                "all the arguments, those that stay the same as well"
            )
        return await approvals.decide(
            self._services,
            _id(approval_id),
            Answer(answer),
            by=checking.name("by", by),
            note=checking.optional_name("note", note),
            arguments=None if arguments is None else _named("arguments", arguments),
        )

    async def wait_for_approval(
        self, approval_id: str, *, seconds: float | None = None, poll_seconds: float = 1.0
    ) -> Approval:
        """The approval, once somebody has decided about it, here or in any other process, or it has expired. After
        `seconds` raises `ApprovalPendingError`; the approval waits on, and so can another process, later."""
        from holdfast.operations import approvals

        held = await approvals.find(self._services, _id(approval_id))
        waited = await approvals.wait(
            self._services,
            held,
            seconds=None if seconds is None else checking.seconds("seconds", seconds, least=0),
            longest_poll=checking.seconds("poll_seconds", poll_seconds, least=0.001),
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
        """Uses the approval up: call it right before the tool is called with these arguments. Exactly one caller gets it.
        Raises `ApprovalError` if it was not granted, was used, has expired, is void, or is for another call or session.
        (`run.effect` does this in the commit that writes down its intent.) `by` says what uses it, for people."""
        from holdfast.operations import approvals

        return await approvals.use_alone(
            self._services,
            _id(approval_id),
            call_of(tool, arguments, identity, "irreversible"),
            session_id=checking.name("session_id", session_id),
            by=checking.name("by", by),
        )


class SyncAsking:
    """The same without `await`, for `SyncClient`."""

    _client: Asking

    def request_approval(
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
        return run_inline(
            self._client.request_approval(
                session_id,
                tool,
                arguments,
                identity=identity,
                kind=kind,
                gate=gate,
                approvers=approvers,
                summary=summary,
                seconds=seconds,
                key=key,
            )
        )

    def approvals(self, session_id: str | None = None, *, pending: bool = True) -> list[Approval]:
        return run_inline(self._client.approvals(session_id, pending=pending))

    def approval(self, approval_id: str) -> Approval:
        return run_inline(self._client.approval(approval_id))

    def decide(
        self,
        approval_id: str,
        answer: str,
        *,
        by: str,
        note: str | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Approval:
        return run_inline(self._client.decide(approval_id, answer, by=by, note=note, arguments=arguments))

    def wait_for_approval(
        self, approval_id: str, *, seconds: float | None = None, poll_seconds: float = 1.0
    ) -> Approval:
        return run_inline(self._client.wait_for_approval(approval_id, seconds=seconds, poll_seconds=poll_seconds))

    def use_approval(
        self,
        approval_id: str,
        session_id: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        identity: Sequence[str] = (),
        by: str,
    ) -> Approval:
        return run_inline(self._client.use_approval(approval_id, session_id, tool, arguments, identity=identity, by=by))


def call_of(tool: Any, arguments: Any, identity: Any, kind: Any) -> Call:
    """A call, checked. Without an identity, all arguments make it out."""
    from holdfast.model.approval import Call

    given = _named("arguments", {} if arguments is None else arguments)
    names = (identity,) if isinstance(identity, str) else tuple(identity)
    unknown = [name for name in names if name not in given]
    if unknown:
        raise UsageError(f"identity names {unknown[0]!r:.60}, which is none of the arguments")
    return Call(
        tool=checking.name("tool", tool),
        arguments=given,
        identity={name: given[name] for name in names},
        kind=checking.one_of("kind", kind, KINDS),
    )


def _named(what: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise UsageError(f"{what} is a {type(value).__name__}: it must map names to values, such as {{'amount': 500}}")
    return dict(value)


def _id(approval_id: str) -> bytes:
    return ids.from_text(approval_id, "an approval's id", "`approvals` lists them")
