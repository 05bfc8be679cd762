"""holdfast keeps an AI agent's place: everything it needs to go on, saved after every step.

>>> from holdfast import SyncClient
>>> client = SyncClient.memory()
>>> checkpoint_id = client.save(agent_id="writer", execution_state={"draft": 1}, session_id="run-1")
>>> client.restore(checkpoint_id).execution_state
{'draft': 1}
"""

from typing import TYPE_CHECKING, Any

from holdfast.errors import (
    ApprovalError,
    ApprovalPendingError,
    ApprovalRejectedError,
    CheckpointExpiredError,
    CheckpointNotFoundError,
    ConflictError,
    CorruptError,
    EffectBlockedError,
    EffectNotDoneError,
    EffectUnknownError,
    HoldfastError,
    LeaseHeldError,
    LeaseLostError,
    MigrationError,
    MissingMigrationError,
    ModelError,
    NewerStateError,
    NewerVersionError,
    NotRecordedError,
    OpenToolCallError,
    RestoreInterruptedError,
    StateNotLoadedError,
    StepFailedError,
    StoreError,
    UnacknowledgedError,
    UnknownTypeError,
    UnsupportedValueError,
    UsageError,
    WorkspaceChangedError,
)

if TYPE_CHECKING:
    from holdfast.agents.faces import Agent, SyncAgent, Turn, agent
    from holdfast.agents.http_model import OpenAICompatible
    from holdfast.agents.loop import AgentEvent
    from holdfast.agents.replies import Reply
    from holdfast.agents.tools import Tool, tool
    from holdfast.claims import Claim, SyncClaim
    from holdfast.client import Client
    from holdfast.codec.limits import Limits
    from holdfast.codec.types import TypeRegistry, register
    from holdfast.eventstreams import EventStream, SyncEventStream
    from holdfast.filecheckpoints import FileCheckpoints, SyncFileCheckpoints
    from holdfast.leases import Lease, SyncLease
    from holdfast.model.agentstate import AgentState, PlanStep
    from holdfast.model.approval import Approval, ApprovalStatus, Call, Decision, Gate, StakesPolicy
    from holdfast.model.bisection import Bisection
    from holdfast.model.builder import CheckpointBuilder
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.comparison import Comparison
    from holdfast.model.diff import Diff
    from holdfast.model.effects import Effect, EffectKind, EffectState
    from holdfast.model.event import Event
    from holdfast.model.framework import Framework
    from holdfast.model.handoff import Handoff, HandoffStatus
    from holdfast.model.holds import Pin, Tag
    from holdfast.model.listing import Session, Timeline, Tree
    from holdfast.model.migrations import Migrations, migration
    from holdfast.model.oplog import Operation
    from holdfast.model.overview import Overview, RunStatus
    from holdfast.model.repair import Fate, Outcome, repair
    from holdfast.model.replay import ReplayReport
    from holdfast.model.reports import (
        CollectionReport,
        ForkReport,
        MigrationProblem,
        MigrationReport,
        Problem,
        RetentionReport,
        RollbackReport,
        SessionRetention,
        SessionUsage,
        Stats,
        StoreUsage,
        VerifyReport,
    )
    from holdfast.model.restore_report import AdoptReport, RestoreReport, UndoReport
    from holdfast.model.retention import Retention
    from holdfast.model.runs import Autosave, Retry, SubagentTrace
    from holdfast.model.workspace import FileChange, FilesReport, Forked, Snapshot, SnapshotReport, SnapshotSkipped
    from holdfast.replays import program
    from holdfast.runs.faces import Run, SyncRun
    from holdfast.store import CheckpointData, CheckpointMetadata, CheckpointStore
    from holdfast.sync_client import SyncClient
    from holdfast.workspace.guards import WorkspaceLimits
    from holdfast.workspace.workspace import SyncWorkspace, Workspace

__version__ = "0.1.0"

__all__ = [
    "AdoptReport",
    "Agent",
    "AgentEvent",
    "AgentState",
    "Approval",
    "ApprovalError",
    "ApprovalPendingError",
    "ApprovalRejectedError",
    "ApprovalStatus",
    "Autosave",
    "Bisection",
    "Call",
    "Checkpoint",
    "CheckpointBuilder",
    "CheckpointData",
    "CheckpointExpiredError",
    "CheckpointMetadata",
    "CheckpointNotFoundError",
    "CheckpointStore",
    "Claim",
    "Client",
    "CollectionReport",
    "Comparison",
    "ConflictError",
    "CorruptError",
    "Decision",
    "Diff",
    "Effect",
    "EffectBlockedError",
    "EffectKind",
    "EffectNotDoneError",
    "EffectState",
    "EffectUnknownError",
    "Event",
    "EventStream",
    "Fate",
    "FileChange",
    "FileCheckpoints",
    "FilesReport",
    "ForkReport",
    "Forked",
    "Framework",
    "Gate",
    "Handoff",
    "HandoffStatus",
    "HoldfastError",
    "Lease",
    "LeaseHeldError",
    "LeaseLostError",
    "Limits",
    "MigrationError",
    "MigrationProblem",
    "MigrationReport",
    "Migrations",
    "MissingMigrationError",
    "ModelError",
    "NewerStateError",
    "NewerVersionError",
    "NotRecordedError",
    "OpenAICompatible",
    "OpenToolCallError",
    "Operation",
    "Outcome",
    "Overview",
    "Pin",
    "PlanStep",
    "Problem",
    "ReplayReport",
    "Reply",
    "RestoreInterruptedError",
    "RestoreReport",
    "Retention",
    "RetentionReport",
    "Retry",
    "RollbackReport",
    "Run",
    "RunStatus",
    "Session",
    "SessionRetention",
    "SessionUsage",
    "Snapshot",
    "SnapshotReport",
    "SnapshotSkipped",
    "StakesPolicy",
    "StateNotLoadedError",
    "Stats",
    "StepFailedError",
    "StoreError",
    "StoreUsage",
    "SubagentTrace",
    "SyncAgent",
    "SyncClaim",
    "SyncClient",
    "SyncEventStream",
    "SyncFileCheckpoints",
    "SyncLease",
    "SyncRun",
    "SyncWorkspace",
    "Tag",
    "Timeline",
    "Tool",
    "Tree",
    "Turn",
    "TypeRegistry",
    "UnacknowledgedError",
    "UndoReport",
    "UnknownTypeError",
    "UnsupportedValueError",
    "UsageError",
    "VerifyReport",
    "Workspace",
    "WorkspaceChangedError",
    "WorkspaceLimits",
    "__version__",
    "agent",
    "migration",
    "program",
    "register",
    "repair",
    "tool",
]

