"""A target of conversions, and what its adapter's `from_transcript` takes and returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.model.framework import Framework

# No target keeps these. Signatures, because which provider the target's model has is not known; images that the model
# made, because no provider takes them as the model's own; names of users, because successive turns of users become one.
ALWAYS_LOST = frozenset(
    (
        "instructions",
        "reasoning_signatures",
        "summaries",
        "raw_arguments",
        "model_images",
        "provider_files",
        "other_parts",
        "user_names",
        "other_fields",
        "message_data",
    )
)
SHAPES = ("openai_chat", "open_responses", "anthropic")
"""The shapes of message lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionTarget:
    """A framework, or a shape of message lists, and the kinds of losses (`model/loss.py`) it brings.

    `opaque` is the reason why a framework can't be a target.
    """

    name: str
    framework: Framework
    title: str
    loses: frozenset[str] = frozenset()
    shape: str | None = None
    session_prefix: str = ""  # of the names of its sessions
    opaque: str | None = None

    @property
    def module(self) -> str:
        """The name of the adapter."""
        return str(self.framework)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionOptions:
    """What `from_transcript` needs to know beside the conversation.

    `created_at` is the time of the source, in seconds. `seed` is the source's id: what must be made
    up follows from it, so that a repeated conversion gives the same bytes. `native` is an earlier
    state of the same framework that the conversation is appended to. `carried` has values for the
    target's own state, by their names there.
    """

    agent_id: str
    session_id: str
    created_at: float = 0.0
    seed: str = ""
    shape: str | None = None
    native: Mapping[str, Any] | None = None
    carried: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedState:
    """The first checkpoint of the new session, as the target's `resumable` continues it.

    `left` names values of `carried` that the target's state has no place for. `session_id` is the
    session's name if the target does not choose it as given. `rows` returns rows of an adapter's
    own, of the record and its tree; they are written in the same commit.
    """

    state: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    step_name: str = "converted"
    left: Sequence[str] = ()
    session_id: str | None = None
    rows: Callable[[Any], Sequence[Any]] | None = None
