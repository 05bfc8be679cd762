-- Records are found by id and by session through tables of our own, which many of them are put into at once: an index that
-- SQLite keeps is written with every save, and the two were two pages of the five that a save wrote. See docs/format.md, "SQLite".
DROP VIEW checkpoint;
ALTER TABLE record RENAME TO record_before;

CREATE TABLE record (
    n INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
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
INSERT INTO record (n, id, session, sequence, data, agent_id, framework, step_index, step_name, parent, created_at_us,
    expires_at_us, handoff_target)
SELECT n, id, session, sequence, data, agent_id, framework, step_index, step_name, parent, created_at_us, expires_at_us,
    handoff_target
FROM record_before ORDER BY n;
DROP TABLE record_before;

CREATE TABLE record_by_id (id BLOB PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO record_by_id SELECT id, n FROM record ORDER BY id;

CREATE TABLE record_by_place (
    session INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (session, sequence)
) WITHOUT ROWID;
INSERT INTO record_by_place SELECT session, sequence, n FROM record ORDER BY session, sequence;

-- One row: the records up to this n are in both of these tables. The few above it are looked through.
CREATE TABLE indexed (n INTEGER NOT NULL);
INSERT INTO indexed SELECT coalesce(max(n), 0) FROM record;

CREATE TRIGGER record_deleted AFTER DELETE ON record BEGIN
    DELETE FROM record_by_id WHERE id = old.id AND n = old.n;
    DELETE FROM record_by_place WHERE session = old.session AND sequence = old.sequence AND n = old.n;
END;

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
    CASE WHEN record.parent IS NOT NULL THEN
        lower(substr(hex(record.parent), 1, 8) || '-' || substr(hex(record.parent), 9, 4) || '-'
            || substr(hex(record.parent), 13, 4) || '-' || substr(hex(record.parent), 17, 4) || '-'
            || substr(hex(record.parent), 21))
    END AS parent_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', record.created_at_us / 1e6, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', record.expires_at_us / 1e6, 'unixepoch') AS expires_at,
    record.handoff_target,
    length(record.data) AS record_bytes
FROM record JOIN session ON session.n = record.session;
