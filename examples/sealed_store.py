"""A store that is encrypted under a key of yours, and what a leaked key, a stranger and a forger get from it.

    python examples/sealed_store.py

The key file is beside the store here, to keep the example short. Keep yours elsewhere, with a copy.
"""

from pathlib import Path

from holdfast import KeyMissingError, KeyRing, PlaintextError, SyncClient
from holdfast.redaction import by_path

STORE, KEYS = Path("customers.db"), Path("keys.toml")

ring = KeyRing.from_file(KEYS) if KEYS.exists() else KeyRing.new_key(KEYS)
rules = by_path("**.api_key")  # what needs not be kept at all is left out, before it is encrypted
with SyncClient.sqlite(STORE, keys=ring, redact=rules) as client:
    state = {"customer": "Ada Lovelace", "api_key": "sk-123", "messages": [{"role": "user", "content": "Hello"}]}
    client.save("support", session_id="ticket-7", execution_state=state)
    restored = client.latest("ticket-7").execution_state
    print(restored["customer"], "|", restored["api_key"])

stored = b"".join(path.read_bytes() for path in Path().glob("customers.db*"))
print("in the file:", [text for text in ("Ada", "ticket-7", "support", "sk-123") if text.encode() in stored])

for name, keys in (("without a key", None), ("with another key", KeyRing.from_passphrase("a guess"))):
    try:
        with SyncClient.sqlite(STORE, keys=keys) as stranger:
            stranger.latest("ticket-7")
    except KeyMissingError:
        print(f"{name}: refused")

plain = Path("plain.db")
with SyncClient.sqlite(plain) as forger:
    forger.save("support", session_id="ticket-7", execution_state={"customer": "somebody else"})
try:
    with SyncClient.sqlite(plain, keys=ring) as client:
        client.latest("ticket-7")
except PlaintextError:
    print("a plain store in its place: refused")

newer = KeyRing.new_key(KEYS)  # the first key of the file is used from now on
with SyncClient.sqlite(STORE, keys=newer) as client:
    client.rekey()
try:
    with SyncClient.sqlite(STORE, keys=ring) as client:
        client.latest("ticket-7")
except KeyMissingError:
    print("the old key: refused")
with SyncClient.sqlite(STORE, keys=newer) as client:
    print("the new key:", client.latest("ticket-7").execution_state["customer"])
