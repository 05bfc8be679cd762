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
    ContractConflictError,
    ContractError,
    ConversionError,
    CorruptError,
    EffectBlockedError,
    EffectNotDoneError,
    EffectUnknownError,
    HoldfastError,
    HoldfastWarning,
    KeyMissingError,
    KeyUnavailableError,
    LeaseHeldError,
    LeaseLostError,
    MessageLostError,
    MigrationError,
    MissingMigrationError,
    ModelError,
    NewerContractError,
    NewerStateError,
    NewerVersionError,
    NotRecordedError,
    OpenToolCallError,
    PlaintextError,
    ProbeError,
    RestoreInterruptedError,
    ResultNotKeptError,
    RunCancelledError,
    RunTimeoutError,
    SecretUnavailableError,
    StateNotLoadedError,
    StepFailedError,
    StepTimeoutError,
    StoreBusyError,
    StoreError,
    TamperedError,
    TopicFullError,
    UnacknowledgedError,
    UnfinishedTurnError,
    UnknownTypeError,
    UnsupportedValueError,
    UsageError,
    WorkspaceChangedError,
)

if TYPE_CHECKING:
    from holdfast.agent_loop.anthropic_model import AnthropicModel
    from holdfast.agent_loop.api import Agent, SyncAgent, Turn, agent
    from holdfast.agent_loop.loop import AgentEvent
    from holdfast.agent_loop.openai_model import OpenAICompatible
    from holdfast.agent_loop.reply import Reply
    from holdfast.agent_loop.tool import Tool, tool
    from holdfast.checkpoint_store.json_files import FileCheckpoints, SyncFileCheckpoints
    from holdfast.checkpoint_store.protocol import CheckpointData, CheckpointMetadata, CheckpointStore
    from holdfast.client.client import Client
    from holdfast.client.replay import program
    from holdfast.client.resume_plan import ResumePlan, SyncResumePlan
    from holdfast.client.sync import SyncClient
    from holdfast.codec.limits import Limits
    from holdfast.codec.redacted import RedactedValue
    from holdfast.codec.registry import TypeRegistry, register
    from holdfast.codec.unknown_types import UnknownValue
    from holdfast.coordination.claim import Claim, SyncClaim
    from holdfast.coordination.contract import Contract, contract
    from holdfast.coordination.delegation import Delegation, DelegationFailure, DelegationResult, JoinResult
    from holdfast.coordination.event_stream import EventStream, SyncEventStream
    from holdfast.coordination.lease import Lease, SyncLease
    from holdfast.coordination.message_stream import MessageStream, SyncMessageStream
    from holdfast.coordination.subscription import (
        DeliveredMessage,
        Subscription,
        SyncDeliveredMessage,
        SyncSubscription,
    )
    from holdfast.model.agent_state import AgentState, PlanStep
    from holdfast.model.approval import Approval, ApprovalStatus, Call, Decision, Gate, StakesPolicy
    from holdfast.model.bisect import Bisection
    from holdfast.model.cancellation import CancelReport
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.checkpoint_builder import CheckpointBuilder
    from holdfast.model.comparison import Comparison
    from holdfast.model.contract_list import RegisteredContract
    from holdfast.model.diff import Diff
    from holdfast.model.effect import NOT_DONE, Done, EffectKind, EffectRecord, EffectState
    from holdfast.model.event import Event
    from holdfast.model.file_restore_report import AdoptReport, RestoreReport, UndoReport
    from holdfast.model.framework import Framework
    from holdfast.model.handoff import Handoff, HandoffStatus
    from holdfast.model.key_status import KeyImport, KeyStatus
    from holdfast.model.listing import Session, Timeline, Tree
    from holdfast.model.loss import Loss, Severity
    from holdfast.model.message import DeadMessage, GroupStatus, Message, TopicMessage, TopicStatus
    from holdfast.model.operation import Operation
    from holdfast.model.pin import Pin, Tag
    from holdfast.model.replay import ReplayReport
    from holdfast.model.reports import (
        CollectionReport,
        ForkReport,
        LeftMessage,
        MigrationProblem,
        MigrationReport,
        Problem,
        RetentionReport,
        RollbackReport,
        ScanFinding,
        ScanReport,
        SessionRetention,
        SessionUsage,
        Stats,
        StoreUsage,
        VerifyReport,
    )
    from holdfast.model.retention import Retention
    from holdfast.model.run_policy import Autosave, Retry, SubagentTrace
    from holdfast.model.run_status import RunFailure, RunProgress, RunState, RunStatus, RunWait
    from holdfast.model.snapshot import (
        FileChange,
        FilesReport,
        ForkedWorkspace,
        Snapshot,
        SnapshotReport,
        SnapshotSkipped,
    )
    from holdfast.model.state_migration import Migrations, migration
    from holdfast.model.store_status import Overview
    from holdfast.model.team import Team, TeamMember, TeamWait
    from holdfast.model.tool_effect import Effect
    from holdfast.model.tool_map import TargetTool
    from holdfast.model.transcript_repair import CallOutcome, Outcome, repair
    from holdfast.runs.api import Run, SyncRun
    from holdfast.runs.receive import ReceivedMessage
    from holdfast.runs.runnable import Runnables, runnable
    from holdfast.runs.time_limit import time_limit
    from holdfast.sealing.key_ring import KeyRing
    from holdfast.workspace.api import Workspace
    from holdfast.workspace.limits import WorkspaceLimits
    from holdfast.workspace.sync import SyncWorkspace

