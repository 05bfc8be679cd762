"""Cursors: what is written is read back, and nothing else is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.model.event import START, Cursor

endings = st.none() | st.text("0123456789abcdef", min_size=8, max_size=8)


@given(st.integers(0, 2**63 - 1), endings)
def test_a_cursor_is_read_back(position: int, ending: str | None):
    cursor = Cursor(position, ending)
    assert Cursor.from_text(cursor.text) == cursor
    assert len(cursor.text) <= 28


@given(st.integers(1, 2**63 - 1), st.binary(min_size=16, max_size=16))
def test_a_cursor_names_the_end_of_the_id(position: int, id_: bytes):
    assert Cursor.from_text(Cursor.of(position, id_).text) == (position, id_.hex()[-8:])


@given(st.text() | st.text("0123456789abcdef-", max_size=30) | st.binary() | st.integers() | st.none())
def test_anything_else_is_refused(text: object):
    try:
        cursor = Cursor.from_text(text)
    except UsageError as error:
        assert "is no cursor" in str(error)
    else:
        assert text == START or Cursor.from_text(cursor.text) == cursor


def test_digits_of_other_scripts_are_no_digits():
    with pytest.raises(UsageError):
        Cursor.from_text("\u0661")
