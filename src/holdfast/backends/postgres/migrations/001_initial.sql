-- {schema} stands for the quoted name of the schema, {lock} for a number that is made of it.
--
-- Integer keys where a key is written often, as in SQLite: a session and a run are known by a number.
-- Bytes are stored as they are (EXTERNAL): what is worth compressing is compressed already.

CREATE TABLE {schema}.store (
    is_one boolean PRIMARY KEY DEFAULT true CHECK (is_one),
    version integer NOT NULL,
    -- The position of a transaction's first record is
    -- base_position + (id of the transaction - base_transaction) * 2^20.
    base_position bigint NOT NULL,
    base_transaction bigint NOT NULL
);

CREATE TABLE {schema}.session (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id bytea NOT NULL);
CREATE UNIQUE INDEX session_by_id ON {schema}.session (sha256(id));  -- an id may be too long for an index

-- The columns from agent_id on are labels: copies for people, shown by the view `checkpoint`, never read back. They are
-- UTF-8 whatever the encoding of the database is.
CREATE TABLE {schema}.record (
    position bigint PRIMARY KEY,
    session bigint NOT NULL,
    sequence bigint NOT NULL,
    created_at_us bigint,
    expires_at_us bigint,
    step_index bigint,
    id bytea NOT NULL UNIQUE,
    data bytea NOT NULL,
    parent bytea,
    agent_id bytea,
    framework bytea,
    step_name bytea,
    handoff_target bytea
);
CREATE UNIQUE INDEX record_by_session ON {schema}.record (session, sequence);
ALTER TABLE {schema}.record ALTER data SET STORAGE EXTERNAL;

-- The highest position of a deleted record, where no record is left at a higher one; seldom written.
CREATE TABLE {schema}.deleted (position bigint PRIMARY KEY);

-- k = log * 2^28 + first element
CREATE TABLE {schema}.run (k bigint PRIMARY KEY, length integer NOT NULL, data bytea NOT NULL);
ALTER TABLE {schema}.run ALTER data SET STORAGE EXTERNAL;

CREATE TABLE {schema}.blob (written_at_us bigint NOT NULL, hash bytea PRIMARY KEY, data bytea NOT NULL);
ALTER TABLE {schema}.blob ALTER data SET STORAGE EXTERNAL;

-- A key is its first 1,024 bytes and the rest: an entry of an index has room for 2,700. The SHA-256 of the rest tells
-- keys apart that differ there only (empty where there is no rest). By (key, rest) rows are in the order of bytes.
-- Heads change with each save: there is room in their pages for the next version, so that no index changes with it.
CREATE TABLE {schema}.rows (
    version bigint NOT NULL,
    space text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    rest_hash bytea NOT NULL,
    tree bytea NOT NULL,
    rest bytea NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (space, key, rest_hash, tree)
) WITH (fillfactor = 50);
CREATE INDEX rows_of_tree ON {schema}.rows (tree, space);
ALTER TABLE {schema}.rows ALTER value SET STORAGE EXTERNAL, ALTER rest SET STORAGE EXTERNAL;

CREATE VIEW {schema}.checkpoint AS
SELECT
    encode(record.id, 'hex')::uuid AS checkpoint_id,
    encode(session.id, 'escape') AS session_id,
    record.sequence,
    convert_from(record.agent_id, 'UTF8') AS agent_id,
    convert_from(record.framework, 'UTF8') AS framework,
    record.step_index,
    convert_from(record.step_name, 'UTF8') AS step_name,
    encode(record.parent, 'hex')::uuid AS parent_id,
    to_timestamp(record.created_at_us / 1e6) AS created_at,
    to_timestamp(record.expires_at_us / 1e6) AS expires_at,
    convert_from(record.handoff_target, 'UTF8') AS handoff_target,
    octet_length(record.data) AS record_bytes
FROM {schema}.record JOIN {schema}.session ON session.n = record.session;

-- Positions below it are decided: each transaction that could write one has committed or is gone. A transaction's id is
-- given out with its first write, and the ids that a snapshot calls finished are finished for good.
CREATE FUNCTION {schema}.decided_below() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT base_position
        + ((pg_snapshot_xmin(pg_current_snapshot())::text::bigint - base_transaction) << 20)
    FROM {schema}.store
$$;

