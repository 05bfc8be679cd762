-- Integer clustered keys and 4 KB pages: measured twice as fast as content-hash keys (docs/format.md, "SQLite").

CREATE TABLE session (n INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE);

-- The columns from agent_id on are labels: copies for people and plain SQL, never read back.
CREATE TABLE record (
    n INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    session INTEGER NOT NULL REFERENCES session (n),
    sequence INTEGER NOT NULL,
    data BLOB NOT NULL,
    agent_id TEXT,
    framework TEXT,
    step_index INTEGER,
    step_name TEXT,
    parent BLOB,
    created_at_us INTEGER,
    expires_at_us INTEGER,
    handoff_target TEXT
);
CREATE UNIQUE INDEX record_by_session ON record (session, sequence);

-- k = log * 2^28 + first element
CREATE TABLE run (k INTEGER PRIMARY KEY, length INTEGER NOT NULL, data BLOB NOT NULL);

CREATE TABLE blob (n INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, written_at_us INTEGER NOT NULL, data BLOB NOT NULL);

CREATE TABLE row (
    space TEXT NOT NULL,
    key BLOB NOT NULL,
    tree BLOB NOT NULL,
    version INTEGER NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (space, key, tree)
) WITHOUT ROWID;

CREATE VIEW checkpoint AS
SELECT
    lower(substr(hex(record.id), 1, 8) || '-' || substr(hex(record.id), 9, 4) || '-' || substr(hex(record.id), 13, 4)
        || '-' || substr(hex(record.id), 17, 4) || '-' || substr(hex(record.id), 21)) AS checkpoint_id,
    CAST(session.id AS TEXT) AS session_id,
    record.sequence,
    record.agent_id,
    record.framework,
    record.step_index,
    record.step_name,
    lower(substr(hex(record.parent), 1, 8) || '-' || substr(hex(record.parent), 9, 4) || '-'
        || substr(hex(record.parent), 13, 4) || '-' || substr(hex(record.parent), 17, 4) || '-'
        || substr(hex(record.parent), 21)) AS parent_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', record.created_at_us / 1e6, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', record.expires_at_us / 1e6, 'unixepoch') AS expires_at,
    record.handoff_target,
    length(record.data) AS record_bytes
FROM record JOIN session ON session.n = record.session;
