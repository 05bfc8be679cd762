"""The power is cut while several processes write (R4): a real ext4, shut down without flushing its log, mounted again.

With `durability="full"` nothing acknowledged is lost. `durability="fast"` is the control: it must lose something, or
the cut was none; what it says of itself is checked too: what is left is exact.

What counts is what was said before the cut. Unlike a machine, a writer here outlives its power for an instant, and an
`fdatasync` that was under way may return to it without an error and without having written: bare `fdatasync` on this
ext4, without any store, does so too (docs/reliability.md). Nobody would have heard that acknowledgement.
"""

import time
from pathlib import Path

import pytest
from acknowledged import Said, digest_of, open_client
from campaign import BACKENDS, POWER_CUTS, randomness, tally
from volumes import Volume, volume
from writer_processes import Crowd, judge_by

from holdfast.errors import HoldfastError

pytestmark = [pytest.mark.slow, pytest.mark.root]
WRITERS = 2
ENOUGH = 10  # acknowledged saves before the cut
STORE = "new/folders/store"  # they must not be lost either


def write_until_the_cut(made: Volume, kind: str, durability: str, spoken: Path, seconds: float) -> tuple[Crowd, Said]:
    """Writers write for a while, the power goes, and comes back. Returns what was said before it went."""
    spoken.mkdir()
    store = made.at / STORE
    store.parent.mkdir(parents=True)
    crowd = Crowd(kind, store, spoken, durability=durability)
    try:
        for name in [crowd.start() for _ in range(WRITERS)]:
            crowd.wait_until_speaking(name, lines=3)
        crowd.wait_until_saved(ENOUGH)
        time.sleep(seconds)
        said = crowd.said()
        made.cut()
    finally:
        crowd.end()
    made.come_back()
    return crowd, said


@pytest.mark.parametrize("round_", range(POWER_CUTS))
@pytest.mark.parametrize("kind", BACKENDS)
def test_a_power_cut_loses_nothing_with_full_durability(kind: str, round_: int, tmp_path: Path):
    rng = randomness("power cut", kind, round_)
    with volume(tmp_path) as made:
        crowd, said = write_until_the_cut(made, kind, "full", tmp_path / "spoken", 0.2 + rng.random())
        later = crowd.said()
        in_flight = len(later.saved) - len(said.saved) + WRITERS
        found = judge_by(crowd, said.allow(later), in_flight=in_flight)
        tally(f"power cuts, {kind}, full", done=1, acknowledged=len(said.saved), wrong=bool(found))
        assert not found, f"{len(said.saved)} were acknowledged: {found[:20]}"
        assert len(said.saved) >= ENOUGH, "too little was acknowledged before the cut: this proves nothing"


@pytest.mark.parametrize("kind", BACKENDS)
def test_control_a_power_cut_loses_saves_with_fast_durability(kind: str, tmp_path: Path):
    """`fast` says that the last saves may be lost, and that what is left is exact or tells of its damage."""
    lost = 0
    for round_ in range(5):
        folder = tmp_path / str(round_)
        folder.mkdir()
        with volume(folder) as made:
            _, said = write_until_the_cut(made, kind, "fast", folder / "spoken", 0.5)
            lost = len(lost_and_never_wrong(kind, made.at / STORE, said.saved))
            tally(f"power cuts, {kind}, fast (the control)", done=1, acknowledged=len(said.saved), lost=lost)
        if lost:
            return
    pytest.fail("nothing was ever lost without syncing: the power cut is none, and the other test proves nothing")


def lost_and_never_wrong(kind: str, store: Path, saved: dict[str, str]) -> list[str]:
    try:
        client = open_client(kind, store)
    except HoldfastError:
        return list(saved)
    lost = []
    for id_, expected in saved.items():
        try:
            restored = client.restore(id_)
        except HoldfastError:
            lost.append(id_)
        else:
            assert digest_of(restored) == (expected or digest_of(restored)), f"{id_} is there with another state"
    client.close()
    return lost
