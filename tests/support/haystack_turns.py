"""Agents and runs that tests of Haystack share."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from haystack.dataclasses import ChatMessage


class Interrupted(BaseException):
    """What a kill does, in a test that stays in its process."""


def say(text: str) -> list[ChatMessage]:
    return [ChatMessage.from_user(text)]


def run(agent: Any, text: str, **options: Any) -> dict[str, Any]:
    return agent.run(say(text), **options)


def run_awaited(agent: Any, text: str, **options: Any) -> dict[str, Any]:
    return asyncio.run(agent.run_async(say(text), **options))


in_both_ways = pytest.mark.parametrize("go", [run, run_awaited])
