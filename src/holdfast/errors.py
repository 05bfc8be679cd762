"""Every error holdfast raises, in one small tree.

    HoldfastError
    ├── UsageError                an invalid argument                      (also ValueError)
    │   └── UnsupportedValueError a value that can't be stored exactly     (.path)
    ├── CheckpointNotFoundError   no checkpoint, session or tree of that id (also LookupError)
    ├── CheckpointExpiredError    the checkpoint existed and has expired   (also LookupError)
    ├── NewerVersionError         written by a newer holdfast
    ├── MigrationError            a state can't be migrated to this program's version
    │   ├── MissingMigrationError no registered migration leads there
    │   └── NewerStateError       written by a newer program               (also NewerVersionError)
    ├── CorruptError              the stored bytes differ from the saved ones
    │   └── TamperedError         sealed bytes that are forged, moved or of another store
    │       └── PlaintextError    unencrypted bytes where sealed ones must be
    ├── KeyMissingError           the key of sealed bytes is not there
    ├── ConflictError             another writer was first
    │   ├── LeaseHeldError        another holder has the session's lease   (.holder, .expires_at)
    │   ├── LeaseLostError        this holder's lease has ended
    │   │   ├── RunCancelledError the session was cancelled                (.session_id, .by, .reason)
    │   │   └── MessageLostError  another consumer has taken a message over
    │   ├── ContractConflictError a version of a contract has another schema (.differences)
    │   ├── EffectBlockedError    already carried out, on another branch   (.effects)
    │   ├── EffectUnknownError    the effect's outcome is unknown          (.effect)
    │   │   └── ProbeError        a probe returned an invalid answer       (also TypeError)
    │   ├── UnfinishedTurnError   another turn of the session was cut off  (.unfinished, .begun, .before)
    │   ├── UnacknowledgedError   a strict rollback or fork was refused    (.report)
    │   ├── WorkspaceChangedError a restore would overwrite changed files  (.paths)
    │   └── RestoreInterruptedError a restore of files was interrupted: finish it or roll it back
    ├── ApprovalError             an approval that can't be used           (.approval_id)
    │   ├── ApprovalPendingError  no decision yet
    │   └── ApprovalRejectedError the approval was rejected                (.by, .note)
    ├── ContractError             a value differs from its contract        (.problems)
    │   └── NewerContractError    a newer program sent it; it stays open
    ├── TopicFullError            a group has too many messages left       (.topic, .group, .waiting)
    ├── ModelError                a request to a model failed              (.status)
    ├── OpenToolCallError         a conversation has unanswered tool calls (.call_ids)
    ├── ConversionError           a session can't move to another framework (.losses)
    ├── EffectNotDoneError        for effects to raise: certainly not done
    ├── ResultNotKeptError        carried out, but the result could not be stored (.effect)
    ├── RunTimeoutError           a run took too long                      (also TimeoutError)
    ├── StepTimeoutError          a step or an effect took too long        (also TimeoutError)
    ├── StepFailedError           a recorded failure, raised again         (.kind)
    ├── NotRecordedError          a replay has no recorded answer to give
    ├── UnknownTypeError          the data names a type that is not registered
    ├── StoreError                the store could not be read or written   (.checkpoint_id, .claim_id)
    │   ├── StoreBusyError        other writers kept it busy for `timeout` seconds
    │   └── KeyUnavailableError   a key service can't be reached: try again
    └── StateNotLoadedError       a timeline entry carries no state        (also AttributeError)

`HoldfastWarning`, a Python warning, reports values that come back different from the saved ones.

Each message says what happened, why, and what to do next. `exit_code` is the exit code of the
command line.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar


class HoldfastError(Exception):
    """The root of the tree: `except HoldfastError` catches every error that holdfast raises on purpose."""

    exit_code: ClassVar[int] = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what pickle needs to rebuild the error, so that it can cross from a worker process.

        By default, pickle rebuilds only an exception whose sole argument is its message.
        """
        return _rebuild_error, (type(self), self.args, self.__dict__)


def _rebuild_error(kind: type[HoldfastError], args: tuple[Any, ...], attributes: dict[str, Any]) -> HoldfastError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class UsageError(HoldfastError, ValueError):
    """An invalid argument. Nothing was stored."""

    exit_code = 2


class UnsupportedValueError(UsageError):
    """A value that can't be stored exactly, refused before anything was stored."""

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        super().__init__(f"{path}: {problem}. {remedy}")
        self.path = path
        self._about = problem, remedy

    def within(self, root: str, name: str) -> UnsupportedValueError:
        """Return the error with another name for a part of the path: the one that its caller knows."""
        path = name + self.path.removeprefix(root) if self.path.startswith(root) else self.path
        return UnsupportedValueError(path, *self._about)


