"""Teams of AutoGen, killed and started again: nothing is repeated, nothing is lost."""

from __future__ import annotations

from framework_environments import require
from office_crash import Office, at_a_commit
from survives import survives

require("autogen")

OFFICE = Office(
    "autogen_agent",
    api_key="sk-autogen-0123456789",
    calls={"balance": 3, "lookup": 3, "pay": 3, "archive": 3},
    at_a_time=2,  # calls of a turn: the clerk's two tools
)


@survives("finished model calls, the selector's too", "their answers are replayed")
@at_a_commit
def test_an_office_killed_at_a_commit_goes_on(places, when):
    OFFICE.check_kills_at_commits(places, when)


def test_an_office_killed_at_a_random_moment_goes_on(sqlite_places):
    OFFICE.check_kills_at_random_moments(sqlite_places)


def test_an_office_goes_on_in_a_new_interpreter(sqlite_places):
    OFFICE.check_new_interpreter(sqlite_places)


@survives("finished tool calls", "their results are replayed")
def test_an_office_killed_in_a_call_repeats_that_call_only(sqlite_places):
    OFFICE.check_kills_in_calls(sqlite_places)


def test_no_credential_is_stored(sqlite_places):
    OFFICE.check_no_credential_is_stored(sqlite_places)
