"""Differences, for any content and any base."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import CorruptError
from holdfast.objects import delta

HASH = bytes(range(32))
parts = st.lists(st.sampled_from([b"", b"a line\n" * 30, b"another\n", b"\0" * 400, bytes(range(256))]), max_size=8)


@given(base=parts.map(b"".join) | st.binary(), content=parts.map(b"".join) | st.binary())
def test_a_difference_and_its_base_give_the_content(base: bytes, content: bytes) -> None:
    packed = delta.pack(content, HASH, base)
    assert delta.base_of(HASH, packed) == HASH
    assert delta.unpack(packed, base) == content


@given(hash_=st.binary(min_size=32, max_size=32))
def test_its_key_is_another_one_and_leads_back(hash_: bytes) -> None:
    assert delta.key_of(hash_) != hash_
    assert delta.key_of(delta.key_of(hash_)) == hash_


@given(data=st.binary(max_size=80), base=st.binary(max_size=80))
def test_what_is_no_difference_is_refused_or_read(data: bytes, base: bytes) -> None:
    with contextlib.suppress(CorruptError):
        delta.base_of(HASH, data)
        delta.unpack(data, base)
