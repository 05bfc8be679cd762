"""The PostgreSQL backend: many workers, one database, no global lock.

    backend.py      the verbs of the port
    commit.py       commits as a program of conditions and changes, for `carry_out` in the database
    plain.py        commits that are what nearly all are, for `save_batch`: half the time
    asking.py       one question over libpq itself, for what is asked with every save and restore
    queries.py      the SQL of the other verbs
    arrays.py       arrays as PostgreSQL receives them
    link.py         what a connection is to all of these, whoever waits for its answers
    connections.py  connections, some for each event loop (connection.py is one)
    blocking.py     connections for threads that have no event loop
    schema.py       the schema, its version, its migrations
    failures.py     what the driver raises, as our errors
    location.py     from a DSN to what is connected to

A batch of commits is one call of one function: one round trip, one transaction, one flush. `migrations/001_initial.sql`
explains the function, the locks that it takes and how positions are given.
"""

from holdfast.backends.postgres.opening import open_postgres, open_url

__all__ = ["open_postgres", "open_url"]
