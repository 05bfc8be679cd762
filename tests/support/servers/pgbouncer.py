"""A real pgbouncer in transaction mode: each transaction may use another server connection."""

from __future__ import annotations

import shutil
from urllib.parse import urlsplit

from servers.running import Server, ServerUnavailable, free_port, give_away, new_directory

SETTINGS = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = trust
auth_file = users
pool_mode = transaction
default_pool_size = 3
server_round_robin = 1
max_client_conn = 500
"""


class Pgbouncer:
    def __init__(self, dsn: str) -> None:
        program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
        if program is None:
            raise ServerUnavailable("pgbouncer is not installed (`apt-get install pgbouncer`)")
        parts = urlsplit(dsn)
        directory, port = new_directory("pgbouncer"), free_port()
        settings = SETTINGS.format(host=parts.hostname, port=parts.port or 5432, own_port=port)
        for name, text in (("settings", settings), ("users", f'"{parts.username}" "{parts.password or ""}"\n')):
            (directory / name).write_text(text)
            give_away(directory / name)
        self.server = Server([program, "settings"], directory, port)
        self.dsn = f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}"

    def stop(self) -> None:
        self.server.stop()
