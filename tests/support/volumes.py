"""File systems for tests: ext4 on a loop device with power cuts, and full disks."""

import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

EXT4_IOC_SHUTDOWN = 0x8004587D
WITHOUT_FLUSHING_THE_LOG = 2
SIZE = 96 * 1024 * 1024


def need_mounts(*programs: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    missing = [program for program in ("mount", "umount", *programs) if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=240)


def unmount(at: Path) -> None:
    """Waits for those that were killed to let go of their files."""
    for _ in range(2000):
        if subprocess.run(["umount", at], check=False, capture_output=True, timeout=240).returncode == 0:
            return
        time.sleep(0.05)
    run("umount", at)


@contextmanager
def small_disk(at: Path, **options: str | int) -> Iterator[Path]:
    """A tmpfs with these options (`size="2m"`, `nr_inodes=50`)."""
    need_mounts()
    at.mkdir()
    wanted = ",".join(f"{name}={value}" for name, value in options.items())
    try:
        run("mount", "-t", "tmpfs", "-o", wanted, "tmpfs", at)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"mounting a tmpfs is not possible here: {error.stderr.decode().strip()}")
    try:
        yield at
    finally:
        unmount(at)


class Volume:
    """An ext4 file system in a file. Nothing reaches it by itself for 300 s: what is not synced is lost by `cut`."""

    def __init__(self, folder: Path) -> None:
        self._image = folder / "volume.img"
        self.at = folder / "volume"
        self.at.mkdir()
        with self._image.open("wb") as image:
            image.truncate(SIZE)
        run("mkfs.ext4", "-q", "-F", self._image)

    def mount(self) -> None:
        run("mount", "-o", "loop,commit=300", self._image, self.at)

    def cut(self) -> None:
        """The power goes: from this moment nothing is written any more, and what was not synced never was."""
        descriptor = os.open(self.at, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("I", WITHOUT_FLUSHING_THE_LOG))
        finally:
            os.close(descriptor)

    def come_back(self) -> None:
        unmount(self.at)
        self.mount()


@contextmanager
def volume(folder: Path) -> Iterator[Volume]:
    need_mounts("mkfs.ext4")
    made = Volume(folder)
    try:
        made.mount()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"mounting a loop device is not possible here: {error.stderr.decode().strip()}")
    try:
        yield made
    finally:
        unmount(made.at)