-- Carries out commits: `ints` is a program (commit.py writes it), `bytes` and `words` are what its operations refer to
-- by number. Of each commit first every condition is looked at, then every change is made. A condition that does not hold
-- ends its commit, and the next one goes on: nothing is thrown, so that neighbours of a refused commit lose nothing.
-- Returns for each commit 0, or the place in the program of the condition that did not hold.
--
-- First of all the transaction takes the locks of all trees it is about, in the order of their numbers, so that no two
-- wait for each other. They are advisory locks of the transaction, not locks of rows, for one reason: taking one gives
-- the transaction no id. The id comes with the first write, when all locks are held. So who sees what another has
-- written in a tree has the higher id, and with it the higher positions.
CREATE FUNCTION {schema}.carry_out(locks bigint[], ints bigint[], bytes bytea[], words text[], fast boolean)
RETURNS integer[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    total integer := cardinality(ints);
    ip integer := 1;
    place integer;  -- the operation that is carried out
    next_commit integer;
    holds boolean;
    outcomes integer[] := '{}';
    first_position bigint;
    given integer := 0;
    found_version bigint;
    found_number bigint;
    highest bigint;
    now_us bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'holdfast needs READ COMMITTED: with another isolation level a commit would look at conditions '
            'as they were before it had its locks'
            USING ERRCODE = 'HF001';
    END IF;
    IF fast THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    -- Plans are kept: one that was made while a table was small must not read all of it when it has grown.
    PERFORM set_config('enable_seqscan', 'off', true);
    PERFORM pg_advisory_xact_lock(lock) FROM unnest(locks) AS lock;

    WHILE ip <= total LOOP
        holds := true;
        place := ip;
        CASE ints[ip]
        WHEN 0 THEN  -- a commit begins; the next one begins at $1
            next_commit := ints[ip + 1];
            outcomes := outcomes || 0;
            ip := ip + 2;

        -- Conditions

        WHEN 1 THEN  -- the tail of log $1 (as a k) is $2, and if $3 >= 0, a run begins there
            SELECT k + length INTO found_number FROM {schema}.run
            WHERE k >= ints[ip + 1] AND k < ints[ip + 1] + 268435456 ORDER BY k DESC LIMIT 1;
            holds := coalesce(found_number, ints[ip + 1]) = ints[ip + 2];
            IF holds AND ints[ip + 3] >= 0 THEN
                holds := EXISTS (SELECT FROM {schema}.run WHERE k = ints[ip + 3]);
            END IF;
            ip := ip + 4;
        WHEN 2 THEN  -- the data of record $1 begin with $2
            holds := EXISTS (
                SELECT FROM {schema}.record
                WHERE id = bytes[ints[ip + 1]] AND substr(data, 1, octet_length(bytes[ints[ip + 2]])) = bytes[ints[ip + 2]]
            );
            ip := ip + 3;
        WHEN 3 THEN  -- row (words $1, key $2, hash of the rest $3, tree $4) has version $5
            SELECT version INTO found_version FROM {schema}.rows
            WHERE space = words[ints[ip + 1]] AND key = bytes[ints[ip + 2]] AND rest_hash = bytes[ints[ip + 3]]
                AND tree = bytes[ints[ip + 4]];
            holds := coalesce(found_version, 0) = ints[ip + 5];
            ip := ip + 6;
        WHEN 4 THEN  -- record id $1 is free, and so is number $3 of session $2
            holds := NOT EXISTS (SELECT FROM {schema}.record WHERE id = bytes[ints[ip + 1]]) AND NOT EXISTS (
                SELECT FROM {schema}.record WHERE sequence = ints[ip + 3]
                AND session = (SELECT n FROM {schema}.session WHERE sha256(id) = sha256(bytes[ints[ip + 2]]))
            );
            ip := ip + 4;
        WHEN 5 THEN  -- record $1 has the data $2
            holds := EXISTS (
                SELECT FROM {schema}.record WHERE id = bytes[ints[ip + 1]] AND data = bytes[ints[ip + 2]]
            );
            ip := ip + 3;
        WHEN 6 THEN  -- row (words $1, key $2, hash $3, tree $4) has the value $5
            holds := EXISTS (
                SELECT FROM {schema}.rows
                WHERE space = words[ints[ip + 1]] AND key = bytes[ints[ip + 2]] AND rest_hash = bytes[ints[ip + 3]]
                AND tree = bytes[ints[ip + 4]] AND value = bytes[ints[ip + 5]]
            );
            ip := ip + 6;

        -- Changes

        WHEN 10 THEN  -- a run at k $1, of length $2, with the data $3, which replaces all from there on below k $4
            IF ints[ip + 1] < ints[ip + 4] THEN
                DELETE FROM {schema}.run WHERE k >= ints[ip + 1] AND k < ints[ip + 4];
            END IF;
            INSERT INTO {schema}.run VALUES (ints[ip + 1], ints[ip + 2], bytes[ints[ip + 3]]);
            ip := ip + 5;
        WHEN 11 THEN  -- a blob $1 with the data $2: written later than before, whatever the clock says
            INSERT INTO {schema}.blob AS blob (hash, data, written_at_us)
            VALUES (bytes[ints[ip + 1]], bytes[ints[ip + 2]], now_us)
            ON CONFLICT (hash) DO UPDATE
            SET data = excluded.data, written_at_us = greatest(excluded.written_at_us, blob.written_at_us + 1);
            ip := ip + 3;
        WHEN 12 THEN  -- a new record
            IF first_position IS NULL THEN
                SELECT base_position + ((pg_current_xact_id()::text::bigint - base_transaction) << 20)
                INTO first_position FROM {schema}.store;
            END IF;
            IF first_position <= 0 OR given >= 1048576 THEN
                RAISE EXCEPTION 'there is no position for this record' USING ERRCODE = 'HF002';
            END IF;
            SELECT n INTO found_number FROM {schema}.session WHERE sha256(id) = sha256(bytes[ints[ip + 2]]);
            IF NOT FOUND THEN
                INSERT INTO {schema}.session (id) VALUES (bytes[ints[ip + 2]]) RETURNING n INTO found_number;
            END IF;
            INSERT INTO {schema}.record (
                position, id, session, sequence, data, created_at_us, expires_at_us, step_index, parent, agent_id,
                framework, step_name, handoff_target
            ) VALUES (
                first_position + given, bytes[ints[ip + 1]], found_number, ints[ip + 3], bytes[ints[ip + 4]],
                nullif(ints[ip + 5], -1), nullif(ints[ip + 6], -1), nullif(ints[ip + 7], -1), bytes[ints[ip + 8]],
                bytes[ints[ip + 9]], bytes[ints[ip + 10]], bytes[ints[ip + 11]], bytes[ints[ip + 12]]
            );
            given := given + 1;
            ip := ip + 13;
        WHEN 13 THEN  -- record $1 gets the data $2
            UPDATE {schema}.record SET data = bytes[ints[ip + 2]] WHERE id = bytes[ints[ip + 1]];
            ip := ip + 3;
        WHEN 14 THEN  -- row (words $1, key $2, hash $3, tree $4), rest $5, gets the value $6
            UPDATE {schema}.rows SET version = version + 1, value = bytes[ints[ip + 6]]
            WHERE space = words[ints[ip + 1]] AND key = bytes[ints[ip + 2]] AND rest_hash = bytes[ints[ip + 3]]
                AND tree = bytes[ints[ip + 4]];
            IF NOT FOUND THEN
                INSERT INTO {schema}.rows (space, key, rest_hash, tree, rest, value, version) VALUES (
                    words[ints[ip + 1]], bytes[ints[ip + 2]], bytes[ints[ip + 3]], bytes[ints[ip + 4]],
                    bytes[ints[ip + 5]], bytes[ints[ip + 6]], 1
                );
            END IF;
            ip := ip + 7;
        WHEN 15 THEN  -- row (words $1, key $2, hash $3, tree $4) goes
            DELETE FROM {schema}.rows
            WHERE space = words[ints[ip + 1]] AND key = bytes[ints[ip + 2]] AND rest_hash = bytes[ints[ip + 3]]
                AND tree = bytes[ints[ip + 4]];
            ip := ip + 5;

        -- Deletions: what is not as named is left alone

        WHEN 20 THEN  -- record $1 goes if it has the data $2; if it was the last one, its position is written down
            DELETE FROM {schema}.record WHERE id = bytes[ints[ip + 1]] AND data = bytes[ints[ip + 2]]
            RETURNING position INTO found_number;
            IF FOUND THEN
                SELECT max(position) INTO highest FROM {schema}.record;
                IF found_number > coalesce(highest, 0) THEN
                    INSERT INTO {schema}.deleted VALUES (found_number) ON CONFLICT DO NOTHING;
                    DELETE FROM {schema}.deleted WHERE position IN (
                        SELECT position FROM {schema}.deleted WHERE position < found_number FOR UPDATE SKIP LOCKED
                    );
                END IF;
            END IF;
            ip := ip + 3;
        WHEN 21 THEN  -- the run at k $1 of length $2 goes; if there was none, its pieces are left out: go on at $3
            DELETE FROM {schema}.run WHERE k = ints[ip + 1] AND length = ints[ip + 2];
            ip := CASE WHEN FOUND THEN ip + 4 ELSE ints[ip + 3] END;
        WHEN 22 THEN  -- blob $1 goes if it was last written before $2
            DELETE FROM {schema}.blob WHERE hash = bytes[ints[ip + 1]] AND written_at_us < ints[ip + 2];
            ip := ip + 3;
        END CASE;

        IF NOT holds THEN
            outcomes[cardinality(outcomes)] := place;
            ip := next_commit;
        END IF;
    END LOOP;
    RETURN outcomes;
END
$$;
