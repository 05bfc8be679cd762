"""The part of the client for the keys of a sealed store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.client.factory import ClientBase

if TYPE_CHECKING:
    from holdfast.model.key_status import KeyImport, KeyStatus

LARGEST = 1 << 30


class ClientKeys(ClientBase):
    """The part of `Client` that changes what protects a sealed store."""

    async def rekey(self, *, data: bool = False, destroy_old: bool = False) -> KeyStatus:
        """Protects the store by the primary key of the ring, and by no other key.

        The ring must also have the key that protects it now. It is one row in one commit: writers go on,
        and a crash leaves the old row or the new one. Data is not written again.

        `data=True` also makes new keys for the data, and seals everything under them again but blobs,
        whose keys come from their contents. Writers go on; a call that follows a crash resumes. The old
        keys are still accepted, for writers that have not noticed.

        `destroy_old=True` removes them from the store. First restart every process that has had the store
        open since before: what it wrote under the old keys later could no longer be read. Backups open
        with their own key rows only.
        """
        from holdfast.operations import rekey, reseal

        status = await (reseal.reseal(self._ctx) if data else rekey.rekey(self._ctx))
        return await reseal.destroy_old(self._ctx) if destroy_old else status

    async def key_status(self) -> KeyStatus:
        """Returns which keys protect the store, and how far `rekey(data=True)` is.

        A key of a ring that is not among them may be destroyed.
        """
        from holdfast.operations import rekey

        return await rekey.status(self._ctx)

    async def export_keys(self, path: str | os.PathLike[str]) -> None:
        """Writes the key rows of the store to a new file, wrapped: they open nothing without the key ring.

        Keep it with the backups. After `rekey`, an older backup opens with it and the new key.
        """
        from holdfast.operations import rekey

        content = await rekey.export_keys(self._ctx)
        await self._ctx.backend.run_in_thread(lambda: _write_new(Path(path), content))

    async def import_keys(self, path: str | os.PathLike[str]) -> KeyImport:
        """Puts back the key rows of this store that `export_keys` wrote. Nothing else of the store changes."""
        from holdfast.operations import rekey

        def read() -> bytes:
            with Path(path).open("rb") as file:
                return file.read(LARGEST)

        return await rekey.import_keys(self._ctx, await self._ctx.backend.run_in_thread(read))


def _write_new(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - of a descriptor
        file.write(content)
        file.flush()
        os.fsync(descriptor)
