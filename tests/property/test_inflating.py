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


@pytest.fixture
def inflated(monkeypatch):
    """Every frame that is inflated, one by one or many at once, is noted here by the thread that does it."""
    noted: dict[int, list[bytes]] = {}
    one, many = frame.content, frame.contents

    def content(framed, *more):
        noted.setdefault(threading.get_ident(), []).append(framed)
        return one(framed, *more)

    def contents(frames, *more):
        noted.setdefault(threading.get_ident(), []).extend(frames)
        return many(frames, *more)

    monkeypatch.setattr(frame, "content", content)
    monkeypatch.setattr(frame, "contents", contents)
    return noted


def test_the_other_one_does_no_more_than_is_left(inflated):
    frames = framed(LARGE)
    inflating = Inflating(frames)
    for one in frames[:5]:
        inflating.content(one)
    other = threading.Thread(target=lambda: list(inflating.help()))
    other.start()
    other.join()
    mine, others = inflated.values()
    assert mine == frames[:5]
    assert [*dict.fromkeys(others)] == [frames[7], frames[6], frames[5]]  # one alone is noted twice
    assert [bytes(inflating.content(one)) for one in frames[5:]] == LARGE[5:]
    assert mine == frames[:5]  # what the other one did is taken from it


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


def test_who_needs_a_frame_does_not_wait_for_the_other_one_who_is_at_it(inflated, monkeypatch):
    begun, over = threading.Event(), threading.Event()
    many = frame.contents

    def contents(frames, *more):
        begun.set()
        over.wait(60)
        return many(frames, *more)

    monkeypatch.setattr(frame, "contents", contents)
    frames = framed(LARGE)
    inflating = Inflating(frames)
    other = threading.Thread(target=lambda: list(inflating.help()))
    other.start()
    assert begun.wait(60)
    given = [bytes(inflating.content(one)) for one in frames]
    over.set()
    other.join()
    assert given == LARGE
    assert inflated[threading.get_ident()] == frames


def test_frames_that_are_asked_for_in_another_order_are_given_all_the_same():
    frames = framed(LARGE)
    inflating = Inflating(frames)
    beside = inflating.help()
    for number in (3, 0, 7, 1, 6, 2, 5, 4):
        assert bytes(inflating.content(frames[number])) == LARGE[number]
        next(beside, None)


@pytest.mark.parametrize("has_it", [True, False])
@pytest.mark.parametrize("sizes", [[40_000], [40_000, 300, 40_000], [9_000_000, 40_000, 9_000_000]])
def test_many_frames_at_once_hold_what_each_of_them_does(sizes, has_it, monkeypatch):
    if not has_it:
        monkeypatch.setattr(frame, "_MANY_AT_ONCE", "a method that this backend of zstandard does not have")
    contents = [text(seed, size) for seed, size in enumerate(sizes)]
    found = frame.contents([frame.compressed(content) for content in contents], frame.inflater())
    assert [bytes(one) for one in found] == contents


@pytest.mark.parametrize("has_it", [True, False])
@given(number=st.integers(0, 2), at=st.integers(0, 30_000), flip=st.integers(1, 255))
def test_a_damaged_frame_among_many_is_refused_or_gives_as_much_as_it_says(has_it, number, at, flip):
    frames = [bytearray(one) for one in framed(LARGE[:3])]
    frames[number][1 + at % (len(frames[number]) - 1)] ^= flip
    with pytest.MonkeyPatch.context() as patch:
        if not has_it:
            patch.setattr(frame, "_MANY_AT_ONCE", "none")
        try:
            found = frame.contents([bytes(one) for one in frames], frame.inflater())
        except CorruptError:
            return
    assert [bytes(one) == content for one, content in zip(found, LARGE, strict=False)].count(True) >= 2
