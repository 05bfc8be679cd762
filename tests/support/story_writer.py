"""Writer process that carries out every operation of a store once, and reports each.

    python story_writer.py sqlite|files PATH [HOW IT IS BROKEN]

The same calls in the same order each time, so that the n-th system call of one run is that of the next. A `StoreError`
is said, and the operation is tried again as an application would, with the id that the error carries.
"""

import random
import string
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from acknowledged import digest, open_client, say
from broken import EARLY, break_

from holdfast import SyncClient
from holdfast.coordination.id_generator import IdSource
from holdfast.errors import StoreError
from holdfast.model import ids

T = TypeVar("T")
ATTEMPTS = 4


class Gave(Exception):  # noqa: N818 - the end of this program, not an error
    """Up: the store failed each time."""


class Writer:
    def __init__(self, client: SyncClient, how_broken: str) -> None:
        self.client = client
        self.early = how_broken == EARLY
        self.random = random.Random(7)
        self.messages: list[dict[str, Any]] = []
        self.names = 0

    def talk(self, count: int) -> list[dict[str, Any]]:
        """New messages of 1.5 KB that don't compress."""
        letters = string.ascii_letters + string.digits
        new = [{"role": "user", "content": "".join(self.random.choices(letters, k=1500))} for _ in range(count)]
        self.messages += new
        return new

    def save(self, session: str, state: Any, context: Any = None, expected: Any = None, **more: Any) -> str:
        """Saves and says so. `expected` is the state where it is not the one that is given (declared appends)."""
        self.names += 1
        context = {} if context is None else context
        of_state = digest(state if expected is None else expected, context)
        id_ = ids.to_text(IdSource().new(None)) if self.early else None
        if self.early:
            say(saved=id_, digest=of_state, session=session)

        def attempt(id_: str | None = id_) -> str:
            return self.client.save(
                "writer",
                execution_state=state,
                session_id=session,
                context=context,
                checkpoint_id=id_,
                digest=of_state,
                name=f"save {self.names}",
                **more,
            )

        id_ = tried(attempt)
        if not self.early:
            say(saved=id_, digest=of_state, session=session)
        return id_

    def fork(self, source: str, of_state: str, session: str) -> str:
        id_ = tried(lambda new_id=None: self.client.fork(source, session, new_id=new_id)).checkpoint_id
        say(saved=id_, digest=of_state, session=session)
        return id_

    def handoff(self, source: str, of_state: str, session: str) -> str:
        id_ = tried(lambda new_id=None: self.client.handoff(source, "reviewer", new_id=new_id))
        say(saved=id_, digest=of_state, session=session)
        return id_

    def rollback(self, session: str, to: str) -> None:
        say(aim=to, session=session)
        tried(lambda: self.client.rollback(session, to))
        say(head=to, session=session)

    def expire(self, id_: str, session: str | None = None, then: str | None = None) -> None:
        """Ends a checkpoint; if the session stands there, it goes to `then`."""
        say(expiring=id_)
        if then is not None:
            say(aim=then, session=session)
        tried(lambda: self.client.expire(id_))
        say(expired=id_)
        if then is not None:
            say(head=then, session=session)


def tried(operation: Callable[..., T]) -> T:
    """What the operation returns, at one of several attempts. A save that failed is repeated under the id it had."""
    id_: str | None = None
    for _ in range(ATTEMPTS):
        try:
            return operation(id_) if id_ else operation()
        except StoreError as error:
            say(failed=str(error))
            id_ = error.checkpoint_id or id_
            time.sleep(0.01)
    raise Gave


def tell(writer: Writer) -> None:
    """From an empty store on: runs, a blob, sealing, forks that leave a log, a handoff, a rollback, expiries, gc."""
    client = writer.client
    writer.save("main", {"plan": "begin"})
    writer.talk(12)
    old = writer.save("main", {"values": {"messages": writer.messages}, "step": 1})
    writer.talk(12)
    document = "".join(writer.random.choices(string.ascii_letters, k=5000))
    base_state, base_context = {"values": {"messages": list(writer.messages)}, "step": 2}, {"document": document}
    base = writer.save("main", base_state, base_context)
    writer.talk(12)
    writer.save("main", {"values": {"messages": writer.messages}, "step": 3}, base_context)
    writer.talk(12)  # now more than 64 KB have gathered
    sealed_state = {"values": {"messages": list(writer.messages)}, "step": 4}
    sealed = writer.save("main", sealed_state, base_context)

    side = writer.fork(base, digest(base_state, base_context), "side")
    other = [*base_state["values"]["messages"], *({"role": "tool", "content": "x" * 900} for _ in range(3))]
    branch = writer.save("side", {"values": {"messages": other}, "step": 5})

    writer.handoff(sealed, digest(sealed_state, base_context), "main")
    new = writer.talk(2)
    whole = {"step": 6, "values": {"messages": list(writer.messages)}}
    writer.save("main", {"step": 6}, expected=whole, append={"values.messages": new})
    writer.rollback("main", sealed)
    edited = [*writer.messages[:5], {"role": "user", "content": "changed"}, *writer.messages[6:48]]
    writer.save("main", {"values": {"messages": edited}, "step": 7}, base_context)

    writer.expire(old)
    writer.expire(branch, session="side", then=side)
    tried(client.gc)
    writer.save("side", {"values": {"messages": other[:10]}, "step": 8}, tasks=["one", "two"])
    writer.save("late", {"plan": "end"}, ttl_seconds=3600)


def main() -> None:
    kind, path, *how_broken = sys.argv[1:]
    break_(*how_broken or [""])
    try:
        client = tried(lambda: open_client(kind, path))
        tell(Writer(client, *how_broken or [""]))
    except Gave:
        return
    client.close()
    say(finished=True)


if __name__ == "__main__":
    main()
