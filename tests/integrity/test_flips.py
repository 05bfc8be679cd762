"""Every single byte of a small store is changed, one at a time (R12): a wrong value is never returned.

After each change, each restore, timeline and latest raises an error of ours or answers exactly as
before. Under HOLDFAST_SOAK=1 also every single bit, and SQLite's usual page size. After a change of
one bit only those questions are asked that read the file, or the page, where it is; that no other
is concerned is seen by asking all of them for each byte.
"""

import contextlib
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from answer_parts import part, readers
from campaign import SOAK, tally
from small_store import EXPIRED, Question, SmallStore, build, folder_in_memory, shown

from holdfast.errors import HoldfastError

pytestmark = pytest.mark.slow
SHARES = 8
LONGEST_ANSWER = 120  # seconds: more is a hang
WHOLE_BYTE = 0xFF
ONE_BIT = tuple(1 << bit for bit in range(8))
LAYOUTS = [  # backend, whether in small pages, and what is changed in each byte
    ("sqlite", True, (WHOLE_BYTE, *ONE_BIT) if SOAK else (WHOLE_BYTE,)),
    ("files", True, (WHOLE_BYTE, *ONE_BIT) if SOAK else (WHOLE_BYTE,)),
    *([("sqlite", False, (WHOLE_BYTE,))] if SOAK else []),
]


class Hang(BaseException):
    """An answer took too long."""


@contextmanager
def no_longer_than(seconds: int) -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def positions(store: SmallStore, number: int) -> list[tuple[Path, int]]:
    """A share of all bytes of the store."""
    return [(file, offset) for file in store.files() for offset in range(file.stat().st_size)][number::SHARES]


def flipped(
    store: SmallStore, file: Path, offset: int, mask: int, questions: Sequence[Question]
) -> tuple[list[str], list[Question]]:
    """What the store answers with this change, which is undone."""
    intact = file.read_bytes()
    damaged = bytearray(intact)
    damaged[offset] ^= mask
    with file.open("r+b") as opened:
        opened.write(damaged)
    try:
        with no_longer_than(LONGEST_ANSWER):
            return store.answers(questions)
    finally:
        _restore(store, file, intact)


def _restore(store: SmallStore, file: Path, intact: bytes) -> None:
    """The bytes as they were, and nothing of what SQLite may have put beside them."""
    with file.open("r+b") as opened:
        opened.write(intact)
        opened.truncate()
    if store.kind == "sqlite":
        for beside in ("-wal", "-shm", "-journal"):
            file.with_name(file.name + beside).unlink(missing_ok=True)


@pytest.mark.parametrize("number", range(SHARES))
@pytest.mark.parametrize(("kind", "dense", "masks"), LAYOUTS)
def test_no_changed_byte_changes_an_answer(kind: str, dense: bool, masks: tuple[int, ...], number: int):
    done = noticed = unread = 0
    wrong: dict[str, list[str]] = {}
    with folder_in_memory() as folder:
        store = build(kind, folder, dense=dense)
        everything = store.knowledge.questions
        read_by = readers(store) if len(masks) > 1 else None
        for file, offset in positions(store, number):
            concerned = everything if read_by is None else read_by.get(part(store, file, offset), [])
            for mask in masks:
                done += 1
                if mask != WHOLE_BYTE and not concerned:
                    unread += 1
                    continue
                found, refused = flipped(store, file, offset, mask, everything if mask == WHOLE_BYTE else concerned)
                harmed = [question for question in refused if question.known is not None]
                noticed += bool(harmed)
                if found:
                    wrong[f"{file.relative_to(folder)} byte {offset} ^ {mask:#x}"] = found
                strangers = [(question.verb, question.about) for question in harmed if question not in concerned]
                assert not strangers, f"byte {offset} of {file} is read by {strangers}, too: all must be asked"
        assert store.contradictions() == ([], len(EXPIRED)), "the changes were not undone: this proves nothing"
    tally(f"changed bytes and bits, {kind}", done=done, noticed=noticed, unread=unread, wrong=len(wrong))
    kinds = Counter(text.partition(":")[0].split()[0] for found in wrong.values() for text in found)
    assert not wrong, f"{len(wrong)} of {done} changed bytes ({dict(kinds)}): {dict(list(wrong.items())[:10])}"
    assert noticed > done // 4, "most changes went unnoticed: this proves nothing"


def test_control_without_the_checks_changed_bytes_do_change_answers():
    """`restore(verify=False)` skips the digests: then the same changes must be seen to do harm."""
    with folder_in_memory() as folder:
        store = build("files", folder)
        id_, known = store.knowledge.ids["longer"], store.knowledge.restored("longer")
        harmed = 0
        for file in (store.path / "logs").rglob("*.run"):
            intact = file.read_bytes()
            for offset in range(len(intact)):
                file.write_bytes(intact[:offset] + bytes([intact[offset] ^ 1]) + intact[offset + 1 :])
                with store.client() as client, contextlib.suppress(HoldfastError):
                    harmed += shown(client.restore(id_, verify=False)) != known
            file.write_bytes(intact)
        assert harmed > 100
