"""A log has one tail: whoever writes elsewhere than at its end opens a new log."""

from __future__ import annotations

import pytest
from stores import Store, messages, python_process

from holdfast import SyncClient
from holdfast.backends.port import MAX_LOG_ELEMENTS, Span
from holdfast.codec.codec import Codec
from holdfast.format.state import record, write_plan
from holdfast.format.state.manifest import Tail
from holdfast.format.state.split import KnownList, Split
from holdfast.model import ids

pytestmark = pytest.mark.every_store

BIG = 2000  # of these, 40 fill a run that is sealed


def logs_of(client: SyncClient, id_: str) -> set[int]:
    """The logs a checkpoint's lists lie in."""
    [found] = client._ctx.backend.backend.records([ids.from_text(id_)])
    manifest = record.unpack(client._ctx.codec, found.data).manifest()
    return {span.log for entry in manifest.lists for span in entry.spans}


FORKER = """
import sys
from holdfast import SyncClient
from stores import messages
url, old = sys.argv[1:]
client = SyncClient.open(url, durability="fast")
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "fork":
        client.fork(old, session_id="forked")
    elif line.strip() == "parent":
        client.save("b", session_id="beside", parent_id=old, append={"m": messages(3, 9000, 2000)})
    else:
        state = client.latest(session_id="forked").execution_state
        state["m"] += messages(7, 1000 + len(state["m"]), 2000)
        client.save("b", session_id="forked", execution_state=state)
    print(client.latest(session_id="forked" if line.strip() != "parent" else "beside").checkpoint_id, flush=True)
"""


def test_a_fork_from_an_old_checkpoint_after_sealing_by_another_process_while_the_first_goes_on(disk_store: Store):
    """The rule that a prototype broke: both lines restore exactly, at every checkpoint."""
    client = disk_store.client()
    expected: dict[str, list] = {}

    def go_on(count: int) -> str:
        saved = client.save("a", session_id="main", execution_state={"m": messages(count, size=BIG)})
        expected[saved] = messages(count, size=BIG)
        return saved

    old = go_on(20)
    go_on(30)
    go_on(
        60
    )  # 64 KB have gathered by now: what the old checkpoint refers to was sealed into a run with what came after
    go_on(70)
    other = python_process(FORKER, disk_store.url, old)

    def tell(command: str) -> str:
        other.stdin.write(command + "\n")
        other.stdin.flush()
        return other.stdout.readline().strip()

    assert other.stdout.readline() == "ready\n"
    expected[tell("fork")] = messages(20, size=BIG)
    line = messages(20, size=BIG)
    for step in range(8):
        line = [*line, *messages(7, 1000 + len(line), BIG)]
        expected[tell("go on")] = line
        go_on(75 + 9 * step)
    expected[tell("parent")] = [*messages(20, size=BIG), *messages(3, 9000, BIG)]
    go_on(200)
    other.stdin.close()
    assert other.wait(timeout=240) == 0
    for stream in (other.stdout, other.stderr):
        stream.close()
    assert len(expected) == 4 + 1 + 16 + 1 + 1
    for reader in (client, disk_store.client()):
        for id_, elements in expected.items():
            assert reader.restore(id_).execution_state == {"m": elements}
        assert reader.verify().ok


def test_only_the_first_to_follow_a_checkpoint_goes_on_in_its_log(client: SyncClient):
    root = client.save("a", session_id="s", execution_state={"m": messages(20)})
    first = client.save("a", session_id="s", execution_state={"m": messages(21)})
    second = client.save("a", session_id="s", parent_id=root, execution_state={"m": [*messages(20), "other"]})
    assert logs_of(client, root) == logs_of(client, first)
    assert logs_of(client, second) > logs_of(client, root)
    third = client.save("a", session_id="s", execution_state={"m": [*messages(20), "other", "more"]})
    assert logs_of(client, third) == logs_of(client, second)
    assert client.restore(first).execution_state == {"m": messages(21)}


def test_two_clients_that_both_believe_to_be_at_the_tail(store: Store):
    """Sessions forked from one checkpoint, each with its own client, in turn: one gets the tail,
    the other a new log."""
    one, two = store.client(), store.client()
    root = one.save("a", session_id="one", execution_state={"m": messages(20)})
    two.fork(root, session_id="two")
    assert one.latest(session_id="one").execution_state == two.latest(session_id="two").execution_state
    lines = {"one": messages(20), "two": messages(20)}
    for i in range(12):
        for client, session in ((one, "one"), (two, "two")):
            lines[session] = [*lines[session], f"{session} {i}".ljust(8000, "-")]
            client.save("a", session_id=session, execution_state={"m": lines[session]})
    for session, expected in lines.items():
        assert two.latest(session_id=session).execution_state == {"m": expected}
    assert one.verify().ok


@pytest.mark.parametrize("moment", ["append", "seal"])
def test_a_tail_that_moves_between_planning_and_committing(store: Store, moment: str):
    client, recorder = store.recorded()
    other = store.client()
    root = client.save("a", session_id="s", execution_state={"m": messages(25, size=BIG)})
    more = 2 if moment == "append" else 30
    grown = [*messages(25, size=BIG), *messages(more, 500, BIG)]

    def meanwhile(commits) -> None:
        recorder.before_commit = None
        other.save("b", session_id="t", parent_id=root, append={"m": messages(3, 900, BIG)})

    recorder.before_commit = meanwhile
    saved = client.save("a", session_id="s", execution_state={"m": grown})
    assert client.restore(saved).execution_state == {"m": grown}
    assert client.latest(session_id="t").execution_state == {"m": [*messages(25, size=BIG), *messages(3, 900, BIG)]}


def test_log_numbers_are_reserved_in_blocks_and_never_shared(store: Store):
    clients = [store.client() for _ in range(3)]
    used: list[int] = []
    for round_ in range(4):
        for number, client in enumerate(clients):
            state = {"m": messages(10, number), "n": messages(10, round_)}
            saved = client.save("a", execution_state=state)
            used += logs_of(client, saved)
    assert len(used) == len(set(used)) == 24


def test_a_full_log_is_not_written_any_further():
    """A log takes 2**28 elements; the list goes on in a new one."""
    codec = Codec()
    first = Split(codec, lambda path: None).take({"m": messages(20)}, {})
    planned = write_plan.Planner({}, iter([7]).__next__).plan(first, None)
    [entry] = planned.manifest.lists
    end = MAX_LOG_ELEMENTS - 1
    moved = entry._replace(spans=(Span(7, end - 20, end),), tail=Tail(7, end, end, 0))
    parent = planned.manifest._replace(lists=(moved,))
    grown = Split(codec, lambda path: KnownList(moved, None, None)).take({"m": messages(22)}, {})
    second = write_plan.Planner({}, iter([8]).__next__).plan(grown, parent)
    assert [(write.log, write.first, write.tail) for write in second.segments] == [(8, 0, 0)]
    assert second.manifest.lists[0].spans == (Span(7, end - 20, end), Span(8, 0, 2))
