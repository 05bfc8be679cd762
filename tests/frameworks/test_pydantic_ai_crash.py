"""Agents of Pydantic AI, killed and started again: nothing is repeated, nothing is lost."""

from __future__ import annotations

from framework_environments import require
from office_crash import Office, at_a_commit
from survives import survives

require("pydantic_ai")

OFFICE = Office(
    "pydantic_ai_agent",
    api_key="sk-pydantic-ai-0123456789",
    calls={"balance": 4, "lookup": 4, "pay": 4, "archive": 4},
    at_a_time=2,  # calls of a turn: of the two tools that the clerk calls at once
)


@survives("finished model and tool calls", "are replayed, not made again")
@at_a_commit
def test_an_office_killed_at_a_commit_goes_on(places, when):
    OFFICE.check_kills_at_commits(places, when)


@survives("a declared tool under way", "is looked up by its probe")
def test_an_office_killed_at_a_random_moment_goes_on(sqlite_places):
    OFFICE.check_kills_at_random_moments(sqlite_places)


def test_an_office_goes_on_in_a_new_interpreter(sqlite_places):
    OFFICE.check_new_interpreter(sqlite_places)


@survives("a model call under way", "is made again")
def test_an_office_killed_in_a_call_repeats_that_call_only(sqlite_places):
    OFFICE.check_kills_in_calls(sqlite_places)


@survives("API keys", "are never stored")
def test_no_credential_is_stored(sqlite_places):
    OFFICE.check_no_credential_is_stored(sqlite_places)
