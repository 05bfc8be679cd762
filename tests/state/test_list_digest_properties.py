"""The chain over a list: the same however it was fed, and taken up by who knows only its last link."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from holdfast.format.state.list_digest import BLOCK, NO_LINK, Chain, chain_of, open_from

# Sizes around those of blocks, without having to draw so many bytes.
elements = st.lists(
    st.builds(
        lambda fill, size: bytes([fill]) * size, st.integers(0, 255), st.integers(1, 300) | st.integers(1, 40_000)
    ),
    max_size=12,
)


def by_the_book(content: bytes) -> bytes:
    link = NO_LINK
    while len(content) >= BLOCK:
        link, content = hashlib.sha256(link + content[:BLOCK]).digest(), content[BLOCK:]
    return hashlib.sha256(link + content).digest()


@given(elements)
def test_is_what_the_format_says(pieces):
    assert chain_of(pieces).digest() == by_the_book(b"".join(pieces))


@given(elements, elements)
def test_is_taken_up_from_its_last_link_and_its_open_block(first, then):
    chain = chain_of(first)
    size = sum(map(len, first))
    start = open_from(0, len(first), size, first)
    rest = b"".join(first[start:])
    assert len(rest) >= size % BLOCK
    assert start == len(first) or len(rest) - len(first[start]) < size % BLOCK or size < BLOCK  # no more than is needed
    resumed = Chain(chain.link)
    resumed.update(rest[len(rest) - size % BLOCK :])
    for piece in then:
        resumed.update(piece)
    assert resumed.digest() == chain_of([*first, *then]).digest()


@given(elements, elements)
def test_the_open_block_is_found_from_what_is_new(first, then):
    size = sum(map(len, first))
    before = open_from(0, len(first), size, first)
    after = open_from(before, len(first) + len(then), size + sum(map(len, then)), then)
    assert after == open_from(0, len(first) + len(then), size + sum(map(len, then)), [*first, *then])


@given(elements, elements)
def test_a_copy_goes_its_own_way(first, then):
    chain = chain_of(first)
    copy = chain.copy()
    for piece in then:
        copy.update(piece)
    assert chain.digest() == by_the_book(b"".join(first))
    assert copy.digest() == by_the_book(b"".join([*first, *then]))
