"""Key rings: where keys come from, what is refused, and that they stay where they are."""

from __future__ import annotations

import base64
import copy
import logging
import os
import pickle
import time
import traceback
from itertools import pairwise
from pathlib import Path

import pytest
from stores import RING, Store

from holdfast import (
    HoldfastError,
    KeyMissingError,
    KeyRing,
    KeyUnavailableError,
    SyncClient,
    TamperedError,
    UsageError,
)
from holdfast.langgraph import HoldfastSaver
from holdfast.sealing.key_ring import RawKey

KEY = bytes(range(100, 132))
TEXT = base64.b64encode(KEY).decode()
CONTEXT = {"store": "00", "tenant": "00", "purpose": "store key"}


def key_file(path: Path, content: str = f'k1 = "{TEXT}"\n', mode: int = 0o600) -> Path:
    path.write_text(content)
    path.chmod(mode)
    return path


# -- files and the environment ---------------------------------------------------------------------------------------


def test_a_key_file_gives_its_keys_the_primary_one_first(tmp_path: Path):
    first = KeyRing.new_key(tmp_path / "keys.toml")
    second = KeyRing.new_key(tmp_path / "keys.toml")
    assert second.names == (second.primary, first.primary)
    assert (tmp_path / "keys.toml").stat().st_mode & 0o777 == 0o600
    assert KeyRing.from_file(tmp_path / "keys.toml").names == second.names
    wrapped = first.wrap(b"secret", CONTEXT)
    assert second.unwrap(first.primary, wrapped, CONTEXT) == b"secret"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "at least one key"),
        ('k1 = "c2hvcnQ="', "32 random bytes"),
        (f'k1 = "{base64.b64encode(b"0123456789abcdef").decode()}"', "32 random bytes"),
        ('k1 = "correct horse battery staple"', "A password is no key"),
        (f'k1 = "{base64.b64encode(bytes(32)).decode()}"', "not random"),
        (f'"a key" = "{TEXT}"', "can't name a key"),
        ("k1 = 5", "no text"),
        ("not toml", "no key file"),
        ("x" * 70_000, "too large"),
    ],
)
def test_what_is_no_key_file_is_refused_and_says_why(tmp_path: Path, content: str, why: str):
    with pytest.raises(UsageError, match=why) as caught:
        KeyRing.from_file(key_file(tmp_path / "keys", content))
    assert "battery" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path, mode: int):
    with pytest.raises(UsageError, match="others can read"):
        KeyRing.from_file(key_file(tmp_path / "keys", mode=mode))


def test_a_link_a_directory_a_pipe_and_a_missing_file_are_refused(tmp_path: Path):
    (tmp_path / "link").symlink_to(key_file(tmp_path / "keys"))
    with pytest.raises(UsageError, match="symbolic link"):
        KeyRing.from_file(tmp_path / "link")
    with pytest.raises(UsageError, match="no regular file"):
        KeyRing.from_file(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="no regular file"):
        KeyRing.from_file(tmp_path / "pipe")
    with pytest.raises(KeyMissingError):
        KeyRing.from_file(tmp_path / "nothing")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_key_file_of_another_user_is_refused(tmp_path: Path):
    path = key_file(tmp_path / "keys")
    os.chown(path, 12345, 12345)
    with pytest.raises(UsageError, match="another user"):
        KeyRing.from_file(path)


def test_the_environment_gives_keys_to_from_env_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOLDFAST_KEYS", f"k2={TEXT}, k1={base64.b64encode(os.urandom(32)).decode()}")
    assert KeyRing.from_env().names == ("k2", "k1")
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{tmp_path}/store.db")
    with SyncClient.from_env() as client:
        client.save(agent_id="a", session_id="s", execution_state={})
        assert client.key_status().primary == "k2"
    with pytest.raises(KeyMissingError), SyncClient.sqlite(tmp_path / "store.db") as plain:
        plain.latest(session_id="s")
    for name in ("HOLDFAST_KEYS", "HOLDFAST_KEYS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLDFAST_REQUIRE_KEYS", "1")
    with pytest.raises(KeyMissingError, match="required"):
        SyncClient.from_env()
    monkeypatch.setenv("HOLDFAST_KEYS_FILE", str(key_file(tmp_path / "keys")))
    monkeypatch.setenv("HOLDFAST_KEYS", f"k2={TEXT}")
    with pytest.raises(UsageError, match="both"):
        SyncClient.from_env()


