"""Manifests and rows that were changed by hand: told as corrupt, whatever is in them."""

from __future__ import annotations

import zlib

import ormsgpack
import pytest

from holdfast import CorruptError
from holdfast.backends.port import Row, RowKey
from holdfast.codec.codec import Codec
from holdfast.format.rows import head as rows
from holdfast.format.state import record
from holdfast.format.state.manifest import Manifest, Skeleton

DIGEST = b"d" * 32
SOUND = [0, DIGEST, b"", None, None]


@pytest.mark.parametrize(
    "body",
    [
        None,
        5,
        {},
        [],
        [SOUND],
        [SOUND, [], [], []],
        [["x", DIGEST, b"", None, None], [], []],
        [[-1, DIGEST, b"", None, None], [], []],
        [[0, 5, b"", None, None], [], []],
        [[0, DIGEST, "text", None, None], [], []],
        [[0, DIGEST, None, None, None], [], []],
        [[0, DIGEST, None, ["x", 1, 2], None], [], []],
        [[0, DIGEST, None, [1, 2], None], [], []],
        [SOUND, [[["a"], "x", 1, DIGEST, False, [], [1, 2, 3, 4]]], []],
        [SOUND, [[[["u"]], 1, 1, DIGEST, False, [], [1, 2, 3, 4]]], []],
        [SOUND, [[["a"], 1, 1, DIGEST, False, [1, 2], [1, 2, 3, 4]]], []],
        [SOUND, [[["a"], 1, 1, DIGEST, False, [], [1, 2, 3]]], []],
        [SOUND, [["a"]], []],
        [SOUND, [], [[5, 5]]],
        [SOUND, [], [[DIGEST, "x"]]],
        [SOUND, [], [[DIGEST]]],
    ],
    ids=str,
)
def test_a_manifest_of_another_shape_is_corrupt(body):
    """Whoever changed it knew to fix the CRC."""
    codec = Codec()
    header = {"id": b"i" * 16, "seq": 1, "at": 1, "agent": "a", "session": "s"}
    data, _ = record.pack(codec, header, Manifest(Skeleton(0, DIGEST, b"", None, None), (), ()))
    end_of_header = 8 + int.from_bytes(data[4:8], "little")
    changed = data[:end_of_header] + ormsgpack.packb(body) + data[-68:-4]
    changed += zlib.crc32(changed).to_bytes(4, "big")
    with pytest.raises(CorruptError):
        record.unpack(codec, changed).manifest()


class TestRows:
    KEY = RowKey(rows.HEAD, b"session", b"t" * 16)

    def test_a_head_comes_back(self):
        for head in (rows.Head(b"c" * 16, 7), rows.Head(None, 0)):
            assert rows.unpack_head(self.KEY, Row(head.pack(self.KEY), 1)) == head

    def test_a_flipped_bit_is_noticed(self):
        packed = rows.Head(b"c" * 16, 7).pack(self.KEY)
        for at in range(len(packed)):
            with pytest.raises(CorruptError):
                rows.unpack_head(self.KEY, Row(packed[:at] + bytes([packed[at] ^ 4]) + packed[at + 1 :], 1))

    def test_a_swapped_row_is_noticed(self):
        packed = rows.Head(b"c" * 16, 7).pack(self.KEY)
        for other in (RowKey(rows.HEAD, b"other", b"t" * 16), RowKey(rows.SESSION, b"session", b"t" * 16)):
            with pytest.raises(CorruptError):
                rows.content(other, Row(packed, 1))

    @pytest.mark.parametrize("value", [b"", b"x", b"abcd"])
    def test_a_short_one_is_noticed(self, value):
        with pytest.raises(CorruptError):
            rows.content(self.KEY, Row(value, 1))

    @pytest.mark.parametrize("name", ["", "a:b", "\x00", "\ud800", "ü"])
    def test_a_session_name_comes_back_from_its_key(self, name):
        assert rows.session_name(rows.session_key(name)) == name
