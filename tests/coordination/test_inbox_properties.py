"""The rows of inboxes: for any names, no agent finds another's, and what was noted is what is read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends.port import Row, RowKey
from holdfast.format.rows import inbox

NAMES = st.text(st.characters(exclude_categories=()), max_size=20)
IDS = st.binary(min_size=16, max_size=16)
STORED_NAMES = NAMES.map(lambda name: name.encode("utf-8", "surrogatepass"))  # as holdfast writes them
MOMENTS = st.integers(0, 2**62)
CLAIMS = st.builds(inbox.LastClaim, IDS, MOMENTS, MOMENTS, STORED_NAMES, st.none() | IDS)
ENDINGS = st.builds(inbox.FollowUp, IDS, MOMENTS, STORED_NAMES, st.booleans())


@given(NAMES, NAMES, IDS, st.sampled_from([inbox.WAITING, inbox.DONE]))
def test_no_agent_finds_anothers(one: str, other: str, id_: bytes, part: bytes):
    key = inbox.prefix(one, part) + id_
    assert key.startswith(inbox.prefix(one))
    assert key.startswith(inbox.prefix(other)) == (one == other)
    assert inbox.handoff_id(RowKey(inbox.INBOX, key)) == id_


@given(NAMES, IDS, st.none() | CLAIMS)
def test_what_waits_is_read_as_it_was_noted(name: str, id_: bytes, entry: inbox.LastClaim | None):
    key = RowKey(inbox.INBOX, inbox.prefix(name, inbox.WAITING) + id_)
    assert inbox.unpack(key, Row(inbox.pack(key, entry), 1)) == entry


@given(NAMES, IDS, ENDINGS)
def test_what_is_done_is_read_as_it_was_noted(name: str, id_: bytes, entry: inbox.FollowUp):
    key = RowKey(inbox.INBOX, inbox.prefix(name, inbox.DONE) + id_)
    found = inbox.unpack(key, Row(inbox.pack(key, entry), 1))
    assert (type(found), found) == (inbox.FollowUp, entry)