# -- passphrases -----------------------------------------------------------------------------------------------------


def test_a_passphrase_opens_its_store_and_no_other_one_does(tmp_path: Path):
    asked = []

    def ask() -> str:
        asked.append(1)
        return "correct horse"

    with SyncClient.sqlite(tmp_path / "s.db", keys=KeyRing.from_passphrase(ask)) as client:
        saved = client.save(agent_id="a", session_id="s", execution_state={"n": 1})
        client.save(agent_id="a", session_id="s", execution_state={"n": 2})
    assert len(asked) == 1
    with SyncClient.sqlite(tmp_path / "s.db", keys=KeyRing.from_passphrase("correct horse")) as client:
        assert client.restore(saved).execution_state == {"n": 1}
    with SyncClient.sqlite(tmp_path / "s.db", keys=KeyRing.from_passphrase("wrong")) as client:
        with pytest.raises(KeyMissingError, match="passphrase") as caught:
            client.restore(saved)
        assert "wrong" not in str(caught.value)
    with pytest.raises(UsageError):
        KeyRing.from_passphrase("").wrap(b"x", CONTEXT)


def test_a_store_cannot_ask_for_endless_work_before_it_opens():
    ring = KeyRing.from_passphrase("p")
    for numbers in (b"\xff\xff\xff\xff\x03\x04", b"\x00\x01\x00\x00\xff\x04", b"\x00\x01\x00\x00\x03\xff"):
        began = time.monotonic()
        with pytest.raises(TamperedError):
            ring.unwrap("passphrase", bytes(16) + numbers + bytes(16 + 12 + 48), CONTEXT)
        assert time.monotonic() - began < 20


# -- key services ----------------------------------------------------------------------------------------------------


class Service:
    def __init__(self) -> None:
        self.known: dict[bytes, tuple[bytes, dict[str, str]]] = {}
        self.calls: list[dict[str, str]] = []

    def wrap(self, key: bytes, context: dict[str, str]) -> bytes:
        self.calls.append(context)
        handle = b"handle %d" % len(self.known)
        self.known[handle] = key, context
        return handle

    def unwrap(self, wrapped: bytes, context: dict[str, str]) -> bytes:
        self.calls.append(context)
        key, bound_to = self.known[wrapped]
        if bound_to != context:
            raise PermissionError("another context")
        return key

    def ring(self) -> KeyRing:
        return KeyRing.from_callable(wrap=self.wrap, unwrap=self.unwrap, primary="kms/1")


def test_a_key_service_is_asked_once_per_client_with_the_context(tmp_path: Path):
    service = Service()
    with SyncClient.sqlite(tmp_path / "s.db", keys=service.ring()) as client:
        for number in range(5):
            client.save(agent_id="a", session_id="s", execution_state={"n": number})
    assert len(service.calls) == 1
    assert set(service.calls[0]) == {"store", "tenant", "purpose"}
    with SyncClient.sqlite(tmp_path / "s.db", keys=service.ring()) as client:
        assert len(client.timeline("s")) == 5
    assert service.calls[1] == service.calls[0]


def test_a_service_that_is_down_or_answers_wrongly_leads_to_no_plain_bytes(tmp_path: Path):
    service = Service()
    with SyncClient.sqlite(tmp_path / "s.db", keys=service.ring()) as client:
        client.save(agent_id="a", session_id="s", execution_state={"n": 1})

    def down(*_: object) -> bytes:
        raise ConnectionError("down: secret-endpoint")

    for unwrap, expected in (
        (down, KeyUnavailableError),
        (lambda *_: None, KeyUnavailableError),
        (lambda *_: b"", KeyUnavailableError),
        (lambda *_: b"garbage", HoldfastError),
        (lambda *_: next(iter(service.known.values()))[0][:-1], HoldfastError),
    ):
        ring = KeyRing.from_callable(wrap=service.wrap, unwrap=unwrap, primary="kms/1")
        with SyncClient.sqlite(tmp_path / "s.db", keys=ring) as client:
            for call in (
                lambda client=client: client.latest(session_id="s"),
                lambda client=client: client.save(agent_id="a", session_id="t", execution_state={}),
            ):
                with pytest.raises(expected):
                    call()
    with SyncClient.sqlite(tmp_path / "s.db", keys=service.ring()) as client:
        assert [found.session_id for found in client.sessions()] == ["s"]
        assert client.verify().checked == 1
    unwrapped = KeyRing.from_callable(wrap=lambda key, _: b"plain " + key, unwrap=service.unwrap, primary="kms/1")
    with SyncClient.sqlite(tmp_path / "new.db", keys=unwrapped) as client, pytest.raises(TamperedError):
        client.save(agent_id="a", session_id="s", execution_state={})