__version__ = "0.1.0"

__all__ = [
    "NOT_DONE",
    "AdoptReport",
    "Agent",
    "AgentEvent",
    "AgentState",
    "AnthropicModel",
    "Approval",
    "ApprovalError",
    "ApprovalPendingError",
    "ApprovalRejectedError",
    "ApprovalStatus",
    "Autosave",
    "Bisection",
    "Call",
    "CallOutcome",
    "CancelReport",
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
    "Contract",
    "ContractConflictError",
    "ContractError",
    "ConversionError",
    "CorruptError",
    "DeadMessage",
    "Decision",
    "Delegation",
    "DelegationFailure",
    "DelegationResult",
    "DeliveredMessage",
    "Diff",
    "Done",
    "Effect",
    "EffectBlockedError",
    "EffectKind",
    "EffectNotDoneError",
    "EffectRecord",
    "EffectState",
    "EffectUnknownError",
    "Event",
    "EventStream",
    "FileChange",
    "FileCheckpoints",
    "FilesReport",
    "ForkReport",
    "ForkedWorkspace",
    "Framework",
    "Gate",
    "GroupStatus",
    "Handoff",
    "HandoffStatus",
    "HoldfastError",
    "HoldfastWarning",
    "JoinResult",
    "KeyImport",
    "KeyMissingError",
    "KeyRing",
    "KeyStatus",
    "KeyUnavailableError",
    "Lease",
    "LeaseHeldError",
    "LeaseLostError",
    "LeftMessage",
    "Limits",
    "Loss",
    "Message",
    "MessageLostError",
    "MessageStream",
    "MigrationError",
    "MigrationProblem",
    "MigrationReport",
    "Migrations",
    "MissingMigrationError",
    "ModelError",
    "NewerContractError",
    "NewerStateError",
    "NewerVersionError",
    "NotRecordedError",
    "OpenAICompatible",
    "OpenToolCallError",
    "Operation",
    "Outcome",
    "Overview",
    "Pin",
    "PlaintextError",
    "PlanStep",
    "ProbeError",
    "Problem",
    "ReceivedMessage",
    "RedactedValue",
    "RegisteredContract",
    "ReplayReport",
    "Reply",
    "RestoreInterruptedError",
    "RestoreReport",
    "ResultNotKeptError",
    "ResumePlan",
    "Retention",
    "RetentionReport",
    "Retry",
    "RollbackReport",
    "Run",
    "RunCancelledError",
    "RunFailure",
    "RunProgress",
    "RunState",
    "RunStatus",
    "RunTimeoutError",
    "RunWait",
    "Runnables",
    "ScanFinding",
    "ScanReport",
    "SecretUnavailableError",
    "Session",
    "SessionRetention",
    "SessionUsage",
    "Severity",
    "Snapshot",
    "SnapshotReport",
    "SnapshotSkipped",
    "StakesPolicy",
    "StateNotLoadedError",
    "Stats",
    "StepFailedError",
    "StepTimeoutError",
    "StoreBusyError",
    "StoreError",
    "StoreUsage",
    "SubagentTrace",
    "Subscription",
    "SyncAgent",
    "SyncClaim",
    "SyncClient",
    "SyncDeliveredMessage",
    "SyncEventStream",
    "SyncFileCheckpoints",
    "SyncLease",
    "SyncMessageStream",
    "SyncResumePlan",
    "SyncRun",
    "SyncSubscription",
    "SyncWorkspace",
    "Tag",
    "TamperedError",
    "TargetTool",
    "Team",
    "TeamMember",
    "TeamWait",
    "Timeline",
    "Tool",
    "TopicFullError",
    "TopicMessage",
    "TopicStatus",
    "Tree",
    "Turn",
    "TypeRegistry",
    "UnacknowledgedError",
    "UndoReport",
    "UnfinishedTurnError",
    "UnknownTypeError",
    "UnknownValue",
    "UnsupportedValueError",
    "UsageError",
    "VerifyReport",
    "Workspace",
    "WorkspaceChangedError",
    "WorkspaceLimits",
    "__version__",
    "agent",
    "contract",
    "migration",
    "program",
    "register",
    "repair",
    "runnable",
    "time_limit",
    "tool",
]

