"""The state of a converted session for adapters whose state is a list of messages and a few keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.adapters.base.session import TURN
from holdfast.adapters.base.session_transcript import MESSAGES
from holdfast.model.conversation import BlobPart, MessagePart
from holdfast.model.conversion_target import ConversionOptions, ConvertedState

# What images begin with that Pillow loads: some frameworks make images of its class of them.
_PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF")


def is_picture(part: MessagePart) -> bool:
    """Return whether a part is an image that Pillow can load: by its media type and its first bytes."""
    if not isinstance(part, BlobPart) or not part.mime_type.startswith("image/"):
        return False
    return (part.data or b"").startswith(_PICTURES)


def native_messages(options: ConversionOptions) -> list[Any]:
    """Return the messages of the earlier state that the conversation is appended to."""
    found = (options.native or {}).get(MESSAGES)
    return list(found) if isinstance(found, list | tuple) else []


def place_messages(messages: Sequence[Any], options: ConversionOptions, first: Mapping[str, Any]) -> ConvertedState:
    """Return a state of these messages, with the other keys of the earlier state, or of `first`.

    Such a state has no place for values of the developer's own.
    """
    rest = {name: value for name, value in (options.native or first).items() if name not in (MESSAGES, TURN)}
    return ConvertedState(state={**rest, TURN: None, MESSAGES: list(messages)}, left=tuple(options.carried))
