"""The servers that tests start leave nothing behind, not even when the test run is killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from servers.running import ServerUnavailable
from servers.valkey import binary
from stores import python_process


@pytest.mark.servers
def test_a_server_ends_with_the_process_that_started_it():
    try:
        binary()
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    owner = python_process(
        """
        import time
        from servers.valkey import Valkey
        server = Valkey().server
        print(server.pid, server.directory, flush=True)
        time.sleep(600)
        """
    )
    assert owner.stdout is not None
    pid, directory = owner.stdout.readline().split()
    os.kill(int(pid), 0)
    assert Path(directory).exists()
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    deadline = time.monotonic() + 240
    while Path(directory).exists():
        assert time.monotonic() < deadline, "the server's directory is still there"
        time.sleep(0.05)
    with pytest.raises(ProcessLookupError):  # the directory is removed after the server has ended
        os.kill(int(pid), 0)


@pytest.mark.servers
def test_the_servers_answer(postgres_dsn, redis_url):
    import psycopg
    import redis

    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with redis.Redis.from_url(redis_url) as client:
        assert client.ping()
