"""Conversion of a conversation to a target, there and back, with the losses that this shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from holdfast.codec.codec import Codec
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import Transcript, TranscriptMessage
from holdfast.model.conversion_target import ConversionOptions, ConversionTarget, Converted
from holdfast.model.loss import Loss
from holdfast.model.transcript_fit import FittedTranscript, fit_transcript
from holdfast.operations.measure_losses import measure_losses


class Converter(Protocol):
    """The two functions of an adapter."""

    def to_transcript(self, checkpoint: Checkpoint) -> Transcript: ...

    def from_transcript(self, transcript: Transcript, options: ConversionOptions) -> Converted: ...


class MeasuredConversion(NamedTuple):
    """A conversation in the target's form, what it is there, and what it has lost."""

    fitted: FittedTranscript
    converted: Converted
    there: Sequence[TranscriptMessage]
    losses: Sequence[Loss]


def convert_transcript(
    codec: Codec,
    converter: Converter,
    transcript: Transcript,
    target: ConversionTarget,
    options: ConversionOptions,
    lead: int = 0,
) -> MeasuredConversion:
    """Convert a conversation; read it back as the target's own, and compare.

    With an earlier state in `options`, the conversation is what is new since. If that begins with
    results, the `lead` before them has their calls, which the state has already.
    """
    chosen = replace(options, shape=target.shape)
    fitted = fit_transcript(transcript, target)
    if lead:
        begins = next(at for at, one in enumerate(fitted.transcript) if one.role == "tool")
        told = replace(fitted.transcript, messages=tuple(fitted.transcript.messages[begins:]))
        fitted, transcript = replace(fitted, transcript=told), replace(transcript, messages=transcript.messages[lead:])
    converted = converter.from_transcript(fitted.transcript, chosen)
    there = converter.to_transcript(first_checkpoint(target, chosen, converted)).messages
    known = 0
    if options.native is not None:
        first = Converted(state=options.native)
        known = len(converter.to_transcript(first_checkpoint(target, chosen, first)).messages)
    back = Transcript(messages=tuple(there[known:]))
    losses = [*fitted.losses, *measure_losses(codec, transcript, back)]
    return MeasuredConversion(fitted, converted, tuple(there), losses)


def first_checkpoint(target: ConversionTarget, options: ConversionOptions, converted: Converted) -> Checkpoint:
    """Return the first checkpoint of the new session, as an adapter reads it."""
    return Checkpoint(
        checkpoint_id=options.seed,
        agent_id=options.agent_id,
        session_id=converted.session_id or options.session_id,
        framework=target.framework,
        execution_state=converted.state,
        metadata=converted.metadata,
    )