# Names are imported when they are used: no program pays for what it does not need, and the command line says `--help`
# without having loaded a client.
_LAZY = {
    "Client": "holdfast.client",
    "SyncClient": "holdfast.sync_client",
    "Checkpoint": "holdfast.model.checkpoint",
    "Framework": "holdfast.model.framework",
    "Limits": "holdfast.codec.limits",
    "TypeRegistry": "holdfast.codec.types",
    "register": "holdfast.codec.types",
    "Agent": "holdfast.agents.faces",
    "SyncAgent": "holdfast.agents.faces",
    "Turn": "holdfast.agents.faces",
    "agent": "holdfast.agents.faces",
    "AgentEvent": "holdfast.agents.loop",
    "OpenAICompatible": "holdfast.agents.http_model",
    "Reply": "holdfast.agents.replies",
    "Tool": "holdfast.agents.tools",
    "tool": "holdfast.agents.tools",
    "AgentState": "holdfast.model.agentstate",
    "PlanStep": "holdfast.model.agentstate",
    "Approval": "holdfast.model.approval",
    "ApprovalStatus": "holdfast.model.approval",
    "Call": "holdfast.model.approval",
    "Decision": "holdfast.model.approval",
    "Gate": "holdfast.model.approval",
    "StakesPolicy": "holdfast.model.approval",
    "Autosave": "holdfast.model.runs",
    "CheckpointBuilder": "holdfast.model.builder",
    "CheckpointData": "holdfast.store",
    "CheckpointMetadata": "holdfast.store",
    "CheckpointStore": "holdfast.store",
    "Claim": "holdfast.claims",
    "CollectionReport": "holdfast.model.reports",
    "Effect": "holdfast.model.effects",
    "EffectKind": "holdfast.model.effects",
    "EffectState": "holdfast.model.effects",
    "Event": "holdfast.model.event",
    "EventStream": "holdfast.eventstreams",
    "FileCheckpoints": "holdfast.filecheckpoints",
    "ForkReport": "holdfast.model.reports",
    "Handoff": "holdfast.model.handoff",
    "HandoffStatus": "holdfast.model.handoff",
    "Lease": "holdfast.leases",
    "MigrationProblem": "holdfast.model.reports",
    "MigrationReport": "holdfast.model.reports",
    "Migrations": "holdfast.model.migrations",
    "Fate": "holdfast.model.repair",
    "Outcome": "holdfast.model.repair",
    "repair": "holdfast.model.repair",
    "Overview": "holdfast.model.overview",
    "RunStatus": "holdfast.model.overview",
    "AdoptReport": "holdfast.model.restore_report",
    "Operation": "holdfast.model.oplog",
    "UndoReport": "holdfast.model.restore_report",
    "Pin": "holdfast.model.holds",
    "Problem": "holdfast.model.reports",
    "Retention": "holdfast.model.retention",
    "RetentionReport": "holdfast.model.reports",
    "Retry": "holdfast.model.runs",
    "RollbackReport": "holdfast.model.reports",
    "Run": "holdfast.runs.faces",
    "Session": "holdfast.model.listing",
    "SessionRetention": "holdfast.model.reports",
    "SessionUsage": "holdfast.model.reports",
    "Stats": "holdfast.model.reports",
    "StoreUsage": "holdfast.model.reports",
    "SubagentTrace": "holdfast.model.runs",
    "SyncClaim": "holdfast.claims",
    "SyncEventStream": "holdfast.eventstreams",
    "SyncFileCheckpoints": "holdfast.filecheckpoints",
    "SyncLease": "holdfast.leases",
    "SyncRun": "holdfast.runs.faces",
    "Tag": "holdfast.model.holds",
    "Bisection": "holdfast.model.bisection",
    "ReplayReport": "holdfast.model.replay",
    "program": "holdfast.replays",
    "Comparison": "holdfast.model.comparison",
    "Diff": "holdfast.model.diff",
    "Timeline": "holdfast.model.listing",
    "Tree": "holdfast.model.listing",
    "VerifyReport": "holdfast.model.reports",
    "FileChange": "holdfast.model.workspace",
    "Forked": "holdfast.model.workspace",
    "RestoreReport": "holdfast.model.restore_report",
    "FilesReport": "holdfast.model.workspace",
    "Snapshot": "holdfast.model.workspace",
    "SnapshotReport": "holdfast.model.workspace",
    "SnapshotSkipped": "holdfast.model.workspace",
    "Workspace": "holdfast.workspace.workspace",
    "WorkspaceLimits": "holdfast.workspace.guards",
    "SyncWorkspace": "holdfast.workspace.workspace",
    "migration": "holdfast.model.migrations",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value  # the next time it is there
        return value
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
