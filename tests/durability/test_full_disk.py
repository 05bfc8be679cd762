"""A full disk (R6): a clear error, nothing lost, and work goes on once there is space."""

import subprocess
import sys
from pathlib import Path

import pytest
from acknowledged import Said, digest, findings, open_client
from campaign import BACKENDS
from paths import SUPPORT
from volumes import small_disk

from holdfast import SyncClient
from holdfast.errors import StoreError

pytestmark = pytest.mark.slow

BALLAST = 256 * 1024
LIMITED = SUPPORT / "limited_writer.py"


def numbered_state(number: int) -> dict:
    return {"number": number, "text": [f"{number} {line} " + chr(65 + line) * 2000 for line in range(8)]}


def save(client: SyncClient, number: int, id_: str | None = None) -> str:
    of_state = digest(numbered_state(number), {})
    return client.save(
        "a",
        execution_state=numbered_state(number),
        session_id="s",
        checkpoint_id=id_,
        digest=of_state,
        name=str(number),
    )


def save_until_full(client: SyncClient, said: Said, start: int = 0) -> tuple[int, StoreError]:
    """Saves until the store refuses. Returns at which number, and how."""
    for number in range(start, 2000):
        try:
            said.saved[save(client, number)] = digest(numbered_state(number), {})
        except StoreError as error:
            return number, error
    raise AssertionError("the disk never got full: this proves nothing")


@pytest.mark.root
@pytest.mark.parametrize("kind", BACKENDS)
def test_a_full_disk_is_a_clear_error_and_no_loss(kind: str, tmp_path: Path):
    """The same client goes on when there is space again, and a new one; the refused save can be repeated."""
    with small_disk(tmp_path / "disk", size="2m") as disk:
        (disk / "ballast").write_bytes(bytes(BALLAST))
        said = Said()
        client = open_client(kind, disk / "store")
        number, error = save_until_full(client, said)
        assert number > 5
        assert "full" in str(error), error
        assert "space" in str(error), error
        for id_, of_state in said.saved.items():
            restored = client.restore(id_)
            assert digest(restored.execution_state, {}) == of_state
        with pytest.raises(StoreError, match="full"):
            save(client, number, error.checkpoint_id)

        (disk / "ballast").unlink()
        again = save(client, number, error.checkpoint_id)
        assert error.checkpoint_id in (None, again)
        said.saved[again] = digest(numbered_state(number), {})
        assert save(client, number, again) == again
        client.close()
        client = open_client(kind, disk / "store")
        said.saved[save(client, number + 1)] = digest(numbered_state(number + 1), {})
        assert findings(client, said, in_flight=0) == []
        client.close()


@pytest.mark.root
@pytest.mark.parametrize("kind", BACKENDS)
def test_a_store_can_be_opened_and_read_on_a_full_disk(kind: str, tmp_path: Path):
    """A process that comes to a full disk can still restore."""
    with small_disk(tmp_path / "disk", size="2m") as disk:
        (disk / "ballast").write_bytes(bytes(BALLAST))
        said = Said()
        client = open_client(kind, disk / "store")
        save_until_full(client, said)
        client.close()
        (disk / "ballast").unlink()
        with (disk / "ballast").open("wb", buffering=0) as ballast, pytest.raises(OSError, match="No space"):
            while True:
                ballast.write(bytes(4096))
        client = open_client(kind, disk / "store")
        for id_, of_state in said.saved.items():
            assert digest(client.restore(id_).execution_state, {}) == of_state
        client.close()


@pytest.mark.root
def test_a_disk_without_inodes_is_a_clear_error_and_no_loss(tmp_path: Path):
    with small_disk(tmp_path / "disk", size="8m", nr_inodes=120) as disk:
        said = Said()
        client = open_client("files", disk / "store")
        number, error = save_until_full(client, said)
        assert number > 5
        assert "full" in str(error), error
        client.close()
        # Room is made by something else that goes away: a bigger disk.
        subprocess.run(["mount", "-o", "remount,nr_inodes=1000", disk], check=True, timeout=240)
        client = open_client("files", disk / "store")
        said.saved[save(client, number, error.checkpoint_id)] = digest(numbered_state(number), {})
        assert findings(client, said, in_flight=0) == []
        client.close()


@pytest.mark.parametrize("kind", BACKENDS)
def test_a_limit_on_file_sizes_is_a_clear_error_and_no_loss(kind: str, tmp_path: Path):
    """The same without root: the process may not write files beyond a size (RLIMIT_FSIZE), and then it may again."""
    done = subprocess.run(
        [sys.executable, str(LIMITED), kind, str(tmp_path / "store")], capture_output=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr.decode()
    said = Said().listen(done.stdout)
    assert said.finished
    assert said.failures, "the limit was never met: this proves nothing"
    client = open_client(kind, tmp_path / "store")
    assert findings(client, said, in_flight=0) == []
    client.close()
