"""Losses: what a conversation does not keep when it moves to another framework."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    COSMETIC = "cosmetic"  # a model reads the same conversation
    CONTENT = "content"  # a model reads less, or something else; the facts are still there
    MEANING = "meaning"  # later messages may refer to what is no longer there: must be accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One thing that is lost: its kind, where the source has it, and what becomes of it in words."""

    kind: str
    path: str
    what: str
    severity: Severity

    def to_json(self) -> dict[str, str]:
        return {"kind": self.kind, "path": self.path, "what": self.what, "severity": str(self.severity)}


class LossKind(NamedTuple):
    """A kind of loss: how severe it is, and what becomes of the thing."""

    severity: Severity
    what: str


# Measured: the conversation is converted there and back, and compared. So are the stored state and its transcript.
MEASURED: dict[str, LossKind] = {
    "instructions": LossKind(Severity.CONTENT, "the target's instructions win; these are kept as metadata"),
    "text": LossKind(Severity.MEANING, "text is missing, or changed"),
    "text_with_calls": LossKind(Severity.COSMETIC, "text beside tool calls becomes the model's thought"),
    "summaries": LossKind(Severity.COSMETIC, "a summary of earlier messages becomes plain text"),
    "reasoning": LossKind(Severity.CONTENT, "the model's reasoning is dropped"),
    "reasoning_signatures": LossKind(Severity.CONTENT, "only the provider that made it can read it: dropped"),
    "arguments": LossKind(Severity.MEANING, "the arguments of a call are missing, or changed"),
    "raw_arguments": LossKind(Severity.CONTENT, "arguments that are no JSON object become one that quotes them"),
    "tool_names": LossKind(Severity.CONTENT, "the name of a tool is replaced by one that every provider takes"),
    "parallel_calls": LossKind(Severity.COSMETIC, "calls that were made together become calls in a row"),
    "results": LossKind(Severity.MEANING, "the result of a call is missing, or changed"),
    "error_flags": LossKind(
        Severity.CONTENT, "a result is no longer marked as an error; its text begins with 'Error:'"
    ),
    "images": LossKind(Severity.MEANING, "an image is replaced by a note"),
    "image_links": LossKind(Severity.MEANING, "a link to an image is replaced by a note"),
    "files": LossKind(Severity.MEANING, "a file, or a link to one, is replaced by a note"),
    "model_images": LossKind(Severity.MEANING, "an image or a file that the model made is replaced by a note"),
    "result_images": LossKind(
        Severity.MEANING, "an image, or a link to one, in the result of a call is replaced by a note"
    ),
    "result_files": LossKind(
        Severity.MEANING, "a file, or a link to one, in the result of a call is replaced by a note"
    ),
    "provider_files": LossKind(Severity.MEANING, "a file that is stored at a provider is replaced by a note"),
    "other_parts": LossKind(Severity.MEANING, "a part of a type of its own is replaced by a note"),
    "media_types": LossKind(Severity.COSMETIC, "the media type of an image or a file is not kept"),
    "link_types": LossKind(Severity.COSMETIC, "the media type of a link is not kept"),
    "authors": LossKind(Severity.CONTENT, "which agent spoke is not kept, or has another name"),
    "user_names": LossKind(Severity.CONTENT, "which user, or which other agent, said it is not kept"),
    "other_fields": LossKind(Severity.CONTENT, "other frameworks have no such field"),
    "message_data": LossKind(Severity.COSMETIC, "ids, times, token counts and other data of messages are not kept"),
}
# Decided: by an option of the caller, or by a rule that docs/changing-frameworks.md states.
DECIDED: dict[str, LossKind] = {
    "call_ids": LossKind(Severity.COSMETIC, "the id of a call is replaced by one that every provider takes"),
    "unfinished_turn": LossKind(Severity.CONTENT, "the turn that was cut off is left out"),
    "open_calls": LossKind(Severity.CONTENT, "a call without a result is left out"),
    "unknown_outcomes": LossKind(Severity.CONTENT, "the model reads that the outcome of the call is unknown"),
    "approvals": LossKind(Severity.COSMETIC, "it is asked again when the target makes the call"),
    "handoffs": LossKind(Severity.COSMETIC, "a handoff becomes a note"),
    "tool_calls": LossKind(Severity.CONTENT, "the target lacks the tool: its calls become notes"),
    "tool_schemas": LossKind(Severity.MEANING, "the target's tool takes other parameters"),
    "stray_results": LossKind(Severity.CONTENT, "a result without a call becomes a note"),
    "repeated_results": LossKind(Severity.CONTENT, "of several results of one call, the first is kept"),
    "state": LossKind(Severity.CONTENT, "it is kept in agent_context, where the target does not look"),
    "native_state": LossKind(Severity.CONTENT, "the target's earlier state can't be continued: it is left behind"),
}
KINDS: dict[str, LossKind] = {**MEASURED, **DECIDED}


def make_loss(kind: str, path: str, detail: str = "") -> Loss:
    """Return a loss of a known kind; `what` names the thing."""
    known = KINDS[kind]
    return Loss(kind=kind, path=path, what=f"{detail}: {known.what}" if detail else known.what, severity=known.severity)
