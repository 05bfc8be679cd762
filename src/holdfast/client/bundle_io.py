"""Files that `export` writes and `import_` reads: paths, open files, pipes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from holdfast.backends.port import Backend
from holdfast.errors import StoreError, UsageError
from holdfast.model.transfer_report import ExportReport
from holdfast.operations.bundle.export import Export, OvertakenError
from holdfast.operations.bundle.reader import BundleReader

ATTEMPTS = 5
COPIED_AT_ONCE = 1024 * 1024

T = TypeVar("T")
Place = str | os.PathLike[str] | BinaryIO


async def write(backend: Backend, target: Place, export: Callable[[], Export]) -> ExportReport:
    """Write an export: to a path atomically; to a device, a pipe or an open file as it comes."""
    if not isinstance(target, str | os.PathLike):
        return await _write(backend, target, export())
    path = Path(target)
    if await backend.run_on_store_thread(lambda: _is_stream(path)):
        with _report_errors(path, "written"):
            stream = await backend.run_on_store_thread(lambda: path.open("wb", buffering=0))
            with stream:
                return await _write(backend, stream, export())
    with _report_errors(path, "written"):
        part = await backend.run_on_store_thread(lambda: _open_temporary(path))
        try:
            with part:
                for attempt in range(1, ATTEMPTS + 1):
                    try:
                        report = await _write(backend, part, export())
                    except OvertakenError:  # something was collected meanwhile: once more, from the beginning
                        if attempt == ATTEMPTS:
                            raise
                        part.seek(0)
                        part.truncate()
                    else:
                        break
                await backend.run_on_store_thread(lambda: _sync(part))
            await backend.run_on_store_thread(lambda: _put_in_place(part.name, path))
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(part.name)  # noqa: PTH108 - its name is text
            raise
    return report


async def _write(backend: Backend, target: BinaryIO, export: Export) -> ExportReport:
    async for chunk in export.chunks():
        await backend.run_on_store_thread(partial(_write_all, target, chunk))
    await backend.run_on_store_thread(target.flush)
    return ExportReport(
        size=export.size,
        digest=export.digest.hex(),
        expired_by_ttl=export.expired_by_ttl,
        **export.counts._asdict(),
    )


@asynccontextmanager
async def open_reader(backend: Backend, source: Place) -> AsyncIterator[BundleReader]:
    """Open a seekable file to read. Data from a pipe is stored in a temporary file meanwhile."""
    if isinstance(source, str | os.PathLike):
        with _report_errors(Path(source), "read"):
            opened = await backend.run_on_store_thread(lambda: Path(source).open("rb"))  # noqa: SIM115 - closed below
        with opened:
            yield await _source(backend, opened)
    elif source.seekable():
        yield await _source(backend, source)
    else:
        with tempfile.TemporaryFile(prefix="holdfast-") as kept:
            while chunk := await backend.run_on_store_thread(lambda: source.read(COPIED_AT_ONCE)):
                await backend.run_on_store_thread(partial(kept.write, chunk))
            kept.seek(0)
            yield await _source(backend, kept)


async def _source(backend: Backend, file: BinaryIO) -> BundleReader:
    start = file.tell()
    size = await backend.run_on_store_thread(lambda: file.seek(0, os.SEEK_END)) - start

    def read_at(offset: int, count: int) -> bytes:
        file.seek(start + offset)
        pieces = []
        while count and (piece := file.read(count)):  # an unbuffered file may return fewer bytes than requested
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)

    def read_reported(offset: int, count: int) -> bytes:
        with _report_errors(Path(str(getattr(file, "name", "the file"))), "read"):
            return read_at(offset, count)

    return BundleReader(lambda offset, count: backend.run_on_store_thread(lambda: read_reported(offset, count)), size)


def _open_temporary(path: Path) -> BinaryIO:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(descriptor)
    return Path(name).open("w+b")


def _write_all(target: BinaryIO, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        written = target.write(rest)
        rest = rest[len(rest) if written is None else written :]


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _is_stream(path: Path) -> bool:
    """Return whether the path is a device or a pipe, such as /dev/null: it is written to, not replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _put_in_place(part: str, path: Path) -> None:
    os.replace(part, path)  # noqa: PTH105 - its name is text
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def _report_errors(path: Path, attempted: str) -> Iterator[None]:
    try:
        yield
    except IsADirectoryError as error:
        raise UsageError(f"{path} is a directory: name a file") from error
    except OSError as error:
        raise StoreError(f"{path} could not be {attempted}: {error.strerror or error}") from error
