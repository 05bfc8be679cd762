"""What runs in a worker (`workers.py`): requests come in, answers go out, until the other end is gone."""

from __future__ import annotations

import importlib
import os
import select
import signal
import sys
import threading
from queue import SimpleQueue
from typing import Any, NoReturn

from holdfast.workspace import messages

LOOK_AFTER_MS = 1000  # whether the process is there that this is a worker of


def main(job: str) -> NoReturn:
    """Serves requests for a job, and ends with the process that asks for them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):  # nobody writes into the answers by mistake
        os.dup2(nothing, standard)
    sys.stdin.close()
    setup, descriptors, parent = messages.read(source)
    requests: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_hear, args=(source, parent, requests), daemon=True).start()
    answer = importlib.import_module(job).begin(setup, descriptors)
    messages.write(target, messages.packed(messages.READY))
    while True:
        request = requests.get()
        try:
            said = (messages.DONE, answer(request))
        except Exception as error:  # it is for the caller to say what becomes of it
            said = (messages.FAILED, messages.packed_error(error))
        del request
        messages.write(target, messages.packed(said))


def _hear(source: int, parent: int, requests: SimpleQueue[Any]) -> None:
    """Reads ahead, so that who asks need not wait; and ends everything, in the middle of a file or not, as soon as there is nobody
    any more to whom it matters. A pipe alone does not tell: a forked child may have its other end, too."""
    waiting = select.poll()
    waiting.register(source, select.POLLIN)
    while True:
        while not waiting.poll(LOOK_AFTER_MS):
            if os.getppid() != parent:
                os._exit(1)
        try:
            requests.put(messages.read(source))
        except BaseException:
            os._exit(1)
