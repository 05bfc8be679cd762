"""The table of adapters: where each registers itself for operations, and converts conversations."""

from __future__ import annotations

import functools
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol, cast

from holdfast.model.framework import Framework

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.conversation import Transcript
    from holdfast.model.conversion_target import ConversionOptions, ConvertedState
    from holdfast.operations.adapter import Adapter

# By framework, a module that has `ADAPTER` and imports no framework. Named, not imported: adapters
# stand above the client.
MODULES = {"langgraph": "holdfast.adapters.langgraph.registration"}


class TranscriptModule(Protocol):
    """The module `transcript` of an adapter: two pure functions. It imports no framework."""

    def to_transcript(self, checkpoint: Checkpoint) -> Transcript: ...

    def from_transcript(self, transcript: Transcript, options: ConversionOptions) -> ConvertedState: ...


@functools.cache
def load_adapters() -> tuple[Adapter, ...]:
    """Return the adapters, imported at the first call."""
    return tuple(import_module(module).ADAPTER for module in MODULES.values())


@functools.cache
def load_transcripts(framework: Framework) -> TranscriptModule:
    """Return the module that converts a framework's conversations, named as the others above.

    `custom` is a loop of one's own, and stands for frameworks without an adapter.
    """
    name = f"holdfast.adapters.{framework.value}"
    is_built_in = find_spec(name) is not None and find_spec(f"{name}.transcript") is not None
    return cast("TranscriptModule", import_module(f"{name if is_built_in else 'holdfast.adapters.custom'}.transcript"))
