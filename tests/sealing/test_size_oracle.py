"""An attacker's guess in one log with a secret: the stored sizes don't tell whether it was right."""

from __future__ import annotations

import os
import random
import string

import pytest
from sealed_story import Raw
from stores import Store

from holdfast.format.state.log_segment import SEAL_BYTES
from holdfast.sealing import envelope

TRIALS = 1000 if "HOLDFAST_SOAK" in os.environ else 120
GUESSES = 8
SECRET_LENGTH = 16
ABOUT_CHANCE = TRIALS / GUESSES + 4 * (TRIALS / GUESSES) ** 0.5  # four standard deviations above a blind choice


def token(draw: random.Random) -> str:
    return "".join(draw.choices(string.hexdigits[:16], k=SECRET_LENGTH))


def stored_size(store: Store, session: str, secret: str, guess: str, noise: list[str]) -> int:
    """The bytes of the segment that has the secret and the guess, compressed together."""
    client = store.client()
    items = [f"token={secret}", f"you said token={guess}", *noise]
    client.save("a", session_id=session, execution_state={"list": items})
    return sum(info.size for info in Raw.of(store).segments())


def count_told(*, is_sealed: bool, trials: int) -> int:
    """How often the right guess among some gives the fewest bytes, and it alone."""
    import tempfile
    from pathlib import Path

    draw, told = random.Random(7), 0
    with tempfile.TemporaryDirectory() as where:
        for trial in range(trials):
            secret = token(draw)
            noise = [draw.randbytes(draw.randrange(700, 1400)).hex() for _ in range(SEAL_BYTES // 2000 + 2)]
            guesses = [secret, *(token(draw) for _ in range(GUESSES - 1))]
            sizes = []
            for guess in guesses:
                store = Store("memory", Path(where))
                store.is_sealed = is_sealed
                sizes.append(stored_size(store, f"s{trial}", secret, guess, noise))
            told += sizes[0] < min(sizes[1:])
    return told


@pytest.mark.slow
def test_sizes_do_not_tell_which_guess_was_right():
    assert count_told(is_sealed=True, trials=TRIALS) <= ABOUT_CHANCE


@pytest.mark.slow
def test_control_without_encryption_sizes_tell_it(monkeypatch: pytest.MonkeyPatch):
    trials = max(TRIALS // 4, 30)
    assert count_told(is_sealed=False, trials=trials) > trials / 2
    monkeypatch.setattr(envelope, "padded_size", lambda size: size)
    assert count_told(is_sealed=True, trials=trials) > trials / 2
