"""Conversion of a conversation to a target, there and back, with the losses that this shows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from holdfast.codec.codec import Codec
from holdfast.errors import ConversionError
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import Transcript, TranscriptMessage, with_texts
from holdfast.model.conversion_target import ConversionOptions, ConversionTarget, ConvertedState
from holdfast.model.loss import Loss, Severity, make_loss
from holdfast.model.native_continuation import NativeContinuation
from holdfast.model.tool_map import ToolMap
from holdfast.model.transcript_fit import FittedTranscript, fit_transcript
from holdfast.model.transcript_moves import (
    close_calls,
    fold_handoffs,
    map_tools,
    refuse_hosted,
    shorten_names,
    unique_ids,
)
from holdfast.operations.measure_losses import measure_losses


class Converter(Protocol):
    """The two functions of an adapter."""

    def to_transcript(self, checkpoint: Checkpoint) -> Transcript: ...

    def from_transcript(self, transcript: Transcript, options: ConversionOptions) -> ConvertedState: ...


class MeasuredConversion(NamedTuple):
    """A conversation in the target's form, what it is there, and what it has lost."""

    fitted: FittedTranscript
    converted: ConvertedState
    in_target: Sequence[TranscriptMessage]
    losses: Sequence[Loss]


def convert_transcript(
    codec: Codec,
    converter: Converter,
    transcript: Transcript,
    target: ConversionTarget,
    options: ConversionOptions,
    continuation: NativeContinuation | None = None,
) -> MeasuredConversion:
    """Convert a conversation; read it back as the target's own, and compare.

    With an earlier state in `options`, the conversation is what is new since, and `continuation`
    tells how it continues that state.
    """
    chosen = replace(options, shape=target.shape)
    known: Sequence[TranscriptMessage] = ()
    if continuation is None:
        fitted = fit_transcript(transcript, target)
    else:
        whole = replace(transcript, messages=(*continuation.lead, *transcript.messages))
        fitted = fit_transcript(whole, target, None if continuation.lead else continuation.follows)
        new = replace(fitted.transcript, messages=tuple(continuation.restore(fitted.transcript.messages)))
        fitted, transcript = (
            replace(fitted, transcript=new),
            replace(transcript, messages=tuple(continuation.restore(whole.messages))),
        )
    if options.native is not None:
        first = ConvertedState(state=options.native)
        known = converter.to_transcript(first_checkpoint(target, chosen, first)).messages
    converted = converter.from_transcript(fitted.transcript, chosen)
    in_target = converter.to_transcript(first_checkpoint(target, chosen, converted)).messages
    losses = [
        *fitted.losses,
        *measure_losses(codec, transcript, Transcript(messages=_find_following(known, in_target))),
    ]
    return MeasuredConversion(fitted, converted, tuple(in_target), losses)


def convert_conversation(
    codec: Codec,
    converter: Converter,
    transcript: Transcript,
    target: ConversionTarget,
    options: ConversionOptions,
    accept: Collection[str],
) -> MeasuredConversion:
    """Convert a conversation that no store has; raise if it has open calls, or loses too much."""
    messages, renamed_ids = unique_ids([*map(with_texts, transcript.messages)])
    refuse_hosted(messages)
    closed = close_calls(messages, "raise", lambda _: None)
    named, losses, _ = name_calls(closed.messages, ToolMap(), {}, ())
    measured = convert_transcript(codec, converter, replace(transcript, messages=tuple(named)), target, options)
    ids = [make_loss("call_ids", f"call {old:.80}", made) for old, made in renamed_ids.items()]
    every = [*ids, *losses, *measured.losses]
    refuse_losses(every, accept)
    return measured._replace(losses=every)


def name_calls(
    messages: Sequence[TranscriptMessage], tools: ToolMap, hashes: Mapping[str, str], effects: Collection[str]
) -> tuple[list[TranscriptMessage], list[Loss], dict[str, str]]:
    """Return the messages without handoffs and missing tools, under names that every provider takes."""
    folded = fold_handoffs(messages, tools, effects)
    mapped = map_tools(folded.messages, tools, hashes)
    named, renamed = shorten_names(mapped.messages)
    called = {call.name for message in mapped.messages for call in message.tool_calls}
    losses = [*folded.losses, *mapped.losses]
    for old, made in renamed.items():
        losses.append(make_loss("tool_names" if old in called else "authors", f"name {old:.100}", made))
    return named, losses, renamed


def refuse_losses(losses: Sequence[Loss], accept: Collection[str]) -> None:
    """Raise for losses of meaning that are not accepted."""
    refused = [loss for loss in losses if loss.severity is Severity.MEANING and loss.kind not in accept]
    if refused:
        listed = "; ".join(f"{item.kind} at {item.path} ({item.what:.120})" for item in refused[:5])
        more = f"; and {len(refused) - 5} more" if len(refused) > 5 else ""
        kinds = sorted({item.kind for item in refused})
        raise ConversionError(
            f"the conversation would lose what later messages may refer to: {listed}{more}. Nothing was changed. "
            f"Accept it: accept={kinds!r}; or choose a target that keeps it (docs/changing-frameworks.md)",
            tuple(refused),
        )


def _find_following(
    known: Sequence[TranscriptMessage], in_target: Sequence[TranscriptMessage]
) -> tuple[TranscriptMessage, ...]:
    """Return the messages that follow those that are known; a message may continue the last of them."""
    skip = sum(len(item.parts) for item in known)
    since: list[TranscriptMessage] = []
    for message in in_target:
        since += [replace(message, parts=tuple(message.parts[skip:]))] if len(message.parts) > skip else []
        skip = max(0, skip - len(message.parts))
    return tuple(since)


def first_checkpoint(target: ConversionTarget, options: ConversionOptions, converted: ConvertedState) -> Checkpoint:
    """Return the first checkpoint of the new session, as an adapter reads it."""
    return Checkpoint(
        checkpoint_id=options.seed,
        agent_id=options.agent_id,
        session_id=converted.session_id or options.session_id,
        framework=target.framework,
        execution_state=converted.state,
        metadata=converted.metadata,
    )