def test_a_key_bound_to_another_context_is_refused():
    service = Service()
    ring = service.ring()
    wrapped = ring.wrap(b"secret", CONTEXT)
    with pytest.raises(KeyUnavailableError):
        ring.unwrap("kms/1", wrapped, {**CONTEXT, "store": "01"})
    raw = KeyRing([RawKey("k", KEY)])
    with pytest.raises(TamperedError):
        raw.unwrap("k", raw.wrap(b"secret", CONTEXT), {**CONTEXT, "store": "01"})


# -- keys stay where they are ----------------------------------------------------------------------------------------


def test_no_key_is_shown_logged_or_pickled(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    ring = KeyRing([RawKey("k1", KEY)]) + KeyRing.from_passphrase("open sesame", name="p")
    client = SyncClient.sqlite(tmp_path / "s.db", keys=ring)
    client.save(agent_id="a", session_id="s", execution_state={})
    store = client._ctx.backend.store
    shown = [repr(thing) for thing in (ring, *ring._keys.values(), client, store.keys, store.keys.secrets, store)]
    try:
        ring.unwrap("k1", bytes(80), CONTEXT)
    except TamperedError:
        shown.append(traceback.format_exc())
    shown.append(caplog.text)
    for secret in (KEY, store.keys.secrets.names, store.keys.secrets.roots[1]):
        for form in (secret.hex(), base64.b64encode(secret).decode(), repr(secret)[2:-1]):
            assert not [text for text in shown if form in text]
    assert not [text for text in shown if "sesame" in text]
    for thing in (ring, *ring._keys.values()):
        with pytest.raises(TypeError):
            pickle.dumps(thing)
        with pytest.raises(TypeError):
            copy.deepcopy(thing)
    client.close()


def test_two_keys_of_one_name_are_refused():
    with pytest.raises(UsageError, match="same name"):
        RING + RING


# -- rotation --------------------------------------------------------------------------------------------------------


@pytest.mark.every_store
def test_after_a_rekey_the_new_key_suffices_and_the_old_one_opens_nothing(store: Store):
    store.is_sealed = True
    writer = store.client()
    saved = writer.save(agent_id="a", session_id="s", execution_state={"n": 1})
    new = KeyRing([RawKey("new", KEY)])
    with pytest.raises(KeyMissingError):
        SyncClient(store.backend(), keys=new).rekey()
    both = SyncClient(store.backend(), keys=new + RING)
    assert not both.key_status().is_current
    status = both.rekey()
    assert (status.protected_by, status.is_current) == (("new",), True)
    # A writer that opened the store before goes on, and what it saves is readable.
    later = writer.save(agent_id="a", session_id="s", execution_state={"n": 2})
    fresh = SyncClient(store.backend(), keys=new)
    assert [fresh.restore(each).execution_state for each in (saved, later)] == [{"n": 1}, {"n": 2}]
    assert fresh.verify().ok
    with pytest.raises(KeyMissingError):
        store.client().restore(saved)


@pytest.mark.slow
def test_writers_go_on_while_keys_are_replaced(tmp_path: Path):
    import threading

    rings = [KeyRing([RawKey(f"k{number}", os.urandom(32))]) for number in range(6)]
    with SyncClient.sqlite(tmp_path / "s.db", keys=rings[0]) as client:
        client.save(agent_id="a", session_id="s0", execution_state={})
    saved: list[str] = []
    stop = threading.Event()

    def write(number: int) -> None:
        with SyncClient.sqlite(tmp_path / "s.db", keys=sum(rings[1:], rings[0])) as client:
            while not stop.is_set():
                saved.append(client.save(agent_id="a", session_id=f"s{number}", execution_state={"n": number}))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for older, newer in pairwise(rings):
        with SyncClient.sqlite(tmp_path / "s.db", keys=newer + older) as client:
            assert client.rekey().is_current
    stop.set()
    for thread in threads:
        thread.join()
    with SyncClient.sqlite(tmp_path / "s.db", keys=rings[-1]) as client:
        assert all(client.restore(each) for each in saved)
        assert client.verify().ok


def test_an_old_backup_opens_with_exported_key_rows_and_the_new_key(tmp_path: Path):
    old, new = (KeyRing([RawKey(name, os.urandom(32))]) for name in ("old", "new"))
    path, backup, rows = tmp_path / "s.db", tmp_path / "backup.db", tmp_path / "keys"
    with SyncClient.sqlite(path, keys=old) as client:
        saved = client.save(agent_id="a", session_id="s", execution_state={"n": 1})
        client.copy_to(SyncClient.memory(keys=old))
    backup.write_bytes(path.read_bytes())
    with SyncClient.sqlite(path, keys=new + old) as client:
        client.rekey()
        client.export_keys(rows)
        with pytest.raises(FileExistsError):
            client.export_keys(rows)
    for secret in (old, new):
        assert secret._keys
    with SyncClient.sqlite(backup, keys=new) as client:
        with pytest.raises(KeyMissingError):
            client.restore(saved)
        report = client.import_keys(rows)
        assert (report.put_back, report.already_there) == (1, 1)
        assert client.restore(saved).execution_state == {"n": 1}
        assert client.import_keys(rows).put_back == 0
    with SyncClient.sqlite(tmp_path / "other.db", keys=new) as other:
        other.save(agent_id="a", session_id="s", execution_state={})
        with pytest.raises(HoldfastError):
            other.import_keys(rows)
    damaged = bytearray(rows.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    with SyncClient.sqlite(backup, keys=new) as client, pytest.raises(HoldfastError):
        client.import_keys(tmp_path / "damaged")


# -- ways in that would not encrypt ----------------------------------------------------------------------------------


def test_what_would_store_plain_bytes_is_refused_by_name(tmp_path: Path):
    from holdfast import FileCheckpoints, SyncFileCheckpoints

    ring = KeyRing.new_key(tmp_path / "keys")
    for kind in (FileCheckpoints, SyncFileCheckpoints):
        with pytest.raises(UsageError, match="as_store"):
            kind(tmp_path / "json", keys=ring)
    with pytest.raises(UsageError, match="keys="):
        HoldfastSaver.memory(serde=object())
    with SyncClient.memory(keys=ring) as sealed, SyncClient.memory() as plain:
        sealed.save(agent_id="a", session_id="s", execution_state={"n": 1})
        with pytest.raises(UsageError, match="plain=True"):
            sealed.export(tmp_path / "bundle")
        with pytest.raises(UsageError, match="plain=True"):
            sealed.copy_to(plain)
        sealed.export(tmp_path / "bundle", plain=True)
        plain.import_(tmp_path / "bundle")
        assert plain.latest(session_id="s").execution_state == {"n": 1}
        with SyncClient.memory(keys=ring) as other:
            other.import_(tmp_path / "bundle")
            assert other.latest(session_id="s").execution_state == {"n": 1}
        with SyncClient.memory(keys=ring) as other:
            plain.copy_to(other)
            sealed.copy_to(other)
            assert other.verify().ok


def test_as_store_and_the_saver_are_sealed(tmp_path: Path):
    ring = KeyRing.new_key(tmp_path / "keys")
    with HoldfastSaver.from_sqlite(tmp_path / "lg.db", keys=ring) as saver:
        config = {"configurable": {"thread_id": "canary-thread", "checkpoint_ns": ""}}
        checkpoint = {"v": 4, "ts": "2026-01-01T00:00:00+00:00", "id": "1f0-a", "channel_values": {"canary": "canary"},
                      "channel_versions": {"canary": 1}, "versions_seen": {}, "updated_channels": None}  # fmt: skip
        stored = saver.put(config, checkpoint, {"source": "input", "step": 1}, {"canary": 1})
        saver.put_writes(stored, [("canary-channel", "canary-write")], "canary-task")
        found = saver.get_tuple(config)
        assert found.checkpoint["channel_values"] == {"canary": "canary"}
        assert [write[1:] for write in found.pending_writes] == [("canary-channel", "canary-write")]
    for path in tmp_path.iterdir():
        assert b"canary" not in path.read_bytes()
    with pytest.raises(KeyMissingError), HoldfastSaver.from_sqlite(tmp_path / "lg.db") as plain:
        plain.get_tuple(config)
