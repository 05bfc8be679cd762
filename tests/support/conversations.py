"""A conversation with everything that a framework might lose, and its conversion by pure functions."""

from __future__ import annotations

import base64
from dataclasses import replace

from holdfast.client.adapters import load_transcripts
from holdfast.client.conversion_targets import TARGETS
from holdfast.codec.codec import Codec
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import (
    BlobPart,
    CompactionPart,
    FilePart,
    GenericPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResponsePart,
    Transcript,
    TranscriptMessage,
    UriPart,
)
from holdfast.model.conversion_target import ConversionOptions
from holdfast.model.transcript_moves import shorten_names
from holdfast.operations.convert_transcript import MeasuredConversion, convert_transcript, first_checkpoint

# Images of one pixel: some frameworks load them.
GIF = BlobPart(mime_type="image/gif", data=base64.b64decode("R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="))
PNG = BlobPart(
    mime_type="image/png",
    data=base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
    ),
)
PDF = BlobPart(mime_type="application/pdf", data=b"%PDF-1.7 \xe2")
LONG_NAME = "search_" + "the_archive_of_everything_" * 3  # 85 characters
CODEC = Codec()
NAMES = [name for name, target in TARGETS.items() if target.opaque is None]
OPTIONS = ConversionOptions(agent_id="clerk", session_id="moved", created_at=1.8e9, seed="0199c0de")


def text(content: str) -> TextPart:
    return TextPart(content=content)


RICH = Transcript(
    messages=(
        TranscriptMessage(role="system", parts=(text("Be brief.\nPay once."),)),
        TranscriptMessage(
            role="user",
            parts=(
                text("Grüße, 世界 🙂 e\u0301 \u202e\nlook"),
                GIF,
                UriPart(uri="https://a.example/x.png", mime_type="image/png"),
                PDF,
                FilePart(file_id="file-1", provider="openai"),
                GenericPart(type="hologram", values={"depth": 3}),
            ),
            id="m1",
            author="ann",
            created_at="2026-11-18T12:00:00Z",
        ),
        TranscriptMessage(
            role="assistant",
            author="buyer",
            parts=(
                ReasoningPart(content="hm, two calls", provider="anthropic", signature="sig+/=="),
                text("I look it up."),
                ToolCallPart(id="c1", name="lookup", arguments={"who": "bob", "deep": {"π": [1, 2.5, None, True]}}),
                ToolCallPart(id="c2", name=LONG_NAME, arguments={}),
            ),
            usage={"input_tokens": 7},
            model="m-1",
            ext={"footnote": "see page 3"},
        ),
        TranscriptMessage(
            role="tool",
            parts=(
                ToolResponsePart(id="c1", name="lookup", content=(text("bob is here\n\nsee picture"), PNG, PDF)),
                ToolResponsePart(id="c2", name=LONG_NAME, content=(text("no such archive"),), is_error=True),
            ),
        ),
        TranscriptMessage(
            role="assistant",
            author="buyer",
            parts=(ToolCallPart(id="c3", name="pay", arguments=None, raw_arguments='{"to": '),),
        ),
        TranscriptMessage(role="tool", parts=(ToolResponsePart(id="c3", name="pay", content=(text("not JSON"),)),)),
        TranscriptMessage(role="assistant", author="buyer", parts=(text("Bob is here."), PNG)),
        TranscriptMessage(role="user", parts=(CompactionPart(content="Earlier: nothing."), text("Go on."))),
    )
)


NAMED = replace(RICH, messages=tuple(shorten_names(RICH.messages)[0]))
"""The same, with names that every provider takes."""


def convert(source: Transcript, name: str, options: ConversionOptions = OPTIONS) -> MeasuredConversion:
    target = TARGETS[name]
    return convert_transcript(CODEC, load_transcripts(target.framework), source, target, options)


def checkpoint_of(name: str, conversion: MeasuredConversion, options: ConversionOptions = OPTIONS) -> Checkpoint:
    return first_checkpoint(TARGETS[name], options, conversion.converted)


def read_back(name: str, conversion: MeasuredConversion) -> Transcript:
    return load_transcripts(TARGETS[name].framework).to_transcript(checkpoint_of(name, conversion))
