"""The state of a converted session for adapters whose state is a list of messages and a few keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.adapters.base.recorded import MESSAGES
from holdfast.adapters.base.session import TURN
from holdfast.model.conversion_target import ConversionOptions, Converted


def native_messages(options: ConversionOptions) -> list[Any]:
    """Return the messages of the earlier state that the conversation is appended to."""
    found = (options.native or {}).get(MESSAGES)
    return list(found) if isinstance(found, list | tuple) else []


def place_messages(messages: Sequence[Any], options: ConversionOptions, first: Mapping[str, Any]) -> Converted:
    """Return a state of these messages, with the other keys of the earlier state, or of `first`.

    Such a state has no place for values of the developer's own.
    """
    rest = {name: value for name, value in (options.native or first).items() if name not in (MESSAGES, TURN)}
    return Converted(state={**rest, TURN: None, MESSAGES: list(messages)}, left=tuple(options.carried))
