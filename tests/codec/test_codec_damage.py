"""Bytes that nobody wrote: told, whatever they are, in little time, memory and stack."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
import tracemalloc

import ormsgpack
import pytest

from holdfast.codec.codec import Codec, Limits
from holdfast.errors import CorruptError, NewerVersionError, UnknownTypeError

codec = Codec()


def ext(code, payload):
    return b"\xc9" + len(payload).to_bytes(4) + bytes([code & 0xFF]) + payload


BAD = {
    "nothing": b"",
    "reserved byte": b"\xc1",
    "second value": b"\x01\x01",
    "cut str": b"\xa5ab",
    "invalid utf-8": b"\xa1\xff",
    "int key": b"\x81\x01\x01",
    "huge array": b"\xdd\xff\xff\xff\xff",
    "huge map": b"\xdf\xff\xff\xff\xff",
    "huge bin": b"\xc6\xff\xff\xff\xff",
    "huge ext": b"\xc9\xff\xff\xff\xff\x04",
    "deep": b"\x91" * 5000,
    "tuple of no array": ext(4, b"\x01"),
    "tuple of nothing": ext(4, b""),
    "tuple with a rest": ext(4, b"\x90\x01"),
    "odd map": ext(5, b"\x91\x01"),
    "map with a list for a key": ext(5, b"\x92\x90\x01"),
    "map with a key twice": ext(5, b"\x94\x01\x01\x01\x01"),
    "set with a list": ext(6, b"\x91\x90"),
    "set with a member twice": ext(6, b"\x92\x01\xc3"),
    "frozenset with a dict": ext(7, b"\x91\x80"),
    "surrogates": ext(2, b"\xff"),
    "short datetime": ext(8, b"\x00"),
    "month 13": ext(8, bytes.fromhex("07e80d010000000000000000")),
    "fold 2": ext(8, bytes.fromhex("07e801010000000000000002")),
    "zone of kind 9": ext(8, bytes.fromhex("07e80101000000000000000009")),
    "offset of a week": ext(8, bytes.fromhex("07e801010000000000000000017fffffffffffffff")),
    "zone key leaves its folder": ext(8, bytes.fromhex("07e80101000000000000000003") + b"../../etc/passwd"),
    "absolute zone key": ext(8, bytes.fromhex("07e80101000000000000000003") + b"/etc/passwd"),
    "empty zone key": ext(8, bytes.fromhex("07e80101000000000000000003")),
    "date 0": ext(9, b"\x00\x00\x00\x00"),
    "long date": ext(9, b"\x07\xe8\x01\x01\x01"),
    "timedelta out of range": ext(11, b"\x7f" * 12),
    "decimal": ext(12, b"1_0"),
    "decimal words": ext(12, b"nan"),
    "decimal exponent": ext(12, b"1E+99999999999999999999"),
    "short uuid": ext(13, b"\x00" * 15),
    "uuid safety": ext(13, b"\x00" * 16 + b"\x07"),
    "complex": ext(14, b"\x00"),
    "fraction by zero": ext(15, b"\x92\x01\x00"),
    "fraction not in lowest terms": ext(15, b"\x92\x02\x04"),
    "fraction of floats": ext(15, b"\x92" + ormsgpack.packb(1.0) + b"\x01"),
    "long fraction": ext(15, b"\x92\x01" + ext(1, b"\x7f" * 10_000)),
    "path flavour": ext(16, b"\x09a"),
    "empty path": ext(16, b""),
    "ref": ext(18, b"\x00\x00"),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_damage_is_told(data):
    for wrapped in (data, b"\x91" + data, ext(4, b"\x91" + data)):
        with pytest.raises(CorruptError):
            codec.decode(wrapped)


def test_unknown_codes_are_newer():
    for code in (0, 20, 100, 127, -1, -128):
        with pytest.raises(NewerVersionError, match="newer holdfast"):
            codec.decode(ext(code, b"\x00"))


def test_unknown_zones_say_what_to_install():
    for key in (b"Mars/Base", b"Europe", b"zone1970"):
        with pytest.raises(UnknownTypeError, match="tzdata"):
            codec.decode(ext(8, bytes.fromhex("07e80101000000000000000003") + key))


def test_limits_hold_when_decoding():
    data = Codec().encode(["x" * 50] * 3)
    for limits in (Limits(max_bytes=100), Limits(max_items=3)):
        with pytest.raises(CorruptError):
            Codec(limits=limits).decode(data)
    nested = Codec().encode((((1,),),))
    with pytest.raises(CorruptError, match="nested"):
        Codec(limits=Limits(max_depth=2)).decode(nested)


# Each makes 1 MB or more of trouble.
def _ext_bomb():
    data = b"\x90"
    while len(data) < 100_000:
        data = ext(4, b"\x91" + data)
    return data


def _mixed_bomb():
    data = b"\x90"
    for _ in range(190):
        data = ext(4, b"\x91" * 1000 + data)
    return data


def _wide_bomb():
    data = b"\x90"
    for _ in range(60):
        data = ext(4, b"\x91" * 300 + ext(5, b"\x92\xc0" + data))
    return data


BOMBS = {
    "payloads in payloads": _ext_bomb,
    "payloads in arrays": _mixed_bomb,
    "payloads in arrays and maps": _wide_bomb,
    "colliding ints": lambda: ext(
        6,
        b"\xdd" + (20_000).to_bytes(4) + b"".join(ext(1, (i * (2**61 - 1)).to_bytes(16)) for i in range(20_000)),
    ),
    "long decimal": lambda: ext(12, b"9" * 1_000_000),
    "long int": lambda: ext(1, b"\x7f" * 1_000_000),
    "nan payload": lambda: ext(12, b"NaN" + b"9" * 1_000_000),
    "long zone": lambda: ext(8, bytes.fromhex("07e80101000000000000000003") + b"a/" * 500_000 + b"a"),
    "many huge headers": lambda: b"\xdd\x7f\xff\xff\xff" * 200_000,
    "many huge exts": lambda: b"\x91\xc9\x7f\xff\xff\xff\x04" * 200_000,
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_bombs_do_no_harm(bomb):
    data = bomb()
    tracemalloc.start()
    started = time.thread_time()  # what others take of the machine does not count
    with contextlib.suppress(CorruptError, UnknownTypeError, NewerVersionError):
        codec.decode(data)
    taken = time.thread_time() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 5  # seconds of CPU: a hundred times what it takes, and nothing for what grows faster than its input
    assert peak < 10_000_000 + 60 * len(data)


@pytest.mark.slow
@pytest.mark.parametrize("bomb", ["_ext_bomb", "_mixed_bomb", "_wide_bomb"])
def test_bombs_do_no_harm_in_a_thread(bomb):
    """In a process of its own: a stack that overflows can't be caught."""
    script = f"""
import sys, threading
sys.path[:0] = {sys.path!r}
import test_codec_damage as t
def run():
    try:
        t.codec.decode(t.{bomb}())
    except t.CorruptError as error:
        print("told")
threading.stack_size(4 << 20)
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=__file__.rpartition("/")[0]
    )
    assert (run.returncode, run.stdout.strip()) == (0, "told"), run.stderr


def test_what_resolve_raises_of_ours_is_kept():
    data = ext(18, b"\x00\x00")

    def missing(_kind, _index):
        raise UnknownTypeError("kept")

    def interrupted(_kind, _index):
        raise KeyboardInterrupt

    def broken(_kind, _index):
        raise KeyError(1)

    with pytest.raises(UnknownTypeError, match="kept"):
        codec.decode(data, missing)
    with pytest.raises(KeyboardInterrupt):
        codec.decode(data, interrupted)
    with pytest.raises(CorruptError):
        codec.decode(data, broken)


def test_little_stack_left_is_told_and_not_a_recursion_error():
    value = 1
    for _ in range(150):
        value = (value,)
    data = codec.encode(value)

    def deep(levels):
        if levels:
            return deep(levels - 1)
        with pytest.raises(CorruptError, match="stack"):
            codec.decode(data)
        with pytest.raises(ValueError, match="stack"):
            codec.encode(value)
        return True

    frame, used = sys._getframe(), 0
    while frame:
        frame, used = frame.f_back, used + 1
    assert deep(sys.getrecursionlimit() - used - 150)