class SecretUnavailableError(HoldfastError, LookupError):
    """The value of a `RedactedValue` reference was asked for: it was never stored."""


class CheckpointNotFoundError(HoldfastError, LookupError):
    """No checkpoint, session or tree of that name was ever stored here, or gc collected its tree."""

    exit_code = 3


class CheckpointExpiredError(HoldfastError, LookupError):
    """The checkpoint existed and has expired, by its TTL or by `expire`."""

    exit_code = 3


class NewerVersionError(HoldfastError):
    """A newer holdfast wrote the bytes. They are left untouched: upgrade to read them."""


class MigrationError(HoldfastError):
    """A stored state can't be migrated to this program's version. The stored state is unchanged."""


class MissingMigrationError(MigrationError):
    """No registered migration leads from the stored version to the newest one.

    See `holdfast.migration`.
    """


class NewerStateError(MigrationError, NewerVersionError):
    """The state's version is higher than this program's: a newer program saved it."""


class CorruptError(HoldfastError):
    """The stored bytes differ from the saved ones. A wrong value is never returned."""

    exit_code = 5
    part: object = None  # the damaged part of the store, where the message alone is ambiguous


class TamperedError(CorruptError):
    """Sealed bytes are not what a holder of the key wrote in this place. Nothing of them is returned.

    They were changed on purpose, moved from another place, or are those of another store.
    """


class PlaintextError(TamperedError):
    """Unencrypted bytes are where sealed ones must be. They are refused, whatever they say."""


class KeyMissingError(HoldfastError):
    """The store, or a part of it, is sealed under a key that is not there.

    It is not taken for absence or damage: nothing is collected, and nothing is changed.
    """


class ConflictError(HoldfastError):
    """Another writer was first: it moved the head, or used the id for other content."""

    exit_code = 4


class LeaseHeldError(ConflictError):
    """Another holder has the session's lease.

    Only that holder may write to the session, until the lease is released or expires.
    """

    def __init__(self, message: str, holder: str, expires_at: datetime) -> None:
        super().__init__(message)
        self.holder = holder
        self.expires_at = expires_at


class LeaseLostError(ConflictError):
    """The given lease expired, was released or was taken over. Nothing was written under it since."""


class RunCancelledError(LeaseLostError):
    """The session was cancelled: `by` says who did, `reason` why. Its workers write nothing any more."""

    def __init__(self, message: str, session_id: str, by: str, reason: str) -> None:
        super().__init__(message)
        self.session_id = session_id
        self.by = by
        self.reason = reason


