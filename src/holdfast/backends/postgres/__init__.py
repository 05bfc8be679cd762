"""The PostgreSQL backend: many workers, one database, no global lock.

May import `backends.bridge`, modules of `backends`, `model`, `errors`; no other kind of store.
Start with `backend.py`.

    backend.py           the verbs of the port
    commit.py            commits as a program of conditions and changes, for `carry_out` in the database
    simple_commit.py     simple commits, as nearly all are, for functions of their own: half the time
    queries.py           the SQL of the other verbs
    binary_arrays.py     arrays as PostgreSQL receives them
    connection_port.py   the interface of a connection, for event loops and for threads
    pool.py              connections, some for each event loop (async_connection.py is one)
    sync_connection.py   connections for threads without an event loop
    notify.py            hints of new commits, by NOTIFY
    timeouts.py          silent servers
    schema.py            the schema, its version, its migrations
    server_state.py      findings about the server
    errors.py            the driver's errors, as our own
    url.py, dsn.py       from a URL to connection parameters

A batch of commits is one call of one function: one round trip, one transaction, one flush.
`migrations/001_initial.sql` explains the function, the locks that it takes and how positions are
given.
"""

from holdfast.backends.postgres.url import open_postgres, open_url

__all__ = ["open_postgres", "open_url"]
