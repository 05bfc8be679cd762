"""Reading of events for the tests of Google ADK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.adk.events.event import Event
from google_adk_turns import Killed


def responses(events: list[Event]) -> list[Any]:
    return [one.response for event in events for one in event.get_function_responses()]


def sender(called: list[str], *, kill: bool = False) -> Callable[..., str]:
    def send(to: str) -> str:
        """Send a letter."""
        called.append(to)
        if kill:
            raise Killed
        return f"sent to {to}"

    return send
