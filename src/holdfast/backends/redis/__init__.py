"""The Redis backend: a store on a Redis or Valkey server, or spread over a cluster of them.

May import `backends.bridge`, modules of `backends`, `model`, `errors`; no other kind of store.
Start with `backend.py`.

A store is one shard, or several on a cluster; a tree is in one of them, by the tag in its id. The
keys of a shard begin with `{prefix:number}`, a hash tag, so that a cluster keeps them on one node
and a script may touch them all. `scripts/common.lua` documents their content:

    record, ids, order, session:*      records by id, by their ids' order, by position, by session and sequence
    numbers, names                     sessions have numbers: a name may be 10 KB long
    logs, bounds:*, runs:*             logs, the bounds of their segments, and the segments
    blob, hashes, written              blobs, their hashes in order, and when they were written last
    row:*, places:*, tree:*            rows of a space, in the order of (key, tree) and in that of (tree, key)

A commit is one call of `scripts/commit.lua`, which the server runs atomically: first every
condition, then every change. `sharded_commit.py` handles everything that crosses shards (rows of
the whole store, positions, ids that users made). No key has a native TTL of Redis: docs/redis.md
says why.
"""

from holdfast.backends.redis.url import open_redis, open_url

__all__ = ["open_redis", "open_url"]
