"""Key rings: the keys that protect the key of a store. They are never stored in it.

The first key of a ring is its *primary* key: it protects what is written next. The others only open
what they protected before, until `holdfast rekey` has replaced them.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Protocol

from holdfast.errors import HoldfastError, KeyMissingError, KeyUnavailableError, TamperedError, UsageError
from holdfast.sealing import cipher

VARIABLE = "HOLDFAST_KEYS"
FILE_VARIABLE = "HOLDFAST_KEYS_FILE"
REQUIRE_VARIABLE = "HOLDFAST_REQUIRE_KEYS"
MAX_FILE_BYTES = 64 * 1024
SALT_BYTES = 16
COMMITMENT_BYTES = 16
MEMORY_KIB, ITERATIONS, LANES = 64 * 1024, 3, 4  # of Argon2id
MAX_MEMORY_KIB, MAX_ITERATIONS, MAX_LANES = 1024 * 1024, 16, 16  # the store names them: a stranger's may not ask more
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}\Z")

Context = Mapping[str, str]
"""The store, the tenant and the purpose of a wrapped key: a key service binds them to it."""


class RingKey(Protocol):
    """A key of a ring: it wraps the key of a store, and unwraps it."""

    @property
    def name(self) -> str: ...

    def wrap(self, secret: bytes, context: Context) -> bytes: ...

    def unwrap(self, wrapped: bytes, context: Context) -> bytes: ...


class KeyRing:
    """The keys of sealed stores, the primary one first.

    `Client.sqlite(path, keys=KeyRing.from_file("keys.toml"))` opens a sealed store. `first + second`
    has the keys of both rings, and the primary key of the first.
    """

    def __init__(self, keys: Sequence[RingKey]) -> None:
        if not keys:
            raise UsageError("a key ring needs at least one key: `holdfast keys new FILE` makes one")
        names = [key.name for key in keys]
        for name in names:
            if _NAME.match(name) is None:
                raise UsageError(f"{name!r:.60} can't name a key: use letters, digits and ._:/@+-, at most 200")
        if len(set(names)) < len(names):
            raise UsageError(f"a key ring has two keys of the same name: {', '.join(names)}. Rename one")
        self._keys = {key.name: key for key in keys}

    @classmethod
    def from_env(cls, variable: str = VARIABLE) -> KeyRing:
        """Read keys from an environment variable: `k2=BASE64,k1=BASE64`, the primary one first."""
        text = os.environ.get(variable)
        if not text:
            raise KeyMissingError(f"{variable} is not set: it has the keys, as NAME=BASE64,NAME=BASE64")
        keys = []
        for entry in text.split(","):
            name, separator, value = entry.strip().partition("=")
            if not separator:
                raise UsageError(f"{variable} has an entry without `=`: it has the form NAME=BASE64,NAME=BASE64")
            keys.append(RawKey.from_text(name, value))
        return cls(keys)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> KeyRing:
        """Read keys from a TOML file with lines `NAME = "BASE64"`, the primary one first.

        The file must be a regular file of yours that no other user can read (mode 0600).
        """
        table = _read_table(Path(path))
        keys = []
        for name, value in table.items():
            if not isinstance(value, str):
                raise UsageError(f'{path}: {name!r:.60} is no text. A line of a key file is NAME = "BASE64"')
            keys.append(RawKey.from_text(name, value))
        return cls(keys)

    @classmethod
    def new_key(cls, path: str | os.PathLike[str]) -> KeyRing:
        """Add a new random key to a key file, as its primary key, and return the ring of the file.

        The file is made if it is missing. Keep a copy where the store is not: without it, nothing opens
        the store.
        """
        file = Path(path)
        older = ""
        if file.is_symlink() or file.exists():
            cls.from_file(file)  # refuses what is no key file of the user's own
            older = file.read_text("utf-8")
        name, text = new_key_line()
        part = file.with_name(f"{file.name}.{os.getpid()}.part")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as written:  # noqa: PTH123 - of a descriptor
            written.write(f'{name} = "{text}"\n{older}')
            written.flush()
            os.fsync(descriptor)
        part.replace(file)
        return cls.from_file(file)

    @classmethod
    def from_passphrase(cls, passphrase: str | Callable[[], str], *, name: str = "passphrase") -> KeyRing:
        """Return a ring whose key a passphrase leads to, by Argon2id.

        A callable is asked once, when the passphrase is needed.
        """
        return cls([PassphraseKey(name, passphrase)])

    @classmethod
    def from_callable(
        cls,
        *,
        wrap: Callable[[bytes, Context], bytes],
        unwrap: Callable[[bytes, Context], bytes],
        primary: str,
    ) -> KeyRing:
        """Return a ring whose key is in a key service (KMS), under the name `primary`.

        `wrap(key, context)` and `unwrap(wrapped, context)` call the service. They get the store, the
        tenant and the purpose as `context`, for services that bind these to what they encrypt.
        Unwrapping happens once per client. What they raise becomes `KeyUnavailableError`.
        """
        return cls([ServiceKey(primary, wrap, unwrap)])

    @property
    def primary(self) -> str:
        return next(iter(self._keys))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._keys)

    def wrap(self, secret: bytes, context: Context) -> bytes:
        """Return the key of a store, wrapped by the primary key."""
        return self._keys[self.primary].wrap(secret, context)

    def unwrap(self, name: str, wrapped: bytes, context: Context) -> bytes:
        """Return the key of a store that the key of this name wrapped."""
        key = self._keys.get(name)
        if key is None:
            raise KeyMissingError(
                f"the store's key is protected by the key {name!r:.200}, and the key ring has {', '.join(self._keys)}. "
                "Add it to the ring; without it the store can't be read"
            )
        return key.unwrap(wrapped, context)

    def __add__(self, other: KeyRing) -> KeyRing:
        return KeyRing([*self._keys.values(), *other._keys.values()])

    def __repr__(self) -> str:
        return f"<KeyRing {', '.join(self._keys)}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key ring can't be pickled or copied: its keys must not leave the process")


class _Unpicklable:
    """An object whose representation shows its name, and that can't be pickled."""

    name: str

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key can't be pickled or copied: it must not leave the process")


