"""The state of a group, for any sequence of events: keys in order and one at a time, and only tokens settle."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.backends.port import Row
from holdfast.format.rows import topic as rows
from holdfast.model.group_state import MAX_ATTEMPTS, GroupEntry, GroupState, Holder, backoff_us
from holdfast.model.lease import Process

KEYS = st.sampled_from([None, "a", "lone \ud800"])


class Group(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = GroupState(0)
        self.now = 0
        self.published: dict[bytes, str | None] = {}
        self.held: dict[bytes, int] = {}
        self.settled: list[bytes] = []
        self.dead: list[bytes] = []

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4))
    def read_on(self, keys):
        entries = []
        for key in keys:
            position = self.state.cursor + 1 + len(entries)
            id_ = b"%016d" % position
            self.published[id_] = key
            entries.append(GroupEntry(position, id_, key, self.now))
        self.state = self.state.read(entries, entries[-1].position)

    @rule(seconds=st.integers(0, 10))
    def wait(self, seconds):
        self.now += seconds * 1_000_000

    @rule(count=st.integers(1, 3))
    def claim(self, count):
        found = [one.id for one in self.state.claimable(self.now)][:count]
        if found:
            before = self.state.token
            self.state = self.state.claim(set(found), lambda token: Holder(token, b"t", "s", 1, 0, Process("p", 1, 1)))
            assert self.state.token == before + 1
            self.held |= dict.fromkeys(found, self.state.token)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), what=st.sampled_from(["settle", "release", "fail", "reject"]), is_late=st.booleans())
    def end(self, data, what, is_late):
        id_ = data.draw(st.sampled_from(sorted(self.held)))
        token = self.held[id_] - is_late
        before = self.state
        dead = []
        if what == "settle":
            self.state = self.state.settle([(id_, token)])
        elif what == "release":
            self.state = self.state.release(id_, token)
        else:
            self.state, dead = self.state.fail(id_, token, "why", self.now, is_final=what == "reject")
        if is_late:
            assert self.state == before
            return
        del self.held[id_]
        if what == "settle":
            self.settled.append(id_)
        self.dead += [one.id for one in dead]
        if what == "reject":
            assert [one.id for one in dead] == [id_]

    @precondition(lambda self: self.settled or self.dead)
    @rule(data=st.data())
    def reopen(self, data):
        id_ = data.draw(st.sampled_from(self.settled + self.dead))
        self.settled = [one for one in self.settled if one != id_]
        self.dead = [one for one in self.dead if one != id_]
        self.state = self.state.reopen(GroupEntry(int(id_), id_, self.published[id_], 0))

    @invariant()
    def every_message_is_somewhere_once(self):
        entries = [one.id for one in self.state.entries]
        assert sorted([*entries, *self.settled, *self.dead]) == sorted(self.published)
        assert [one.position for one in self.state.entries] == sorted(one.position for one in self.state.entries)
        assert all(one.attempts < MAX_ATTEMPTS for one in self.state.entries)
        in_flight = {one.id: one.holder.token for one in self.state.entries if one.holder is not None}
        assert in_flight == self.held
        for id_ in self.published:
            assert self.state.is_settled(int(id_), id_) == (id_ not in entries)
        assert self.state.first_unsettled <= min((int(one) for one in entries), default=self.state.cursor + 1)

    @invariant()
    def at_most_the_first_of_a_key_can_be_claimed(self):
        for entry in self.state.claimable(self.now):
            if entry.key is not None:
                first = next(one for one in self.state.entries if one.key == entry.key)
                assert entry == first

    @invariant()
    def a_row_gives_the_state_back(self):
        key = rows.group_key("topic", "group")
        assert rows.unpack_group(key, Row(rows.pack_group(key, self.state), 1)) == self.state
        assert rows.names_of(key) == ("topic", "group")


TestGroup = Group.TestCase


def test_pauses_grow_up_to_a_minute():
    pauses = [backoff_us(number) for number in range(1, 12)]
    assert pauses == sorted(pauses)
    assert pauses[:4] == [200_000, 600_000, 1_800_000, 5_400_000]
    assert pauses[-1] == 60_000_000
