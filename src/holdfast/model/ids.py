"""Checkpoint ids: UUIDv7 with a tag of their tree.

`holdfast.coordination.id_generator` makes them rise within a process.

    48 bits  milliseconds since 1970
     4 bits  version 7
    12 bits  counter within the millisecond
     2 bits  variant
    30 bits  tag: the same for every id made in one tree, so that a sharded store finds an id's shard
    32 bits  random: the eight hex digits people see and type as the short id

A tree is named by the id of its first checkpoint. Ids are text outside (`0199c0de-…`) and 16 bytes inside.
"""

from __future__ import annotations

from holdfast.errors import UsageError

SCHEME = "holdfast:"


def is_ours(reference: str | None) -> bool:
    """Return whether a checkpoint's `workspace` names a holdfast snapshot, not a sandbox service's."""
    if reference is None or not reference.startswith(SCHEME):
        return False
    digits = reference.removeprefix(SCHEME)
    return len(digits) == 64 and all(digit in "0123456789abcdef" for digit in digits)


def reference_to(object_hash: bytes) -> str:
    return SCHEME + object_hash.hex()


SHORT_ID_LENGTH = 8
COUNTER_LIMIT = 1 << 12
_VARIANT = 0x80


def to_text(raw: bytes) -> str:
    """Return 16 bytes in the usual form with dashes."""
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def from_text(
    text: str, expected: str = "a checkpoint id", listed: str = "`save` returns it, `timeline` lists it"
) -> bytes:
    """Return the 16 bytes of an id given in any form that `uuid.UUID` reads.

    The error for any other value says `what` it should be, and where it is `listed`.
    """
    import uuid  # few programs that import holdfast have it yet, and it is slow to import

    try:
        return uuid.UUID(text).bytes
    except (ValueError, AttributeError, TypeError) as error:
        raise UsageError(
            f"{text!r:.80} is not {expected}: an id is a UUID such as '01939c5e-7c1b-7000-8a2f-0c4c1d9be2f1'; {listed}"
        ) from error


def is_like_id(text: str) -> bool:
    """Return whether it reads like an id, or like the last digits of one."""
    digits = text.replace("-", "")
    return len(digits) >= SHORT_ID_LENGTH and all(digit in "0123456789abcdefABCDEF" for digit in digits)


def short(text: str) -> str:
    """Return the last eight digits, which are random.

    They tell apart checkpoints of one second, which the first digits don't.
    """
    return text[-SHORT_ID_LENGTH:]


def tree_tag(raw: bytes) -> bytes:
    """Return the 30 tag bits (with the variant bits) of an id; equal for ids made in one tree."""
    return raw[8:12]


def sibling(raw: bytes, number: int) -> bytes:
    """Return the id of message `number` of a checkpoint: another random part, with its time and tag."""
    noise = (int.from_bytes(raw[12:], "big") + 1 + number) % (1 << 32)
    return raw[:12] + noise.to_bytes(4, "big")


def make(ms: int, counter: int, noise: bytes, tag: bytes | None = None) -> bytes:
    """Return the id of that instant, with eight random bytes.

    With `tag`, it is for the tree of that tag; without, for the first checkpoint of a new tree.
    """
    if tag is None:
        tag = bytes((_VARIANT | noise[4] & 0x3F, noise[5], noise[6], noise[7]))
    return (ms << 16 | 0x7000 | counter).to_bytes(8, "big") + tag + noise[:4]
