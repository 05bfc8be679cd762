"""Differences, for any content and any base."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import CorruptError
from holdfast.format.files import blob_delta

HASH = bytes(range(32))
parts = st.lists(st.sampled_from([b"", b"a line\n" * 30, b"another\n", b"\0" * 400, bytes(range(256))]), max_size=8)


@given(base=parts.map(b"".join) | st.binary(), content=parts.map(b"".join) | st.binary())
def test_a_difference_and_its_base_give_the_content(base: bytes, content: bytes) -> None:
    packed = blob_delta.pack(content, HASH, base)
    assert blob_delta.base_of(HASH, packed) == HASH
    assert blob_delta.unpack(packed, base) == content


@given(
    before=st.binary(max_size=300),
    after=st.binary(max_size=300),
    was=st.binary(max_size=300),
    now=st.binary(max_size=128),
)
def test_few_bytes_in_one_place_are_stored_as_they_are(before: bytes, after: bytes, was: bytes, now: bytes) -> None:
    base, content = before + was + after, before + now + after
    packed = blob_delta.pack(content, HASH, base)
    assert packed[:1] == blob_delta.INSERTED
    assert len(packed) <= 1 + 32 + 8 + len(now)
    assert blob_delta.unpack(packed, base) == content


def test_more_is_compressed() -> None:
    base = b"".join(b"line %d\n" % number for number in range(500))
    content = base.replace(b"line 3", b"another 3")  # in a hundred places
    packed = blob_delta.pack(content, HASH, base)
    assert packed[:1] == blob_delta.COMPRESSED
    assert blob_delta.unpack(packed, base) == content


@given(hash_=st.binary(min_size=32, max_size=32))
def test_its_key_is_another_one_and_leads_back(hash_: bytes) -> None:
    assert blob_delta.key_of(hash_) != hash_
    assert blob_delta.key_of(blob_delta.key_of(hash_)) == hash_


@given(
    data=st.binary(max_size=80) | st.binary(max_size=60).map(lambda rest: blob_delta.INSERTED + rest),
    base=st.binary(max_size=80),
)
def test_what_is_no_difference_is_refused_or_read(data: bytes, base: bytes) -> None:
    with contextlib.suppress(CorruptError):
        blob_delta.base_of(HASH, data)
        blob_delta.unpack(data, base)
