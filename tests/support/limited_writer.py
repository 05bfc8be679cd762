"""Writer process with a limit on the size of files, which is lifted later.

python limited_writer.py sqlite|files PATH
"""

import random
import resource
import sys

from acknowledged import digest, open_client, say

from holdfast.errors import StoreError

LIMITS = {"sqlite": 256 * 1024, "files": 32 * 1024}  # SQLite has one large file, the files store many small ones


def allow(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def main() -> None:
    kind, path = sys.argv[1:]
    client = open_client(kind, path)

    def save(number: int, id_: str | None = None) -> None:
        state = {"number": number, "bytes": random.Random(number).randbytes(1200 * number)}
        of_state = digest(state, {})
        id_ = client.save(
            "a", execution_state=state, session_id="s", checkpoint_id=id_, digest=of_state, name=str(number)
        )
        say(saved=id_, digest=of_state, session="s")

    allow(LIMITS[kind])
    for number in range(1, 100):
        try:
            save(number)
        except StoreError as error:
            say(failed=str(error))
            assert number > 3, error
            allow(resource.RLIM_INFINITY)
            save(number, error.checkpoint_id)
            break
    save(100)
    client.close()
    say(finished=True)


if __name__ == "__main__":
    main()
