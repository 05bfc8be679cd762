"""Several processes write to one store and are killed at random moments (R1). Nothing acknowledged is lost.

50 kills in `make test`, 1,000 under HOLDFAST_SOAK=1, half of them on each backend.
"""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from acknowledged import lost_or_wrong, open_client
from broken import EARLY
from campaign import BACKENDS, KILLS, SOAK, randomness, share, tally
from writer_processes import Crowd, judge

pytestmark = pytest.mark.slow
WRITERS = 3
ENOUGH = 6  # saves for each kill
KILLS_PER_ROUND = 5  # some while the others go on, the last ones at the end
SHARES = 4 if SOAK else 1


def round_of_kills(crowd: Crowd, rng: object) -> list[str]:
    """Kills writers while others write, checks what each of them said, and at the end everything."""
    found: list[str] = []
    with ExitStack() as ending:
        ending.callback(crowd.end)
        names = [crowd.start() for _ in range(WRITERS)]
        checker = ending.enter_context(open_client(crowd.kind, crowd.store))
        for _ in range(KILLS_PER_ROUND - WRITERS):
            victim = rng.choice(crowd.names)
            if rng.random() < 0.8:  # else it may be killed while it starts, and opens a store in use
                crowd.wait_until_speaking(victim)
            time.sleep(rng.random() * 0.2)
            crowd.kill(victim)
            found += lost_or_wrong(checker, crowd.said(victim))
            names.append(crowd.start())
        crowd.wait_until_speaking(names[-1])
        crowd.wait_until_saved(ENOUGH * KILLS_PER_ROUND)
        time.sleep(rng.random() * 0.2)
        for name in crowd.names:
            crowd.kill(name)
    return found + judge(crowd, in_flight=crowd.killed)


@pytest.mark.parametrize("number", range(SHARES))
@pytest.mark.parametrize("kind", BACKENDS)
def test_random_kills_lose_and_tear_nothing(kind: str, number: int, tmp_path: Path):
    rounds = range(max(KILLS // len(BACKENDS) // KILLS_PER_ROUND, 1))
    rng = randomness("random kills", kind, number)
    for round_ in share(rounds, number, SHARES):
        folder = tmp_path / str(round_)
        folder.mkdir()
        crowd = Crowd(kind, folder / "store", folder)
        found = round_of_kills(crowd, rng)
        said = crowd.said()
        tally(f"random kills, {kind}", done=crowd.killed, acknowledged=len(said.saved), wrong=bool(found))
        assert not found, f"round {round_} ({crowd.killed} kills, {len(said.saved)} acknowledged): {found[:20]}"
        assert said.tokens, "no writer came to save anything: this proves nothing"
        assert len(said.saved) >= ENOUGH * crowd.killed, (
            "the writers did too little between the kills: this proves nothing"
        )


@pytest.mark.parametrize("kind", BACKENDS)
def test_control_a_writer_that_acknowledges_early_is_found_out(kind: str, tmp_path: Path):
    """The same kills and the same judge must see the loss within a few rounds."""
    rng = randomness("control")
    for round_ in range(6):
        folder = tmp_path / str(round_)
        folder.mkdir()
        found = round_of_kills(Crowd(kind, folder / "store", folder, how_broken=EARLY), rng)
        if any(text.startswith("lost:") for text in found):
            return
    pytest.fail("a writer that acknowledges before it saves went unnoticed")
