"""What contenders on servers have in common: what the server says of durability, bytes, work and time."""

from benchmarks.contenders.contender import Contender
from benchmarks.local_servers import PostgresDatabase, RedisServer


class OnServer(Contender):
    """Its `server` is its own: a Valkey, or a database of the PostgreSQL that all share. Empty when
    it is opened first."""

    server: RedisServer | PostgresDatabase

    def bytes_on_disk(self) -> int:
        """In the server: in its memory, or in its tables and indexes."""
        return self.server.bytes_kept()

    def bytes_while_open(self) -> int:
        return self.server.bytes_kept()

    async def durability(self) -> str:
        return self.server.durability()


class OnRedis(OnServer):
    def __init__(self, server: RedisServer) -> None:
        self.server = server


class OnPostgres(OnServer):
    def __init__(self, server: PostgresDatabase) -> None:
        self.server = server