# Names are imported when they are used: no program pays for what it does not need, and the command line says `--help`
# without having loaded a client.
_LAZY = {
    "Client": "holdfast.client.client",
    "SyncClient": "holdfast.client.sync",
    "ResumePlan": "holdfast.client.resume_plan",
    "SyncResumePlan": "holdfast.client.resume_plan",
    "Loss": "holdfast.model.loss",
    "Severity": "holdfast.model.loss",
    "TargetTool": "holdfast.model.tool_map",
    "Checkpoint": "holdfast.model.checkpoint",
    "Framework": "holdfast.model.framework",
    "Limits": "holdfast.codec.limits",
    "TypeRegistry": "holdfast.codec.registry",
    "UnknownValue": "holdfast.codec.unknown_types",
    "register": "holdfast.codec.registry",
    "Agent": "holdfast.agent_loop.api",
    "SyncAgent": "holdfast.agent_loop.api",
    "Turn": "holdfast.agent_loop.api",
    "agent": "holdfast.agent_loop.api",
    "AgentEvent": "holdfast.agent_loop.loop",
    "AnthropicModel": "holdfast.agent_loop.anthropic_model",
    "OpenAICompatible": "holdfast.agent_loop.openai_model",
    "Reply": "holdfast.agent_loop.reply",
    "Tool": "holdfast.agent_loop.tool",
    "tool": "holdfast.agent_loop.tool",
    "AgentState": "holdfast.model.agent_state",
    "PlanStep": "holdfast.model.agent_state",
    "Approval": "holdfast.model.approval",
    "ApprovalStatus": "holdfast.model.approval",
    "Call": "holdfast.model.approval",
    "Decision": "holdfast.model.approval",
    "Gate": "holdfast.model.approval",
    "StakesPolicy": "holdfast.model.approval",
    "Autosave": "holdfast.model.run_policy",
    "CheckpointBuilder": "holdfast.model.checkpoint_builder",
    "CheckpointData": "holdfast.checkpoint_store.protocol",
    "CheckpointMetadata": "holdfast.checkpoint_store.protocol",
    "CheckpointStore": "holdfast.checkpoint_store.protocol",
    "Claim": "holdfast.coordination.claim",
    "CollectionReport": "holdfast.model.reports",
    "NOT_DONE": "holdfast.model.effect",
    "Done": "holdfast.model.effect",
    "Effect": "holdfast.model.tool_effect",
    "EffectRecord": "holdfast.model.effect",
    "EffectKind": "holdfast.model.effect",
    "EffectState": "holdfast.model.effect",
    "Event": "holdfast.model.event",
    "EventStream": "holdfast.coordination.event_stream",
    "FileCheckpoints": "holdfast.checkpoint_store.json_files",
    "ForkReport": "holdfast.model.reports",
    "Handoff": "holdfast.model.handoff",
    "HandoffStatus": "holdfast.model.handoff",
    "KeyImport": "holdfast.model.key_status",
    "KeyRing": "holdfast.sealing.key_ring",
    "KeyStatus": "holdfast.model.key_status",
    "Lease": "holdfast.coordination.lease",
    "MigrationProblem": "holdfast.model.reports",
    "MigrationReport": "holdfast.model.reports",
    "Migrations": "holdfast.model.state_migration",
    "CallOutcome": "holdfast.model.transcript_repair",
    "Outcome": "holdfast.model.transcript_repair",
    "repair": "holdfast.model.transcript_repair",
    "Overview": "holdfast.model.store_status",
    "Runnables": "holdfast.runs.runnable",
    "runnable": "holdfast.runs.runnable",
    "time_limit": "holdfast.runs.time_limit",
    "RunFailure": "holdfast.model.run_status",
    "RunProgress": "holdfast.model.run_status",
    "RunState": "holdfast.model.run_status",
    "RunStatus": "holdfast.model.run_status",
    "RunWait": "holdfast.model.run_status",
    "AdoptReport": "holdfast.model.file_restore_report",
    "Operation": "holdfast.model.operation",
    "UndoReport": "holdfast.model.file_restore_report",
    "Pin": "holdfast.model.pin",
    "Problem": "holdfast.model.reports",
    "RedactedValue": "holdfast.codec.redacted",
    "Retention": "holdfast.model.retention",
    "RetentionReport": "holdfast.model.reports",
    "Retry": "holdfast.model.run_policy",
    "RollbackReport": "holdfast.model.reports",
    "Run": "holdfast.runs.api",
    "Session": "holdfast.model.listing",
    "ScanFinding": "holdfast.model.reports",
    "ScanReport": "holdfast.model.reports",
    "SessionRetention": "holdfast.model.reports",
    "SessionUsage": "holdfast.model.reports",
    "Stats": "holdfast.model.reports",
    "StoreUsage": "holdfast.model.reports",
    "SubagentTrace": "holdfast.model.run_policy",
    "SyncClaim": "holdfast.coordination.claim",
    "SyncEventStream": "holdfast.coordination.event_stream",
    "SyncFileCheckpoints": "holdfast.checkpoint_store.json_files",
    "SyncLease": "holdfast.coordination.lease",
    "SyncRun": "holdfast.runs.api",
    "Tag": "holdfast.model.pin",
    "Bisection": "holdfast.model.bisect",
    "CancelReport": "holdfast.model.cancellation",
    "ReplayReport": "holdfast.model.replay",
    "program": "holdfast.client.replay",
    "Comparison": "holdfast.model.comparison",
    "Diff": "holdfast.model.diff",
    "Timeline": "holdfast.model.listing",
    "Tree": "holdfast.model.listing",
    "VerifyReport": "holdfast.model.reports",
    "FileChange": "holdfast.model.snapshot",
    "ForkedWorkspace": "holdfast.model.snapshot",
    "RestoreReport": "holdfast.model.file_restore_report",
    "FilesReport": "holdfast.model.snapshot",
    "Snapshot": "holdfast.model.snapshot",
    "SnapshotReport": "holdfast.model.snapshot",
    "SnapshotSkipped": "holdfast.model.snapshot",
    "Workspace": "holdfast.workspace.api",
    "WorkspaceLimits": "holdfast.workspace.limits",
    "SyncWorkspace": "holdfast.workspace.sync",
    "migration": "holdfast.model.state_migration",
    "Delegation": "holdfast.coordination.delegation",
    "DelegationFailure": "holdfast.coordination.delegation",
    "DelegationResult": "holdfast.coordination.delegation",
    "JoinResult": "holdfast.coordination.delegation",
    "Team": "holdfast.model.team",
    "TeamMember": "holdfast.model.team",
    "TeamWait": "holdfast.model.team",
    "Message": "holdfast.model.message",
    "TopicMessage": "holdfast.model.message",
    "DeadMessage": "holdfast.model.message",
    "TopicStatus": "holdfast.model.message",
    "GroupStatus": "holdfast.model.message",
    "LeftMessage": "holdfast.model.reports",
    "Subscription": "holdfast.coordination.subscription",
    "SyncSubscription": "holdfast.coordination.subscription",
    "DeliveredMessage": "holdfast.coordination.subscription",
    "SyncDeliveredMessage": "holdfast.coordination.subscription",
    "MessageStream": "holdfast.coordination.message_stream",
    "SyncMessageStream": "holdfast.coordination.message_stream",
    "ReceivedMessage": "holdfast.runs.receive",
    "Contract": "holdfast.coordination.contract",
    "contract": "holdfast.coordination.contract",
    "RegisteredContract": "holdfast.model.contract_list",
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