class RawKey(_Unpicklable):
    """A key of 32 random bytes."""

    def __init__(self, name: str, key: bytes) -> None:
        self.name = name
        self._cipher = cipher.new_cipher(key)

    @classmethod
    def from_text(cls, name: str, text: str) -> RawKey:
        """Return the key that a text encodes, in Base64."""
        name = name.strip()
        try:
            key = base64.b64decode(text.strip(), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != cipher.KEY_BYTES:
            raise UsageError(
                f"the key {name!r:.60} is not {cipher.KEY_BYTES} random bytes in Base64 (44 characters). `holdfast "
                "keys new FILE` makes one. A password is no key: KeyRing.from_passphrase takes one"
            )
        if len(set(key)) < cipher.KEY_BYTES // 4:
            raise UsageError(f"the key {name!r:.60} is not random: `holdfast keys new FILE` makes one")
        return cls(name, key)

    def wrap(self, secret: bytes, context: Context) -> bytes:
        nonce = os.urandom(cipher.NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, secret, bound_context(self.name, context))

    def unwrap(self, wrapped: bytes, context: Context) -> bytes:
        nonce, data = wrapped[: cipher.NONCE_BYTES], wrapped[cipher.NONCE_BYTES :]
        if len(data) < cipher.TAG_BYTES:
            raise _tampered_error(self.name)
        secret = cipher.decrypt(self._cipher, nonce, data, bound_context(self.name, context))
        if secret is None:
            raise _tampered_error(self.name)
        return secret


class PassphraseKey(_Unpicklable):
    """A key that a passphrase leads to, with a salt of its own for each store."""

    def __init__(self, name: str, passphrase: str | Callable[[], str]) -> None:
        self.name = name
        self._passphrase = passphrase

    def _raw(self, salt: bytes, memory_kib: int, iterations: int, lanes: int) -> tuple[RawKey, bytes]:
        given = self._passphrase if isinstance(self._passphrase, str) else self._passphrase()
        if not isinstance(given, str) or not given:
            raise UsageError("the passphrase is empty: give one, or a key file (KeyRing.from_file)")
        self._passphrase = given  # asked once
        derived = cipher.stretch(
            given.encode("utf-8", "surrogatepass"), salt, iterations=iterations, memory_kib=memory_kib, lanes=lanes,
            length=cipher.KEY_BYTES + COMMITMENT_BYTES,
        )  # fmt: skip
        return RawKey(self.name, derived[: cipher.KEY_BYTES]), derived[cipher.KEY_BYTES :]

    def wrap(self, secret: bytes, context: Context) -> bytes:
        salt = os.urandom(SALT_BYTES)
        key, commitment = self._raw(salt, MEMORY_KIB, ITERATIONS, LANES)
        numbers = MEMORY_KIB.to_bytes(4, "big") + bytes((ITERATIONS, LANES))
        return salt + numbers + commitment + key.wrap(secret, context)

    def unwrap(self, wrapped: bytes, context: Context) -> bytes:
        salt, rest = wrapped[:SALT_BYTES], wrapped[SALT_BYTES:]
        if len(rest) < 6 + COMMITMENT_BYTES:
            raise _tampered_error(self.name)
        memory_kib, iterations, lanes = int.from_bytes(rest[:4], "big"), rest[4], rest[5]
        is_sound = 8 * lanes <= memory_kib <= MAX_MEMORY_KIB and 1 <= iterations <= MAX_ITERATIONS
        if not is_sound or not 1 <= lanes <= MAX_LANES:
            raise _tampered_error(self.name)
        key, commitment = self._raw(salt, memory_kib, iterations, lanes)
        # Compared first: GCM alone would let a forger make one text that opens under many guesses.
        if not _equal(commitment, rest[6 : 6 + COMMITMENT_BYTES]):
            raise KeyMissingError(f"the passphrase {self.name!r:.60} does not open this store: it is another one")
        return key.unwrap(rest[6 + COMMITMENT_BYTES :], context)


class ServiceKey(_Unpicklable):
    """A key that a key service has."""

    def __init__(
        self, name: str, wrap: Callable[[bytes, Context], bytes], unwrap: Callable[[bytes, Context], bytes]
    ) -> None:
        self.name = name
        self._wrap, self._unwrap = wrap, unwrap

    def wrap(self, secret: bytes, context: Context) -> bytes:
        wrapped = self._ask(self._wrap, secret, context)
        if secret in wrapped:
            raise TamperedError(f"the key service {self.name!r:.60} returned the store's key unencrypted: not stored")
        return wrapped

    def unwrap(self, wrapped: bytes, context: Context) -> bytes:
        return self._ask(self._unwrap, wrapped, context)

    def _ask(self, call: Callable[[bytes, Context], bytes], data: bytes, context: Context) -> bytes:
        try:
            answer: object = call(data, dict(context))
        except HoldfastError:
            raise
        except Exception as error:
            raise KeyUnavailableError(
                f"the key service of {self.name!r:.60} failed ({type(error).__name__}): nothing was read or stored. "
                "Try again once it is there"
            ) from error
        if not isinstance(answer, bytes) or not answer:
            raise KeyUnavailableError(
                f"the key service of {self.name!r:.60} returned {type(answer).__name__} instead of bytes: nothing was "
                "read or stored"
            )
        return answer


def keys_from_environment() -> tuple[KeyRing | None, bool]:
    """Return the keys that the environment names, and whether it requires some."""
    path = os.environ.get(FILE_VARIABLE)
    if path and os.environ.get(VARIABLE):
        raise UsageError(f"both {VARIABLE} and {FILE_VARIABLE} are set: set one of them")
    ring = KeyRing.from_file(path) if path else KeyRing.from_env() if os.environ.get(VARIABLE) else None
    return ring, os.environ.get(REQUIRE_VARIABLE, "") not in ("", "0")


def new_key_line() -> tuple[str, str]:
    """Return the name and the text of a new random key, as a key file has them."""
    return f"k-{os.urandom(4).hex()}", base64.b64encode(os.urandom(cipher.KEY_BYTES)).decode()


def bound_context(name: str, context: Context) -> bytes:
    """Return what a wrapped key is bound to: the name of its key, and the context."""
    parts = [name, *(part for item in sorted(context.items()) for part in item)]
    encoded = [part.encode() for part in parts]
    return b"holdfast ring 1\0" + b"".join(len(part).to_bytes(2, "big") + part for part in encoded)


def _equal(first: bytes, second: bytes) -> bool:
    import hmac

    return hmac.compare_digest(first, second)


def _tampered_error(name: str) -> TamperedError:
    return TamperedError(
        f"the store's key is not what the key {name!r:.60} wrapped for it: it was changed, is of another store, or the "
        "ring has another key of that name"
    )


def _read_table(path: Path) -> dict[str, object]:
    """Return the table of a key file, refused unless it is the caller's own and private."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        if path.is_symlink():
            raise UsageError(f"{path} is a symbolic link: name the key file itself") from error
        raise KeyMissingError(f"the key file {path} can't be read: {error.strerror}") from error
    try:
        _refuse_shared(path, os.fstat(descriptor))
        content = os.read(descriptor, MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(f"{path} is too large for a key file")
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError):
        # Not its own message: it may show a part of a key.
        raise UsageError(f'{path} is no key file: its lines are NAME = "BASE64"') from None


def _refuse_shared(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{path} is no regular file: a key file is one")
    if hasattr(os, "getuid"):
        if status.st_uid not in (os.getuid(), 0):
            raise UsageError(f"{path} belongs to another user (uid {status.st_uid}): use a key file of your own")
        if status.st_mode & 0o077:
            raise UsageError(f"others can read {path} (mode {status.st_mode & 0o777:04o}): run `chmod 600 {path}`")