class ContractConflictError(ConflictError):
    """A version of a contract is in use with another schema. A version never changes.

    `differences` lists the places at which the schemas differ, the registered value first.
    """

    def __init__(self, message: str, differences: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.differences = differences


class ContractError(HoldfastError):
    """A value differs from its contract. `problems` lists path, expectation and value of each place."""

    def __init__(self, message: str, problems: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class NewerContractError(ContractError):
    """A newer program sent the value, and whether this one can read it is not proven. It stays open."""


class ApprovalError(HoldfastError):
    """An approval that can't be used: expired, used, void, or for another call or session."""

    def __init__(self, message: str, approval_id: str) -> None:
        super().__init__(message)
        self.approval_id = approval_id


class ApprovalPendingError(ApprovalError):
    """The approval is not decided yet. The approval waits; the caller can resume after the decision."""

    exit_code = 6


class ApprovalRejectedError(ApprovalError):
    """The approval was rejected; `note` is the reason."""

    def __init__(self, message: str, approval_id: str, by: str, note: str | None) -> None:
        super().__init__(message, approval_id)
        self.by = by
        self.note = note


class EffectBlockedError(ConflictError):
    """An irreversible effect was, or may have been, carried out before a rollback or on another branch.

    `effects` are the ledger entries that block it. Nothing was done.
    """

    def __init__(self, message: str, effects: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.effects = effects


class EffectUnknownError(ConflictError):
    """An effect was started and its outcome is unknown. It is not repeated.

    `effect` is its ledger entry.
    """

    def __init__(self, message: str, effect: Any = None) -> None:
        super().__init__(message)
        self.effect = effect


class ProbeError(EffectUnknownError, TypeError):
    """A probe returned neither `Done(result)` nor `NOT_DONE`.

    The effect's outcome stays unknown: nothing of the answer was recorded.
    """


class UnfinishedTurnError(ConflictError):
    """Another turn of the session was cut off, and must be finished or dropped first.

    A rollback to `before` drops it. That is None if it is the session's first turn.
    """

    def __init__(self, message: str, unfinished: str = "", begun: str = "", before: str | None = None) -> None:
        super().__init__(message)
        self.unfinished = unfinished
        self.begun = begun
        self.before = before


class UnacknowledgedError(ConflictError):
    """A strict rollback or fork was refused. Nothing was changed.

    `report` lists the consequences that it would leave behind. `refusal` names in words those that
    are not acknowledged.
    """

    def __init__(self, message: str, report: Any = None, refusal: str = "") -> None:
        super().__init__(message)
        self.report = report
        self.refusal = refusal


class EffectNotDoneError(HoldfastError):
    """For effects to raise: certainly nothing was done. The effect may be retried."""


class RunTimeoutError(HoldfastError, TimeoutError):
    """A run took longer than its `timeout`. It has failed, and is not tried again by itself."""


class StepTimeoutError(HoldfastError, TimeoutError):
    """A function took longer than its `time_limit`. What it still does is discarded."""


class ResultNotKeptError(HoldfastError):
    """A step or an effect was carried out, but its result could not be stored.

    `effect` is the ledger entry of an effect. The effect is not repeated unless it is idempotent.
    It raises this error after every resume until a person supplies a result.
    """

    def __init__(self, message: str, effect: Any = None) -> None:
        super().__init__(message)
        self.effect = effect


class StepFailedError(HoldfastError):
    """A step or effect that failed before the run was resumed; the recorded failure is raised again.

    The run had continued after the failure. `kind` names the class of the original exception.
    """

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class NotRecordedError(HoldfastError):
    """A replay reached a step without a recorded result. The step was not called."""


class ModelError(HoldfastError):
    """A request to a model failed, or the answer was invalid.

    `status` is the HTTP status, None if there was no answer. Nothing of the conversation is lost:
    ask again.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class OpenToolCallError(HoldfastError):
    """A conversation has unanswered tool calls, and the caller did not say how to handle them."""

    def __init__(self, message: str, call_ids: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.call_ids = call_ids


class ConversionError(HoldfastError):
    """A session can't continue in another framework as it is. Nothing was changed.

    `losses` are those of severity "meaning" that were not accepted, if these are the reason.
    """

    def __init__(self, message: str, losses: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.losses = losses


class TopicFullError(HoldfastError):
    """A topic has too many messages that a live group has not consumed. Nothing was published.

    `group` is the slowest live group, `waiting` how many messages it has left.
    """

    def __init__(self, message: str, topic: str, group: str, waiting: int) -> None:
        super().__init__(message)
        self.topic = topic
        self.group = group
        self.waiting = waiting


class MessageLostError(LeaseLostError):
    """Another consumer has taken over a message, as the claim had run out. Nothing was saved.

    The message takes effect once, in the session of the other consumer.
    """


class WorkspaceChangedError(ConflictError):
    """Files that a restore would overwrite or delete have changed since the last snapshot.

    Nothing was changed.
    """

    def __init__(self, message: str, paths: tuple[bytes, ...]) -> None:
        super().__init__(message)
        self.paths = paths


class RestoreInterruptedError(ConflictError):
    """A restore of this directory was interrupted and is neither done nor undone.

    `resume` or `roll_back` finishes it.
    """


class HoldfastWarning(UserWarning):
    """A value was stored, or came back, different from the original.

    The message says which value, why, and what to do.
    """


class UnknownTypeError(HoldfastError):
    """The data names a type that this process has not registered (see `holdfast.register`)."""


class StateNotLoadedError(HoldfastError, AttributeError):
    """A timeline entry carries no state: `restore` its id to get it."""


class StoreError(HoldfastError):
    """The store could not be read or written: disk full, I/O error, locked for too long, closed.

    When a save may or may not have been stored, `checkpoint_id` is the id it would have: repeating the save with
    `checkpoint_id=error.checkpoint_id` is safe. When a claim may or may not have been made, `claim_id` is its id:
    repeating the claim with `claim_id=error.claim_id` is safe.
    """

    def __init__(self, message: str, checkpoint_id: str | None = None, claim_id: str | None = None) -> None:
        super().__init__(message)
        self.checkpoint_id = checkpoint_id
        self.claim_id = claim_id


class StoreBusyError(StoreError):
    """Other writers kept the store or session busy for `timeout` seconds. Nothing was stored: retry later.

    For a save, `checkpoint_id` is the id to repeat it with.
    """


class KeyUnavailableError(StoreError):
    """A key service (KMS) could not be asked, or gave no answer. Nothing was read or stored: try again."""
