"""Ids that rise and name their tree; envelopes that are brought up to date."""

from __future__ import annotations

import os
import threading
import uuid

import pytest

from holdfast import NewerVersionError, UsageError
from holdfast.coordination.id_generator import IdSource
from holdfast.model import ids, record_version


def make(ms: int, counter: int, tag: bytes | None = None) -> bytes:
    return ids.make(ms, counter, os.urandom(8), tag)


class TestIds:
    def test_are_uuid7_of_their_moment(self):
        made = uuid.UUID(ids.to_text(make(1_800_000_000_000, 5)))
        assert (made.version, made.variant) == (7, uuid.RFC_4122)
        assert made.int >> 80 == 1_800_000_000_000

    def test_of_one_tree_share_its_tag(self):
        root = make(1, 0)
        assert {ids.tree_tag(make(2, i, ids.tree_tag(root))) for i in range(10)} == {ids.tree_tag(root)}
        assert len({ids.tree_tag(make(1, 0)) for _ in range(50)}) > 40

    def test_end_in_noise_so_that_short_ids_differ(self):
        root = make(1, 0)
        assert len({ids.short(ids.to_text(make(1, 0, ids.tree_tag(root)))) for _ in range(200)}) == 200

    @pytest.mark.parametrize("text", ["", "x", "0" * 31, "0" * 33, None, 5, b"0" * 16, "zz" * 16])
    def test_of_another_form_are_refused(self, text):
        with pytest.raises(UsageError, match="is not a checkpoint id"):
            ids.from_text(text)

    def test_come_back_from_their_text(self):
        made = make(123, 4)
        assert ids.from_text(ids.to_text(made)) == made


class TestSource:
    def test_rises_whatever_the_clock_does(self):
        moments = iter([5, 5, 5, 3, 2, 9, 1, 9, 10] * 3)
        source = IdSource(lambda: next(moments))
        made = [source.new(b"\x80tag") for _ in range(27)]
        assert [id_[:8] for id_ in made] == sorted({id_[:8] for id_ in made})

    def test_goes_on_in_the_next_millisecond_when_one_is_full(self):
        source = IdSource(lambda: 7)
        made = [source.new(b"\x80tag")[:8] for _ in range(2 * ids.COUNTER_LIMIT + 3)]
        assert made == sorted(set(made))
        assert int.from_bytes(made[-1][:6], "big") == 9

    def test_may_be_shared_by_threads(self):
        source = IdSource(lambda: 7)
        made: list[bytes] = []
        threads = [
            threading.Thread(target=lambda: made.extend([source.new(b"\x80tag")[:8] for _ in range(500)]))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(made)) == 4000

    def test_a_forked_child_makes_other_ids(self):
        """Same clock, same counter: the randomness must be its own."""
        source = IdSource(lambda: 7)
        source.new()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, b"".join(source.new(b"\x80tag") for _ in range(50)))
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            raw = pipe.read()
        os.waitpid(child, 0)
        of_child = {raw[i : i + 16] for i in range(0, len(raw), 16)}
        of_parent = {source.new(b"\x80tag") for _ in range(50)}
        assert len(of_child) == len(of_parent) == 50
        assert not of_child & of_parent


STEPS = {
    "1": ("2", lambda header: header | {"two": True}),
    "2": ("3", lambda header: {name: value for name, value in header.items() if name != "old"}),
}


class TestSchema:
    def test_a_header_goes_through_every_step(self):
        old = {"old": 1}
        assert record_version.migrate(old, "1", current="3", migrations=STEPS) == {"two": True}
        assert record_version.migrate(old, "2", current="3", migrations=STEPS) == {}
        assert record_version.migrate(old, "3", current="3", migrations=STEPS) == {"old": 1}
        assert old == {"old": 1}

    def test_a_newer_one_is_told(self):
        with pytest.raises(NewerVersionError, match=r"'4'.*up to '3'.*Upgrade"):
            record_version.migrate({}, "4", current="3", migrations=STEPS)

    def test_every_version_of_ours_leads_to_the_current_one(self):
        for version in range(1, int(record_version.ENVELOPE_VERSION) + 1):
            assert isinstance(record_version.migrate({}, str(version)), dict)
