"""Jobs for workers that are asked for by tests. They run in processes of their own, which have this file's directory to import
from."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.errors import CorruptError


def begin(setup: Any, descriptors: Sequence[int]) -> Callable[[Any], Any]:
    def answer(request: Any) -> Any:
        doing, value = request
        if doing == "echo":
            return [setup, value]
        if doing == "pid":
            return os.getpid()
        if doing == "modules":
            return sorted(sys.modules)
        if doing == "path":
            return [sys.path, os.getcwd(), dict(os.environ).get("PYTHONPATH", "")]
        if doing == "print":
            print("this is no answer", flush=True)
            os.write(1, b"neither is this")
            return value
        if doing == "read":
            return os.pread(descriptors[0], 100, 0)
        if doing == "open descriptors":
            return sorted(int(one) for one in os.listdir("/proc/self/fd"))
        if doing == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if doing == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), b"a/\xff")
        if doing == "damaged":
            raise CorruptError("a blob is damaged")
        if doing == "confused":
            raise KeyError(value)
        if doing == "stay":
            os.write(descriptors[0], b"here")
            time.sleep(600)
        raise AssertionError(doing)

    if setup == "no start":
        raise RuntimeError(setup)
    return answer
