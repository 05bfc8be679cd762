"""docs/format.md is true for sealed stores: a reader without holdfast reads them, and the test vectors are real."""

import ast
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_format import DOCS, same

import holdfast
from holdfast import KeyRing, SyncClient
from holdfast.errors import CorruptError, HoldfastError
from holdfast.sealing import cipher, envelope
from holdfast.sealing.key_ring import new_key_line
from holdfast.sealing.store_keys import EpochKeys, Marker, Secrets, StoreKeys

sys.path.insert(0, str(DOCS))
import read_sealed

FORMAT = (DOCS / "format.md").read_text("utf-8")


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    name, text = new_key_line()
    path = tmp_path / "keys.toml"
    path.write_text(f'{name} = "{text}"\n')
    path.chmod(0o600)
    return path


def test_the_reader_needs_nothing_of_holdfast_and_is_short():
    source = (DOCS / "read_sealed.py").read_text("utf-8")
    imported = {
        name.name.partition(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import)
        for name in node.names
    }
    assert "holdfast" not in imported
    assert len(source.splitlines()) <= 160


def test_every_checkpoint_of_a_sealed_store_is_read(tmp_path: Path, key_file: Path):
    path, saved = tmp_path / "store.db", {}
    with SyncClient.sqlite(path, keys=KeyRing.from_file(key_file)) as client:
        messages = [{"role": "user", "text": f"message {number} " * 30} for number in range(300)]
        for count in (5, 40, 41, 300):
            state = {"messages": messages[:count], "document": f"{count} lines " * 900, "n": count}
            saved[client.save("writer", execution_state=state, context=(1, "two"), session_id="s", note="x")] = state
        fork = client.fork(next(iter(saved)), session_id="f")
        assert fork
    for checkpoint_id, state in saved.items():
        header, execution_state, agent_context = read_sealed.restore(
            path, read_sealed.read_keys(key_file), checkpoint_id
        )
        assert (header["session"], header["agent"], header["meta"]) == ("s", "writer", {"note": "x"})
        assert same(execution_state, state)
        assert agent_context == (1, "two")


def test_checkpoints_are_read_after_rotations_of_the_data(tmp_path: Path, key_file: Path):
    path, saved = tmp_path / "store.db", {}
    with SyncClient.sqlite(path, keys=KeyRing.from_file(key_file)) as client:
        for epoch in (1, 2, 3):
            state = {"document": f"of epoch {epoch} " * 900, "list": list(range(2000))}
            saved[client.save("writer", execution_state=state)] = state
            client.rekey(data=True, destroy_old=epoch == 1)
        assert (client.key_status().epoch, client.key_status().old_epochs) == (4, (2, 3))
    for checkpoint_id, state in saved.items():
        assert same(read_sealed.restore(path, read_sealed.read_keys(key_file), checkpoint_id)[1], state)


def test_the_script_prints_a_checkpoint(tmp_path: Path, key_file: Path):
    path = tmp_path / "store.db"
    with SyncClient.sqlite(path, keys=KeyRing.from_file(key_file)) as client:
        saved = client.save("writer", execution_state={"n": 1}, session_id="s")
    command = [sys.executable, str(DOCS / "read_sealed.py"), str(path), str(key_file), saved]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "{'n': 1}" in printed


def vectors() -> list[dict[str, str]]:
    [block] = re.findall(r"<!-- vectors: begin -->\n+```json\n(.*?)```", FORMAT, re.DOTALL)
    return json.loads(block)


def open_vector(vector: dict[str, str]) -> bytes:
    """Open a vector by the library: the place is what a reader asked for."""
    given = {name: bytes.fromhex(value) for name, value in vector.items() if name not in ("what", "expect")}
    key = cipher.new_cipher(given["key"])
    scope = envelope.SealScope(given["store"]).prefix
    if vector["what"] == "record":
        envelope.kid_of_record(given["sealed"], "it")
        return envelope.unseal_record(key, scope + envelope.RECORD, given["place"], given["sealed"], "it")[1]
    letter = {"segment": envelope.SEGMENT, "blob": envelope.BLOB, "row": envelope.ROW}[vector["what"]]
    envelope.kid_of(given["sealed"], "it")
    return envelope.unseal(key, scope + letter, given["place"], given["sealed"], "it")[1]


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: f"{vector['what']} {vector['expect'][:20]}")
def test_the_vectors_are_real(vector: dict[str, str]):
    kinds = {"TamperedError": holdfast.TamperedError, "PlaintextError": holdfast.PlaintextError,
             "CorruptError": CorruptError, "NewerVersionError": holdfast.NewerVersionError}  # fmt: skip
    if vector["expect"] in kinds:
        with pytest.raises(HoldfastError) as caught:
            open_vector(vector)
        assert type(caught.value) is kinds[vector["expect"]]
    else:
        assert open_vector(vector).hex() == vector["expect"]


def test_the_derivations_of_the_page_are_those_of_the_library():
    root, store = bytes(range(32)), bytes(16)
    known = dict(re.findall(r"^\| `([a-z ]+)` *\| `([0-9a-f]{64})` *\|$", FORMAT, re.MULTILINE))
    for purpose in ("tree keys", "rows", "blobs", "names", "trees", "addresses"):
        assert known[purpose] == cipher.derive_key(root, purpose.encode()).hex()
    keys = StoreKeys(Marker(store, ()), 1, Secrets(root, root, {1: root}))
    assert EpochKeys(1, root).kid == bytes(7) + b"\x01"
    assert known["kid of a tree"][:16] == keys.kid(bytes(16), 1).hex()
    assert known["address of a blob"] == keys.address(hashlib.sha256(b"blob").digest()).hex()
    assert known["hidden session"][:32] == keys.names.hide("session", b"run-1").hex()
