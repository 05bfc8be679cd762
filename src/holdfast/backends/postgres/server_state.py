"""The state of the server: settings and rights for `doctor`, and what holds back events.

Events wait for the oldest open transaction that has written.
"""

from __future__ import annotations

from holdfast.backends.port import Finding
from holdfast.backends.postgres.connection_port import PostgresConnection

_SETTINGS = b"""
SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only'), current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names'), current_setting('fsync'),
    current_setting('default_transaction_isolation'),
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    current_setting('max_connections')::integer
"""

_MISSING_RIGHTS = b"""
WITH schema AS (SELECT oid FROM pg_namespace WHERE nspname = $1)
SELECT 'USAGE on the schema' FROM schema WHERE NOT has_schema_privilege(oid, 'USAGE')
UNION ALL
SELECT wanted || ' on ' || string_agg(relname, ', ' ORDER BY relname)
FROM schema JOIN pg_class ON relnamespace = schema.oid, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS wanted
WHERE relkind = 'r' AND NOT has_table_privilege(pg_class.oid, wanted) GROUP BY wanted
UNION ALL
SELECT 'EXECUTE on ' || string_agg(proname, ', ' ORDER BY proname) FROM schema JOIN pg_proc ON pronamespace = schema.oid
WHERE NOT has_function_privilege(pg_proc.oid, 'EXECUTE') HAVING count(*) > 0
"""

# The oldest transaction that has written and has not ended: positions from there on are not
# decided. Every role may see the lock that a transaction holds on its own number; of other roles'
# processes no more than the number.
_HOLDER = """
SELECT waiting.count, holder.* FROM
    (SELECT count(*) FROM (SELECT FROM {s}.record WHERE position >= {s}.decided_below() LIMIT 1000) AS record)
    AS waiting
LEFT JOIN (
    SELECT lock.pid, datname, usename, application_name,
        extract(epoch FROM clock_timestamp() - xact_start)::bigint AS seconds
    FROM pg_locks AS lock LEFT JOIN pg_stat_activity AS activity ON activity.pid = lock.pid
    WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock'
        AND transactionid = pg_snapshot_xmin(pg_current_snapshot())::xid
) AS holder ON true LIMIT 1
"""


async def examine(connection: PostgresConnection, schema: str) -> list[Finding]:
    """Return the findings of `holdfast doctor`."""
    [row] = await connection.fetch(_SETTINGS)
    follows, only_reads, commit, standbys, fsync, isolation, used, most = row
    missing = [name for (name,) in await connection.fetch(_MISSING_RIGHTS, (schema,))]
    findings = [_rights(missing)]
    if follows:
        advice = "this server follows another one and takes no saves: name all of them in the DSN (`host=a,b`)"
        findings.append(Finding("role of the server", "fail", "standby", advice))
    elif only_reads == "on":
        advice = "saving fails: `ALTER ROLE NAME SET default_transaction_read_only = off`, or take another role"
        findings.append(Finding("transactions", "fail", "read-only", advice))
    is_weak = commit == "off" or (commit == "local" and standbys)
    advice = (
        "a crash of the server may lose the last saves: `ALTER ROLE NAME SET synchronous_commit = on`"
        if commit == "off"
        else "a failover may lose the last saves: `ALTER ROLE NAME SET synchronous_commit = on` waits for the standby"
    )
    findings.append(Finding("synchronous_commit", "warn" if is_weak else "ok", commit, advice if is_weak else ""))
    if fsync == "off":
        advice = "a power cut may damage the whole database: set fsync to on"
        findings.append(Finding("fsync", "warn", "off", advice))
    if isolation != "read committed":
        advice = "saving fails: `ALTER ROLE NAME SET default_transaction_isolation = 'read committed'`"
        findings.append(Finding("isolation", "fail", isolation, advice))
    is_full = used * 10 >= most * 9
    advice = (
        "the server has few connections left: lower `max_connections` of clients, raise the server's, or use pgbouncer"
    )
    findings.append(Finding("connections", "warn" if is_full else "ok", f"{used} of {most}", advice if is_full else ""))
    return findings


def _rights(missing: list[str]) -> Finding:
    if not missing:
        return Finding("rights", "ok", "all")
    advice = "GRANT them to the role: docs/postgres.md lists what it needs"
    return Finding("rights", "fail", f"missing: {'; '.join(missing)}", advice)


async def why_undecided(connection: PostgresConnection, quoted_schema: str) -> str | None:
    """Return what keeps committed records from `changes`; None if nothing does."""
    [row] = await connection.fetch(_HOLDER.replace("{s}", quoted_schema).encode())
    count, process, database, user, program, seconds = row
    if not count:
        return None
    saved = "1 checkpoint is" if count == 1 else f"{count} checkpoints are" if count < 1000 else "checkpoints are"
    if process is None:
        blocker = "a transaction that is prepared (`SELECT * FROM pg_prepared_xacts`) or just ending"
    else:
        details = [
            *([f"of {program!r}"] if program else []),
            *([f"by {user}"] if user else []),
            *([f"in the database {database}"] if database else []),
            *([f"for {seconds} s"] if seconds is not None else []),
        ]
        blocker = (
            f"a transaction that has written something and is open ({', '.join([f'process {process}', *details])})"
        )
    return (
        f"{saved} saved and not shown yet, because {blocker} could still come before. Events go on when it ends; "
        "`SELECT pg_terminate_backend(PROCESS)` ends it"
    )
