"""Every error holdfast raises, in one small tree.

    HoldfastError
    ├── UsageError                an argument that can't be right          (also ValueError)
    │   └── UnsupportedValueError a value that can't be kept exactly       (.path)
    ├── CheckpointNotFoundError   nothing of that id or name               (also LookupError)
    ├── CheckpointExpiredError    it was there, and was expired            (also LookupError)
    ├── NewerVersionError         written by a newer holdfast
    ├── MigrationError            a state can't be brought to the version that this program has
    │   ├── MissingMigrationError no registered migration leads there
    │   └── NewerStateError       written by a newer program               (also NewerVersionError)
    ├── CorruptError              the stored bytes are not what was saved
    ├── ConflictError             somebody else was first
    │   ├── LeaseHeldError        another holds the session's lease        (.holder, .expires_at)
    │   ├── LeaseLostError        this holder's lease is over
    │   ├── EffectBlockedError    it was done already, on another branch   (.effects)
    │   ├── EffectUnknownError    nobody knows whether it was done         (.effect)
    │   ├── UnacknowledgedError   a strict rollback or fork was refused    (.report)
    │   ├── WorkspaceChangedError files have changed that a restore would overwrite (.paths)
    │   └── RestoreInterruptedError a restore of files was cut off: finish it, or roll it back
    ├── ApprovalError             an approval that can't be used           (.approval_id)
    │   ├── ApprovalPendingError  nobody has decided yet
    │   └── ApprovalRejectedError somebody said no                         (.by, .note)
    ├── ModelError                a model could not be asked               (.status)
    ├── OpenToolCallError         a conversation was cut off in the middle (.call_ids)
    ├── EffectNotDoneError        for effects to raise: certainly not done
    ├── StepFailedError           a recorded failure, raised again         (.kind)
    ├── NotRecordedError          a replay has no recorded answer to give
    ├── UnknownTypeError          the data names a type nobody registered
    ├── StateNotLoadedError       a timeline entry was asked for its state (also AttributeError)
    └── StoreError                the store could not be read or written   (.checkpoint_id, .claim_id)

Each message says what happened, why, and what to do next. `exit_code` is what the command line exits with.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar


class HoldfastError(Exception):
    """The root: `except HoldfastError` catches all that holdfast raises on purpose."""

    exit_code: ClassVar[int] = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """So that one raised in a worker process arrives: as it is by itself, only an error whose sole argument is its
        message can be sent."""
        return _arrived, (type(self), self.args, self.__dict__)


def _arrived(kind: type[HoldfastError], args: tuple[Any, ...], attributes: dict[str, Any]) -> HoldfastError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class UsageError(HoldfastError, ValueError):
    """An argument that can't be right. Nothing was stored."""

    exit_code = 2


class UnsupportedValueError(UsageError):
    """A value that can't be kept exactly, refused before anything was stored."""

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        super().__init__(f"{path}: {problem}. {remedy}")
        self.path = path


class CheckpointNotFoundError(HoldfastError, LookupError):
    """No checkpoint, session or tree of that name was ever stored here, or its tree was collected."""

    exit_code = 3


class CheckpointExpiredError(HoldfastError, LookupError):
    """The checkpoint was there and has expired, by its TTL or by `expire`."""

    exit_code = 3


class NewerVersionError(HoldfastError):
    """The bytes were written by a newer holdfast. They are left untouched: upgrade to read them."""


class MigrationError(HoldfastError):
    """A stored state can't be brought to the version that this program's states have. What is stored is unchanged."""


class MissingMigrationError(MigrationError):
    """No registered migration leads from the stored version to the newest one (see `holdfast.migration`)."""


class NewerStateError(MigrationError, NewerVersionError):
    """The state has a higher version than this program knows: a newer program has saved it."""


class CorruptError(HoldfastError):
    """The stored bytes are not what was saved. A wrong value is never returned."""

    exit_code = 5


class ConflictError(HoldfastError):
    """Somebody else was first: another writer moved the head, or used the id for other content."""

    exit_code = 4


class LeaseHeldError(ConflictError):
    """Another holds the lease of the session: only that one may write to it, until it is released or runs out."""

    def __init__(self, message: str, holder: str, expires_at: datetime) -> None:
        super().__init__(message)
        self.holder = holder
        self.expires_at = expires_at


class LeaseLostError(ConflictError):
    """The lease that was given ran out, was released or was taken over. Nothing was written under it since."""


class ApprovalError(HoldfastError):
    """An approval that can't be used: it expired, was used, is void, or is for another call or session."""

    def __init__(self, message: str, approval_id: str) -> None:
        super().__init__(message)
        self.approval_id = approval_id


class ApprovalPendingError(ApprovalError):
    """Nobody has decided yet. What asked can be gone on with once somebody has: the approval waits."""

    exit_code = 6


class ApprovalRejectedError(ApprovalError):
    """Somebody said no; `note` is why."""

    def __init__(self, message: str, approval_id: str, by: str, note: str | None) -> None:
        super().__init__(message, approval_id)
        self.by = by
        self.note = note


class EffectBlockedError(ConflictError):
    """An irreversible effect was, or may have been, carried out already: before a rollback, or on another branch. `effects`
    are the entries of the ledger that stand in the way. Nothing was done."""

    def __init__(self, message: str, effects: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.effects = effects


class EffectUnknownError(ConflictError):
    """An effect was started, and nobody knows whether it was carried out. It is not repeated; `effect` is its entry."""

    def __init__(self, message: str, effect: Any = None) -> None:
        super().__init__(message)
        self.effect = effect


class UnacknowledgedError(ConflictError):
    """A strict rollback or fork was refused: `report` says what it would leave behind, `refusal` in words what of it nobody
    has acknowledged. Nothing was changed."""

    def __init__(self, message: str, report: Any = None, refusal: str = "") -> None:
        super().__init__(message)
        self.report = report
        self.refusal = refusal


class EffectNotDoneError(HoldfastError):
    """For effects to raise: it is certain that nothing was done. It may be tried again."""


class StepFailedError(HoldfastError):
    """A step or effect failed before the run was resumed, and the run went on from there: the failure is raised again in
    its place. `kind` names the class of what was raised then."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class NotRecordedError(HoldfastError):
    """A replay of what was recorded came to a step that nothing was recorded of. It was not called."""


class ModelError(HoldfastError):
    """A model could not be asked, or did not answer properly. `status` is that of HTTP, None if there was no answer. Nothing
    of the conversation is lost: ask again."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class OpenToolCallError(HoldfastError):
    """A conversation has tool calls that nobody answered, and nobody has said what is to become of them."""

    def __init__(self, message: str, call_ids: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.call_ids = call_ids


class WorkspaceChangedError(ConflictError):
    """Files that a restore would overwrite or delete have changed since the last snapshot. Nothing was changed."""

    def __init__(self, message: str, paths: tuple[bytes, ...]) -> None:
        super().__init__(message)
        self.paths = paths


class RestoreInterruptedError(ConflictError):
    """A restore of this directory was cut off and is neither done nor undone: `resume` or `roll_back` finishes it."""


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
