"""Frames that two threads inflate: whoever comes to one first, what is given is what was framed."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import CorruptError
from holdfast.objects import frame
from holdfast.objects.inflating import Inflating


def text(seed: int, size: int) -> bytes:
    """What zstd makes half as long: hexadecimal digits."""
    return random.Random(seed).randbytes(size // 2).hex().encode()


LARGE = [text(seed, 40_000) for seed in range(8)]
SMALL = [text(seed, 300) for seed in range(8)]
FRAMES = {content: frame.compressed(content) for content in [*LARGE, *SMALL]} | {b"as it is": frame.raw(b"as it is")}


def framed(contents: list[bytes]) -> list[bytes]:
    """Each a frame of its own, as those that a store gives are."""
    return [bytes(bytearray(FRAMES[content])) for content in contents]


@given(st.lists(st.sampled_from(list(FRAMES)), max_size=14), st.lists(st.booleans(), max_size=40))
def test_gives_what_was_framed_however_far_the_other_one_has_come(contents, turns):
    frames = framed(contents)
    inflating = Inflating(frames)
    beside = inflating.help()
    left = iter(turns)
    given = []
    for one in frames:
        while next(left, False):
            next(beside, None)
        given.append(bytes(inflating.content(one)))
    assert given == contents
    assert next(beside, "over") in (None, "over")  # at most the one that nobody had come to


def test_the_other_one_does_no_more_than_is_left():
    frames = framed(LARGE)
    inflating = Inflating(frames)
    for one in frames[:5]:
        inflating.content(one)
    assert len(list(inflating.help())) == 3


def test_of_a_few_small_frames_none_is_left_to_the_other_one():
    assert not list(Inflating(framed(SMALL)).help())
    assert not list(Inflating(framed(LARGE[:2])).help())


def test_two_threads_at_once():
    contents = LARGE * 4
    for _ in range(10):
        frames = framed(contents)
        inflating = Inflating(frames)
        other = threading.Thread(target=lambda inflating=inflating: list(inflating.help()))
        other.start()
        given = [bytes(inflating.content(one)) for one in frames]
        other.join()
        assert given == contents


@given(st.integers(0, len(LARGE) - 1), st.integers(0, 10_000), st.integers(1, 255))
def test_a_damaged_frame_is_told_to_the_one_who_needs_it(number, at, flip):
    frames = framed(LARGE)
    damaged = bytearray(frames[number])
    damaged[1 + at % 8] ^= flip  # in zstd's own header: what it holds is then another, or can't be read
    frames[number] = bytes(damaged)
    inflating = Inflating(frames)
    try:
        for _ in inflating.help():
            pass
    except CorruptError:
        with pytest.raises(CorruptError):
            inflating.content(frames[number])
    for content, one in zip(LARGE, frames, strict=True):
        if one is not frames[number]:
            assert bytes(inflating.content(one)) == content


def test_who_needs_a_frame_does_not_wait_for_the_other_one_who_is_at_it(monkeypatch):
    me, begun, over = threading.get_ident(), threading.Event(), threading.Event()
    inflate, by_me = frame.content, []

    def content(framed, *more):
        if threading.get_ident() == me:
            by_me.append(framed)
        else:
            begun.set()
            over.wait(60)
        return inflate(framed, *more)

    monkeypatch.setattr(frame, "content", content)
    frames = framed(LARGE)
    inflating = Inflating(frames)
    other = threading.Thread(target=lambda: list(inflating.help()))
    other.start()
    assert begun.wait(60)
    given = [bytes(inflating.content(one)) for one in frames]
    over.set()
    other.join()
    assert given == LARGE
    assert [frames.index(one) for one in by_me] == [1, 2, 3, 4, 5, 6, 7, 0]  # what the other one is at, last


def test_frames_that_are_asked_for_in_another_order_are_given_all_the_same():
    frames = framed(LARGE)
    inflating = Inflating(frames)
    beside = inflating.help()
    for number in (3, 0, 7, 1, 6, 2, 5, 4, 3):
        assert bytes(inflating.content(frames[number])) == LARGE[number]
        next(beside, None)
